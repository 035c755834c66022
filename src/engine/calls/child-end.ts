import type { Codec } from '../../model/codec.ts'
import type { LogRecord } from '../../model/event.ts'
import { isTerminal, type Run } from '../../model/run.ts'
import { endsAsBefore, refuseWrongEnd } from '../../model/run-end.ts'
import { reviveError } from '../../model/stored-error.ts'
import { addUsage, isNothing, noUsage, type UsageTotal, usedSince } from '../../model/usage.ts'
import type { Store } from '../../store/store.ts'
import type { HeldRun } from '../execution/held-run.ts'
import type { RunJournal } from '../execution/run-journal.ts'
import type { Account } from '../limits/account.ts'
import { parseCallKey } from '../replay/call-key.ts'
import type { OpenChild } from '../replay/run-past.ts'

export interface RunEnd {
  readonly output?: unknown
  readonly error?: Error
  readonly usage?: UsageTotal
}

/**
 * What the log of a run that has ended says of its end. Null where the run is no longer as it was read: it was deleted meanwhile, or the store
 * has lost its end.
 */
export async function readEnd(
  { store, codec }: { readonly store: Store; readonly codec: Codec },
  run: Run,
): Promise<RunEnd | null> {
  const { owner, threadId, endSeq } = run
  let record: LogRecord | undefined
  try {
    if (endSeq !== null) [record] = await store.readLog({ owner, threadId, afterSeq: endSeq - 1, toSeq: endSeq })
    refuseWrongEnd(run, record)
  } catch (error) {
    if (endsAsBefore(run, await store.readRun({ owner, runId: run.id }))) throw error
    return null
  }
  const end = (record?.payload == null ? {} : codec.decode(record.payload)) as RunEnd
  return end.error === undefined ? end : { ...end, error: reviveError(end.error) }
}

/** A child has ended because its run was told to end or to go back: what it used is booked all the same, the money is spent. */
export async function bookEndedChild(booking: BookingRun, child: OpenChild): Promise<void> {
  const usage = await unbookedUsage(booking.run, booking.run.owner, child, bookedFor(booking, child))
  if (usage === null) return
  booking.journal.defer(booking.journal.event('usage_recorded', null, { data: { ...usage, child: child.runId } }))
  booking.budget.account.add(usage)
}

/** A child that completed before the cancel of its parent reached it: its end is recorded, so that what it did is undone. */
export async function recordCompletedChild(booking: BookingRun, child: OpenChild): Promise<void> {
  const run = await booking.run.store.readRun({ owner: booking.run.owner, runId: child.runId })
  if (run?.status !== 'completed' || child.undo === undefined) return
  const end = await readEnd(booking.run, run)
  if (end === null) return
  const { output, usage: total } = end
  const usage = total && usedSince(total, bookedFor(booking, child))
  const { path, count } = parseCallKey(child.call)
  const data = {
    ...{ runId: child.runId, undo: child.undo },
    ...(usage !== undefined && { usage }),
    ...(output !== undefined && { result: output }),
  }
  // The count of a call of an earlier tape may be that of a call of this one.
  const place = { scope: path, count: child.tape === undefined ? count : child.tape * 1_000_000 + count }
  const event = booking.journal.event('child_completed', null, { ...place, data })
  if (usage !== undefined) booking.budget.account.add(usage)
  await booking.journal.commit([event], { hasProgress: true, undoable: { key: child.call, undo: child.undo } })
}

/** What a child that has ended has used, and its run has not booked. Null: nothing. */
export async function unbookedUsage(
  reader: { readonly store: Store; readonly codec: Codec },
  owner: string,
  { runId }: OpenChild,
  booked: UsageTotal,
): Promise<UsageTotal | null> {
  const run = await reader.store.readRun({ owner, runId })
  if (run === null || !isTerminal(run.status)) return null
  const total = (await readEnd(reader, run))?.usage
  const usage = total && usedSince(total, booked)
  return usage === undefined || isNothing(usage) ? null : usage
}

function bookedFor({ run: { tape } }: BookingRun, { runId, booked }: OpenChild): UsageTotal {
  return addUsage(tape.usageOfChildren.get(runId) ?? noUsage, booked ?? {})
}

/** The parts of the run that books what its children have used. */
export interface BookingRun {
  readonly run: HeldRun
  readonly journal: RunJournal
  readonly budget: { readonly account: Account }
}
