import type { ArtifactFilter, ArtifactPage, ArtifactReadOptions, ArtifactStream, NamedArtifact } from '../define/artifacts.ts'
import {
  type Artifact,
  accessDenied,
  checkArtifactName,
  checkArtifactType,
  checkPrincipal,
  isAudited,
  mayDelete,
  mayRead,
  placeOf,
  type Reader,
} from '../model/artifact.ts'
import type { Codec } from '../model/codec.ts'
import { HoldfastError } from '../model/errors.ts'
import type { NewEvent } from '../model/event.ts'
import { checkId } from '../model/ids.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'
import type { Logger } from '../model/logger.ts'
import type { KeyedRecord, RecordChange } from '../model/record.ts'
import type { Change, Committed } from '../store/change.ts'
import type { RecordQuery, Store } from '../store/store.ts'
import { artifactCollection, artifactKey, byId, byName, putArtifact, readArtifact, readCollection } from './artifact-records.ts'
import { streamOf } from './artifact-stream.ts'
import type { Contents } from './contents.ts'

export interface ReaderParts {
  readonly store: Store
  readonly codec: Codec
  readonly commit: (change: Change) => Promise<Committed>
  readonly contents: Contents
  readonly log: Logger
}

/** Who reads where: a client of an owner, or a run in its thread. */
export interface ReadingScope {
  readonly owner: string
  /** Of a run: its thread. */
  readonly own?: string
  /** Of a run, for the log. */
  readonly from?: { readonly runId: string; readonly step: string }
}

/** One read of an artifact, of those that are audited. */
export interface ArtifactRead {
  readonly at: number
  readonly role: string
  readonly principal?: string
  readonly runId?: string
  readonly step?: string
}

const readNames: OptionNames<ArtifactReadOptions> = { principal: true }
const whichNames: OptionNames<NamedArtifact> = { name: true, version: true, threadId: true }
const filterNames: OptionNames<ArtifactFilter> = {
  ...{ name: true, type: true, threadId: true, includeTakenBack: true, limit: true, cursor: true, principal: true },
}
const pageSize = 200
/** An access is noted at most so often. */
const accessEveryMs = 1_000

interface Found {
  readonly artifact: Artifact
  readonly record: KeyedRecord
}

/** Finds artifacts, and reads them for someone who may. */
export class ArtifactReader {
  readonly #parts: ReaderParts
  readonly #scope: ReadingScope

  constructor(parts: ReaderParts, scope: ReadingScope) {
    this.#parts = parts
    this.#scope = scope
  }

  readerOf(options: ArtifactReadOptions | undefined, method: string): Reader {
    refuseUnknownOptions(`artifacts.${method}`, options, readNames)
    const { owner, own } = this.#scope
    if (options?.principal === undefined && own !== undefined) return { role: 'thread', id: own }
    return checkPrincipal(options?.principal, owner)
  }

  async get(which: string | NamedArtifact, reader: Reader): Promise<Artifact | undefined> {
    const found = await this.#find(which, reader)
    if (found === undefined) return undefined
    if (!mayRead(found.artifact, reader)) throw accessDenied(found.artifact, reader, 'read')
    return found.artifact
  }

  /** The one to delete, with the record that it has. */
  async toDelete(which: string | NamedArtifact, reader: Reader): Promise<{ artifact: Artifact; key: string } | undefined> {
    const found = await this.#find(which, reader)
    if (found === undefined) return undefined
    if (!mayDelete(found.artifact, reader)) throw accessDenied(found.artifact, reader, 'delete')
    return { artifact: found.artifact, key: found.record.key }
  }

