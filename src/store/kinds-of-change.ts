import type { Change, Guard, NewRun } from './change.ts'

/** The usual start: one run on a thread of its own owner, and nothing besides. */
export function isStart(change: Change): change is Change & { readonly creates: readonly [NewRun] } {
  const { owner, threadId, runId, guard, events, run, creates } = change
  if (guard.kind !== 'none' || runId !== null || events.length > 0 || run !== undefined || creates?.length !== 1) return false
  return creates[0]?.owner === owner && creates[0].threadId === threadId && concernsNothingElse(change)
}

/** Whether a change is of one run alone: events, and what changes in the run's row. */
export function isOfRunAlone(change: Change): boolean {
  return change.creates === undefined && concernsNothingElse(change)
}

/** Whether the guard also says where the log ends. */
export function namesHead(guard: Guard): boolean {
  return 'headSeq' in guard && guard.headSeq !== undefined
}

function concernsNothingElse(change: Change): boolean {
  const { operation, records, snapshot, stateVersion, label, readMessages, delivers, chunks } = change
  if (namesHead(change.guard)) return false
  if (
    records !== undefined ||
    operation !== undefined ||
    snapshot !== undefined ||
    stateVersion !== undefined ||
    label !== undefined
  )
    return false
  return readMessages === undefined && delivers === undefined && chunks === undefined
}
