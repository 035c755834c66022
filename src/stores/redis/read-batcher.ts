import { codeOf } from '../../model/errors.ts'
import type { Connection } from './connection.ts'
import type { Reply } from './link.ts'
import type { Script } from './scripts/script.ts'

/** Reads in one call at most: meanwhile the server serves no other client. */
const maxReads = 250

/**
 * Sends the small reads of one turn of the event loop in one call: callers that wait for many runs read at the same moment. The
 * script gets the arguments of all reads in a row and answers in that order; reads that it leaves out are sent again.
 */
export class ReadBatcher {
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
      // After everything that the current turn starts.
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
      // A damaged row must not fail the other reads.
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
