import type { Codec } from '../model/codec.ts'
import { HoldfastError } from '../model/errors.ts'
import { isCurrent } from '../model/fact.ts'
import { pairKey } from '../model/ids.ts'
import type { Logger } from '../model/logger.ts'
import type { Change, Committed } from '../store/change.ts'
import type { Store } from '../store/store.ts'
import { factCollection, factQuery, readKept } from './fact-records.ts'
import type { FindNearest } from './recall.ts'
import { SubjectVectors } from './subject-vectors.ts'
import { lastBatchQuery, numberOf, putBatch } from './vector-records.ts'

/** Vectors for texts, one each, all of the same length. */
export type Embed = (texts: string[]) => Promise<readonly (readonly number[])[]>

export interface EmbedderOptions {
  readonly store: Store
  readonly codec: Codec
  readonly log: Logger
  readonly commit: (change: Change) => Promise<Committed>
  readonly embed: Embed
  readonly model: string
}

/**
 * Makes vectors of facts, after they were remembered and outside of every commit: until then they are found by their words. What fails is tried again. What a
 * process did not get round to is made after the first recall about the subject in another one.
 */
export class Embedder {
  readonly #options: EmbedderOptions
  /** Of the subjects that were asked about last, the last of them last. */
  readonly #vectors = new Map<string, SubjectVectors>()
  readonly #wanted = new Map<string, Wanted>()
  #timer: NodeJS.Timeout | undefined
  #atWork: Promise<void> | undefined
  #isClosed = false

  constructor(options: EmbedderOptions) {
    this.#options = options
  }

  /** These facts may have no vector yet. They may not be written yet, either. */
  want(owner: string, subject: string, ids: readonly string[]): void {
    const wanted = this.#wantedOf(owner, subject)
    for (const id of ids) wanted.ids.set(id, 0)
    this.#workIn(firstDelayMs)
  }

