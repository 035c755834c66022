import { isDeepStrictEqual } from 'node:util'
import {
  BaseStore,
  type GetOperation,
  type Item,
  type ListNamespacesOperation,
  type MatchCondition,
  type Operation,
  type OperationResults,
  type PutOperation,
  type SearchItem,
  type SearchOperation,
} from '@langchain/langgraph-checkpoint'
import { type Holdfast, HoldfastError, type KeyedRecord, type RecordChange, type Records } from '../../index.ts'
import { itemKey, namespaceKey, rangeOf } from './keys.ts'
import { type Packed, pack, unpack } from './pack.ts'

export interface HoldfastStoreOptions {
  /** How long an item is kept after it was put, in ms. Default: until it is deleted. */
  readonly ttlMs?: number
  /** Whether reading an item gives it its whole time again. Default true. */
  readonly refreshOnRead?: boolean
}

/** What a record contains. */
interface Kept {
  readonly n: readonly string[]
  readonly k: string
  readonly v: Packed
}

const collection = 'items'
const pageSize = 500

/**
 * LangGraph's long-term store in a store of Holdfast: `graph.compile({ checkpointer, store: new HoldfastStore(hf) })`. A namespace matches itself
 * and what is below it, label by label. Values come back exactly. There is no search by `query` text: it is refused with `invalid_input`.
 */
export class HoldfastStore extends BaseStore {
  readonly #records: Records
  readonly #ttlMs: number | undefined
  readonly #refreshOnRead: boolean

  constructor(hf: Holdfast, { ttlMs, refreshOnRead = true }: HoldfastStoreOptions = {}) {
    super()
    if (ttlMs !== undefined && !(typeof ttlMs === 'number' && ttlMs > 0)) {
      throw new HoldfastError(
        'invalid_input',
        `ttlMs of HoldfastStore is ${String(ttlMs)}; it must be a number of milliseconds above 0.`,
      )
    }
    this.#records = hf.records('langgraph')
    this.#ttlMs = ttlMs === Number.POSITIVE_INFINITY ? undefined : ttlMs
    this.#refreshOnRead = refreshOnRead
  }

  /** Does what LangGraph asks for, in order. What is put between two reads is written in one commit. */
  override async batch<Op extends Operation[]>(operations: Op): Promise<OperationResults<Op>> {
    const results: unknown[] = []
    let puts: PutOperation[] = []
    const flush = async () => {
      if (puts.length > 0) await this.#put(puts)
      puts = []
    }
    for (const operation of operations) {
      if ('value' in operation) {
        puts.push(operation)
        results.push(undefined)
        continue
      }
      await flush()
      if ('key' in operation) results.push(await this.#get(operation))
      else if ('namespacePrefix' in operation) results.push(await this.#search(operation))
      else results.push(await this.#namespaces(operation as ListNamespacesOperation))
    }
    await flush()
    return results as OperationResults<Op>
  }

  async #get({ namespace, key }: GetOperation): Promise<Item | null> {
    const [record] = await this.#records.read({ collection, where: { keys: [itemKey(namespace, key)] }, limit: 1 })
    if (record === undefined) return null
    await this.#refresh([record])
    return this.#item(record)
  }

  async #search({ namespacePrefix, filter = {}, limit = 10, offset = 0, query }: SearchOperation): Promise<SearchItem[]> {
    if (query !== undefined && query !== '') {
      throw new HoldfastError(
        'invalid_input',
        'HoldfastStore does not search by text: leave out `query`, and narrow down with a namespace and a filter.',
      )
    }
    const wanted = offset + limit
    const found: KeyedRecord[] = []
    const items: SearchItem[] = []
    for await (const record of this.#under(namespacePrefix)) {
      if (items.length >= wanted) break
      const item = this.#item(record)
      if (!matches(item.value, filter)) continue
      found.push(record)
      items.push(item)
    }
    await this.#refresh(found.slice(offset))
    return items.slice(offset)
  }

  async #namespaces({ matchConditions = [], maxDepth, limit, offset }: ListNamespacesOperation): Promise<string[][]> {
    const found = new Map<string, string[]>()
    for await (const record of this.#under([])) {
      const { n } = this.#records.decode(record.payload) as Kept
      if (!matchConditions.every((condition) => isMatched(n, condition))) continue
      const namespace = n.slice(0, maxDepth)
      found.set(namespaceKey(namespace), namespace)
    }
    return [...found.values()].slice(offset, offset + limit)
  }

