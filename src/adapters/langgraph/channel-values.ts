import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { HoldfastError, type RecordChange, type Records } from '../../index.ts'
import { below, chainKey } from './keys.ts'
import { isPackedAs, type Packed, pack } from './pack.ts'

/**
 * Values of channels. A small one is in the checkpoint itself. Another is a place in a chain: record 0 has the whole value, each later one what
 * changed in a list. A chain is only ever continued at its end; a branch begins one of its own.
 */
export type Ref = string | readonly [Packed]

/** A value as this process knows it. */
export interface Known {
  readonly ref: Ref
  readonly packed: Packed
  /** Items of a list that its chain has to read: more than the list has once some were removed. */
  readonly itemsRead: number
  /** Items that the list had at the beginning of its chain. */
  readonly itemsAtStart: number
}

/** A new value, copied, and how it differs from the one before where both are lists. */
export interface Prepared {
  readonly packed: Packed
  readonly splice?: Splice
  readonly isSame: boolean
}

interface Splice {
  readonly start: number
  readonly removed: number
  readonly items: readonly Packed[]
}

/** What a record of a chain says. */
type Link = { readonly whole: Packed } | { readonly at: number; readonly remove?: number; readonly items: readonly Packed[] }

/** What it contains: items that a task of the parent wrote as they are, are not written again. */
type KeptLink = Link | { readonly at: number; readonly remove?: number; readonly w: readonly ItemsRef[] }

/** Items that are in the record of a task's writes: its key without the prefix, and which write; `1`: the value is one item, and not a list of them. */
export type ItemsRef = readonly [key: string, index: number, isOne?: 1]

/** Finds items among what is written already, or in the same change. */
export type FindItems = (items: readonly Packed[]) => readonly ItemsRef[] | undefined

/** The keys of writes that a record of a chain needs. */
export function writesOf(prefix: string, link: unknown): string[] {
  const { w = [] } = link as { readonly w?: readonly ItemsRef[] }
  return w.map(([key]) => `${prefix}/${key}`)
}

/** Encoded characters up to which a value is in the checkpoint. */
const smallest = 64
/** Encoded characters from which items are looked for among the writes: naming them takes about half as many. */
const longItems = 200
/** A chain has at least so many links before a new one begins; more where the list was longer than that. */
const leastLinks = 512

export function prepare(value: unknown, base: Packed | undefined): Prepared {
  if (!Array.isArray(value) || !Array.isArray(base)) {
    const isSame = base !== undefined && isPackedAs(value, base)
    return { packed: isSame ? base : pack(value), isSame }
  }
  return alignLists(value, base, isPackedAs, (item) => pack(item, 1))
}

/** The same for a value that was packed before anybody knew what it is compared with. */
export function prepareAgain({ packed }: Prepared, base: Packed | undefined): Prepared {
  if (!Array.isArray(packed) || !Array.isArray(base))
    return { packed, isSame: isDeepStrictEqual(packed, base) && base !== undefined }
  return alignLists(packed, base, isDeepStrictEqual, (item) => item)
}

function alignLists(
  value: readonly unknown[],
  base: readonly Packed[],
  isSame: (item: unknown, packed: Packed) => boolean,
  make: (item: unknown) => Packed,
): Prepared {
  const shorter = Math.min(value.length, base.length)
  let start = 0
  while (start < shorter && isSame(value[start], base[start])) start++
  if (start === value.length && start === base.length) return { packed: base, isSame: true }
  let end = 0
  while (end < shorter - start && isSame(value[value.length - 1 - end], base[base.length - 1 - end])) end++
  const items = value.slice(start, value.length - end).map(make)
  const packed = [...base.slice(0, start), ...items, ...base.slice(base.length - end)]
  return { packed, splice: { start, removed: base.length - start - end, items }, isSame: false }
}

interface Written {
  readonly known: Known
  readonly change?: RecordChange
}

export class ChannelValues {
  readonly #records: Records

  constructor(records: Records) {
    this.#records = records
  }

  /** How a value is kept, and the record that it takes. With `isBranch` no chain is continued. */
  keep(
    prefix: string,
    value: Prepared,
    base: Known | undefined,
    { isBranch, find }: { readonly isBranch: boolean; readonly find: FindItems },
  ): Written {
    if (value.isSame && base !== undefined) return { known: base }
    const link = base === undefined || isBranch ? undefined : nextLink(value, base)
    if (link !== undefined && base !== undefined) return this.#continue(prefix, value, base, link, find)
    const encoded = this.#records.encode({ whole: value.packed } satisfies Link)
    const items = Array.isArray(value.packed) ? value.packed.length : 0
    const known = { packed: value.packed, itemsRead: items, itemsAtStart: items }
    if (encoded.length <= smallest) return { known: { ...known, ref: [value.packed] } }
    const chain = randomBytes(6).toString('base64url')
    return { known: { ...known, ref: `${chain}.0` }, change: putLink(prefix, chain, 0, encoded) }
  }

