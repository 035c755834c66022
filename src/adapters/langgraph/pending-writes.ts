import { isDeepStrictEqual } from 'node:util'
import { type CheckpointPendingWrite, type PendingWrite, WRITES_IDX_MAP } from '@langchain/langgraph-checkpoint'
import { HoldfastError, type KeyedRecord, type RecordChange, type Records } from '../../index.ts'
import type { FindItems, ItemsRef } from './channel-values.ts'
import type { Effects } from './effects.ts'
import type { Head, Heads } from './heads.ts'
import { below, checkpointKey, nameOfPlace, type Place, type Range, writesKey } from './keys.ts'
import { type Packed, pack, unpack } from './pack.ts'
import { PutsUnderWay } from './puts-under-way.ts'
import { Recent } from './recent.ts'
import type { RunUnderWay } from './runs-under-way.ts'
import { unsureKeyOf } from './unsure-effect.ts'

/**
 * Writes of tasks, kept with the checkpoint that the tasks began from. Two records a task: one whose writes replace earlier ones of their kind
 * (errors, interrupts, answers), one whose first writes last.
 *
 * Writes wait for the end of the turn of the event loop. LangGraph starts `putWrites` and the `put` of the next checkpoint side by side: a
 * checkpoint takes along the writes of its parent that still wait, in the same change, and waits for those that are under way. So it is never
 * there before them, and a crash can't lose what it was made from. The other way round, writes are acknowledged only when their checkpoint is
 * there, and those of the graphs around it: a task whose writes were acknowledged is never run again.
 */
interface Group {
  readonly kind: 'replacing' | 'lasting'
  readonly kept: Kept
}

/** What a record contains. */
interface Kept {
  /** The task, where the key does not show it. */
  readonly t?: string
  readonly w: readonly (readonly [index: number, channel: string, value: Packed])[]
  /** How many times the task was interrupted or failed. */
  readonly n?: number
  /** Of an answer: the interrupts and failures that there were when it was given. */
  readonly a?: string
}

/** What one call of `putWrites` hands in. */
export interface Entry {
  readonly place: Place
  readonly checkpointId: string
  readonly taskId: string
  readonly life: number | undefined
  readonly groups: readonly Group[]
  readonly done: PromiseWithResolvers<void>
}

const collection = 'writes'
const pageSize = 500

export class PendingWrites {
  readonly #records: Records
  readonly #heads: Heads
  readonly #effects: Effects
  /** Checkpoints that are being written. */
  readonly puts = new PutsUnderWay()
  readonly #waiting = new Map<string, Entry[]>()
  readonly #underWay = new Map<string, Set<Promise<void>>>()
  /** By place and checkpoint: what this process wrote last, as it is in the store. */
  readonly #written = new Recent<{ readonly prefix: string; readonly entries: readonly Entry[] }>(100)

  constructor(records: Records, heads: Heads, effects: Effects) {
    this.#records = records
    this.#heads = heads
    this.#effects = effects
  }

