import type { EventType } from '../model/event.ts'
import { allEvents } from './all-events.ts'
import type { History, HistoryEvent } from './history.ts'

/** Results of steps and effects as they stand somewhere in a history: without those that were rolled back or rewound up to there. */
export class StepsInForce {
  #of = new Map<string | null, HistoryEvent[]>()
  #count = 0
  /** All that was added, for what a rewind goes back to. */
  readonly #added: HistoryEvent[] = []

  get count(): number {
    return this.#count
  }

  get steps(): readonly HistoryEvent[] {
    return [...this.#of.values()].flat()
  }

  add(event: HistoryEvent): void {
    const { type, runId, backTo } = event
    if (!isResult(type) && backTo === null) return
    this.#added.push(event)
    if (backTo === null) this.#put(event)
    else if (runId === null) this.#rewind(backTo)
    else this.#keep(runId, backTo)
  }

  #put(event: HistoryEvent): void {
    const steps = this.#of.get(event.runId)
    if (steps === undefined) this.#of.set(event.runId, [event])
    else steps.push(event)
    this.#count += 1
  }

  /** A rollback takes back what its run did. */
  #keep(runId: string, upTo: number): void {
    const steps = this.#of.get(runId) ?? []
    const kept = steps.filter(({ position }) => position <= upTo)
    this.#count -= steps.length - kept.length
    this.#of.set(runId, kept)
  }

  /** A rewind brings back all that was in force there, also what an earlier one had taken back. */
  #rewind(to: number): void {
    const then = new StepsInForce()
    for (const event of this.#added) if (event.position <= to) then.add(event)
    this.#of = then.#of
    this.#count = then.#count
  }

  /** Adds what a stretch of a history says. */
  async read(history: History, range: { readonly after?: string; readonly to: string }): Promise<void> {
    const types = [...results, ...returns] as const
    for await (const event of allEvents(history, { ...range, types, dataOf: returns })) this.add(event)
  }
}

/** What takes a thread or a run back. */
export const returns = ['run_rolled_back', 'thread_rewound'] as const
const results = ['step_completed', 'effect_completed', 'effect_skipped'] as const

function isResult(type: EventType): boolean {
  return (results as readonly EventType[]).includes(type)
}