  #continue(prefix: string, { packed, splice }: Prepared, base: Known, { chain, index }: Position, find: FindItems): Written {
    const { start, removed, items } = splice as Splice
    const place = { at: start, ...(removed > 0 && { remove: removed }) }
    const whole = this.#records.encode({ ...place, items } satisfies KeptLink)
    const w = whole.length < longItems ? undefined : find(items)
    const payload = w === undefined ? whole : this.#records.encode({ ...place, w } satisfies KeptLink)
    const known = { ref: `${chain}.${index}`, packed, itemsRead: base.itemsRead + items.length, itemsAtStart: base.itemsAtStart }
    return { known, change: putLink(prefix, chain, index, payload) }
  }

  /** Reads a value. What was read of a chain is kept in `chains` for its other places: newest first, each chain is read once. */
  async load(prefix: string, ref: Ref, chains: Chains = new Map()): Promise<Known> {
    if (typeof ref !== 'string') return known(ref, [{ whole: ref[0] }])
    const { chain, index } = positionOf(ref)
    const read = chains.get(chain)
    if (read !== undefined && (await read).length > index) return known(ref, (await read).slice(0, index + 1))
    const links = this.#read(prefix, chain, index)
    chains.set(chain, links)
    return known(ref, await links)
  }

  /** How many bytes its links take, by the values that end there. */
  async bytes(prefix: string): Promise<Map<Ref, number>> {
    const bytes = new Map<Ref, number>()
    for (let { afterKey, beforeKey } = below(prefix); ; ) {
      const page = await this.#records.read({ collection: 'channels', afterKey, beforeKey, limit: 500 })
      for (const { key, payload } of page) {
        const [, chain, index] = key.split('/') as [string, string, string]
        bytes.set(`${chain}.${Number.parseInt(index, 36)}`, Buffer.byteLength(payload))
      }
      if (page.length < 500) return bytes
      afterKey = page.at(-1)?.key as string
    }
  }

  async #read(prefix: string, chain: string, index: number): Promise<readonly Link[]> {
    const range = { afterKey: below(`${prefix}/${chain}`).afterKey, beforeKey: chainKey(prefix, chain, index + 1) }
    const records = await this.#records.read({ collection: 'channels', ...range, limit: index + 1 })
    if (records.length < index + 1) throw incomplete(`${records.length} of ${index + 1} records`)
    return this.#withItems(
      prefix,
      records.map(({ payload }) => this.#records.decode(payload) as KeptLink),
    )
  }

  /** With the items that are in writes of tasks. */
  async #withItems(prefix: string, links: readonly KeptLink[]): Promise<readonly Link[]> {
    const keys = [...new Set(links.flatMap((link) => writesOf(prefix, link)))]
    const writes = new Map<string, ReadonlyMap<number, Packed>>()
    for (let at = 0; at < keys.length; at += mostKeys) {
      const where = { keys: keys.slice(at, at + mostKeys) }
      for (const { key, payload } of await this.#records.read({ collection: 'writes', where, limit: mostKeys })) {
        const { w } = this.#records.decode(payload) as { readonly w: readonly (readonly [number, string, Packed])[] }
        writes.set(key, new Map(w.map(([index, , value]) => [index, value])))
      }
    }
    return links.map((link): Link => {
      if (!('w' in link)) return link
      const { w, ...place } = link
      const items = w.flatMap(([key, index, isOne]) => {
        const found = writes.get(`${prefix}/${key}`)
        if (found?.has(index) !== true) throw incomplete('writes that are not there')
        return isOne === 1 ? [found.get(index)] : (found.get(index) as readonly Packed[])
      })
      return { ...place, items }
    })
  }
}

/** Records that are read by their keys at a time. */
const mostKeys = 500

function incomplete(what: string): HoldfastError {
  return new HoldfastError(
    'corrupt_record',
    `The value of a channel has ${what}. Was the thread deleted while it was read? Else restore it from a backup.`,
  )
}

export type Chains = Map<string, Promise<readonly Link[]>>

export interface Position {
  readonly chain: string
  readonly index: number
}

export function positionOf(ref: string): Position {
  const at = ref.lastIndexOf('.')
  return { chain: ref.slice(0, at), index: Number(ref.slice(at + 1)) }
}

/** Where the chain of the base continues; undefined where the value is better kept whole. */
function nextLink({ packed, splice }: Prepared, { ref, itemsRead, itemsAtStart }: Known): Position | undefined {
  if (splice === undefined || typeof ref !== 'string' || !Array.isArray(packed)) return undefined
  const { chain, index } = positionOf(ref)
  if (index + 1 >= Math.max(leastLinks, itemsAtStart)) return undefined
  if (itemsRead + splice.items.length > 2 * packed.length + 16) return undefined
  return { chain, index: index + 1 }
}

function putLink(prefix: string, chain: string, index: number, payload: ReturnType<Records['encode']>): RecordChange {
  return {
    ...{ kind: 'put', collection: 'channels', key: chainKey(prefix, chain, index), parent: null, threadId: null, fields: [] },
    ...{ payload, expires: 'never', ifVersion: 0 },
  }
}

function known(ref: Ref, links: readonly Link[]): Known {
  let packed: Packed
  let [itemsRead, itemsAtStart] = [0, 0]
  for (const link of links) {
    if ('whole' in link) {
      packed = Array.isArray(link.whole) ? [...link.whole] : link.whole
      itemsAtStart = Array.isArray(packed) ? packed.length : 0
      itemsRead = itemsAtStart
    } else {
      const list = packed as Packed[]
      // Appending is the usual case, and `splice` with a long list of arguments may be too long.
      if (link.at === list.length) for (const item of link.items) list.push(item)
      else packed = [...list.slice(0, link.at), ...link.items, ...list.slice(link.at + (link.remove ?? 0))]
      itemsRead += link.items.length
    }
  }
  return { ref, packed, itemsRead, itemsAtStart }
}
