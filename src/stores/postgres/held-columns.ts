import type { Payload } from '../../model/payload.ts'
import type { Change, RunChange } from '../../store/change.ts'
import { BigintColumn, IntegerColumn, TextColumn } from './columns.ts'
import type { EventColumns, PatchPlace } from './event-columns.ts'
import { PayloadColumns } from './payload-columns.ts'
import { newSnapshotChecksum } from './rows.ts'
import type { HeldGroup } from './sort-changes.ts'
import { dueOf, whole, wholeMs } from './whole-numbers.ts'

/** Groups of held changes as parallel arrays: h_ what every step has, m_ how a run begins, waits and ends, s_ snapshots. */
export function encodeHeld(changes: readonly Change[], groups: readonly HeldGroup[], events: EventColumns): readonly unknown[] {
  if (groups.length === 0) return noHeld
  const count = groups.length
  const [threads, runs, epochs, leases] = [
    new BigintColumn(count),
    new BigintColumn(count),
    new BigintColumn(count),
    new TextColumn(count, 36),
  ]
  const [counts, flags, steps, leaseMs] = [
    new IntegerColumn(count),
    new IntegerColumn(count),
    new TextColumn(count),
    new BigintColumn(count),
  ]
  const [statuses, reasons, dueKinds, dues] = [new TextColumn(), new TextColumn(), new IntegerColumn(), new BigintColumn()]
  const seen = new BigintColumn()
  const [tapes, inputs, ends, versions] = [new IntegerColumn(), new IntegerColumn(), new IntegerColumn(), new BigintColumn()]
  const [writtenSeqs, patches, patchChecksums] = [new BigintColumn(count), new IntegerColumn(), new BigintColumn()]
  const snapshots = new Snapshots()
  for (let at = 0; at < count; at++) {
    const group = groups[at] as HeldGroup
    const row = heldRow(changes, group, { slot: at + 1, events, snapshots })
    threads.push(group.place.thread)
    runs.push(group.place.run)
    epochs.push(group.epoch)
    leases.push(group.leaseId)
    counts.push(row.count)
    flags.push(row.flags)
    steps.push(row.step)
    leaseMs.push(row.leaseMs)
    statuses.push(row.status)
    reasons.push(row.reason)
    dueKinds.push(row.dueKind)
    dues.push(row.due)
    seen.push(row.mailSeen)
    tapes.push(row.tape)
    inputs.push(row.input)
    ends.push(row.end)
    versions.push(row.stateVersion)
    writtenSeqs.push(group.writtenSeq ?? null)
    patches.push(row.patch?.ord ?? null)
    patchChecksums.push(row.patch?.checksum ?? null)
  }
  return [
    ...[threads, runs, epochs, leases, writtenSeqs, counts, patches, patchChecksums, flags, steps, leaseMs].map((column) =>
      column.encode(),
    ),
    ...[statuses, reasons, dueKinds, dues, seen, tapes, inputs, ends, versions].map((column) => column.encode()),
    ...snapshots.encode(),
  ]
}

const noHeld: readonly null[] = Array(26).fill(null)

interface HeldRow {
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
  end: number | null
  stateVersion: number | null
  /** The last event with a patch. */
  patch: PatchPlace | null
}

/** The changes of one lease, one after the other, as one: what a later one sets wins. */
function heldRow(changes: readonly Change[], { indexes }: HeldGroup, { slot, events, snapshots }: Into): HeldRow {
  const row: HeldRow = {
    ...{ count: 0, flags: 0, step: null, leaseMs: null, status: null, reason: null },
    ...{ dueKind: null, due: null, mailSeen: null, tape: null, input: null, end: null, stateVersion: null },
    patch: null,
  }
  for (const index of indexes) {
    const change = changes[index] as Change
    const before = row.count
    row.patch = events.add(slot, change, before) ?? row.patch
    row.count += change.events.length
    if (change.run !== undefined) setRun(row, change.run, before + Math.min(1, change.events.length))
    // Only a run that goes to wait is asked about its mail, and that ends the group.
    if (change.run?.status === 'waiting' && change.mailSeen !== undefined) row.mailSeen = whole(change.mailSeen, 'message id')
    if (change.stateVersion !== undefined) row.stateVersion = whole(change.stateVersion, 'state version')
    if (change.snapshot !== undefined) snapshots.add(change, { slot, ord: row.count, stateVersion: row.stateVersion })
  }
  return row
}

interface Into {
  readonly slot: number
  readonly events: EventColumns
  readonly snapshots: Snapshots
}

function setRun(row: HeldRow, to: RunChange, first: number): void {
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
  if (to.setsEnd === true) row.end = row.count
}

/** As fn_commit and fn_step take them. */
export function flagsOf({ hasProgress, currentStep, uncountClaim, reason }: RunChange): number {
  return (
    (hasProgress === true ? 1 : 0) |
    (currentStep !== undefined ? 2 : 0) |
    (uncountClaim === true ? 4 : 0) |
    (reason !== undefined ? 8 : 0)
  )
}

class Snapshots {
  readonly #slots = new IntegerColumn()
  readonly #ords = new IntegerColumn()
  readonly #versions = new BigintColumn()
  readonly #checksums = new BigintColumn()
  readonly #states = new PayloadColumns()

  add(change: Change, { slot, ord, stateVersion }: { slot: number; ord: number; stateVersion: number | null }): void {
    const state = change.snapshot as Payload
    this.#slots.push(slot)
    this.#ords.push(ord)
    this.#versions.push(stateVersion)
    this.#checksums.push(newSnapshotChecksum(change, state))
    this.#states.push(state)
  }

  encode(): unknown[] {
    return [this.#slots, this.#ords, this.#versions, this.#checksums]
      .map((column): unknown => column.encode())
      .concat(this.#states.encode())
  }
}
