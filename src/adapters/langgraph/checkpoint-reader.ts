import { isDeepStrictEqual } from 'node:util'
import {
  type Checkpoint,
  type CheckpointMetadata,
  type CheckpointPendingWrite,
  type CheckpointTuple,
  type DeltaChannelHistory,
  maxChannelVersion,
  TASKS,
} from '@langchain/langgraph-checkpoint'
import type { KeyedRecord, Records } from '../../index.ts'
import type { Chains, ChannelValues, Known, Ref } from './channel-values.ts'
import type { Head } from './heads.ts'
import { below, checkpointKey, nameOfPlace, type Place } from './keys.ts'
import { type Packed, unpack } from './pack.ts'
import type { PendingWrites } from './pending-writes.ts'
import { Recent } from './recent.ts'

export const checkpoints = 'checkpoints'

/** What the record of a checkpoint contains. */
export interface CheckpointPayload {
  /** The checkpoint without its values. */
  readonly c: Packed
  readonly m: Packed
  /** The parent's id. */
  readonly p?: string
  /** Where the values of its channels are. */
  readonly r: Readonly<Record<string, Ref>>
}

/** A checkpoint whose values this process knows: the next one is compared with it. */
export interface Remembered {
  readonly parentId?: string | undefined
  readonly versions: Readonly<Record<string, string | number>>
  readonly known: ReadonlyMap<string, Known>
}

type Bare = Omit<Checkpoint, 'channel_values'>

/** A checkpoint as it is in the store, without the values of its channels. */
export interface Found {
  readonly key: string
  /** Of its record. */
  readonly bytes: number
  readonly bare: Bare
  readonly metadata: CheckpointMetadata
  readonly parentId: string | undefined
  readonly refs: Readonly<Record<string, Ref>>
}

export class CheckpointReader {
  readonly #records: Records
  readonly #values: ChannelValues
  readonly #writes: PendingWrites
  readonly #remembered = new Recent<Remembered>(100)

  constructor(records: Records, values: ChannelValues, writes: PendingWrites) {
    this.#records = records
    this.#values = values
    this.#writes = writes
  }

  recall(place: Place, id: string): Remembered | undefined {
    return this.#remembered.get(`${nameOfPlace(place)}/${id}`)
  }

  remember(place: Place, id: string, remembered: Remembered): void {
    this.#remembered.set(`${nameOfPlace(place)}/${id}`, remembered)
  }

