import { codeOf } from '../../model/errors.ts'
import type { Run } from '../../model/run.ts'
import type { RunKey } from '../../store/store.ts'
import type { Connection, Reply } from './connection.ts'
import { pairOf } from './keys.ts'
import { readRow, toRun } from './rows.ts'
import { readRunsScript } from './scripts/reads.ts'

/** So many rows come in one answer: the server answers nobody else meanwhile. */
const maxRuns = 250

/** Reads runs, those that are asked for in one turn of the event loop in one call: many callers wait for many runs at once. */
export class RunReads {
  readonly #connection: Connection
  #asked: Asked[] = []

  constructor(connection: Connection) {
    this.#connection = connection
  }

  read({ owner, runId }: RunKey): Promise<Run | null> {
    return new Promise((resolve, reject) => {
      this.#asked.push({ pair: pairOf(owner, runId), resolve, reject })
      // After all that the current turn sets off.
      if (this.#asked.length === 1) process.nextTick(this.#send)
    })
  }

  readonly #send = (): void => {
    while (this.#asked.length > 0) void this.#answer(this.#asked.splice(0, maxRuns))
  }

  async #answer(asked: readonly Asked[]): Promise<void> {
    let rows: readonly Reply[]
    try {
      rows = (await this.#connection.repeat(readRunsScript, ...asked.map(({ pair }) => pair))) as readonly Reply[]
    } catch (error) {
      // One damaged row must not hurt those who asked for others.
      if (asked.length > 1 && codeOf(error) === 'corrupt_record') for (const one of asked) void this.#answer([one])
      else for (const { reject } of asked) reject(error)
      return
    }
    for (const [index, { pair, resolve, reject }] of asked.entries()) {
      try {
        const row = readRow(rows[index] as Reply)
        resolve(row === null ? null : toRun(pair, row).run)
      } catch (error) {
        reject(error)
      }
    }
  }
}

interface Asked {
  readonly pair: string
  readonly resolve: (run: Run | null) => void
  readonly reject: (error: unknown) => void
}
