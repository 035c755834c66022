/** How many statements of one kind are in flight at most. */
const maxInFlight = 2

interface Waiting<Key, Answer> {
  readonly key: Key
  resolve(answer: Answer): void
  reject(error: unknown): void
}

/**
 * Small reads of one kind. A lone one is sent at once; those that are asked for in the same turn of the event loop, or while others are
 * in flight, share a statement: many callers that wait for runs ask at the same moment, and a statement costs many times what a row in
 * it does. No caller gets an answer to a statement that was sent before it asked.
 */
export class ReadBatcher<Key, Answer> {
  readonly #readAll: (keys: readonly Key[]) => Promise<readonly Answer[]>
  readonly #maxKeys: number
  #waiting: Waiting<Key, Answer>[] = []
  #inFlight = 0

  /** `readAll` answers for each key, in their order; it is asked for `maxKeys` at most. */
  constructor(readAll: (keys: readonly Key[]) => Promise<readonly Answer[]>, maxKeys = 250) {
    this.#readAll = readAll
    this.#maxKeys = maxKeys
  }

  read(key: Key): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ key, resolve, reject })
      if (this.#inFlight < maxInFlight) void this.#send()
    })
  }

  async #send(): Promise<void> {
    this.#inFlight++
    // What is asked for in the same turn goes along: the tapes of all runs of a claim, for example.
    await null
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, this.#maxKeys)
      try {
        const answers = await this.#readAll(batch.map(({ key }) => key))
        for (const [at, { resolve }] of batch.entries()) resolve(answers[at] as Answer)
      } catch (error) {
        for (const { reject } of batch) reject(error)
      }
    }
    this.#inFlight--
  }
}
