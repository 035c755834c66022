import type { EventType } from '../model/event.ts'
import { allEvents } from './all-events.ts'
import type { History, HistoryEvent } from './history.ts'

/** Results of steps and effects as they stand somewhere in a history: without those that were rolled back up to there. */
export class StepsInForce {
  readonly #of = new Map<string | null, HistoryEvent[]>()
  #count = 0

  get count(): number {
    return this.#count
  }

  get steps(): readonly HistoryEvent[] {
    return [...this.#of.values()].flat()
  }

  add(event: HistoryEvent): void {
    const steps = this.#of.get(event.runId)
    if (isResult(event.type)) {
      if (steps === undefined) this.#of.set(event.runId, [event])
      else steps.push(event)
      this.#count += 1
      return
    }
    const { backTo } = event
    if (backTo === null || steps === undefined) return
    const kept = steps.filter(({ position }) => position <= backTo)
    this.#count -= steps.length - kept.length
    this.#of.set(event.runId, kept)
  }

  /** Adds what a stretch of a history says. */
  async read(history: History, range: { readonly after?: string; readonly to: string }): Promise<void> {
    const types = [...results, 'run_rolled_back'] as const
    for await (const event of allEvents(history, { ...range, types, dataOf: ['run_rolled_back'] })) this.add(event)
  }
}

const results = ['step_completed', 'effect_completed', 'effect_skipped'] as const

function isResult(type: EventType): boolean {
  return (results as readonly EventType[]).includes(type)
}
