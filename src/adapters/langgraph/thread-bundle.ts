import { createHash, randomBytes } from 'node:crypto'
import { HoldfastError, type KeyedRecord, type RecordChange, type Records } from '../../index.ts'
import type { Heads } from './heads.ts'
import { below, threadField } from './keys.ts'

/** A LangGraph thread as plain JSON: what `saver.exportThread` returns and `saver.importThread` takes. */
export interface LangGraphBundle {
  readonly format: 'holdfast-langgraph'
  readonly version: 1
  readonly threadId: string
  readonly namespaces: readonly BundledNamespace[]
  /** Effects of its nodes: an import under the same id does not repeat them. */
  readonly effects: readonly BundledRecord[]
  /** Of all of the above. */
  readonly sha256: string
}

export interface BundledNamespace {
  readonly ns: string
  /** The latest checkpoint. */
  readonly latest: string
  readonly channels: readonly BundledRecord[]
  readonly writes: readonly BundledRecord[]
  readonly checkpoints: readonly BundledRecord[]
}

/** The end of its key, what it contains (bytes as `{ base64 }`), and what it is found by. */
export type BundledRecord = readonly [
  key: string,
  payload: string | { readonly base64: string },
  ...fields: readonly (readonly [string, string])[],
]

const collections = ['channels', 'writes', 'checkpoints'] as const
const batchSize = 500

/** Moves threads between stores, one at a time, as JSON. */
export class ThreadBundles {
  readonly #records: Records
  readonly #heads: Heads

  constructor(records: Records, heads: Heads) {
    this.#records = records
    this.#heads = heads
  }

  async export(threadId: string): Promise<LangGraphBundle> {
    const heads = await this.#heads.all(threadId)
    if (heads.length === 0) {
      throw new HoldfastError(
        'run_not_found',
        `There is no LangGraph thread ${JSON.stringify(threadId)}; nothing was exported.`,
        { details: { threadId } },
      )
    }
    const namespaces: BundledNamespace[] = []
    for (const { ns, id, prefix } of heads) {
      // What a checkpoint needs is written with it or before it: so it is read after it.
      const checkpoints = await this.#read('checkpoints', below(prefix), prefix.length)
      const [channels, writes] = [
        await this.#read('channels', below(prefix), prefix.length),
        await this.#read('writes', below(prefix), prefix.length),
      ]
      namespaces.push({ ns, latest: id as string, channels, writes, checkpoints })
    }
    const effects = await this.#read('effects', { where: { field: threadField(threadId) } }, 0)
    const content = { format: 'holdfast-langgraph', version: 1, threadId, namespaces, effects } as const
    return { ...content, sha256: digestOf(content) }
  }

  /** All of a namespace is there once its head is. Refused with `conflict` where the thread has checkpoints. */
  async import(bundle: LangGraphBundle, threadId: string): Promise<void> {
    for (const { ns } of bundle.namespaces)
      if ((await this.#heads.read({ threadId, ns })).id !== undefined) throw isThere(threadId)
    const effects = threadId === bundle.threadId ? bundle.effects : []
    for (const [key, payload, ...fields] of effects) {
      const effect = this.#put('effects', key, payload, fields)
      const answer = await this.#records.write([{ ...effect, ifVersion: 0 }])
      if (!answer.ok && answer.record?.payload !== effect.payload) throw isThere(threadId)
    }
    for (const { ns, latest, ...records } of bundle.namespaces) {
      const head = await this.#heads.read({ threadId, ns })
      const prefix = randomBytes(9).toString('base64url')
      const changes = collections.flatMap((collection) =>
        records[collection].map(([key, payload, ...fields]) => this.#put(collection, prefix + key, payload, fields)),
      )
      for (let at = 0; at < changes.length; at += batchSize) await this.#records.write(changes.slice(at, at + batchSize))
      const moved = await this.#records.write([this.#heads.move({ ...head, prefix }, latest), this.#heads.stillAlive(head)])
      if (!moved.ok) {
        await this.#clear(changes)
        throw isThere(threadId)
      }
      this.#heads.forget(head)
    }
  }

  async #read(collection: string, query: object, cut: number): Promise<BundledRecord[]> {
    const found: BundledRecord[] = []
    for (let range: object = query; ; ) {
      const page = await this.#records.read({ collection, ...range, limit: batchSize })
      found.push(...page.map((record) => bundled(record, cut)))
      if (page.length < batchSize) return found
      range = { ...query, afterKey: page.at(-1)?.key }
    }
  }

  #put(
    collection: string,
    key: string,
    payload: BundledRecord[1],
    fields: readonly (readonly [string, string])[],
  ): Extract<RecordChange, { kind: 'put' }> {
    const own = typeof payload === 'string' ? payload : new Uint8Array(Buffer.from(payload.base64, 'base64'))
    // Refused here where this store's codec can't read it.
    this.#records.decode(own)
    return {
      ...{ kind: 'put', collection, key, parent: null, threadId: null, payload: own, expires: 'never' },
      fields: fields.map(([name, value]) => ({ name, value })),
    }
  }

  async #clear(changes: readonly Extract<RecordChange, { kind: 'put' }>[]): Promise<void> {
    const deletions = changes.map(({ collection, key }): RecordChange => ({ kind: 'delete', collection, key }))
    for (let at = 0; at < deletions.length; at += batchSize) await this.#records.write(deletions.slice(at, at + batchSize))
  }
}

/** A bundle that is whole, from JSON or as it was exported. */
export function readBundle(given: LangGraphBundle | string): LangGraphBundle {
  let bundle: unknown = given
  try {
    if (typeof given === 'string') bundle = JSON.parse(given)
  } catch (cause) {
    throw new HoldfastError(
      'invalid_input',
      'The bundle is not JSON: it was cut off, or is another file. Nothing was imported.',
      { cause },
    )
  }
  const { sha256, ...content } = (bundle ?? {}) as LangGraphBundle
  if (content.format !== 'holdfast-langgraph')
    throw new HoldfastError('invalid_input', 'That is no bundle of a LangGraph thread. Nothing was imported.')
  if (content.version !== 1)
    throw new HoldfastError('schema_too_new', 'The bundle was written by a later version. Nothing was imported.')
  if (digestOf(content) !== sha256)
    throw new HoldfastError('corrupt_record', 'The bundle was changed after it was exported. Nothing was imported.')
  return bundle as LangGraphBundle
}

function bundled({ key, payload, fields }: KeyedRecord, cut: number): BundledRecord {
  const text = typeof payload === 'string' ? payload : { base64: Buffer.from(payload).toString('base64') }
  return [key.slice(cut), text, ...fields.map(({ name, value }) => [name, value] as const)]
}

function digestOf({ format, version, threadId, namespaces, effects }: Omit<LangGraphBundle, 'sha256'>): string {
  return createHash('sha256')
    .update(JSON.stringify([format, version, threadId, namespaces, effects]))
    .digest('hex')
}

function isThere(threadId: string): HoldfastError {
  return new HoldfastError(
    'conflict',
    `Thread ${JSON.stringify(threadId)}, or one of its effects, is here already; it was not imported over it. Import it under another id.`,
    {
      details: { threadId },
    },
  )
}
