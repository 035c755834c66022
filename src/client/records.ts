import type { Core } from '../control/core.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import type { Payload } from '../model/payload.ts'
import type { KeyedRecord, RecordChange } from '../model/record.ts'
import type { RecordQuery } from '../store/store.ts'

/** What came of a write of records. */
export type RecordsWritten =
  | { readonly ok: true }
  /** Nothing was written: this record has another version than `ifVersion`; null where there is none. */
  | { readonly ok: false; readonly record: KeyedRecord | null }

/**
 * Records of a kind of their own, for adapters: values with a key, a version and perhaps an expiry, beside the threads. Collections have the
 * name of their kind in front, so that no adapter meets the records of Holdfast or of another one.
 */
export class Records {
  readonly #core: Core
  readonly #owner: string
  readonly #kind: string

  constructor(core: Core, owner: string, kind: string) {
    this.#core = core
    this.#owner = owner
    this.#kind = checkId('kind of records', kind)
  }

  /** The payload of a value. Refused with `value_not_storable` or `value_too_large`. */
  encode(value: unknown): Payload {
    return this.#core.codec.encode(value)
  }

  /** The value of a payload, freshly built. */
  decode(payload: Payload): unknown {
    return this.#core.codec.decode(payload)
  }

  /** Records of one collection, in bytewise order of their keys. One range read. */
  async read(query: Omit<RecordQuery, 'owner'>): Promise<readonly KeyedRecord[]> {
    const { store } = this.#core
    const records = await store.readRecords({ ...query, owner: this.#owner, collection: this.#named(query.collection) })
    return records.map((record) => ({ ...record, collection: query.collection }))
  }

  /** Whether what is written with `mustSync` outlives the machine. */
  get keepsIntents(): boolean {
    return this.#core.store.keepsIntents !== false
  }

  /** Writes all of them or none, in one commit. A change names a record once. With `mustSync` it is flushed fully in every durability mode. */
  async write(
    changes: readonly RecordChange[],
    { mustSync = false }: { readonly mustSync?: boolean } = {},
  ): Promise<RecordsWritten> {
    const records = changes.map((change) =>
      change.kind === 'restore'
        ? { ...change, record: { ...change.record, collection: this.#named(change.record.collection) } }
        : { ...change, collection: this.#named(change.collection) },
    )
    const answer = await this.#core.committer.commit({
      ...{ owner: this.#owner, threadId: '', runId: null, guard: { kind: 'none' }, events: [], isCheckpoint: false },
      ...{ records, mustSync },
    })
    if (answer.ok) return { ok: true }
    if (answer.refusal !== 'record_changed') {
      throw new HoldfastError('conflict', `Records could not be written: ${answer.refusal}. Try again.`, { retryable: true })
    }
    const record = answer.record ?? null
    return { ok: false, record: record && { ...record, collection: record.collection.slice(this.#kind.length + 1) } }
  }

  #named(collection: string): string {
    return `${this.#kind}.${collection}`
  }
}
