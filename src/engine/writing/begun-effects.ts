import type { NewEvent } from '../../model/event.ts'
import { isOpen, type Operation } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'

/** So many of the latest are known; a run that has begun more under one lease knows no more of the others than the store does. */
const mostEffects = 10_000
/** A longer answer is not kept. */
const longestAnswer = 16 * 1024

/** An effect that was begun under a lease, or whose answer came under it. */
export interface BegunEffect {
  readonly key: string
  /** Of its intent; undefined where an earlier holder wrote that. */
  readonly intent?: { readonly name: string; readonly event: NewEvent; readonly at: number }
  /** What its `run` returned, and when. */
  answer?: EffectAnswer
  /** That it happened was acknowledged. */
  isCompleted: boolean
}

interface EffectAnswer {
  readonly result: Payload | null
  readonly at: number
}

/** What has become of one in a store that has lost commits. */
export interface ForgottenEffect {
  readonly effect: BegunEffect
  /** Its intent is not there any more. */
  readonly isIntentLost: boolean
}

/** The effects that were begun under a lease, in the order of what was last acknowledged of each. */
export class BegunEffects {
  #effects: Map<string, BegunEffect> | undefined

  intended(key: string, intent: NonNullable<BegunEffect['intent']>): void {
    this.#add({ key, intent, isCompleted: false })
  }

  /** `run` has returned. Whether that will be acknowledged is not known yet. */
  answered(key: string, answer: EffectAnswer): void {
    if ((answer.result?.length ?? 0) > longestAnswer) return
    const effect = this.#effects?.get(key)
    if (effect === undefined) this.#add({ key, answer, isCompleted: false })
    else effect.answer = answer
  }

  completed(key: string): void {
    const effect = this.#effects?.get(key)
    if (effect !== undefined) this.#add({ ...effect, isCompleted: true })
  }

  /** It did not happen, or was undone, and the store has acknowledged it. */
  closed(key: string): void {
    this.#effects?.delete(key)
  }

  /**
   * Those that the store knows less of than this holder, oldest first. A store loses its last commits: what is older than one that it has, it has
   * as well.
   */
  async forgotten(runId: string, read: (key: string) => Promise<Operation | null>): Promise<ForgottenEffect[]> {
    const forgotten: ForgottenEffect[] = []
    for (const effect of [...(this.#effects?.values() ?? [])].reverse()) {
      const operation = await read(effect.key)
      const isOurs = operation !== null && operation.runId === runId
      const isThere = isOurs && (effect.intent === undefined || operation.intendedAt === effect.intent.at)
      const isUnanswered = isOurs && isOpen(operation.status)
      // Intended once more by an earlier try of this.
      const isIntentLost = effect.intent !== undefined && !isThere && !(isOurs && operation.status === 'intended')
      if (isIntentLost || (isUnanswered && effect.answer !== undefined)) forgotten.push({ effect, isIntentLost })
      // Of one that an earlier holder intended, nothing may have been acknowledged here: that it is there says nothing.
      const isAcknowledged = effect.intent !== undefined || effect.isCompleted
      if (isAcknowledged && isThere && !(effect.isCompleted && isUnanswered)) break
    }
    return forgotten.reverse()
  }

  #add(effect: BegunEffect): void {
    this.#effects ??= new Map()
    // At the end, whether it was there before or not.
    this.#effects.delete(effect.key)
    this.#effects.set(effect.key, effect)
    if (this.#effects.size <= mostEffects) return
    const [oldest] = this.#effects.keys()
    if (oldest !== undefined) this.#effects.delete(oldest)
  }
}
