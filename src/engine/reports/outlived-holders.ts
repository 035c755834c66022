import type { Run } from '../../model/run.ts'
import type { Claim, Store } from '../../store/store.ts'
import { forgiveDeaths, type Recovery, runningCalls, type Tape } from '../replay/tape.ts'
import { outlivedKind, readOutlived } from '../waiting/run-inbox.ts'

/**
 * What earlier holders of a run say of themselves: one that lived on after its lease was no death of what was running. Answers with how
 * long such a holder was silent, at most: what kept it silent will keep the next one silent as long.
 */
export async function forgiveOutlived(store: Store, claim: Claim, tape: Tape): Promise<number> {
  if (!claim.hasMail) return 0
  const recoveries = [...tape.recoveries, ...takeoverOf(claim, tape)]
  if (recoveries.length === 0) return 0
  const silent = await readSilent(store, claim.run)
  for (const recovery of recoveries) if (silent.has(recovery.epoch - 1)) forgiveDeaths(tape, recovery)
  return Math.max(0, ...silent.values())
}

function takeoverOf({ run, takenFrom }: Claim, tape: Tape): readonly Recovery[] {
  return takenFrom === null ? [] : [{ epoch: run.epoch, running: runningCalls(tape) }]
}

async function readSilent(store: Store, { owner, id: runId }: Run): Promise<ReadonlyMap<number, number>> {
  const messages = await store.readInbox({ owner, runId })
  return new Map(
    messages
      .filter(({ kind }) => kind === outlivedKind)
      .map(readOutlived)
      .map(({ epoch, silentMs }) => [epoch, silentMs]),
  )
}
