import { codeOf } from '../../model/errors.ts'
import type { Logger } from '../../model/logger.ts'
import type { Store } from '../../store/store.ts'
import { nameOutlived, outlivedKind } from '../waiting/run-inbox.ts'
import { backOff } from '../writing/back-off.ts'
import { isOutage } from '../writing/committer.ts'

/**
 * Says that the holder of a lease lived on when the lease was over: its event loop was blocked, or its machine stopped. A message, which needs no
 * lease, tells the next holder that this was no death of what was running, and how long a lease it takes.
 */
export async function reportOutlived(
  { owner, runId, epoch, store, log }: { owner: string; runId: string; epoch: number; store: Store; log: Logger },
  silentMs: number,
): Promise<void> {
  for (let tries = 0; tries < maxTries; tries++) {
    try {
      // One that is not at work has got on since, or waits for something: a message would only wake it.
      if ((await store.readRun({ owner, runId }))?.status !== 'running') return
      return void (await store.deliver({
        owner,
        runId,
        kind: outlivedKind,
        name: nameOutlived({ epoch, silentMs }),
        payload: null,
      }))
    } catch (error) {
      if (!isOutage(error) && codeOf(error) !== 'outcome_unknown')
        return log.debug('that a lease was outlived could not be recorded', { runId, error })
    }
    await backOff(tries)
  }
}

/** It only saves the next holder a wrong guess. */
const maxTries = 5
