import { type ArtifactRead, ArtifactReader } from '../artifacts/artifact-reader.ts'
import { putArtifact, readCollection } from '../artifacts/artifact-records.ts'
import { chunksOf } from '../artifacts/content-chunks.ts'
import { loggedArtifact, newArtifact } from '../artifacts/new-artifact.ts'
import type { Core } from '../control/core.ts'
import { newEvent } from '../control/new-event.ts'
import type { Artifacts, ArtifactToSave } from '../define/artifacts.ts'
import { type Artifact, checkRequest, placeOf } from '../model/artifact.ts'
import { HoldfastError } from '../model/errors.ts'
import type { EventType } from '../model/event.ts'
import { checkId } from '../model/ids.ts'
import type { RecordChange } from '../model/record.ts'
import type { Committed } from '../store/change.ts'

/** Artifacts from outside of runs. */
export interface ClientArtifacts extends Artifacts {
  /** Who has read an artifact whose reads are logged, a `data_export`, the first first. */
  reads(id: string): Promise<readonly ArtifactRead[]>
}

export function clientArtifacts(core: Core, owner: string): ClientArtifacts {
  const reader = new ArtifactReader(core.artifacts, { owner })
  return {
    save: (artifact) => save(core, owner, artifact),
    get: async (which, options) => reader.get(which, reader.readerOf(options, 'get')),
    open: async (which, options) => reader.open(which, reader.readerOf(options, 'open'), false),
    download: async (which, options) => reader.open(which, reader.readerOf(options, 'download'), true),
    list: (filter) => reader.list(filter),
    delete: async (which, options) => {
      const found = await reader.toDelete(which, reader.readerOf(options, 'delete'))
      if (found === undefined) return false
      const { id, name, version } = found.artifact
      const change = { kind: 'delete', collection: 'artifact', key: found.key } as const
      const data = { id, name, version }
      const answer = await writeLogged(core, owner, found.artifact, { type: 'artifact_deleted', data, records: [change] })
      return answer.ok
    },
    reads: (id) => readsOf(core, owner, checkId('artifact id', id)),
  }
}

async function save(core: Core, owner: string, given: ArtifactToSave): Promise<Artifact> {
  const { contents } = core.artifacts
  const request = checkRequest(given)
  const kept = await contents.keep(owner, placeOf(request.type), chunksOf(given.content), {
    name: request.name,
    threadId: request.threadId,
  })
  const createdBy = request.by === undefined ? {} : { by: request.by }
  const artifact = newArtifact(request, kept, { now: await core.now(), createdBy })
  for (let held = [kept.content]; ; held = await contents.again(owner, held)) {
    const records = [putArtifact(core.codec, artifact), ...contents.references(held)]
    const data = { ...loggedArtifact(artifact), ...createdBy }
    const answer = await writeLogged(core, owner, artifact, { type: 'artifact_saved', data, records })
    if (answer.ok) return artifact
  }
}

interface Logged {
  readonly type: EventType
  readonly data: Readonly<Record<string, unknown>>
  readonly records: readonly RecordChange[]
}

/** Where the artifact is that of a thread which exists, its log says what was done. Not `ok` only where another writer was first. */
async function writeLogged(core: Core, owner: string, artifact: Artifact, { type, data, records }: Logged): Promise<Committed> {
  const { threadId } = artifact
  const thread = threadId === undefined ? null : await core.store.readThread({ owner, threadId })
  const isLogged = thread !== null && thread.deletedAt === null
  const change = { owner, runId: null, guard: { kind: 'none' }, records } as const
  const answer = await core.committer.commit(
    isLogged
      ? { ...change, threadId: thread.threadId, events: [await newEvent(core, type, data)], isCheckpoint: true }
      : { ...change, threadId: '', events: [], isCheckpoint: false },
  )
  if (answer.ok || answer.refusal === 'record_changed') return answer
  throw new HoldfastError('conflict', `Artifact "${artifact.id}" could not be written: ${answer.refusal}. Try again.`, {
    retryable: answer.refusal !== 'thread_deleted',
  })
}

async function readsOf({ store, codec }: Core, owner: string, id: string): Promise<ArtifactRead[]> {
  const reads: ArtifactRead[] = []
  for (let afterKey: string | undefined; ; ) {
    const query = { owner, collection: readCollection, where: { parent: id }, limit: 500 }
    const page = await store.readRecords({ ...query, ...(afterKey !== undefined && { afterKey }) })
    for (const { payload } of page) reads.push(codec.decode(payload) as ArtifactRead)
    afterKey = page.at(-1)?.key
    if (page.length < 500) return reads
  }
}
