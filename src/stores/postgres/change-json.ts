import type { Change, NewRun, RunChange } from '../../store/change.ts'
import type { NewMessage } from '../../store/store.ts'
import { chunksJson } from './chunks.ts'
import type { EventEncoder, PatchPlace } from './event-columns.ts'
import type { ExtraPayloads } from './extra-payloads.ts'
import { countOrNull, dueOf, whole, wholeMs } from './integers.ts'
import { operationJson } from './operations.ts'
import { recordsJson } from './records.ts'
import { newMessageChecksum, newSnapshotChecksum } from './rows.ts'
import type { SortedChanges } from './sort-changes.ts'

/** What is neither leased nor a start, as JSON: rare, and of many shapes. Null where there is none. */
export function encodeOthers(
  changes: readonly Change[],
  { leased, starts, others }: SortedChanges,
  into: { events: EventEncoder; extras: ExtraPayloads },
): string | null {
  if (others.length === 0) return null
  let slot = leased.length + starts.length
  const encoded = others.map(({ index, rank, createRanks }) => {
    const change = changes[index] as Change
    slot += 1
    const patch = into.events.add(slot, change, 0)
    const json = { index, slot, rank, ...patchJson(patch), ...changeJson(change, into.extras) }
    const creates = (change.creates ?? []).map((create, at) => {
      slot += 1
      const patch = into.events.addQueued(slot, create)
      return { slot, rank: createRanks[at], ...patchJson(patch), ...createJson(create) }
    })
    return creates.length === 0 ? json : { ...json, creates }
  })
  return JSON.stringify(encoded)
}

function patchJson(patch: PatchPlace | null): object {
  return patch === null ? {} : { patch: patch.ord, patch_crc: patch.checksum }
}

/** The names of fn_apply for what a change says; what is absent is null there. */
function changeJson(change: Change, extras: ExtraPayloads): object {
  const { owner, guard, run: to, label, stateVersion, snapshot, readMessages, mailSeen, delivers, operation } = change
  return {
    ...{
      owner,
      thread: change.threadId,
      run: change.runId,
      count: change.events.length,
      is_checkpoint: change.isCheckpoint,
      label,
    },
    ...(stateVersion === undefined ? {} : { state_version: whole(stateVersion, 'state version') }),
    ...(snapshot === undefined ? {} : { snapshot: extras.add(snapshot, newSnapshotChecksum(change, snapshot)) }),
    ...(readMessages === undefined ? {} : { read: readMessages.filter(Number.isSafeInteger) }),
    ...(mailSeen === undefined ? {} : { mail_seen: whole(mailSeen, 'message id') }),
    ...(delivers === undefined ? {} : { delivers: delivers.map((message) => messageJson(message, extras)) }),
    ...guardJson(guard),
    ...(to === undefined ? {} : runJson(to)),
    ...(change.records === undefined ? {} : { records: recordsJson(change, extras) }),
    ...(change.chunks === undefined ? {} : { chunks: chunksJson(change, extras) }),
    ...(operation === undefined
      ? {}
      : { operation: operationJson(owner, operation, (payload, checksum) => extras.add(payload, checksum)) }),
  }
}

function guardJson(guard: Change['guard']): object {
  switch (guard.kind) {
    case 'lease':
      return {
        ...{ guard: 'lease', epoch: countOrNull(guard.epoch), lease: guard.leaseId },
        ...(guard.writtenSeq === undefined ? {} : { guard_written: countOrNull(guard.writtenSeq) }),
        ...headJson(guard),
      }
    case 'run':
      return {
        guard: 'run',
        epoch: countOrNull(guard.epoch),
        guard_status: guard.status,
        is_undisturbed: guard.undisturbed === true,
        ...headJson(guard),
      }
    case 'thread':
      return { guard: 'thread', guard_head: countOrNull(guard.headSeq) }
    case 'none':
      return { guard: 'none' }
  }
}

function headJson({ headSeq }: { readonly headSeq?: number }): object {
  return headSeq === undefined ? {} : { guard_head: countOrNull(headSeq) ?? -1 }
}

function runJson(to: RunChange): object {
  const [due_kind, due] = to.due === undefined ? [undefined, undefined] : dueOf(to.due)
  return {
    ...{
      has_run: true,
      status: to.status,
      sets_reason: to.reason !== undefined,
      reason: to.reason,
      due_kind,
      due,
      wait_key: to.waitKey,
    },
    ...{ sets_step: to.currentStep !== undefined, step: to.currentStep, has_progress: to.hasProgress, uncounts: to.uncountClaim },
    ...{ starts_tape: to.startsTape, has_new_input: to.hasNewInput, sets_end: to.setsEnd },
    ...(to.leaseMs === undefined ? {} : { lease_ms: wholeMs(to.leaseMs) }),
  }
}

function createJson({ owner, threadId, id, workflow, version, queue, priority, fingerprint, due, ifBusy }: NewRun): object {
  const [due_kind, dueMs] = dueOf(due)
  return {
    ...{ owner, thread: threadId, run: id, workflow, version: whole(version, 'workflow version'), queue },
    ...{ priority: whole(priority, 'priority'), fingerprint },
    ...{ due_kind, due: dueMs, reject: ifBusy === 'reject' },
  }
}

function messageJson(message: NewMessage, extras: ExtraPayloads): object {
  const { owner, runId, kind, name, payload } = message
  const crc = newMessageChecksum(message)
  return { owner, run: runId, kind, name, crc, ...(payload === null ? {} : { payload: extras.add(payload, crc) }) }
}
