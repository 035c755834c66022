import type { RecordChange, Records } from '../../index.ts'
import type { Heads } from './heads.ts'
import { below, endKey, endsOf, headKey, livesKey } from './keys.ts'

const batchSize = 500

/** What is done to threads as a whole. */
export class ThreadCare {
  readonly #records: Records
  readonly #heads: Heads

  constructor(records: Records, heads: Heads) {
    this.#records = records
    this.#heads = heads
  }

  /** First ends the thread's life, in one write: from then on it is gone for readers, and closed to its runs. Then clears away what is left. */
  async deleteThread(threadId: string): Promise<void> {
    const heads = await this.#heads.all(threadId)
    for (;;) {
      const { life, version } = await this.#life(threadId)
      const end = this.#put(endKey(threadId, life), { left: heads.map(({ prefix }) => prefix) })
      const answer = await this.#records.write([
        end,
        { ...this.#put(livesKey(threadId), { life: life + 1 }), ifVersion: version },
      ])
      if (answer.ok) break
    }
    for (const head of heads) this.#heads.forget(head)
    await this.#delete('heads', heads.map(headKey))
    await this.#clearAway(threadId)
  }

  /** Also what an earlier deletion left behind because its process was killed. */
  async #clearAway(threadId: string): Promise<void> {
    for (const { key, payload } of await this.#records.read({ collection: 'heads', ...endsOf(threadId), limit: batchSize })) {
      const { left } = this.#records.decode(payload) as { readonly left: readonly string[] }
      for (const prefix of left) await this.#deleteAll(prefix)
      if (left.length > 0) await this.#records.write([this.#put(key, { left: [] })])
    }
  }

  async #deleteAll(prefix: string): Promise<void> {
    for (const collection of ['checkpoints', 'writes', 'channels']) {
      for (;;) {
        const page = await this.#records.read({ collection, ...below(prefix), limit: batchSize })
        await this.#delete(
          collection,
          page.map(({ key }) => key),
        )
        if (page.length < batchSize) break
      }
    }
  }

  async #delete(collection: string, keys: readonly string[]): Promise<void> {
    for (let at = 0; at < keys.length; at += batchSize) {
      await this.#records.write(keys.slice(at, at + batchSize).map((key): RecordChange => ({ kind: 'delete', collection, key })))
    }
  }

  async #life(threadId: string): Promise<{ life: number; version: number }> {
    const [found] = await this.#records.read({ collection: 'heads', where: { keys: [livesKey(threadId)] }, limit: 1 })
    if (found === undefined) return { life: 0, version: 0 }
    return { life: (this.#records.decode(found.payload) as { life: number }).life, version: found.version }
  }

  #put(key: string, value: unknown): Extract<RecordChange, { kind: 'put' }> {
    const payload = this.#records.encode(value)
    return { kind: 'put', collection: 'heads', key, parent: null, threadId: null, fields: [], payload, expires: 'never' }
  }
}
