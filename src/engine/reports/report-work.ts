import { codeOf } from '../../model/errors.ts'
import type { Logger } from '../../model/logger.ts'
import type { Store } from '../../store/store.ts'
import { atWorkKind } from '../waiting/run-inbox.ts'
import { backOff } from '../writing/back-off.ts'
import { isOutage } from '../writing/committer.ts'

/**
 * Says that the function of a run which was persisted as waiting is at work: a message, which needs no lease, makes the run due, and tells its
 * next holder how long to wait before it takes the function for idle.
 */
export async function reportWork(
  { owner, runId, store, log }: { owner: string; runId: string; store: Store; log: Logger },
  quietMs: number,
): Promise<void> {
  for (let tries = 0; ; tries++) {
    try {
      // A run that has ended, or is gone, takes none.
      return void (await store.deliver({ owner, runId, kind: atWorkKind, name: String(quietMs), payload: null }))
    } catch (error) {
      if (!isOutage(error) && codeOf(error) !== 'outcome_unknown')
        return log.warn('a run was persisted as waiting while its function was at work, and could not be made due', {
          runId,
          error,
        })
    }
    await backOff(tries)
  }
}
