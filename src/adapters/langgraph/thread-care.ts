import { randomBytes } from 'node:crypto'
import { HoldfastError, type KeyedRecord, type RecordChange, type Records } from '../../index.ts'
import { positionOf, type Ref, writesOf } from './channel-values.ts'
import type { CheckpointPayload } from './checkpoint-reader.ts'
import type { Effects } from './effects.ts'
import type { Head, Heads } from './heads.ts'
import { below, chainKey, checkpointKey, endKey, endsOf, headKey, livesKey } from './keys.ts'
import { type Packed, unpack } from './pack.ts'

const batchSize = 500
const collections = ['channels', 'writes', 'checkpoints'] as const

/** What is done to threads as a whole. */
export class ThreadCare {
  readonly #records: Records
  readonly #heads: Heads
  readonly #effects: Effects

  constructor(records: Records, heads: Heads, effects: Effects) {
    this.#records = records
    this.#heads = heads
    this.#effects = effects
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
    await this.#effects.forget(threadId)
  }

  /**
   * Copies all checkpoints and writes of a thread. Readers see each namespace once all of it is there. Refused with `conflict` where the
   * target has checkpoints.
   */
  async copyThread(source: string, target: string): Promise<void> {
    for (const from of await this.#heads.all(source)) {
      const to = await this.#heads.read({ threadId: target, ns: from.ns })
      if (to.id !== undefined) throw hasCheckpoints(target)
      const prefix = randomBytes(9).toString('base64url')
      for (const collection of collections) {
        for await (const page of this.#pages(collection, from.prefix)) {
          await this.#records.write(page.map((record) => copyOf(record, prefix + record.key.slice(from.prefix.length))))
        }
      }
      const answer = await this.#records.write([
        this.#heads.move({ ...to, prefix }, from.id as string),
        this.#heads.stillAlive(to),
      ])
      if (!answer.ok) {
        await this.#deleteAll(prefix)
        throw hasCheckpoints(target)
      }
    }
  }

  /** Deletes all but the latest checkpoint of each namespace, and what that one needs: of a delta channel, the way to its last snapshot. */
  async keepLatest(threadId: string): Promise<void> {
    const heads = await this.#heads.all(threadId)
    const kept = new Set<string>()
    for (const head of heads) {
      const needed = await this.#neededBy(head)
      for (const key of needed) kept.add(key)
      for await (const links of this.#pages('channels', head.prefix)) {
        const those = links.filter(({ key }) => kept.has(key))
        for (const key of this.#writesIn(head.prefix, those)) needed.add(key)
      }
      for (const collection of collections) {
        for await (const page of this.#pages(collection, head.prefix)) {
          const keys = page.map(({ key }) => key).filter((key) => !needed.has(key) && !needed.has(checkpointOf(key)))
          await this.#delete(collection, keys)
        }
      }
    }
    await this.#effects.forget(threadId, (id) => !heads.some(({ prefix }) => kept.has(checkpointKey(prefix, id))))
  }

  /** Deletes the checkpoints of runs, by the `run_id` in their metadata, with their writes. The latest of what is left is the latest then. */
  async deleteForRuns(runIds: readonly string[]): Promise<void> {
    const prefixes = new Set<string>()
    const deleted: string[] = []
    for (const value of runIds) {
      for (;;) {
        const where = { field: { name: 'run_id', value } }
        const page = await this.#records.read({ collection: 'checkpoints', where, limit: batchSize })
        for (const { key } of page) {
          prefixes.add(key.slice(0, key.indexOf('/')))
          for await (const writes of this.#pages('writes', key)) for (const write of writes) deleted.push(write.key)
        }
        await this.#delete(
          'checkpoints',
          page.map(({ key }) => key),
        )
        if (page.length < batchSize) break
      }
    }
    const needed = new Set<string>()
    for (const prefix of prefixes) {
      for await (const links of this.#pages('channels', prefix)) for (const key of this.#writesIn(prefix, links)) needed.add(key)
    }
    await this.#delete(
      'writes',
      deleted.filter((key) => !needed.has(key)),
    )
    for (const head of await this.#heads.all()) if (prefixes.has(head.prefix)) await this.#moveBack(head)
  }

  /** The keys of writes whose items links of chains have not written again. */
  #writesIn(prefix: string, links: readonly KeyedRecord[]): string[] {
    return links.flatMap(({ payload }) => writesOf(prefix, this.#records.decode(payload)))
  }

  async #moveBack(head: Head): Promise<void> {
    const latest = { collection: 'checkpoints', ...below(head.prefix), isDescending: true, limit: 1 }
    const [record] = await this.#records.read(latest)
    if (record === undefined) return this.#delete('heads', [headKey(head)])
    const { c } = this.#records.decode(record.payload) as CheckpointPayload
    // Refused where a run went on meanwhile: then its checkpoint is the latest.
    const { id } = unpack(c) as { readonly id: string }
    if (id !== head.id) await this.#records.write([this.#heads.move(head, id)])
  }

  /** What the latest checkpoint needs: checkpoints, with their writes, and links of chains. */
  async #neededBy(head: Head): Promise<Set<string>> {
    const needed = new Set<string>()
    let open: Set<string> | undefined
    for (let id = head.id; id !== undefined; ) {
      const key = checkpointKey(head.prefix, id)
      const [record] = await this.#records.read({ collection: 'checkpoints', where: { keys: [key] }, limit: 1 })
      if (record === undefined) break
      const { m, p, r, c } = this.#records.decode(record.payload) as CheckpointPayload
      needed.add(key)
      for (const ref of Object.values(r)) for (const link of linksOf(head.prefix, ref)) needed.add(link)
      open ??= deltaChannelsOf(m)
      for (const channel of Object.keys(r)) open.delete(channel)
      const isOld = id === head.id && (unpack(c) as { readonly v: number }).v < 4
      id = open.size > 0 || isOld ? p : undefined
    }
    return needed
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
    for (const collection of collections) {
      for await (const page of this.#pages(collection, prefix))
        await this.#delete(
          collection,
          page.map(({ key }) => key),
        )
    }
  }

  async *#pages(collection: string, prefix: string): AsyncGenerator<readonly KeyedRecord[]> {
    const range = below(prefix)
    for (let { afterKey } = range; ; ) {
      const page = await this.#records.read({ collection, ...range, afterKey, limit: batchSize })
      if (page.length > 0) yield page
      if (page.length < batchSize) return
      afterKey = page.at(-1)?.key as string
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

function copyOf({ collection, fields, payload }: KeyedRecord, key: string): RecordChange {
  return { kind: 'put', collection, key, parent: null, threadId: null, fields, payload, expires: 'never' }
}

/** The keys of the links of a chain that a value is read from. */
function linksOf(prefix: string, ref: Ref): string[] {
  if (typeof ref !== 'string') return []
  const { chain, index } = positionOf(ref)
  return Array.from({ length: index + 1 }, (_, at) => chainKey(prefix, chain, at))
}

/** Where the writes belong to of which this is the key. */
function checkpointOf(key: string): string {
  return key.split('/').slice(0, 2).join('/')
}

/** Channels that LangGraph rebuilds from writes. */
function deltaChannelsOf(metadata: Packed): Set<string> {
  const { counters_since_delta_snapshot: counters = {} } = unpack(metadata) as { readonly counters_since_delta_snapshot?: object }
  return new Set(Object.keys(counters))
}

function hasCheckpoints(threadId: string): HoldfastError {
  const name = JSON.stringify(threadId)
  return new HoldfastError(
    'conflict',
    `Thread ${name} has checkpoints already; nothing was copied over them. Copy to another id, or delete it first.`,
  )
}
