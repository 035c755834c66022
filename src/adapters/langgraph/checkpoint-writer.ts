import type { ChannelVersions, Checkpoint, CheckpointMetadata } from '@langchain/langgraph-checkpoint'
import { HoldfastError, type KeyedRecord, type RecordChange, type Records } from '../../index.ts'
import { type ChannelValues, type Known, type Prepared, prepare, prepareAgain, type Ref } from './channel-values.ts'
import { type CheckpointPayload, type CheckpointReader, checkpoints, type Remembered } from './checkpoint-reader.ts'
import type { Head, Heads } from './heads.ts'
import { checkpointKey, nameOfPlace, type Place } from './keys.ts'
import { type Packed, pack } from './pack.ts'
import { type Entry, type PendingWrites, reject } from './pending-writes.ts'
import { mustExtend, type RunUnderWay } from './runs-under-way.ts'

/** A checkpoint that is handed in. */
export interface Given {
  readonly place: Place
  readonly parentId: string | undefined
  readonly checkpoint: Checkpoint
  readonly metadata: CheckpointMetadata
  readonly newVersions: ChannelVersions
  readonly run: RunUnderWay | undefined
}

/** A copy of it, taken when it was handed in: channels may change while it waits. */
interface Copied extends Given {
  readonly bare: Packed
  readonly packedMetadata: Packed
  readonly values: ReadonlyMap<string, Prepared>
  /** What the values were compared with. */
  readonly base: Remembered | undefined
}

const nothing: Remembered = { versions: {}, known: new Map() }

export class CheckpointWriter {
  readonly #records: Records
  readonly #heads: Heads
  readonly #values: ChannelValues
  readonly #writes: PendingWrites
  readonly #reader: CheckpointReader
  /** By place: the end of what is under way. Checkpoints of one place are written in the order in which they were handed in. */
  readonly #ends = new Map<string, Promise<unknown>>()

  constructor(parts: {
    readonly records: Records
    readonly heads: Heads
    readonly values: ChannelValues
    readonly writes: PendingWrites
    readonly reader: CheckpointReader
  }) {
    this.#records = parts.records
    this.#heads = parts.heads
    this.#values = parts.values
    this.#writes = parts.writes
    this.#reader = parts.reader
  }

  put(given: Given): Promise<void> {
    const copied = this.#copy(given)
    const name = nameOfPlace(given.place)
    const written = (this.#ends.get(name) ?? Promise.resolve()).then(() => this.#put(copied))
    const end = written.catch(() => {})
    this.#ends.set(name, end)
    this.#writes.puts.add(given.place, given.checkpoint.id, written)
    void end.then(() => {
      if (this.#ends.get(name) === end) this.#ends.delete(name)
    })
    return written
  }

  #copy(given: Given): Copied {
    const { checkpoint, metadata, place, parentId } = given
    const { channel_values, ...bare } = checkpoint
    const base = parentId === undefined ? nothing : this.#reader.recall(place, parentId)
    const values = new Map<string, Prepared>()
    for (const [channel, value] of Object.entries(channel_values ?? {})) {
      if (isInherited(given, base, channel)) continue
      values.set(channel, prepare(value, base?.known.get(channel)?.packed))
    }
    return { ...given, bare: pack(bare), packedMetadata: pack(metadata), values, base }
  }

  async #put(copied: Copied): Promise<void> {
    const { place, parentId, run } = copied
    if (run?.answering !== undefined) await run.answering
    let entries = parentId === undefined ? [] : await this.#writes.take(place, parentId)
    try {
      for (let attempt: Attempt = { head: await this.#headFor(copied), isBranch: false }; ; ) {
        const { remembered, changes } = await this.#changes(copied, attempt, entries)
        const answer = await this.#records.write([...changes, ...this.#writes.changesOf(attempt.head.prefix, entries)])
        if (answer.ok) return this.#done(copied, attempt.head, remembered, entries)
        if (answer.record?.collection === 'writes') {
          await this.#writes.settle(attempt.head, entries)
          entries = []
        }
        attempt = await this.#next(copied, attempt, answer.record)
      }
    } catch (error) {
      reject(entries, error)
      throw error
    }
  }

  /** What to do about a refusal: the record is the one that has another version. */
  async #next(copied: Copied, attempt: Attempt, record: KeyedRecord | null): Promise<Attempt> {
    const { place, run, parentId } = copied
    if (this.#heads.isEnd(record)) throw this.#heads.deleted(place)
    if (record?.collection === 'writes') return attempt
    // Another process continued the chain: from here on this is a branch.
    if (record?.collection === 'channels') return { ...attempt, isBranch: true }
    const head = await this.#heads.read(place)
    if (head.life !== (run?.life ?? head.life)) throw this.#heads.deleted(place)
    if (mustExtend(run, place, parentId) !== undefined) throw conflict(place, parentId)
    return { ...attempt, head }
  }

  async #headFor({ place, run, parentId }: Copied): Promise<Head> {
    const head = await this.#heads.guess(place)
    const expected = mustExtend(run, place, parentId)
    return expected === undefined ? head : { ...head, version: expected.version }
  }