  async *#under(namespace: readonly string[]): AsyncGenerator<KeyedRecord> {
    const range = rangeOf(namespaceKey(namespace))
    for (let { afterKey } = range; ; ) {
      const page = await this.#records.read({ collection, ...range, afterKey, limit: pageSize })
      yield* page
      if (page.length < pageSize) return
      afterKey = page.at(-1)?.key as string
    }
  }

  async #put(operations: readonly PutOperation[]): Promise<void> {
    const changes = new Map<string, RecordChange>()
    for (const { namespace, key, value } of operations) {
      const name = itemKey(namespace, key)
      changes.set(name, value === null ? { kind: 'delete', collection, key: name } : this.#change(name, namespace, key, value))
    }
    await this.#records.write([...changes.values()])
  }

  #change(name: string, namespace: readonly string[], key: string, value: object): RecordChange {
    const payload = this.#records.encode({ n: [...namespace], k: key, v: pack(value) } satisfies Kept)
    const expires = this.#ttlMs === undefined ? 'never' : { inMs: this.#ttlMs }
    return { kind: 'put', collection, key: name, parent: null, threadId: null, fields: [], payload, expires }
  }

  /** Those that were put meanwhile keep their own time. */
  async #refresh(records: readonly KeyedRecord[]): Promise<void> {
    if (this.#ttlMs === undefined || !this.#refreshOnRead || records.length === 0) return
    const expires = { inMs: this.#ttlMs }
    await this.#records.write(
      records.map(({ key, version }) => ({ kind: 'touch', collection, key, expires, ofVersion: version })),
    )
  }

  #item({ payload, createdAt, updatedAt }: KeyedRecord): Item {
    const { n, k, v } = this.#records.decode(payload) as Kept
    const value = unpack(v) as Record<string, unknown>
    return { namespace: [...n], key: k, value, createdAt: new Date(createdAt), updatedAt: new Date(updatedAt) }
  }
}

/** A label of a condition may be `*`, which is any one label. */
function isMatched(namespace: readonly string[], { matchType, path }: MatchCondition): boolean {
  if (path.length > namespace.length) return false
  const part = matchType === 'prefix' ? namespace.slice(0, path.length) : namespace.slice(namespace.length - path.length)
  return path.every((label, index) => label === '*' || label === part[index])
}

type Comparison = (value: unknown, than: unknown) => boolean

const comparisons: Readonly<Record<string, Comparison>> = {
  $eq: isDeepStrictEqual,
  $ne: (value, than) => !isDeepStrictEqual(value, than),
  $gt: ordered((value, than) => value > than),
  $gte: ordered((value, than) => value >= than),
  $lt: ordered((value, than) => value < than),
  $lte: ordered((value, than) => value <= than),
}

function matches(value: Readonly<Record<string, unknown>>, filter: Readonly<Record<string, unknown>>): boolean {
  return Object.entries(filter).every(([key, wanted]) => {
    const found = Object.hasOwn(value, key) ? value[key] : undefined
    const operators =
      typeof wanted === 'object' && wanted !== null ? Object.keys(wanted).filter((name) => name.startsWith('$')) : []
    if (operators.length === 0) return isDeepStrictEqual(found, wanted)
    return Object.entries(wanted as object).every(([name, than]) => comparisonOf(name)(found, than))
  })
}

function comparisonOf(name: string): Comparison {
  const comparison = Object.hasOwn(comparisons, name) ? comparisons[name] : undefined
  if (comparison !== undefined) return comparison
  throw new HoldfastError(
    'invalid_input',
    `A filter has no ${JSON.stringify(name)}: use one of ${Object.keys(comparisons).join(', ')}.`,
  )
}

/** Numbers with numbers, texts with texts; nothing else is before or after anything. */
function ordered(compare: (value: number | string, than: number | string) => boolean): Comparison {
  return (value, than) =>
    ((typeof value === 'number' && typeof than === 'number') || (typeof value === 'string' && typeof than === 'string')) &&
    compare(value, than)
}
