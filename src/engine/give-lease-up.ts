import { codeOf } from '../model/errors.ts'
import type { Logger } from '../model/logger.ts'
import type { Change } from '../store/change.ts'
import type { Claim, Store } from '../store/store.ts'
import { backOff } from './back-off.ts'
import { isOutage } from './committer.ts'

/**
 * Gives a lease up past the committer, which writes no more for it, because a write failed with `error`. A store out of reach is
 * waited for, unless the process wants to end: nobody died.
 */
export async function giveLeaseUp(
  claim: Claim,
  how: { store: Store; log: Logger; error: unknown; chunks: NonNullable<Change['chunks']>; isForced: () => boolean },
): Promise<void> {
  const { owner, id: runId, threadId, epoch } = claim.run
  const { store, log, error, chunks, isForced } = how
  // An unknown outcome is the store's doing. A write that can't be made at all must count, or it would be tried for ever.
  const isUnknown = codeOf(error) === 'outcome_unknown'
  const change: Change = {
    ...{ owner, threadId, runId, events: [], isCheckpoint: false },
    guard: { kind: 'lease', epoch, leaseId: claim.leaseId },
    run: { status: 'pending', reason: null, due: { inMs: 0 }, ...(isUnknown && { uncountClaim: true }) },
    ...(chunks.length > 0 && { chunks }),
  }
  for (let tries = 0; ; tries++) {
    try {
      // Written before or taken by somebody else, it is refused: either way it is given up.
      return void (await store.commit([change]))
    } catch (again) {
      const mayHelp = isOutage(again) || codeOf(again) === 'outcome_unknown'
      if (mayHelp && !isForced()) await backOff(tries)
      else
        return log.warn('a run could not be handed back; it will be taken up again when its lease is over', {
          runId,
          error: again,
        })
    }
  }
}
