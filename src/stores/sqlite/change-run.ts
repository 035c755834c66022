import { fieldsAfter, type RunChange, type RunChangeContext, settlesWhatIsOpen, takesNewInput } from '../../model/run-change.ts'
import type { RunKey } from '../../store/store.ts'
import type { Operations } from './operations.ts'
import type { FoundRun, Runs, WrittenFields } from './runs.ts'
import type { ThreadQueue } from './thread-queue.ts'

export interface ChangeRunContext extends RunChangeContext {
  /** Id of the first event's record. */
  readonly firstId: number
}

/** Writes what a change does to a run's row, and what follows from it for other rows. */
export function prepareChangeRun(parts: { runs: Runs; operations: Operations; threadQueue: ThreadQueue }) {
  const { runs, operations, threadQueue } = parts

  return function changeRun(key: RunKey, before: FoundRun, to: RunChange, context: ChangeRunContext): void {
    const fields: { -readonly [Field in keyof WrittenFields]: WrittenFields[Field] } = fieldsAfter(before, to, context)
    if (takesNewInput(to)) fields.inputId = context.firstId
    const finishedAt = fields.finishedAt === undefined ? before.finishedAt : fields.finishedAt
    if (settlesWhatIsOpen(finishedAt, to)) operations.settleWhatIsOpen(key.owner, key.runId, context.now)
    const claimAt = finishedAt === null ? claimAtAfter(before, fields) : null
    if (claimAt !== before.claimAt) fields.claimAt = claimAt
    runs.save(before.run, fields)
    if (finishedAt !== null && before.finishedAt === null) threadQueue.releaseNext(before.thread)
    if (finishedAt === null && before.finishedAt !== null) threadQueue.holdOthersBack(before)
  }

  function claimAtAfter(before: FoundRun, { status, dueAt, leaseUntil }: WrittenFields): number | null {
    if (status === undefined && dueAt === undefined && leaseUntil === undefined) return before.claimAt
    // A run that stays held keeps its place: whether it is the first of its thread is known.
    const staysHeld = before.status === 'running' && (status ?? 'running') === 'running'
    if (staysHeld) return before.claimAt === null ? null : (leaseUntil ?? before.claimAt)
    return threadQueue.claimAtOf({
      ...{ run: before.run, thread: before.thread, status: status ?? before.status },
      ...{
        dueAt: dueAt === undefined ? before.dueAt : dueAt,
        leaseUntil: leaseUntil === undefined ? before.leaseUntil : leaseUntil,
      },
    })
  }
}
