import { nameOfPlace, type Place } from './keys.ts'
import { Recent } from './recent.ts'

/**
 * Checkpoints that are not there yet. LangGraph hands in a checkpoint only when the one before it is written, while the tasks that begin from it
 * are at work already: their writes may come before the checkpoint does.
 */
export class PutsUnderWay {
  readonly #puts = new Map<string, Promise<void>>()
  readonly #expected = new Map<string, PromiseWithResolvers<void>>()
  readonly #there = new Recent<true>(10_000)

  /** A checkpoint was handed in. */
  add(place: Place, id: string, written: Promise<void>): void {
    const name = nameOf(place, id)
    this.#puts.set(name, written)
    this.#expected.get(name)?.resolve(written)
    this.#expected.delete(name)
    const forget = () => {
      if (this.#puts.get(name) === written) this.#puts.delete(name)
    }
    written.then(() => {
      this.found(place, id)
      forget()
    }, forget)
  }

  /** A checkpoint is in the store. */
  found(place: Place, id: string): void {
    this.#there.set(nameOf(place, id), true)
  }

  /**
   * Resolves when a checkpoint is there, and those of the graphs around it by LangGraph's `checkpoint_map`; rejects where one can't be written.
   * `isThere` looks in the store, where this process has not heard of one.
   */
  async of(place: Place, id: string, map: unknown, isThere: IsThere): Promise<void> {
    const all = [[place, id] as const, ...checkpointsOf(place.threadId, map)]
    await Promise.all(all.map(([one, oneId]) => this.#one(one, oneId, isThere)))
  }

  /**
   * The same for who can't know that they will ever be handed in: false where one isn't there and nothing of its thread and namespace is under way.
   * With the durability `exit` LangGraph hands in nothing before its run ends.
   */
  async areThere(threadId: string, map: unknown, isThere: IsThere): Promise<boolean> {
    const found = await Promise.all(checkpointsOf(threadId, map).map(([place, id]) => this.#isWritten(place, id, isThere)))
    return found.every((isFound) => isFound)
  }

  async #isWritten(place: Place, id: string, isThere: IsThere): Promise<boolean> {
    const name = nameOf(place, id)
    const start = nameOf(place, '')
    for (let idleTurns = 0; idleTurns < 3; idleTurns++) {
      if (this.#there.get(name) === true) return true
      const underWay = [...this.#puts].flatMap(([other, put]) => (other.startsWith(start) ? put : []))
      if (underWay.length > 0) idleTurns = 0
      await (underWay.length > 0 ? Promise.allSettled(underWay) : new Promise((resolve) => setImmediate(resolve)))
    }
    return isThere(place, id)
  }

  /** Forgets what is in the store: a thread was deleted. */
  forget(): void {
    this.#there.clear()
  }

  async #one(place: Place, id: string, isThere: IsThere): Promise<void> {
    const name = nameOf(place, id)
    if (this.#there.get(name) === true) return
    const under = this.#puts.get(name) ?? this.#expected.get(name)?.promise
    if (under !== undefined) return under
    const expected = Promise.withResolvers<void>()
    this.#expected.set(name, expected)
    if (await isThere(place, id)) this.add(place, id, Promise.resolve())
    return expected.promise
  }
}

type IsThere = (place: Place, id: string) => Promise<boolean>

/** The checkpoints of LangGraph's `checkpoint_map`. */
function checkpointsOf(threadId: string, map: unknown): readonly (readonly [Place, string])[] {
  const entries = typeof map === 'object' && map !== null ? Object.entries(map as Record<string, string>) : []
  return entries.map(([ns, id]) => [{ threadId, ns }, id] as const)
}

function nameOf(place: Place, id: string): string {
  return `${nameOfPlace(place)}/${id}`
}
