import type { KeyedRecord } from '../model/record.ts'
import type { Store } from '../store/store.ts'
import { batchQuery, numberOf, readBatch } from './vector-records.ts'

/** The vectors of one subject in this process, read as far as the store has them. They are compared one by one: exact, and fast enough for tens of thousands. */
export class SubjectVectors {
  readonly #place: { readonly store: Store; readonly owner: string; readonly subject: string; readonly model: string }
  readonly #indexOf = new Map<string, number>()
  readonly #ids: string[] = []
  #values = new Float32Array(0)
  #length = 0
  /** The last batch that was read. Now and then it is read again, to see that it is still the same: a store may be restored from a backup. */
  #last: { readonly number: number; readonly createdAt: number } | undefined
  #checkedAt = 0
  #reading: Promise<void> = Promise.resolve()
  /** Facts that have none from before were looked for. */
  isWhole = false

  constructor(place: { readonly store: Store; readonly owner: string; readonly subject: string; readonly model: string }) {
    this.#place = place
  }

  get bytes(): number {
    return this.#values.byteLength
  }

  has(id: string): boolean {
    return this.#indexOf.has(id)
  }

  /** The model gives vectors of this length now. Answers whether those that are kept have another one: they are as good as none. */
  dropOthers(length: number): boolean {
    if (this.#ids.length === 0 || this.#length === length) return false
    this.#clear()
    return true
  }

  /** Reads what was written since. */
  refresh(): Promise<void> {
    this.#reading = this.#reading.catch(() => {}).then(() => this.#read())
    return this.#reading
  }

  async #read(): Promise<void> {
    const { store, owner, subject } = this.#place
    for (;;) {
      const isChecked = this.#last !== undefined && Date.now() - this.#checkedAt < checkedForMs
      const after = (this.#last?.number ?? 1) - (isChecked ? 0 : 1)
      const records = await store.readRecords(batchQuery(owner, subject, { after, limit: pageSize }))
      const [first, ...rest] = records
      if (this.#last !== undefined && !isChecked) {
        const isSame = first !== undefined && numberOf(first) === this.#last.number && first.createdAt === this.#last.createdAt
        if (!isSame) {
          // The store has forgotten what it had.
          this.#last = undefined
          this.#clear()
          continue
        }
      }
      for (const record of this.#last === undefined || isChecked ? records : rest) this.#add(record)
      this.#checkedAt = isChecked ? this.#checkedAt : Date.now()
      const last = records.at(-1)
      if (last !== undefined) this.#last = { number: numberOf(last), createdAt: last.createdAt }
      if (records.length < pageSize) return
    }
  }

  #clear(): void {
    this.#indexOf.clear()
    this.#ids.length = 0
    this.#length = 0
    this.#values = new Float32Array(0)
  }

  #add(record: KeyedRecord): void {
    const { model, ids, values } = readBatch(record)
    const length = values.length / ids.length
    if (model !== this.#place.model || ids.length === 0) return
    // A model that gives vectors of another length now is another one: what it made before can't be compared.
    if (this.#length !== length) this.#clear()
    this.#length = length
    for (const [index, id] of ids.entries()) this.#set(id, values.subarray(index * length, (index + 1) * length))
  }

  #set(id: string, vector: Float32Array): void {
    const index = this.#indexOf.get(id) ?? this.#ids.length
    if (index === this.#ids.length) {
      this.#ids.push(id)
      this.#indexOf.set(id, index)
    }
    const needed = this.#ids.length * this.#length
    if (needed > this.#values.length) {
      const grown = new Float32Array(Math.max(needed, this.#values.length * 2))
      grown.set(this.#values)
      this.#values = grown
    }
    this.#values.set(vector, index * this.#length)
  }

  /** The nearest first. The vector has the length 1, as those that are kept. */
  nearest(vector: Float32Array, limit: number): { readonly id: string; readonly similarity: number }[] {
    const length = this.#length
    if (vector.length !== length || limit <= 0) return []
    const values = this.#values
    const similarities = new Float32Array(this.#ids.length)
    for (let index = 0, at = 0; index < similarities.length; index++) {
      let similarity = 0
      for (let i = 0; i < length; i++, at++) similarity += (vector[i] as number) * (values[at] as number)
      similarities[index] = similarity
    }
    const least = similarities.toSorted()[Math.max(0, similarities.length - limit)] ?? 0
    const found: { readonly id: string; readonly similarity: number }[] = []
    for (const [index, similarity] of similarities.entries())
      if (similarity >= least) found.push({ id: this.#ids[index] as string, similarity })
    return found.sort((a, b) => b.similarity - a.similarity || (a.id < b.id ? -1 : 1)).slice(0, limit)
  }
}

const pageSize = 500
const checkedForMs = 60_000
