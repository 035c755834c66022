import { createHash, randomUUID } from 'node:crypto'
import { type Artifact, type ArtifactPlace, placeOf } from '../model/artifact.ts'
import type { Codec } from '../model/codec.ts'
import { HoldfastError } from '../model/errors.ts'
import { newRunId } from '../model/new-run-id.ts'
import type { KeyedRecord, RecordChange } from '../model/record.ts'
import type { Change, Committed } from '../store/change.ts'
import type { Store } from '../store/store.ts'
import {
  byName,
  contentKey,
  contentQuery,
  deleteContent,
  deleteOwner,
  type GivenOut,
  type KeptContent,
  nameKey,
  nameQuery,
  ownerQuery,
  putContent,
  putName,
  putOwner,
  readArtifact,
  referenceQuery,
} from './artifact-records.ts'
import { type ArtifactBackend, type Blob, contentDamaged, type Received } from './backend.ts'

/** Content that is read at once is kept from the verifying to the reading. */
const smallBytes = 1024 * 1024

export interface ContentsParts {
  readonly store: Store
  readonly codec: Codec
  readonly commit: (change: Change) => Promise<Committed>
  /** Where new content goes, by place. */
  readonly backends: Readonly<Record<ArtifactPlace, ArtifactBackend>>
}

/** A name that gets another version. `to` says who asks: the same call in another attempt gets the same version. */
export interface AskedVersion {
  readonly name: string
  readonly threadId: string | undefined
  readonly to?: string
}

/** Content that is there, and the record that has to be as it was found when something begins to refer to it. */
export interface HeldContent {
  readonly key: string
  readonly sha256: string
  readonly size: number
  readonly record: KeyedRecord
}

/**
 * The bytes of artifacts.
 *
 *   A1  A committed artifact refers to complete content: its record is written in one commit with that of the content, which must be as it was when
 *       the bytes were seen to be there (`references`).
 *   A2  Content is removed by deleting its record first, at the version at which nothing referred to it, and then the bytes of that generation. So a
 *       save that was faster keeps them, and one that was slower is refused, and never finds bytes that are about to go.
 *   A3  Bytes have a record from before they have their name. What has a name and no record is left over.
 */
export class Contents {
  readonly #parts: ContentsParts
  #lastIdAt = 0
  readonly #knownOwners = new Set<string>()
  /** Of this process: savers of one name wait for each other instead of refusing each other. */
  readonly #lanes = new Map<string, Promise<unknown>>()

  constructor(parts: ContentsParts) {
    this.#parts = parts
  }

  get parts(): ContentsParts {
    return this.#parts
  }

