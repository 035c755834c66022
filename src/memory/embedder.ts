import type { Codec } from '../model/codec.ts'
import { HoldfastError } from '../model/errors.ts'
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
  /** How long a call of `embed` may take. */
  readonly timeoutMs?: number | undefined
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

  /** These facts were written, and may have no vector yet. */
  want(owner: string, subject: string, ids: readonly string[]): void {
    const wanted = this.#wantedOf(owner, subject)
    for (const id of ids) wanted.ids.add(id)
    this.#workIn(firstDelayMs)
  }

  /** Where `embed` fails, nothing is near. */
  nearestOf(owner: string, subject: string): FindNearest {
    return (query) => {
      const asked = this.#embedQuery(query)
      const vectors = this.#vectorsOf(owner, subject)
      if (!vectors.isWhole) this.#wantAll(owner, subject)
      vectors.isWhole = true
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
    const vectors = this.#vectors.get(name) ?? new SubjectVectors({ store, owner, subject, model })
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
    const wanted = this.#wanted.get(name) ?? { owner, subject, ids: new Set(), isWhole: false, failures: 0, dueAt: 0 }
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
        if (wanted.ids.size === 0 && !wanted.isWhole) this.#wanted.delete(name)
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
        if (read !== undefined && read.kept.retracted === undefined && !vectors.has(read.id)) wanted.ids.add(read.id)
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
    for (const id of ids) if (vectors.has(id)) ids.delete(id)
    while (ids.size > 0 && !this.#isClosed) {
      // Fewer at once after a failure: it may be about one of the texts.
      const asked = [...ids].slice(0, Math.max(1, batchSize / 8 ** wanted.failures))
      const records = await store.readRecords(factQuery(owner, subject, asked))
      const facts = records.flatMap((record) => readKept(codec, subject, record) ?? [])
      for (const id of asked) ids.delete(id)
      if (facts.length === 0) continue
      try {
        const made = await this.#embed(facts.map(({ kept }) => kept.text))
        await this.#write(owner, subject, { model, ids: facts.map(({ id }) => id), values: joined(made) })
        wanted.failures = Math.max(0, wanted.failures - 1)
      } catch (error) {
        // To the end, so that they keep no others waiting.
        for (const id of asked) ids.add(id)
        throw error
      }
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
    const answer: unknown = await this.#inTime(this.#options.embed(texts))
    const vectors = Array.isArray(answer) ? Array.from(answer, unitVector) : []
    const length = vectors[0]?.length ?? 0
    if (length > 0 && vectors.length === texts.length && vectors.every((one) => one.length === length)) return vectors
    throw new HoldfastError('invalid_input', `embed must return a vector of the same length for each of ${texts.length} texts.`)
  }

  /** A model that does not answer keeps nobody waiting for good. */
  async #inTime(answer: Promise<unknown>): Promise<unknown> {
    const { timeoutMs = defaultTimeoutMs } = this.#options
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      const fail = () =>
        reject(new HoldfastError('timeout', `embed has not answered within ${timeoutMs} ms.`, { retryable: true }))
      timer = setTimeout(fail, Math.min(timeoutMs, longestTimerMs)).unref()
    })
    return Promise.race([answer, late]).finally(() => clearTimeout(timer))
  }
}

/** Empty where it is no vector. */
function unitVector(given: unknown): Float32Array {
  const values: readonly number[] = Array.isArray(given) || ArrayBuffer.isView(given) ? Array.from(given as Float32Array) : []
  if (!values.every(Number.isFinite)) return new Float32Array(0)
  const size = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0)) || 1
  return Float32Array.from(values, (value) => value / size)
}

interface Wanted {
  readonly owner: string
  readonly subject: string
  readonly ids: Set<string>
  /** All facts of the subject are to be looked through. */
  isWhole: boolean
  failures: number
  dueAt: number
}

const batchSize = 64
const firstDelayMs = 20
const againMs = 250
const defaultTimeoutMs = 30_000
const longestTimerMs = 2_147_483_647
const closeMs = 1_000
const mostBytes = 256 * 1024 * 1024

function joined(vectors: readonly Float32Array[]): Float32Array {
  const length = vectors[0]?.length ?? 0
  const values = new Float32Array(vectors.length * length)
  for (const [index, vector] of vectors.entries()) values.set(vector, index * length)
  return values
}