  /** Where `embed` fails, nothing is near. */
  nearestOf(owner: string, subject: string): FindNearest {
    return (query) => {
      const asked = this.#embedQuery(query)
      const vectors = this.#vectorsOf(owner, subject)
      const read = vectors.refresh()
      return async (limit) => {
        const [vector] = await Promise.all([asked, read])
        if (vector === undefined) return []
        if (vectors.dropOthers(vector.length)) this.#wantAll(owner, subject)
        return vectors.nearest(vector, limit)
      }
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    // A model that takes its time is not waited for: what it was asked for is made the next time.
    await Promise.race([this.#atWork, new Promise((resolve) => setTimeout(resolve, closeMs).unref())])
  }

  async #embedQuery(query: string): Promise<Float32Array | undefined> {
    try {
      return (await this.#embed([query]))[0]
    } catch (error) {
      this.#options.log.warn('a question could not be embedded; facts are recalled by their words', { error })
      return undefined
    }
  }

  #vectorsOf(owner: string, subject: string): SubjectVectors {
    const name = pairKey(owner, subject)
    const { store, model } = this.#options
    let vectors = this.#vectors.get(name)
    if (vectors === undefined) {
      vectors = new SubjectVectors({ store, owner, subject, model })
      // What has none from before.
      this.#wantAll(owner, subject)
    }
    this.#vectors.delete(name)
    this.#vectors.set(name, vectors)
    this.#makeRoom()
    return vectors
  }

  #wantAll(owner: string, subject: string): void {
    this.#wantedOf(owner, subject).isWhole = true
    this.#workIn(firstDelayMs)
  }

  #makeRoom(): void {
    let bytes = [...this.#vectors.values()].reduce((sum, vectors) => sum + vectors.bytes, 0)
    for (const [name, vectors] of this.#vectors) {
      if (bytes <= mostBytes || this.#vectors.size === 1) return
      bytes -= vectors.bytes
      this.#vectors.delete(name)
    }
  }

  #wantedOf(owner: string, subject: string): Wanted {
    const name = pairKey(owner, subject)
    const wanted = this.#wanted.get(name) ?? { owner, subject, ids: new Map(), isWhole: false, failures: 0, dueAt: 0 }
    this.#wanted.set(name, wanted)
    return wanted
  }

  #workIn(delayMs: number): void {
    if (this.#isClosed || this.#timer !== undefined || this.#atWork !== undefined) return
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      this.#atWork = this.#workAll().finally(() => {
        this.#atWork = undefined
        if (this.#wanted.size > 0) this.#workIn(againMs)
      })
    }, delayMs)
    this.#timer.unref()
  }

  async #workAll(): Promise<void> {
    for (const [name, wanted] of this.#wanted) {
      if (this.#isClosed) return
      if (wanted.dueAt > Date.now()) continue
      try {
        if (wanted.isWhole) await this.#findMissing(wanted)
        await this.#embedSome(wanted)
        wanted.failures = 0
        if (wanted.ids.size === 0) this.#wanted.delete(name)
      } catch (error) {
        if (this.#isClosed) return
        wanted.dueAt = Date.now() + Math.min(60_000, 500 * 2 ** wanted.failures++)
        this.#options.log.warn('facts could not be embedded; it is tried again', { subject: wanted.subject, error })
      }
    }
  }

  /** Facts of the subject without a vector of this model. */
  async #findMissing(wanted: Wanted): Promise<void> {
    const { store, codec } = this.#options
    const { owner, subject } = wanted
    const vectors = this.#vectorsOf(owner, subject)
    await vectors.refresh()
    for (let after: string | undefined; ; ) {
      const bound = after === undefined ? {} : { afterKey: after }
      const page = await store.readRecords({
        owner,
        collection: factCollection,
        where: { parent: subject },
        limit: 200,
        ...bound,
      })
      for (const record of page) {
        const read = readKept(codec, subject, record)
        if (read !== undefined && isCurrent(read.kept) && !vectors.has(read.id)) wanted.ids.set(read.id, 0)
      }
      after = page.at(-1)?.key
      if (page.length < 200 || this.#isClosed) break
    }
    wanted.isWhole = false
  }

  async #embedSome(wanted: Wanted): Promise<void> {
    const { store, codec, model } = this.#options
    const { owner, subject, ids } = wanted
    const vectors = this.#vectorsOf(owner, subject)
    await vectors.refresh()
    for (const id of ids.keys()) if (vectors.has(id)) ids.delete(id)
    while (ids.size > 0 && !this.#isClosed) {
      const asked = [...ids.keys()].slice(0, batchSize)
      const records = await store.readRecords(factQuery(owner, subject, asked))
      const facts = records.flatMap((record) => readKept(codec, subject, record) ?? [])
      if (facts.length > 0) {
        const made = await this.#embed(facts.map(({ kept }) => kept.text))
        await this.#write(owner, subject, { model, ids: facts.map(({ id }) => id), values: joined(made) })
        for (const { id } of facts) ids.delete(id)
      }
      // What is not there may be on its way into the store, or may never come.
      let isWaiting = false
      for (const id of asked) {
        const looks = ids.get(id)
        if (looks === undefined) continue
        // To the end: it keeps no others waiting.
        ids.delete(id)
        if (looks < mostLooks) ids.set(id, looks + 1)
        isWaiting = true
      }
      if (isWaiting) return
    }
  }

  async #write(owner: string, subject: string, batch: { model: string; ids: string[]; values: Float32Array }): Promise<void> {
    const { store, commit } = this.#options
    for (;;) {
      const [last] = await store.readRecords(lastBatchQuery(owner, subject))
      const records = [putBatch(subject, last === undefined ? 1 : numberOf(last) + 1, batch)]
      const alone = { threadId: '', runId: null, guard: { kind: 'none' }, events: [], isCheckpoint: false } as const
      const answer = await commit({ ...alone, owner, records })
      if (answer.ok) return
      if (answer.refusal !== 'record_changed')
        throw new HoldfastError('conflict', `Vectors could not be written: ${answer.refusal}.`)
    }
  }

  /** Of length 1, so that the cosine is a product. */
  async #embed(texts: string[]): Promise<Float32Array[]> {
    const vectors = await this.#options.embed(texts)
    const length = Array.isArray(vectors as unknown) ? vectors[0]?.length : undefined
    const isWhole =
      vectors.length === texts.length &&
      vectors.every((one) => one.length > 0 && one.length === length && one.every(Number.isFinite))
    if (!isWhole)
      throw new HoldfastError('invalid_input', `embed must return a vector of the same length for each of ${texts.length} texts.`)
    return vectors.map((one) => {
      const size = Math.sqrt(one.reduce((sum, value) => sum + value * value, 0)) || 1
      return Float32Array.from(one, (value) => value / size)
    })
  }
}

interface Wanted {
  readonly owner: string
  readonly subject: string
  /** How often each was looked for in vain. */
  readonly ids: Map<string, number>
  /** All facts of the subject are to be looked through. */
  isWhole: boolean
  failures: number
  dueAt: number
}

const batchSize = 64
const firstDelayMs = 20
const againMs = 250
/** A step that remembers something may take its time. */
const mostLooks = 240
const closeMs = 1_000
const mostBytes = 256 * 1024 * 1024

function joined(vectors: readonly Float32Array[]): Float32Array {
  const length = vectors[0]?.length ?? 0
  const values = new Float32Array(vectors.length * length)
  for (const [index, vector] of vectors.entries()) values.set(vector, index * length)
  return values
}