  /** Takes content in and makes it durable. The version of the name is given out in the same write that lets the content be found. */
  async keep(
    owner: string,
    place: ArtifactPlace,
    chunks: AsyncIterable<Uint8Array>,
    asked?: AskedVersion,
  ): Promise<{ readonly id: string; readonly content: HeldContent; readonly version: number }> {
    const backend = this.#parts.backends[place]
    const received = await backend.receive(chunks)
    try {
      if (!this.#knownOwners.has(owner)) await this.#noteOwner(owner)
      const lane = asked === undefined ? received.sha256 : nameKey(asked.name, asked.threadId)
      return await this.#inLane(`${owner}\0${lane}`, () => this.#claim(owner, place, received, asked))
    } finally {
      await received.discard().catch(() => {})
    }
  }

  async #claim(owner: string, place: ArtifactPlace, received: Received, asked: AskedVersion | undefined) {
    const { store, codec, backends } = this.#parts
    const { sha256, size } = received
    const key = contentKey(place, sha256)
    for (;;) {
      const [[found], given] = await Promise.all([store.readRecords(contentQuery(owner, key)), this.#give(owner, asked)])
      const known = found === undefined ? undefined : (codec.decode(found.payload) as KeptContent)
      const isElsewhere = known !== undefined && (await this.#isElsewhere(owner, place, sha256, known))
      const content =
        known !== undefined && (isElsewhere || known.backend === backends[place].kind)
          ? known
          : { size, generation: randomUUID(), backend: backends[place].kind }
      // Found again, its grace begins anew with this write.
      if (!(await this.#write(owner, [putContent(codec, key, content, found), ...given.records]))) continue
      if (!isElsewhere) await received.keep(blobOf(owner, sha256, content))
      const [[record], noted] = await Promise.all([
        store.readRecords(contentQuery(owner, key)),
        store.readRecords(ownerQuery(owner)),
      ])
      // Another process may have erased the owner since this one noted it.
      if (noted.length === 0) await this.#noteOwner(owner)
      if (record === undefined || (codec.decode(record.payload) as KeptContent).generation !== content.generation)
        throw removedMeanwhile(sha256)
      return { id: this.newId(), content: { key, sha256, size, record }, version: given.version }
    }
  }

  /** In the order in which they are saved, as long as it is by one process. */
  newId(): string {
    this.#lastIdAt = Math.max(Date.now(), this.#lastIdAt + 1)
    return newRunId(this.#lastIdAt)
  }

  /** It is in another backend, from when that one was configured, and can be read here. */
  async #isElsewhere(owner: string, place: ArtifactPlace, sha256: string, known: KeptContent): Promise<boolean> {
    const backend = this.#backendOf(known)
    if (backend === undefined || backend === this.#parts.backends[place]) return false
    return backend.has(blobOf(owner, sha256, known), known.size)
  }

  /** The next version of a name, and the write that gives it out. */
  async #give(owner: string, asked: AskedVersion | undefined): Promise<{ version: number; records: readonly RecordChange[] }> {
    const { store, codec } = this.#parts
    if (asked === undefined) return { version: 0, records: [] }
    const { name, threadId, to } = asked
    const key = nameKey(name, threadId)
    const [found] = await store.readRecords(nameQuery(owner, key))
    const before = found === undefined ? undefined : (codec.decode(found.payload) as GivenOut)
    const isAgain = before !== undefined && to !== undefined && before.to === to
    if (isAgain && !(await this.#hasVersion(owner, asked, before.latest))) return { version: before.latest, records: [] }
    const given: GivenOut = { latest: (before?.latest ?? 0) + 1, ...(to !== undefined && { to }) }
    return { version: given.latest, records: [putName(codec, { key, threadId, given }, found)] }
  }

  async #hasVersion(owner: string, { name, threadId }: AskedVersion, version: number): Promise<boolean> {
    const records = await this.#parts.store.readRecords(byName(owner, name, threadId))
    return records.some((record) => readArtifact(this.#parts.codec, record).version === version)
  }

  /** What has to be written together with the artifacts that refer to these contents (A1). */
  references(contents: readonly Pick<HeldContent, 'key' | 'record'>[]): RecordChange[] {
    const byKey = new Map(contents.map((content) => [content.key, content.record]))
    return [...byKey].map(([key, record]) => ({
      ...putContent(this.#parts.codec, key, this.#parts.codec.decode(record.payload) as KeptContent, record),
    }))
  }

  /** The contents as they are now, after another writer was first. `conflict` where one was removed meanwhile. */
  async again(owner: string, contents: readonly HeldContent[]): Promise<HeldContent[]> {
    const { store, codec } = this.#parts
    return Promise.all(
      contents.map(async (content) => {
        const [record] = await store.readRecords(contentQuery(owner, content.key))
        const known = record === undefined ? undefined : (codec.decode(record.payload) as KeptContent)
        if (record === undefined || known === undefined) throw removedMeanwhile(content.sha256)
        const isSame = known.generation === (codec.decode(content.record.payload) as KeptContent).generation
        const isThere = isSame || (await this.#backendOf(known)?.has(blobOf(owner, content.sha256, known), known.size)) === true
        if (!isThere) throw removedMeanwhile(content.sha256)
        return { ...content, record }
      }),
    )
  }

  /** The grace of these contents begins anew: something is about to refer to them. */
  async renew(owner: string, artifacts: readonly Pick<Artifact, 'type' | 'sha256'>[]): Promise<void> {
    const { store } = this.#parts
    const keys = new Set(artifacts.map(({ type, sha256 }) => contentKey(placeOf(type), sha256)))
    for (const key of keys) {
      for (;;) {
        const [record] = await store.readRecords(contentQuery(owner, key))
        if (record === undefined) break
        if (await this.#write(owner, this.references([{ key, record }]))) break
      }
    }
  }

  /** Removes content that nothing refers to, unless it was used since it was read (A2). Says whether it did, or would. */
  async removeUnused(owner: string, record: KeyedRecord, dryRun: boolean): Promise<boolean> {
    const { store, codec } = this.#parts
    const known = codec.decode(record.payload) as KeptContent
    const backend = this.#backendOf(known)
    if (backend === undefined) return false
    if ((await store.readRecords(referenceQuery(owner, record.key))).length > 0) return false
    if (dryRun) return true
    if (!(await this.#write(owner, [deleteContent(record)]))) return false
    await backend.remove(blobOf(owner, record.key.slice(record.key.indexOf(':') + 1), known))
    return true
  }

  /** Content as it is, verified as a whole before the first byte is returned, and once more while it is read. */
  async open(owner: string, place: ArtifactPlace, sha256: string, size: number): Promise<() => AsyncIterable<Uint8Array>> {
    const { blob, backend } = await this.#find(owner, place, sha256, size)
    const hash = createHash('sha256')
    const small: Uint8Array[] = []
    for await (const part of backend.read(blob, size)) {
      hash.update(part)
      if (size <= smallBytes) small.push(part)
    }
    if (hash.digest('hex') !== sha256) throw otherSum(blob)
    if (size <= smallBytes) return () => inMemory(small)
    return () => verified(blob, backend.read(blob, size))
  }

  async #find(owner: string, place: ArtifactPlace, sha256: string, size: number) {
    const { store, codec } = this.#parts
    const [record] = await store.readRecords(contentQuery(owner, contentKey(place, sha256)))
    const known = record === undefined ? undefined : (codec.decode(record.payload) as KeptContent)
    const blob = blobOf(owner, sha256, known ?? { generation: '', size, backend: '' })
    if (known === undefined) throw contentDamaged(blob, 'the store has no record of it')
    if (known.size !== size) throw contentDamaged(blob, `it has ${known.size} bytes instead of ${size}`)
    const backend = this.#backendOf(known)
    if (backend !== undefined) return { blob, backend }
    throw new HoldfastError(
      'store_unavailable',
      `The content ${sha256.slice(0, 12)}… of an artifact is in a folder, and this process was opened without it. Open with the same option artifacts as the process that saved it.`,
      { details: { sha256, backend: known.backend } },
    )
  }

  #backendOf({ backend }: KeptContent): ArtifactBackend | undefined {
    return Object.values(this.#parts.backends).find(({ kind }) => kind === backend)
  }

  /** False where another writer was first. */
  async #write(owner: string, records: readonly RecordChange[]): Promise<boolean> {
    const change: Change = { owner, threadId: '', runId: null, guard: { kind: 'none' }, events: [], records, isCheckpoint: false }
    const answer = await this.#parts.commit(change)
    if (answer.ok) return true
    if (answer.refusal === 'record_changed') return false
    throw new HoldfastError('conflict', `An artifact could not be saved: ${answer.refusal}. Try again.`, { retryable: true })
  }

  /** Whoever collects what is left over, or copies content, looks at each owner. */
  async #noteOwner(owner: string): Promise<void> {
    await this.#write('', [putOwner(this.#parts.codec, owner)])
    this.#knownOwners.add(owner)
  }

  /** Erases that an owner had content. */
  async forgetOwner(owner: string): Promise<void> {
    this.#knownOwners.delete(owner)
    await this.#write('', [deleteOwner(owner)])
  }

  async #inLane<T>(lane: string, act: () => Promise<T>): Promise<T> {
    const acted = (this.#lanes.get(lane) ?? Promise.resolve()).then(act)
    const settled = acted.catch(() => {})
    this.#lanes.set(lane, settled)
    try {
      return await acted
    } finally {
      if (this.#lanes.get(lane) === settled) this.#lanes.delete(lane)
    }
  }
}

function removedMeanwhile(sha256: string): HoldfastError {
  return new HoldfastError(
    'conflict',
    `The content ${sha256.slice(0, 12)}… of an artifact was removed before the artifact was committed, because nothing had referred to it for long. Save it again.`,
    { retryable: true, details: { sha256 } },
  )
}

function blobOf(owner: string, sha256: string, { generation }: KeptContent): Blob {
  return { owner, sha256, generation }
}

async function* inMemory(parts: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* parts
}

/** The last part is held back until the sum is right: what was changed since it was verified never looks complete. */
async function* verified(blob: Blob, parts: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const hash = createHash('sha256')
  let last: Uint8Array | undefined
  for await (const part of parts) {
    if (last !== undefined) yield last
    hash.update(part)
    last = part
  }
  if (hash.digest('hex') !== blob.sha256) throw otherSum(blob)
  if (last !== undefined) yield last
}

function otherSum(blob: Blob): HoldfastError {
  return contentDamaged(blob, 'its sha256 is another one')
}