  async open(which: string | NamedArtifact, reader: Reader, isDownload: boolean): Promise<ArtifactStream> {
    const found = await this.#find(which, reader)
    if (found === undefined) throw notFound(which)
    const { artifact, record } = found
    const stream = await this.stream(artifact, reader, () => (isDownload ? this.#noteDownload(record.key) : Promise.resolve()))
    await this.#noteAccess(found)
    return stream
  }

  /** Of an artifact that is known, committed or not. */
  async stream(artifact: Artifact, reader: Reader, finished?: () => Promise<void>): Promise<ArtifactStream> {
    if (!mayRead(artifact, reader)) throw accessDenied(artifact, reader, 'read')
    const { sha256, size } = artifact
    const read = await this.#parts.contents.open(this.#scope.owner, placeOf(artifact.type), sha256, size)
    if (isAudited(artifact)) await this.#audit(artifact, reader)
    return streamOf(artifact, read, finished)
  }

  /** Of an artifact that was opened before, as the log says. */
  async again(artifact: Artifact, isDownload: boolean): Promise<ArtifactStream> {
    const { type, sha256, size, id, threadId } = artifact
    const read = await this.#parts.contents.open(this.#scope.owner, placeOf(type), sha256, size)
    return streamOf(artifact, read, isDownload ? () => this.#noteDownload(artifactKey(id, threadId)) : undefined)
  }

  async list(filter: ArtifactFilter = {}): Promise<ArtifactPage> {
    const { principal, limit = 100, cursor, ...rest } = filter
    refuseUnknownOptions('artifacts.list', filter, filterNames)
    const reader = this.readerOf(principal === undefined ? undefined : { principal }, 'list')
    if (!Number.isInteger(limit) || limit < 1 || limit > 1_000)
      throw new HoldfastError(
        'invalid_input',
        `limit of artifacts.list is ${String(limit)}; it must be a whole number from 1 to 1,000.`,
      )
    if (rest.type !== undefined) checkArtifactType(rest.type)
    const { own } = this.#scope
    const threadId = rest.threadId === undefined ? own : rest.threadId
    const items: Artifact[] = []
    let last = ''
    for await (const { artifact, key } of this.#all(this.#queryFor(rest.name, threadId), cursor)) {
      if (rest.name !== undefined && artifact.name !== rest.name) continue
      if (rest.type !== undefined && artifact.type !== rest.type) continue
      if (artifact.isTakenBack === true && rest.includeTakenBack !== true) continue
      if (!mayRead(artifact, reader)) continue
      if (items.length === limit) return { items, cursor: last }
      items.push(artifact)
      last = key
    }
    return { items }
  }

  #queryFor(name: string | undefined, threadId: string | null | undefined): RecordQuery {
    const { owner } = this.#scope
    const all = { owner, collection: artifactCollection, limit: pageSize }
    if (name !== undefined && threadId !== undefined) {
      const { where } = byName(owner, checkArtifactName(name), threadId ?? undefined)
      return { ...all, ...(where !== undefined && { where }) }
    }
    if (threadId === undefined) return all
    const field = threadId === null ? { name: 'shared', value: '1' } : { name: 'thread', value: checkId('thread id', threadId) }
    return { ...all, where: { field } }
  }

  async *#all(query: RecordQuery, cursor: string | undefined): AsyncGenerator<{ artifact: Artifact; key: string }> {
    const { store, codec } = this.#parts
    for (let afterKey = cursor; ; ) {
      const page = await store.readRecords({ ...query, ...(afterKey !== undefined && { afterKey }) })
      for (const record of page) yield { artifact: readArtifact(codec, record), key: record.key }
      afterKey = page.at(-1)?.key
      if (page.length < query.limit) return
    }
  }

  #find(which: string | NamedArtifact, reader: Reader): Promise<Found | undefined> {
    if (typeof which !== 'object' || which === null) return this.#findById(checkId('artifact id', which), reader)
    refuseUnknownOptions('which artifact', which, whichNames)
    return this.#findByName(which)
  }

