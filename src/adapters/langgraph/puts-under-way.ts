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
  async of(place: Place, id: string, map: unknown, isThere: (place: Place, id: string) => Promise<boolean>): Promise<void> {
    const around = typeof map === 'object' && map !== null ? Object.entries(map as Record<string, string>) : []
    const all = [[place, id] as const, ...around.map(([ns, outerId]) => [{ ...place, ns }, outerId] as const)]
    await Promise.all(all.map(([one, oneId]) => this.#one(one, oneId, isThere)))
  }

  async #one(place: Place, id: string, isThere: (place: Place, id: string) => Promise<boolean>): Promise<void> {
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

function nameOf(place: Place, id: string): string {
  return `${nameOfPlace(place)}/${id}`
}
