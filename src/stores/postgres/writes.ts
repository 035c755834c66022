import { randomBytes } from 'node:crypto'
import { HoldfastError } from '../../model/errors.ts'
import type { Connections, Statement } from './connections.ts'
import { isConnectionLost, isWorthRepeating, NotSent, toHoldfastError, unknownOutcome } from './errors.ts'
import type { Row } from './rows.ts'

/**
 * Writes whose outcome is known also when the connection is lost.
 *
 * Every write is made by a writer, a row with a number that rises. The function that writes ends by putting its number and
 * its answer into that row, in its own transaction. When the answer does not arrive, another connection settles the matter:
 *
 *   U1  The number is there: it was committed, and this is its answer.
 *   U2  It is not: the settler puts it there without an answer. The lost statement, should it still be at work, then fails at
 *       its end (HF003), because numbers only rise. The write can be made again under the next number.
 *   U3  The row's lock decides between the two: a statement that has come to its end is waited for.
 *
 * So a caller sees one answer, and never a failure of something that happened. Only a server that stays away for a minute
 * leaves `outcome_unknown`, and so does a row that another process has deleted meanwhile: a process that was stopped for most of a day
 * can no longer tell.
 */
export class Writes {
  readonly #connections: Connections
  readonly #settle: Statement
  readonly #forget: Statement
  readonly #forgetDead: Statement
  readonly #idle: Writer[] = []
  readonly #ids: string[] = []
  readonly #unknownMs: number