  /** A checkpoint and the writes that wait for it; undefined where there is none. Remembers its values. */
  async tuple(head: Head, id: string): Promise<CheckpointTuple | undefined> {
    const [found, writes] = await Promise.all([this.#find(head.prefix, id), this.#writes.read(head.prefix, id)])
    if (found === undefined) return undefined
    const known = await this.#load(head, id, found, new Map())
    return this.#tupleOf(head, found, known, writes)
  }

  /** What the next checkpoint is compared with; undefined where there is no such checkpoint. */
  async load(head: Head, id: string): Promise<Remembered | undefined> {
    const found = await this.#find(head.prefix, id)
    if (found === undefined) return undefined
    return remembered(found, await this.#load(head, id, found, new Map()))
  }

  /** Newest first. */
  async *list(
    head: Head,
    { before, limit = Number.POSITIVE_INFINITY, filter = {}, only }: ListQuery,
  ): AsyncGenerator<CheckpointTuple> {
    const chains: Chains = new Map()
    let left = limit
    let upTo = before === undefined ? below(head.prefix).beforeKey : checkpointKey(head.prefix, before)
    let size = only === undefined ? Math.min(limit, 16) : 1
    while (left > 0) {
      const page = await this.#page(head.prefix, upTo, size, only)
      const found = page.map((record) => this.#read(record)).filter(({ metadata }) => matches(metadata, filter))
      const writes = await this.#writesOf(head.prefix, found)
      for (const one of found.slice(0, left)) {
        const known = await this.#load(head, one.bare.id, one, chains)
        left -= 1
        yield await this.#tupleOf(head, one, known, writes.get(one.key) ?? [])
      }
      if (page.length < size || only !== undefined) return
      upTo = page.at(-1)?.key as string
      size = 200
    }
  }

  /** For each channel, its writes since the nearest checkpoint on the way to the root that has a value, and that value. */
  async deltas(head: Head, id: string, channels: readonly string[]): Promise<Record<string, DeltaChannelHistory>> {
    const histories: Record<string, DeltaChannelHistory> = Object.fromEntries(
      channels.map((channel) => [channel, { writes: [] }]),
    )
    const open = new Set(channels)
    let next = (await this.#find(head.prefix, id))?.parentId
    for (let upTo = checkpointKey(head.prefix, id), size = 32; next !== undefined && open.size > 0; size = 500) {
      const page = (await this.#page(head.prefix, upTo, size)).map((record) => this.#read(record))
      // A parent whose id is not below that of its child: clocks differ. It is read by itself.
      const byId = new Map(page.map((found) => [found.bare.id, found]))
      const writes = await this.#writesOf(head.prefix, page)
      if (!byId.has(next)) {
        const found = await this.#find(head.prefix, next)
        if (found === undefined) break
        if (page.length < size || found.key > upTo) {
          byId.set(next, found)
          writes.set(found.key, await this.#writes.read(head.prefix, next))
        }
      }
      for (
        let found = byId.get(next);
        found !== undefined && open.size > 0;
        found = next === undefined ? undefined : byId.get(next)
      ) {
        await this.#collect(head.prefix, found, writes.get(found.key) ?? [], open, histories)
        next = found.parentId
        upTo = found.key
      }
    }
    for (const history of Object.values(histories)) history.writes.reverse()
    return histories
  }

  /** All checkpoints of a thread and namespace, in the order of their ids. */
  async all(prefix: string): Promise<Found[]> {
    const all: Found[] = []
    for (let { afterKey, beforeKey } = below(prefix); ; ) {
      const page = await this.#records.read({ collection: checkpoints, afterKey, beforeKey, limit: 500 })
      all.push(...page.map((record) => this.#read(record)))
      if (page.length < 500) return all
      afterKey = page.at(-1)?.key as string
    }
  }

  /** A packed value. What was read of its chain is kept in `chains`. */
  async value(prefix: string, ref: Ref, chains: Chains): Promise<Packed> {
    return (await this.#values.load(prefix, ref, chains)).packed
  }

  /** How many bytes the values of a thread and namespace take, by where they are. */
  async bytesOfValues(prefix: string): Promise<Map<Ref, number>> {
    return this.#values.bytes(prefix)
  }

  /** Whether a channel has had this version, with a value, in any checkpoint. */
  async hasVersion(prefix: string, channel: string, version: string | number): Promise<boolean> {
    for (let upTo = below(prefix).beforeKey; ; ) {
      const page = await this.#page(prefix, upTo, 200)
      if (page.some((record) => isAt(this.#read(record), channel, version))) return true
      if (page.length < 200) return false
      upTo = page.at(-1)?.key as string
    }
  }

  async #collect(
    prefix: string,
    found: Found,
    writes: readonly CheckpointPendingWrite[],
    open: Set<string>,
    histories: Record<string, DeltaChannelHistory>,
  ): Promise<void> {
    for (const write of writes.toReversed()) if (open.has(write[1])) histories[write[1]]?.writes.push(write)
    for (const channel of [...open]) {
      const ref = Object.hasOwn(found.refs, channel) ? found.refs[channel] : undefined
      if (ref === undefined) continue
      open.delete(channel)
      const history = histories[channel] as DeltaChannelHistory
      history.seed = unpack((await this.#values.load(prefix, ref)).packed)
    }
  }

  async #find(prefix: string, id: string): Promise<Found | undefined> {
    const [record] = await this.#records.read({ collection: checkpoints, where: { keys: [checkpointKey(prefix, id)] }, limit: 1 })
    return record && this.#read(record)
  }

  async #page(prefix: string, upTo: string, limit: number, only?: string): Promise<readonly KeyedRecord[]> {
    if (only !== undefined) {
      const key = checkpointKey(prefix, only)
      return key < upTo ? this.#records.read({ collection: checkpoints, where: { keys: [key] }, limit: 1 }) : []
    }
    const { afterKey } = below(prefix)
    return this.#records.read({ collection: checkpoints, afterKey, beforeKey: upTo, isDescending: true, limit })
  }

  async #writesOf(prefix: string, found: readonly Found[]): Promise<Map<string, CheckpointPendingWrite[]>> {
    const [newest, oldest] = [found[0], found.at(-1)]
    if (newest === undefined || oldest === undefined) return new Map()
    return this.#writes.readBetween(prefix, oldest.bare.id, newest.bare.id)
  }

  async #load(head: Head, id: string, found: Found, chains: Chains): Promise<ReadonlyMap<string, Known>> {
    const before = this.recall(head, id)?.known
    const entries = Object.entries(found.refs).map(async ([channel, ref]): Promise<[string, Known]> => {
      const known = before?.get(channel)
      return [channel, known !== undefined && known.ref === ref ? known : await this.#values.load(head.prefix, ref, chains)]
    })
    const known = new Map(await Promise.all(entries))
    if (chains.size === 0 || before !== undefined || head.id === id) this.remember(head, id, remembered(found, known))
    return known
  }

  async #tupleOf(
    head: Head,
    found: Found,
    known: ReadonlyMap<string, Known>,
    pendingWrites: CheckpointPendingWrite[],
  ): Promise<CheckpointTuple> {
    const { bare, metadata, parentId } = found
    const channel_values = Object.fromEntries([...known].map(([channel, { packed }]) => [channel, unpack(packed)]))
    const checkpoint = { ...bare, channel_values } as Checkpoint
    if (bare.v < 4 && parentId !== undefined) migrateSends(checkpoint, await this.#writes.read(head.prefix, parentId))
    const configOf = (id: string) => ({ configurable: { thread_id: head.threadId, checkpoint_ns: head.ns, checkpoint_id: id } })
    return {
      ...{ config: configOf(bare.id), checkpoint, metadata, pendingWrites },
      ...(parentId !== undefined && { parentConfig: configOf(parentId) }),
    }
  }

  #read({ key, payload }: KeyedRecord): Found {
    const { c, m, p, r } = this.#records.decode(payload) as CheckpointPayload
    return {
      key,
      bytes: payload.length,
      bare: unpack(c) as Bare,
      metadata: unpack(m) as CheckpointMetadata,
      parentId: p,
      refs: r,
    }
  }
}

interface ListQuery {
  readonly limit?: number | undefined
  readonly filter?: Readonly<Record<string, unknown>>
  /** The id of the checkpoint before which. */
  readonly before?: string | undefined
  /** No checkpoint but this one. */
  readonly only?: string | undefined
}

function remembered({ bare, parentId }: Found, known: ReadonlyMap<string, Known>): Remembered {
  return { parentId, versions: bare.channel_versions, known }
}

function matches(metadata: CheckpointMetadata, filter: Readonly<Record<string, unknown>>): boolean {
  const values = metadata as unknown as Record<string, unknown>
  return Object.entries(filter).every(([key, value]) =>
    isDeepStrictEqual(Object.hasOwn(values, key) ? values[key] : undefined, value),
  )
}

function isAt({ bare, refs }: Found, channel: string, version: string | number): boolean {
  return Object.hasOwn(refs, channel) && bare.channel_versions[channel] === version
}

/** Checkpoints of before version 4 have what was sent with the writes of their parent. */
function migrateSends(checkpoint: Checkpoint, writes: readonly CheckpointPendingWrite[]): void {
  checkpoint.channel_values[TASKS] = writes.filter(([, channel]) => channel === TASKS).map(([, , value]) => value)
  const versions = Object.values(checkpoint.channel_versions)
  checkpoint.channel_versions = {
    ...checkpoint.channel_versions,
    [TASKS]: versions.length > 0 ? maxChannelVersion(...versions) : 1,
  }
}
