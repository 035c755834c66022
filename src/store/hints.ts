import type { Run } from '../model/run.ts'
import type { Change } from './change.ts'
import type { Hint, RunKey } from './store.ts'

/** What subscribers are told about a change that was written. `hasWoken`: runs that waited for its operation became due. */
export function hintOfChange({ owner, threadId, runId, run, chunks }: Change, hasWoken: boolean): Hint {
  if (runId === null) return hasWoken ? { owner, threadId, isClaimable: true } : { owner, threadId }
  const isClaimable = hasWoken || run?.status !== undefined
  if (chunks === undefined) return isClaimable ? { owner, threadId, runId, isClaimable } : { owner, threadId, runId }
  return isClaimable ? { owner, threadId, runId, isClaimable, hasChunks: true } : { owner, threadId, runId, hasChunks: true }
}

export function hintOfNewRun({ owner, threadId, id }: Pick<Run, 'owner' | 'threadId' | 'id'>): Hint {
  return { owner, threadId, runId: id, isClaimable: true }
}

/** Of a message to a run. A store that does not know whether the run is waiting says that it may be: a subscriber looks for itself. */
export function hintOfMail({ owner, runId }: RunKey, run?: Pick<Run, 'threadId' | 'status'>): Hint {
  if (run === undefined) return { owner, runId, hasMail: true, isClaimable: true }
  const hint = { owner, threadId: run.threadId, runId, hasMail: true }
  return run.status === 'waiting' ? { ...hint, isClaimable: true } : hint
}