  /** A fork has the ids of its origin: its own thread's comes first, then one that may be read. */
  async #findById(id: string, reader: Reader): Promise<Found | undefined> {
    const { store, codec } = this.#parts
    const { owner, own } = this.#scope
    const records = await store.readRecords(byId(owner, id))
    const found = records.map((record) => ({ record, artifact: readArtifact(codec, record) }))
    return (
      found.find(({ artifact }) => own !== undefined && artifact.threadId === own) ??
      found.find(({ artifact }) => mayRead(artifact, reader)) ??
      found[0]
    )
  }

  async #findByName({ name, version, threadId = this.#scope.own ?? null }: NamedArtifact): Promise<Found | undefined> {
    const { store, codec } = this.#parts
    const thread = threadId === null ? undefined : checkId('thread id', threadId)
    if (version !== undefined && !(Number.isInteger(version) && version >= 1))
      throw new HoldfastError('invalid_input', `version of an artifact is ${String(version)}; it must be a whole number from 1.`)
    const query = byName(this.#scope.owner, checkArtifactName(name), thread)
    for (let beforeKey: string | undefined; ; ) {
      const page = await store.readRecords({ ...query, ...(beforeKey !== undefined && { beforeKey }) })
      const found = page.map((record) => ({ record, artifact: readArtifact(codec, record) }))
      // Savers at the same time may have ids in another order than versions.
      const matching = found.filter(({ artifact }) =>
        version === undefined ? artifact.isTakenBack !== true : artifact.version === version,
      )
      if (matching.length > 0) return matching.reduce((a, b) => (b.artifact.version > a.artifact.version ? b : a))
      beforeKey = page.at(-1)?.key
      if (page.length < query.limit) return undefined
    }
  }

  /** A store that takes no writes, because it is full, can be read nevertheless. */
  async #noteAccess({ artifact, record }: Found): Promise<void> {
    try {
      const now = await this.#parts.store.now()
      if (now - (artifact.accessedAt ?? 0) < accessEveryMs) return
      await this.#put({ ...artifact, accessedAt: now }, record)
    } catch (error) {
      this.#parts.log.warn('an artifact was read, but when could not be noted', { error, artifactId: artifact.id })
    }
  }

  async #noteDownload(key: string): Promise<void> {
    const { store, codec } = this.#parts
    const { owner } = this.#scope
    for (;;) {
      const [record] = await store.readRecords({ owner, collection: artifactCollection, where: { keys: [key] }, limit: 1 })
      const artifact = record === undefined ? undefined : readArtifact(codec, record)
      if (record === undefined || artifact === undefined || artifact.downloadedAt !== undefined) return
      const downloadedAt = await store.now()
      const { afterDownloadMs, expiresAt } = artifact
      const expires = Math.min(
        expiresAt ?? Number.POSITIVE_INFINITY,
        downloadedAt + (afterDownloadMs ?? Number.POSITIVE_INFINITY),
      )
      const downloaded = { ...artifact, downloadedAt, ...(expires < Number.POSITIVE_INFINITY && { expiresAt: expires }) }
      if (await this.#put(downloaded, record)) return
    }
  }

  /** False where it was changed since it was read. */
  async #put(artifact: Artifact, { version, updatedAt }: KeyedRecord): Promise<boolean> {
    const records = [{ ...putArtifact(this.#parts.codec, artifact), ifVersion: version, ifUpdatedAt: updatedAt }]
    return (await this.#write(records)).ok
  }

  /** Before anything is returned: a read that can't be logged is none. */
  async #audit(artifact: Artifact, { role, id }: Reader): Promise<void> {
    const { store, codec } = this.#parts
    const { owner, from } = this.#scope
    const at = await store.now()
    const read: ArtifactRead = { at, role, ...(id !== undefined && { principal: id }), ...from }
    const key = this.#parts.contents.newId()
    const threadId = artifact.threadId ?? null
    const put: RecordChange = {
      ...{ kind: 'put', collection: readCollection, key, parent: artifact.id, threadId, fields: [], expires: 'never' },
      payload: codec.encode(read),
    }
    const thread = threadId === null ? null : await store.readThread({ owner, threadId })
    if (thread !== null && thread.deletedAt === null) {
      const answer = await this.#write([put], { threadId: thread.threadId, events: [readEvent(codec, artifact, read)] })
      if (answer.ok) return
    }
    const answer = await this.#write([put])
    if (!answer.ok)
      throw new HoldfastError(
        'conflict',
        `A read of artifact "${artifact.id}" could not be logged: ${answer.refusal}. Try again.`,
        {
          retryable: true,
        },
      )
  }

  #write(
    records: readonly RecordChange[],
    { threadId, events }: { readonly threadId: string; readonly events: readonly NewEvent[] } = { threadId: '', events: [] },
  ): Promise<Committed> {
    const { owner } = this.#scope
    const isCheckpoint = events.length > 0
    return this.#parts.commit({ owner, threadId, runId: null, guard: { kind: 'none' }, events, records, isCheckpoint })
  }
}

function readEvent(codec: Codec, { id, name, type }: Artifact, read: ArtifactRead): NewEvent {
  return {
    ...{ type: 'artifact_read', step: null, count: 0, attempt: 0, at: read.at, durationMs: null, patch: null },
    payload: codec.encode({ id, name, type, ...read }),
  }
}

function notFound(which: string | NamedArtifact): HoldfastError {
  const what =
    typeof which === 'string'
      ? `"${which}"`
      : `named "${which.name}"${which.version === undefined ? '' : `, version ${which.version}`}`
  return new HoldfastError(
    'artifact_not_found',
    `There is no artifact ${what}: it was never saved, was deleted or has expired.`,
    {
      details: typeof which === 'string' ? { artifactId: which } : { name: which.name },
    },
  )
}
