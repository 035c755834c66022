import type { Codec } from '../../model/codec.ts'
import { codeOf } from '../../model/errors.ts'
import type { Logger } from '../../model/logger.ts'
import type { Payload } from '../../model/payload.ts'
import type { Change } from '../../store/change.ts'
import type { Claim, Store } from '../../store/store.ts'
import { backOff } from './back-off.ts'
import type { BegunEffect, ForgottenEffect } from './begun-effects.ts'
import { isOutage } from './committer.ts'
import type { LeaseHistory } from './lease-history.ts'

/** How a lease is given up. */
export interface GivingUp {
  readonly store: Store
  readonly codec: Codec
  readonly log: Logger
  readonly history: LeaseHistory
  /** The claim counts as one without progress. */
  readonly isCounted: boolean
  readonly chunks: NonNullable<Change['chunks']>
  /** Waits for what is under way in the world. */
  readonly settle: () => Promise<void>
  /** Another holder has the run: what is under way is not waited for. */
  readonly letGo: () => void
  readonly isForced: () => boolean
}

/**
 * Gives a lease up past the committer, which writes no more for it, because a write failed, or because the store has lost what this holder wrote.
 * Effects whose intents it has lost are intended once more, so that the next holder of the run finds them as hidden. A store out of reach is
 * waited for, unless the process wants to end: nothing died. Returns whether the lease was still there.
 */
export async function releaseLease(claim: Claim, how: GivingUp): Promise<boolean> {
  const { owner, id: runId, threadId } = claim.run
  const { store, log, chunks, isCounted, isForced } = how

  const patiently = <T>(act: () => Promise<T>): Promise<T | undefined> =>
    whenReachable(act, isForced).catch((error: unknown) => {
      log.warn('a run could not be released; it will be picked up when its lease expires', { runId, error })
      return undefined
    })

  const held = await patiently(() => isHeld(claim, store))
  if (held === undefined) return false
  await patiently(() => tellOfEffects(claim, how, held))
  if (!held) {
    how.letGo()
    return false
  }
  await how.settle()
  const release: Change = {
    ...{ owner, threadId, runId, events: [], isCheckpoint: false, guard: guardOf(claim) },
    run: { status: 'pending', reason: null, due: { inMs: 0 }, ...(!isCounted && { uncountClaim: true }) },
    ...(chunks.length > 0 && { chunks }),
  }
  // Written before or taken by another run meanwhile, it is refused: either way it is given up.
  const answers = await patiently(() => store.commit([release]))
  return answers?.[0]?.ok === true
}

/**
 * This process has claimed a run of which it was the holder before: the store had lost commits, and with them what kept the lease. What it had
 * begun under that is intended once more under the new one.
 */
export async function tellOfFormer(
  claim: Claim,
  { store, codec }: Pick<GivingUp, 'store' | 'codec'>,
  former: LeaseHistory,
): Promise<void> {
  await whenReachable(
    () => tellOfEffects(claim, { store, codec, history: former }, true),
    () => false,
  )
}

/** While the store is out of reach it is tried again, unless the process wants to end. A closed store ends it, too. */
async function whenReachable<T>(act: () => Promise<T>, isForced: () => boolean): Promise<T> {
  for (let tries = 0; ; tries++) {
    try {
      return await act()
    } catch (error) {
      const mayHelp = isOutage(error) || codeOf(error) === 'outcome_unknown'
      if (!mayHelp || isForced()) throw error
      await backOff(tries)
    }
  }
}

async function isHeld({ run: { owner, id: runId, epoch }, leaseId }: Claim, store: Store): Promise<boolean> {
  const run = await store.readRun({ owner, runId })
  return run !== null && run.epoch === epoch && run.leaseId === leaseId
}

/** Nothing that was acknowledged is named: it may be gone. */
function guardOf({ run, leaseId }: Claim): Change['guard'] {
  return { kind: 'lease', epoch: run.epoch, leaseId }
}

/** Intends what is forgotten once more. What is known of outcomes is kept as evidence, for the person who may have to decide; that needs no lease. */
async function tellOfEffects(
  claim: Claim,
  { store, codec, history }: Pick<GivingUp, 'store' | 'codec' | 'history'>,
  isHeld: boolean,
): Promise<void> {
  const { owner, id: runId, threadId } = claim.run
  const forgotten = await history.effects.forgotten(runId, (key) => store.readOperation({ owner, key }))
  if (forgotten.length === 0) return
  const intents = isHeld ? forgotten.flatMap((one) => intentOf(claim, codec, one)) : []
  if (intents.length > 0) await store.commit(intents)
  const notes = forgotten.flatMap(({ effect: { key, answer } }): Change[] =>
    answer === undefined
      ? []
      : [
          {
            ...{ owner, threadId, runId, guard: { kind: 'none' }, events: [], isCheckpoint: false },
            operation: { kind: 'note', key, evidence: evidenceOf(answer, codec) },
          },
        ],
  )
  if (notes.length > 0) await store.commit(notes)
}

function evidenceOf({ result, at }: NonNullable<BegunEffect['answer']>, codec: Codec): Payload {
  return codec.encode({ ...(result !== null && { result: codec.decode(result) }), at })
}

function intentOf(claim: Claim, codec: Codec, { effect, isIntentLost }: ForgottenEffect): Change[] {
  const { key, intent } = effect
  if (!isIntentLost || intent === undefined) return []
  const { owner, id: runId, threadId } = claim.run
  const { event, name } = intent
  const data = event.payload === null ? {} : (codec.decode(event.payload) as Record<string, unknown>)
  return [
    {
      ...{ owner, threadId, runId, guard: guardOf(claim), isCheckpoint: false, mustSync: true },
      events: [{ ...event, payload: codec.encode({ ...data, wasForgotten: true }) }],
      operation: { kind: 'intend', key, name },
    },
  ]
}
