/** How many statements of one kind are on their way at most. */
const maxUnderWay = 2

interface Waiting<Key, Answer> {
  readonly key: Key
  resolve(answer: Answer): void
  reject(error: unknown): void
}

/**
 * Small reads of one kind. A lone one goes at once; those that come together, or while others are on their way, are gathered into one
 * statement.
 * Hundreds who wait for runs ask for them at the same moment, and a statement costs many times what a row in it does.
 * Nobody gets an answer to a statement that was sent before he asked.
 */
export class Gathering<Key, Answer> {
  readonly #readAll: (keys: readonly Key[]) => Promise<readonly Answer[]>
  readonly #maxKeys: number
  #waiting: Waiting<Key, Answer>[] = []
  #underWay = 0

  /** `readAll` answers for each key, in their order; it is asked for `maxKeys` at most. */
  constructor(readAll: (keys: readonly Key[]) => Promise<readonly Answer[]>, maxKeys = 250) {
    this.#readAll = readAll
    this.#maxKeys = maxKeys
  }

  read(key: Key): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ key, resolve, reject })
      if (this.#underWay < maxUnderWay) void this.#send()
    })
  }

  async #send(): Promise<void> {
    this.#underWay++
    // What is asked for in the same breath goes along: the tapes of all runs of a claim, for one.
    await null
    while (this.#waiting.length > 0) {
      const gathered = this.#waiting.splice(0, this.#maxKeys)
      try {
        const answers = await this.#readAll(gathered.map(({ key }) => key))
        for (const [at, { resolve }] of gathered.entries()) resolve(answers[at] as Answer)
      } catch (error) {
        for (const { reject } of gathered) reject(error)
      }
    }
    this.#underWay--
  }
}
