import { HoldfastError } from '../../model/errors.ts'
import type { Change, Committed } from '../../store/change.ts'
import { type Answers, hintsOf } from './answers.ts'
import { type Batch, type CommitOptions, commitSql, encodeBatch } from './commit.ts'
import type { PgClientLike, Statement } from './connections.ts'
import { serverCodeOf, tooIsolated } from './errors.ts'
import { encodeLoneStep, stepSql } from './lone-step.ts'
import type { StoreParts } from './store-parts.ts'

/** Writes batches of changes: a lone step by fn_step, everything else by fn_commit. */
export class Commits {
  readonly statement: Statement
  readonly #step: Statement
  readonly #parts: StoreParts

  constructor(parts: StoreParts) {
    this.#parts = parts
    this.statement = parts.prepare(commitSql)
    this.#step = parts.prepare(stepSql)
  }

  async commit(changes: readonly Change[]): Promise<readonly Committed[]> {
    const { connections, clock, watch } = this.#parts
    connections.refuseClosed()
    if (changes.length === 0) return []
    const offset = clock.offset()
    const { answers, now } = await this.#write(changes, offset)
    clock.learn(now, offset)
    watch.tell(hintsOf(changes, answers, watch))
    return answers
  }

  /** In a transaction of the user's. Notifications of a transaction are sent when it commits; this process gets them like any other. */
  async commitWithin(tx: PgClientLike, changes: readonly Change[]): Promise<readonly Committed[]> {
    const { watch } = this.#parts
    if (changes.length === 0) return []
    const batch = this.encode(changes)
    const values = [null, null, ...batch.values]
    const { rows } = await tx.query({ text: this.statement.text, values, rowMode: 'array' }).catch((error: unknown) => {
      throw serverCodeOf(error) === tooIsolated ? isolatedTransaction(error) : error
    })
    const { answers } = batch.readAnswer((rows as string[][])[0]?.[0] as string)
    const announcement = watch.announcementOf(hintsOf(changes, answers, watch))
    if (announcement !== null) await tx.query(announcement)
    return answers
  }

  encode(changes: readonly Change[]): Batch {
    return encodeBatch(changes, this.#optionsOf(changes))
  }

  async #write(changes: readonly Change[], offset: number): Promise<Answers> {
    const { writes } = this.#parts
    const options = this.#optionsOf(changes, offset)
    const step = encodeLoneStep(changes, options)
    if (step !== null) return step.readAnswer(await writes.call(this.#step, step.values))
    const batch = encodeBatch(changes, options)
    return batch.readAnswer(await writes.call(this.statement, batch.values))
  }

  #optionsOf(changes: readonly Change[], offset = this.#parts.clock.offset()): CommitOptions {
    const { isFull, leases } = this.#parts
    return { offset, leases, isDurable: isFull || changes.some((change) => change.mustSync === true) }
  }
}

function isolatedTransaction(cause: unknown): HoldfastError {
  return new HoldfastError(
    'invalid_input',
    `A run can't be started in a transaction of this isolation level; nothing was written. Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED, or start the run after it. (${(cause as Error).message})`,
    { cause },
  )
}
