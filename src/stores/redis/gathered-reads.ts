import { codeOf } from '../../model/errors.ts'
import type { Connection, Reply } from './connection.ts'
import type { Script } from './scripts/script.ts'

/** So many answers come in one call: the server answers nobody else meanwhile. */
const maxReads = 250

/**
 * Small reads, those of one turn of the event loop in one call: where many callers wait for many runs, they ask at the same moment.
 * The script is given the arguments of all of them in a row, and answers in that order; those that it leaves out are asked for again.
 */
export class GatheredReads {
  readonly #connection: Connection
  readonly #script: Script
  #asked: Asked[] = []

  constructor(connection: Connection, script: Script) {
    this.#connection = connection
    this.#script = script
  }

  read(...args: readonly string[]): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.#asked.push({ args, resolve, reject })
      // After all that the current turn sets off.
      if (this.#asked.length === 1) process.nextTick(this.#send)
    })
  }

  readonly #send = (): void => {
    while (this.#asked.length > 0) void this.#answer(this.#asked.splice(0, maxReads))
  }

  async #answer(asked: readonly Asked[]): Promise<void> {
    try {
      const replies = (await this.#connection.repeat(this.#script, ...asked.flatMap(({ args }) => args))) as readonly Reply[]
      for (const [index, reply] of replies.entries()) asked[index]?.resolve(reply)
      if (replies.length < asked.length) void this.#answer(asked.slice(replies.length))
    } catch (error) {
      // What one of them met must not hurt the others.
      if (asked.length > 1 && codeOf(error) === 'corrupt_record') for (const one of asked) void this.#answer([one])
      else for (const { reject } of asked) reject(error)
    }
  }
}

interface Asked {
  readonly args: readonly string[]
  readonly resolve: (reply: Reply) => void
  readonly reject: (error: unknown) => void
}
