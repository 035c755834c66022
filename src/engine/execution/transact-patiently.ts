import { codeOf } from '../../model/errors.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { SqlTransaction } from '../../store/store.ts'
import { backOff } from '../writing/back-off.ts'
import { isOutage } from '../writing/committer.ts'
import type { HeldRun } from './held-run.ts'

/** Runs a transaction under the run's lease. An unavailable or full store is waited for, as by the committer; an unknown outcome is read anew. */
export async function transactPatiently({ claim, history, store }: HeldRun, how: Transacting): Promise<Committed> {
  const { owner, id: runId, threadId, epoch } = claim.run
  const guarded = { owner, runId, threadId, epoch, leaseId: claim.leaseId, timeoutMs: how.timeoutMs }
  for (let tries = 0; ; tries++) {
    if (history.isOver) return { ok: false, refusal: 'lease_lost' }
    history.sent.begin()
    try {
      let change: Change | undefined
      const answer = await store.transact!({ ...guarded, writtenSeq: history.writtenSeq }, async (tx) => {
        change = await how.change(tx)
        return history.stamp(change)
      })
      if (change !== undefined) history.note(change, answer)
      return answer
    } catch (error) {
      if (codeOf(error) === 'outcome_unknown') return how.startOver(error)
      if (!isOutage(error)) throw error
    } finally {
      history.sent.end()
    }
    await backOff(tries)
    await how.throwIfOver()
  }
}

interface Transacting {
  readonly timeoutMs: number
  /** Runs the body, and makes the change that is committed with it. */
  readonly change: (tx: SqlTransaction) => Promise<Change>
  /** Throws where the run was taken away; does not return where it continues without this execution. */
  readonly throwIfOver: () => Promise<void>
  readonly startOver: (error: unknown) => Promise<never>
}