  /** `unknownMs`: how long an unknown outcome is looked into before the caller is told so. */
  constructor(connections: Connections, { prepare, unknownMs }: { prepare: (sql: string) => Statement; unknownMs: number }) {
    this.#connections = connections
    this.#unknownMs = unknownMs
    this.#settle = prepare('SELECT is_committed, answer, is_new FROM holdfast.fn_settle($1, $2)')
    this.#forget = prepare('DELETE FROM holdfast.writers WHERE id = ANY ($1::bigint[])')
    this.#forgetDead = prepare(
      `DELETE FROM holdfast.writers WHERE used_at < floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - ${forgottenAfterMs}`,
    )
  }

  /**
   * Calls a function that takes the writer's id and number as its first two parameters. Answers with its rows or, after a
   * lost connection, with the answer that it recorded.
   */
  async write(statement: Statement, values: readonly unknown[]): Promise<Written> {
    this.#connections.refuseClosed()
    const writer = this.#idle.pop() ?? this.#newWriter()
    let isSettled = true
    try {
      for (let attempt = 1; ; attempt++) {
        begin(writer)
        try {
          return { rows: await this.#connections.send(statement, [writer.id, writer.batch, ...values]) }
        } catch (error) {
          if (error instanceof NotSent) throw toHoldfastError(error, 'write')
          if (isConnectionLost(error)) {
            isSettled = false
            const settled = await this.settle(writer, error)
            isSettled = true
            if (settled !== null) return settled
          } else if (!isWorthRepeating(error)) {
            throw toHoldfastError(error, 'write')
          }
          if (attempt >= 5) throw toHoldfastError(error, 'write')
          await sleep(Math.random() * 20 * attempt)
        }
      }
    } finally {
      if (isSettled) this.#idle.push(writer)
    }
  }

  /** The same for a function that answers with a text. */
  async call(statement: Statement, values: readonly unknown[]): Promise<string> {
    const written = await this.write(statement, values)
    return ('rows' in written ? written.rows[0]?.[0] : written.recorded) ?? ''
  }

  /** For a transaction of several statements: takes a writer, which `settle` then knows. */
  async withWriter<Answer>(body: (writer: Writer) => Promise<Answer>): Promise<Answer> {
    const writer = this.#idle.pop() ?? this.#newWriter()
    begin(writer)
    try {
      const answer = await body(writer)
      this.#idle.push(writer)
      return answer
    } catch (error) {
      // The number may still be in flight; the next one will be higher.
      if (!(error instanceof HoldfastError) || error.code !== 'outcome_unknown') this.#idle.push(writer)
      throw error
    }
  }

  /** After a lost connection: what was recorded, or null when surely nothing was written and nothing will be. */
  async settle(writer: Writer, cause: unknown): Promise<{ readonly recorded: string | null } | null> {
    const deadline = performance.now() + this.#unknownMs
    for (let attempt = 0; performance.now() < deadline && !this.#connections.isClosed; attempt++) {
      try {
        const [row] = await this.#connections.send(this.#settle, [writer.id, writer.batch])
        if (row?.[2] === 't' && Date.now() - writer.sentAt > forgottenAfterMs / 2) break
        return row?.[0] === 't' ? { recorded: row[1] ?? null } : null
      } catch {
        await sleep(Math.min(1_000, 50 * 2 ** attempt) * (0.5 + Math.random() / 2))
      }
    }
    throw unknownOutcome(cause)
  }

  /** Deletes the rows of writers that have not written for a day: their processes ended without closing the store. */
  async forgetDead(): Promise<void> {
    await this.#connections.send(this.#forgetDead, []).catch(() => {})
  }

  /** Deletes the rows of this store's writers. */
  async close(): Promise<void> {
    if (this.#ids.length > 0) await this.#connections.send(this.#forget, [this.#ids]).catch(() => {})
  }

  #newWriter(): Writer {
    const id = (randomBytes(8).readBigUInt64BE() >> 1n).toString()
    this.#ids.push(id)
    return { id, batch: 0, sentAt: 0 }
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

export type Written = { readonly rows: readonly Row[] } | { readonly recorded: string | null }

export interface Writer {
  readonly id: string
  batch: number
  /** When its last write was sent, by the wall clock, which continues while the process is stopped. */
  sentAt: number
}

/** After this long without a write the row of a writer is deleted. */
const forgottenAfterMs = 86_400_000

function begin(writer: Writer): void {
  writer.batch += 1
  writer.sentAt = Date.now()
}

/** fn_record is the last statement of every function that writes; fn_settle is called when its answer did not arrive. */
export const settleFunctions = `
CREATE OR REPLACE FUNCTION holdfast.fn_record(p_writer bigint, p_batch bigint, p_answer text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_at bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
BEGIN
  IF p_writer IS NULL THEN RETURN; END IF;
  UPDATE holdfast.writers w SET batch = p_batch, used_at = v_at, answer = p_answer WHERE w.id = p_writer AND w.batch < p_batch;
  IF FOUND THEN RETURN; END IF;
  INSERT INTO holdfast.writers (id, batch, used_at, answer) VALUES (p_writer, p_batch, v_at, p_answer) ON CONFLICT (id) DO NOTHING;
  IF NOT FOUND THEN RAISE EXCEPTION 'this write was given up by its writer' USING ERRCODE = 'HF003'; END IF;
END $$;

CREATE OR REPLACE FUNCTION holdfast.fn_settle(p_writer bigint, p_batch bigint, OUT is_committed boolean, OUT answer text, OUT is_new boolean) LANGUAGE plpgsql VOLATILE
SET lock_timeout = '10s' AS $$
#variable_conflict use_column
BEGIN
  is_committed := false;
  is_new := false;
  UPDATE holdfast.writers w SET batch = p_batch, answer = NULL WHERE w.id = p_writer AND w.batch < p_batch;
  IF FOUND THEN RETURN; END IF;
  INSERT INTO holdfast.writers AS w (id, batch, used_at) VALUES (p_writer, p_batch, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    ON CONFLICT (id) DO NOTHING;
  IF FOUND THEN is_new := true; RETURN; END IF;
  SELECT w.answer IS NOT NULL, w.answer INTO is_committed, answer FROM holdfast.writers w WHERE w.id = p_writer AND w.batch = p_batch;
END $$;
`
