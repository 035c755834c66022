import type { Payload } from '../../model/payload.ts'
import type { Change, RunChange } from '../../store/change.ts'
import { ColumnList, type Encoders } from './column-list.ts'
import type { EventEncoder, PatchPlace } from './event-columns.ts'
import { dueOf, whole, wholeMs } from './integers.ts'
import { newSnapshotChecksum } from './rows.ts'
import type { LeasedGroup } from './sort-changes.ts'

/**
 * Changes under leases: what every step has, then how a run begins, waits and ends. `flags` are those of `flagsOf`; `patch`, `tape`, `input`
 * and `ending` are positions counted from the head before the change.
 */
export const leasedColumns = new ColumnList('leased', {
  ...({ thread: 'bigint', run: 'bigint', epoch: 'bigint', lease: 'text', written: 'bigint' } as const),
  ...({ count: 'int', patch: 'int', patch_crc: 'bigint', flags: 'int', step: 'text', lease_ms: 'bigint' } as const),
  ...({ status: 'text', reason: 'text', due_kind: 'int', due: 'bigint', seen: 'bigint' } as const),
  ...({ tape: 'int', input: 'int', ending: 'int', state_version: 'bigint' } as const),
})

/** Snapshots of the states that leased changes leave behind. */
export const snapshotColumns = new ColumnList('snapshot', {
  ...({ slot: 'int', ord: 'int', state_version: 'bigint', crc: 'bigint', state: 'payload' } as const),
})

/** The values of both lists. */
export function encodeLeased(
  changes: readonly Change[],
  groups: readonly LeasedGroup[],
  events: EventEncoder,
): { readonly leased: readonly unknown[]; readonly snapshots: readonly unknown[] } {
  if (groups.length === 0) return { leased: leasedColumns.noRows, snapshots: snapshotColumns.noRows }
  const columns = leasedColumns.createEncoders(groups.length)
  const snapshots = new SnapshotEncoder()
  for (let at = 0; at < groups.length; at++) {
    const group = groups[at] as LeasedGroup
    const row = rowOf(changes, group, { slot: at + 1, events, snapshots })
    columns.thread.push(group.place.thread)
    columns.run.push(group.place.run)
    columns.epoch.push(group.epoch)
    columns.lease.push(group.leaseId)
    columns.written.push(group.writtenSeq ?? null)
    columns.count.push(row.count)
    columns.patch.push(row.patch?.ord ?? null)
    columns.patch_crc.push(row.patch?.checksum ?? null)
    columns.flags.push(row.flags)
    columns.step.push(row.step)
    columns.lease_ms.push(row.leaseMs)
    columns.status.push(row.status)
    columns.reason.push(row.reason)
    columns.due_kind.push(row.dueKind)
    columns.due.push(row.due)
    columns.seen.push(row.mailSeen)
    columns.tape.push(row.tape)
    columns.input.push(row.input)
    columns.ending.push(row.ending)
    columns.state_version.push(row.stateVersion)
  }
  return { leased: leasedColumns.encode(columns), snapshots: snapshots.encode() }
}

interface LeasedRow {
  count: number
  flags: number
  step: string | null
  leaseMs: number | null
  status: string | null
  reason: string | null
  dueKind: number | null
  due: number | null
  mailSeen: number | null
  tape: number | null
  input: number | null
  ending: number | null
  stateVersion: number | null
  /** The last event with a patch. */
  patch: PatchPlace | null
}

/** The changes of one lease, one after the other, as one: what a later one sets wins. */
function rowOf(changes: readonly Change[], { indexes }: LeasedGroup, { slot, events, snapshots }: Into): LeasedRow {
  const row: LeasedRow = {
    ...{ count: 0, flags: 0, step: null, leaseMs: null, status: null, reason: null },
    ...{ dueKind: null, due: null, mailSeen: null, tape: null, input: null, ending: null, stateVersion: null },
    patch: null,
  }
  for (const index of indexes) {
    const change = changes[index] as Change
    const before = row.count
    row.patch = events.add(slot, change, before) ?? row.patch
    row.count += change.events.length
    if (change.run !== undefined) setRun(row, change.run, before + Math.min(1, change.events.length))
    // Only a run that begins to wait is asked about its mail, and that ends the group.
    if (change.run?.status === 'waiting' && change.mailSeen !== undefined) row.mailSeen = whole(change.mailSeen, 'message id')
    if (change.stateVersion !== undefined) row.stateVersion = whole(change.stateVersion, 'state version')
    if (change.snapshot !== undefined) snapshots.add(change, { slot, ord: row.count, stateVersion: row.stateVersion })
  }
  return row
}

interface Into {
  readonly slot: number
  readonly events: EventEncoder
  readonly snapshots: SnapshotEncoder
}

function setRun(row: LeasedRow, to: RunChange, first: number): void {
  row.flags |= flagsOf(to)
  if (to.currentStep !== undefined) row.step = to.currentStep
  if (to.reason !== undefined) row.reason = to.reason
  if (to.leaseMs !== undefined) row.leaseMs = wholeMs(to.leaseMs)
  if (to.status !== undefined) row.status = to.status
  if (to.due !== undefined) [row.dueKind, row.due] = dueOf(to.due)
  if (to.startsTape === true) {
    row.tape = first
    if (to.hasNewInput === true) row.input = first
  }
  if (to.setsEnd === true) row.ending = row.count
}

/** What a change sets: 1 it has progress, 2 the step, 4 it uncounts the claim, 8 the reason. */
export function flagsOf({ hasProgress, currentStep, uncountClaim, reason }: RunChange): number {
  return (
    (hasProgress === true ? 1 : 0) |
    (currentStep !== undefined ? 2 : 0) |
    (uncountClaim === true ? 4 : 0) |
    (reason !== undefined ? 8 : 0)
  )
}

class SnapshotEncoder {
  #columns: Encoders<typeof snapshotColumns.columns> | null = null

  add(change: Change, { slot, ord, stateVersion }: { slot: number; ord: number; stateVersion: number | null }): void {
    const state = change.snapshot as Payload
    this.#columns ??= snapshotColumns.createEncoders(4)
    this.#columns.slot.push(slot)
    this.#columns.ord.push(ord)
    this.#columns.state_version.push(stateVersion)
    this.#columns.crc.push(newSnapshotChecksum(change, state))
    this.#columns.state.push(state)
  }

  encode(): readonly unknown[] {
    return this.#columns === null ? snapshotColumns.noRows : snapshotColumns.encode(this.#columns)
  }
}
