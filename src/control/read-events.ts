import { HoldfastError } from '../model/errors.ts'
import type { EventType, LogRecord } from '../model/event.ts'
import type { Run } from '../model/run.ts'
import { endsAsBefore, refuseWrongEnd } from '../model/run-end.ts'
import { reviveError } from '../model/stored-error.ts'
import { summaryIn } from '../model/summary.ts'
import type { Core } from './core.ts'

/** An event of a thread's log, decoded. */
export interface RunEvent {
  readonly seq: number
  /** Ms since 1970, by the store's clock. */
  readonly at: number
  readonly type: EventType
  readonly runId: string | null
  readonly threadId: string
  readonly step?: string
  readonly attempt?: number
  readonly durationMs?: number
  readonly data?: Readonly<Record<string, unknown>>
  readonly error?: Error
  /** What a step got, where it starts, or returned, where it ends: in at most 256 bytes, to be shown. Where that is recorded. */
  readonly summary?: string
}

/** A run's events after a position, oldest first. */
export async function readEvents(core: Core, run: Run, options: { after?: number; limit?: number } = {}): Promise<RunEvent[]> {
  const records = await core.store.readLog({
    owner: run.owner,
    threadId: run.threadId,
    runId: run.id,
    afterSeq: options.after ?? 0,
    ...(options.limit !== undefined && { limit: options.limit }),
  })
  return records.map((record) => toEvent(core, run.threadId, record))
}

/**
 * The event that says how a run ended or why it paused. `corrupt_record` if it is missing; `store_unavailable` if the run is no longer as it
 * was read, because the store has lost its last commits or the thread was deleted: the caller reads it again.
 */
export async function readEnd(core: Core, run: Run): Promise<RunEvent | null> {
  const { owner, threadId, endSeq } = run
  let record: LogRecord | undefined
  try {
    if (endSeq !== null) [record] = await core.store.readLog({ owner, threadId, afterSeq: endSeq - 1, toSeq: endSeq })
    refuseWrongEnd(run, record)
  } catch (error) {
    if (endsAsBefore(run, await core.store.readRun({ owner, runId: run.id }))) throw error
    throw new HoldfastError('store_unavailable', `Run "${run.id}" changed while it was read. Try again.`, {
      retryable: true,
      cause: error,
      details: { runId: run.id },
    })
  }
  return record === undefined ? null : toEvent(core, threadId, record)
}

function toEvent(core: Core, threadId: string, record: LogRecord): RunEvent {
  const { error, ...data } = (record.payload === null ? {} : core.codec.decode(record.payload)) as { error?: Error } & Record<
    string,
    unknown
  >
  return {
    seq: record.seq,
    at: record.at,
    type: record.type,
    runId: record.runId,
    threadId,
    ...(record.step !== null && { step: record.step }),
    ...(record.attempt > 0 && { attempt: record.attempt }),
    ...(record.durationMs !== null && { durationMs: record.durationMs }),
    ...(Object.keys(data).length > 0 && { data }),
    ...(error !== undefined && { error: reviveError(error) }),
    ...summaryIn(record.type, data),
  }
}