  /** Whether the checkpoints of LangGraph's `checkpoint_map` are durable. Waits for those that are being written. */
  areThere(threadId: string, map: unknown): Promise<boolean> {
    return this.puts.areThere(threadId, map, this.#isThere)
  }

  /** Copies the writes at once; resolves when they are durable. */
  async put(
    place: Place,
    checkpointId: string,
    taskId: string,
    writes: readonly PendingWrite[],
    { run, map }: { readonly run?: RunUnderWay | undefined; readonly map?: unknown } = {},
  ): Promise<void> {
    const groups = groupsOf(taskId, writes)
    const entry = { place, checkpointId, taskId, life: run?.life, groups, done: Promise.withResolvers<void>() }
    if (run?.answering !== undefined) await run.answering
    const name = nameOf(place, checkpointId)
    const waiting = this.#waiting.get(name)
    if (waiting !== undefined) waiting.push(entry)
    else {
      this.#waiting.set(name, [entry])
      setImmediate(
        () => void this.#flush(name, run === undefined ? undefined : this.puts.of(place, checkpointId, map, this.#isThere)),
      )
    }
    return entry.done.promise
  }

  /** The writes of a checkpoint that still wait, for who writes them along. Resolves when those under way are durable. */
  async take(place: Place, checkpointId: string): Promise<readonly Entry[]> {
    const name = nameOf(place, checkpointId)
    const taken = this.#waiting.get(name) ?? []
    this.#waiting.delete(name)
    try {
      await Promise.all(this.#underWay.get(name) ?? [])
    } catch (error) {
      reject(taken, error)
      throw error
    }
    return taken
  }

  /** The records of entries of one checkpoint, each named once; refused where one is there already. */
  changesOf(prefix: string, entries: readonly Entry[]): RecordChange[] {
    const byKey = new Map<string, Kept>()
    for (const { checkpointId, taskId, groups } of entries) {
      for (const { kind, kept } of groups) {
        const key = writesKey(prefix, checkpointId, taskId, kind)
        byKey.set(key, merge(byKey.get(key), kept, kind))
      }
    }
    return [...byKey].map(([key, kept]) => this.#change(key, kept, 0))
  }

  /** Writes entries one by one, each together with what is there already. */
  async settle(head: Head, entries: readonly Entry[]): Promise<void> {
    for (const entry of entries) {
      for (const { kind, kept } of entry.groups) {
        const key = writesKey(head.prefix, entry.checkpointId, entry.taskId, kind)
        let [found] = await this.#records.read({ collection, where: { keys: [key] }, limit: 1 })
        for (let isWritten = false; !isWritten; ) {
          const merged = merge(found && this.#kept(found), kept, kind)
          const answer = await this.#records.write([
            this.#change(key, merged, found?.version ?? 0),
            this.#heads.stillAlive({ ...head, life: entry.life ?? head.life }),
          ])
          isWritten = answer.ok
          if (!answer.ok && this.#heads.isEnd(answer.record)) throw this.#heads.deleted(head)
          if (!answer.ok) found = answer.record ?? undefined
        }
      }
      entry.done.resolve()
    }
  }

  /**
   * Writes the answer to interrupts of a checkpoint, once: refused with `conflict` where it was answered and nothing was interrupted and
   * nothing failed since.
   */
  async answer(head: Head, checkpointId: string, taskId: string, writes: readonly PendingWrite[]): Promise<void> {
    const groups = groupsOf(taskId, writes)
    for (;;) {
      const records = await this.#range(below(checkpointKey(head.prefix, checkpointId)))
      const since = this.#stopsIn(records)
      await this.#requireDecided(head, records, taskId)
      const changes = groups.map(({ kind, kept }) => {
        const key = writesKey(head.prefix, checkpointId, taskId, kind)
        const found = records.find((record) => record.key === key)
        const before = found && this.#kept(found)
        if (kind === 'replacing' && before?.a === since) throw answered(head)
        return this.#change(key, merge(before, kind === 'replacing' ? { ...kept, a: since } : kept, kind), found?.version ?? 0)
      })
      const answer = await this.#records.write([...changes, this.#heads.stillAlive(head)])
      if (answer.ok) return
      if (this.#heads.isEnd(answer.record)) throw this.#heads.deleted(head)
    }
  }

  /** A person who answers an interrupt does not decide about an effect: the answer would reach another question of the node. */
  async #requireDecided({ threadId }: Head, records: readonly KeyedRecord[], answered: string): Promise<void> {
    const interrupts = records.flatMap((record) =>
      this.#kept(record).w.flatMap(([, channel, value]) => (channel === '__interrupt__' ? value : [])),
    )
    for (const interrupt of interrupts as { readonly id?: unknown; readonly value?: unknown }[]) {
      const key = unsureKeyOf(interrupt)
      if (key === undefined || (interrupt.id !== answered && !answersAnything.test(answered))) continue
      if (await this.#effects.isUnsure(key)) throw unsure(threadId, key)
    }
  }

  /** The interrupts and failures of a checkpoint, as a text. */
  async stops(prefix: string, checkpointId: string): Promise<string> {
    return this.#stopsIn(await this.#range(below(checkpointKey(prefix, checkpointId))))
  }

  #stopsIn(records: readonly KeyedRecord[]): string {
    const stops = records.map((record) => [record.key, this.#kept(record).n])
    return JSON.stringify(stops.filter(([, count]) => count !== undefined))
  }

  /** The writes of a checkpoint, in the order of tasks and of each task's writes. */
  async read(prefix: string, checkpointId: string): Promise<CheckpointPendingWrite[]> {
    const records = await this.#range(below(checkpointKey(prefix, checkpointId)))
    return records.flatMap((record) => this.#writes(record))
  }

  /** The same for all checkpoints between two, by the key of the checkpoint. One range read a page. */
  async readBetween(prefix: string, first: string, last: string): Promise<Map<string, CheckpointPendingWrite[]>> {
    const [oldest, newest] = [below(checkpointKey(prefix, first)), below(checkpointKey(prefix, last))]
    const writes = new Map<string, CheckpointPendingWrite[]>()
    for (const record of await this.#range({ afterKey: oldest.afterKey, beforeKey: newest.beforeKey })) {
      const key = record.key.split('/').slice(0, 2).join('/')
      writes.set(key, [...(writes.get(key) ?? []), ...this.#writes(record)])
    }
    return writes
  }

  async #range(range: Range): Promise<KeyedRecord[]> {
    const records: KeyedRecord[] = []
    for (let { afterKey } = range; ; ) {
      const page = await this.#records.read({ collection, ...range, afterKey, limit: pageSize })
      records.push(...page)
      if (page.length < pageSize) return records
      afterKey = page.at(-1)?.key as string
    }
  }

  readonly #isThere = async (place: Place, id: string): Promise<boolean> => {
    const { prefix } = await this.#heads.guess(place)
    const where = { keys: [checkpointKey(prefix, id)] }
    return (await this.#records.read({ collection: 'checkpoints', where, limit: 1 })).length > 0
  }

  /** `first`: the checkpoints that have to be there before their writes are acknowledged. */
  async #flush(name: string, first: Promise<unknown> | undefined): Promise<void> {
    try {
      await first
    } catch (error) {
      reject(this.#waiting.get(name) ?? [], error)
      this.#waiting.delete(name)
    }
    const entries = this.#waiting.get(name)
    if (entries === undefined) return
    this.#waiting.delete(name)
    const sent = this.#send(entries)
    const underWay = this.#underWay.get(name) ?? new Set()
    this.#underWay.set(name, underWay.add(sent))
    try {
      await sent
      for (const { done } of entries) done.resolve()
    } catch (error) {
      reject(entries, error)
    }
    underWay.delete(sent)
    if (underWay.size === 0) this.#underWay.delete(name)
  }

  async #send(entries: readonly Entry[]): Promise<void> {
    const [{ place, life }] = entries as readonly [Entry]
    const head = await this.#heads.guess(place)
    const answer = await this.#records.write([
      ...this.changesOf(head.prefix, entries),
      this.#heads.stillAlive({ ...head, life: life ?? head.life }),
    ])
    if (answer.ok) return this.#note(head, entries)
    if (this.#heads.isEnd(answer.record)) throw this.#heads.deleted(place)
    await this.settle(head, entries)
  }

  #note({ prefix }: Head, entries: readonly Entry[]): void {
    const [{ place, checkpointId }] = entries as readonly [Entry]
    const name = nameOf(place, checkpointId)
    const before = this.#written.get(name)
    this.#written.set(name, { prefix, entries: before?.prefix === prefix ? [...before.entries, ...entries] : entries })
  }

  /** Finds items of a channel's list among the writes of a checkpoint that are in the store, or written in the same change (`entries`). */
  finder(
    { prefix, ...place }: Head,
    checkpointId: string | undefined,
    entries: readonly Entry[],
  ): (channel: string) => FindItems {
    const written = checkpointId === undefined ? undefined : this.#written.get(nameOf(place, checkpointId))
    const all = [...(written?.prefix === prefix ? written.entries : []), ...entries]
    return (channel) => (items) =>
      findItems(
        items,
        all.flatMap((entry, at) =>
          writesTo(channel, entry).filter(({ ref: [key, index] }) => !hasWritten(all.slice(0, at), key, index)),
        ),
      )
  }

  #change(key: string, kept: Kept, ifVersion: number): RecordChange {
    const payload = this.#records.encode(kept)
    return { kind: 'put', collection, key, parent: null, threadId: null, fields: [], payload, expires: 'never', ifVersion }
  }

  #kept(record: KeyedRecord): Kept {
    return this.#records.decode(record.payload) as Kept
  }

  #writes(record: KeyedRecord): CheckpointPendingWrite[] {
    const { t, w } = this.#kept(record)
    const taskId = t ?? (record.key.split('/')[2] as string)
    return w.map(([, channel, value]) => [taskId, channel, unpack(value)])
  }
}

interface Written {
  readonly ref: ItemsRef
  readonly items: readonly Packed[]
}

/** What a task wrote to a channel: as one item, or as a list of them. */
function writesTo(channel: string, entry: Entry): Written[] {
  const key = keyOfWrites(entry)
  const writes = entry.groups.flatMap(({ kind, kept }) => (kind === 'lasting' ? kept.w : []))
  return writes.flatMap(([index, to, value]): Written[] => {
    if (to !== channel) return []
    const one: Written = { ref: [key, index, 1], items: [value] }
    return Array.isArray(value) && value.length > 0 ? [{ ref: [key, index], items: value }, one] : [one]
  })
}

/** Of two writes of a task at one place the first lasts. */
function hasWritten(entries: readonly Entry[], key: string, index: number): boolean {
  return entries.some(
    (entry) =>
      keyOfWrites(entry) === key &&
      entry.groups.some(({ kind, kept }) => kind === 'lasting' && kept.w.some(([at]) => at === index)),
  )
}

function keyOfWrites({ checkpointId, taskId }: Entry): string {
  return writesKey('', checkpointId, taskId, 'lasting').slice(1)
}

/** All of the items, as writes one after the other; undefined where some were not written like that. */
function findItems(items: readonly Packed[], writes: readonly Written[]): readonly ItemsRef[] | undefined {
  const refs: ItemsRef[] = []
  for (let at = 0; at < items.length; ) {
    const next = writes.find((write) => isFoundAt(items, at, write.items))
    if (next === undefined) return undefined
    refs.push(next.ref)
    at += next.items.length
  }
  return refs
}

function isFoundAt(items: readonly Packed[], at: number, part: readonly Packed[]): boolean {
  return at + part.length <= items.length && part.every((item, index) => isDeepStrictEqual(item, items[at + index]))
}

export function reject(entries: readonly Entry[], error: unknown): void {
  for (const { done } of entries) {
    // Whoever called `putWrites` hears of it; it is no unhandled rejection besides.
    done.promise.catch(() => {})
    done.reject(error)
  }
}

function nameOf(place: Place, checkpointId: string): string {
  return `${nameOfPlace(place)}/${checkpointId}`
}

function groupsOf(taskId: string, writes: readonly PendingWrite[]): Group[] {
  const numbered = writes.map(([channel, value], index) => [WRITES_IDX_MAP[channel] ?? index, channel, pack(value)] as const)
  const named = /^[0-9A-Za-z_.-]{1,100}$/.test(taskId) ? {} : { t: taskId }
  const [replacing, lasting] = [numbered.filter(([index]) => index < 0), numbered.filter(([index]) => index >= 0)]
  const stops = replacing.filter(([, channel]) => channel === '__interrupt__' || channel === '__error__').length
  return [
    ...(replacing.length > 0
      ? [
          {
            kind: 'replacing',
            kept: merge(undefined, { ...named, w: replacing, ...(stops > 0 && { n: 1 }) }, 'replacing'),
          } as const,
        ]
      : []),
    ...(lasting.length > 0 ? [{ kind: 'lasting', kept: { ...named, w: lasting } } as const] : []),
  ]
}

/** Both, by index: what came later where it replaces, what was there first where it lasts. */
function merge(found: Kept | undefined, added: Kept, kind: Group['kind']): Kept {
  const [first, second] = kind === 'replacing' ? [found?.w ?? [], added.w] : [added.w, found?.w ?? []]
  const byIndex = new Map([...first, ...second].map((write) => [write[0], write]))
  const stops = (found?.n ?? 0) + (added.n ?? 0)
  const answered = added.a ?? found?.a
  const w = [...byIndex.values()].sort(([a], [b]) => a - b)
  return {
    ...(added.t !== undefined && { t: added.t }),
    w,
    ...(stops > 0 && { n: stops }),
    ...(answered !== undefined && { a: answered }),
  }
}

/** The task of an answer that names no interrupt. */
const answersAnything = /^00000000-/

function unsure(threadId: string, key: string): HoldfastError {
  return new HoldfastError(
    'effect_unsure',
    `Thread ${JSON.stringify(threadId)} waits for a decision about an effect, which an answer to an interrupt does not make; nothing was written. ` +
      'Call saver.resolve(key, { happened, result }), then graph.invoke(null, config).',
    { details: { threadId, key } },
  )
}

function answered({ threadId }: Place): HoldfastError {
  return new HoldfastError(
    'conflict',
    `The interrupt of thread ${JSON.stringify(threadId)} was answered already; nothing was written. If the run that answered it was lost, continue it ` +
      'with graph.invoke(null, config): its answer is recorded.',
    { details: { threadId } },
  )
}