  async #changes(
    copied: Copied,
    { head, isBranch }: Attempt,
    entries: readonly Entry[],
  ): Promise<{ remembered: Remembered; changes: RecordChange[] }> {
    const { place, parentId, checkpoint, run, bare, packedMetadata } = copied
    const base = parentId === undefined ? nothing : await this.#baseOf(head, parentId)
    const known = new Map<string, Known>()
    const changes: RecordChange[] = []
    const finder = this.#writes.finder(head, parentId, entries)
    for (const [channel, before] of base.known) if (isInherited(copied, base, channel)) known.set(channel, before)
    for (const [channel, value] of copied.values) {
      if (isInherited(copied, base, channel)) continue
      if (!(await this.#isMeant(copied, head, channel))) continue
      const before = base.known.get(channel)
      const compared = copied.base === base ? value : prepareAgain(value, before?.packed)
      const kept = this.#values.keep(head.prefix, compared, before, { isBranch, find: finder(channel) })
      known.set(channel, kept.known)
      if (kept.change !== undefined) changes.push(kept.change)
    }
    // At its end, a run that writes only then writes the checkpoint it began from once more, with itself as the parent.
    const isAgain = parentId === checkpoint.id
    const parent = isAgain ? base.parentId : parentId
    const payload: CheckpointPayload = {
      ...{ c: bare, m: packedMetadata, ...(parent !== undefined && { p: parent }) },
      r: Object.fromEntries([...known].map(([channel, { ref }]): [string, Ref] => [channel, ref])),
    }
    changes.push(
      this.#putCheckpoint(checkpointKey(head.prefix, checkpoint.id), payload, copied.metadata),
      ...(isAgain && head.id !== undefined ? [] : [this.#heads.move(head, checkpoint.id)]),
      this.#heads.stillAlive({ threadId: place.threadId, life: run?.life ?? head.life }),
    )
    return { remembered: { parentId: parent, versions: checkpoint.channel_versions, known }, changes }
  }

  #putCheckpoint(key: string, value: CheckpointPayload, metadata: CheckpointMetadata): RecordChange {
    const runId = (metadata as { readonly run_id?: unknown } | undefined)?.run_id
    const fields = typeof runId === 'string' ? [{ name: 'run_id', value: runId }] : []
    const payload = this.#records.encode(value)
    return { kind: 'put', collection: checkpoints, key, parent: null, threadId: null, fields, payload, expires: 'never' }
  }

  /** The parent as this process wrote or read it, else as it is in the store. One that is gone has nothing to compare with. */
  async #baseOf(head: Head, parentId: string): Promise<Remembered> {
    const recalled = this.#reader.recall(head, parentId)
    if (recalled !== undefined) return recalled
    const loaded = await this.#reader.load(head, parentId)
    if (loaded !== undefined) this.#reader.remember(head, parentId, loaded)
    return loaded ?? nothing
  }

  /**
   * Whether a value that is neither new nor the parent's is part of the checkpoint. It is in a copy of a checkpoint, whose parent is that of
   * the original. Else it was never written.
   */
  async #isMeant(copied: Copied, head: Head, channel: string): Promise<boolean> {
    if (isNew(copied, channel)) return true
    const version = copied.checkpoint.channel_versions[channel]
    return version !== undefined && head.id !== undefined && this.#reader.hasVersion(head.prefix, channel, version)
  }

  #done({ place, checkpoint, run, parentId }: Copied, head: Head, remembered: Remembered, entries: readonly Entry[]): void {
    this.#reader.remember(place, checkpoint.id, remembered)
    for (const { done } of entries) done.resolve()
    if (parentId === checkpoint.id && head.id !== undefined) return
    const moved = this.#heads.note({ ...head, id: checkpoint.id, version: head.version + 1 })
    if (mustExtend(run, place, parentId) !== undefined) run?.heads.set(nameOfPlace(place), moved)
  }
}

interface Attempt {
  readonly head: Head
  readonly isBranch: boolean
}

/** Not new, and of the version that the parent has. */
function isInherited(given: Given, base: Remembered | undefined, channel: string): boolean {
  if (base === undefined || isNew(given, channel)) return false
  const { channel_versions, channel_values } = given.checkpoint
  if (base.versions[channel] !== channel_versions[channel] || !base.known.has(channel)) return false
  return channel_versions[channel] !== undefined || Object.hasOwn(channel_values, channel)
}

/** `updateState` applies the writes that wait for a checkpoint without new versions, so there all values are looked at. */
function isNew({ newVersions, metadata }: Given, channel: string): boolean {
  return Object.hasOwn(newVersions, channel) || metadata.source === 'update'
}

function conflict({ threadId }: Place, parentId: string | undefined): HoldfastError {
  return new HoldfastError(
    'conflict',
    `Thread ${JSON.stringify(threadId)} has gone on since this run read ${parentId === undefined ? 'it' : `checkpoint ${parentId}`}: another run wrote to it. ` +
      'This checkpoint was not written. Run it again on the thread as it is now, or name the checkpoint to branch from it.',
    { retryable: true, details: { threadId, ...(parentId !== undefined && { checkpointId: parentId }) } },
  )
}
