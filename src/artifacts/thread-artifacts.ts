import type { Artifact } from '../model/artifact.ts'
import type { Codec } from '../model/codec.ts'
import type { EventType } from '../model/event.ts'
import type { RecordChange } from '../model/record.ts'
import type { Store, ThreadKey } from '../store/store.ts'
import { artifactCollection, nameKey, putArtifact, putName, readArtifact } from './artifact-records.ts'

interface Reading {
  readonly store: Store
  readonly codec: Codec
}

const types: readonly EventType[] = ['artifact_saved', 'thread_rewound', 'run_rolled_back']
const pageSize = 500

/** The artifacts of a thread that are there now. */
async function artifactsOf({ store, codec }: Reading, { owner, threadId }: ThreadKey): Promise<Artifact[]> {
  const artifacts: Artifact[] = []
  const query = { owner, collection: artifactCollection, where: { field: { name: 'thread', value: threadId } }, limit: pageSize }
  for (let afterKey: string | undefined; ; ) {
    const page = await store.readRecords({ ...query, ...(afterKey !== undefined && { afterKey }) })
    artifacts.push(...page.map((record) => readArtifact(codec, record)))
    afterKey = page.at(-1)?.key
    if (page.length < pageSize) return artifacts
  }
}

/**
 * Which artifacts count at a position of the log: those that were saved up to there, less what the thread was taken back over. What no log has, because a
 * fork began with it or it is older than the thread, always counts. Deleted ones do not come back.
 */
async function countsAt(
  { store, codec }: Reading,
  { owner, threadId }: ThreadKey,
  seq: number,
): Promise<(id: string) => boolean> {
  const log = await store.readLog({ owner, threadId, types })
  const history: { readonly seq: number; readonly ids: ReadonlySet<string> }[] = [{ seq: 0, ids: new Set() }]
  const at = (position: number) => history.findLast((one) => one.seq <= position)?.ids ?? new Set<string>()
  const logged = new Set<string>()
  for (const event of log) {
    const data = (event.payload === null ? {} : codec.decode(event.payload)) as { readonly id?: string; readonly to?: number }
    if (event.type === 'artifact_saved' && data.id !== undefined) {
      logged.add(data.id)
      history.push({ seq: event.seq, ids: new Set([...at(event.seq), data.id]) })
    } else if (data.to !== undefined) history.push({ seq: event.seq, ids: at(data.to) })
  }
  const ids = at(seq)
  return (id) => ids.has(id) || !logged.has(id)
}

/** What takes a thread's artifacts back to a position, or forward to it again: they stay, and say that they do not count. */
export async function takeBackArtifacts(reading: Reading, thread: ThreadKey, to: number): Promise<RecordChange[]> {
  const artifacts = await artifactsOf(reading, thread)
  if (artifacts.length === 0) return []
  const counts = await countsAt(reading, thread, to)
  return artifacts.flatMap((artifact) => {
    const { isTakenBack = false, ...rest } = artifact
    if (counts(artifact.id) !== isTakenBack) return []
    return [putArtifact(reading.codec, isTakenBack ? rest : { ...rest, isTakenBack: true })]
  })
}

/** References of its own for a fork: the artifacts that count where it begins, under the same ids, as if nobody had read them. */
export async function copyArtifacts(
  reading: Reading,
  origin: ThreadKey,
  { seq, threadId }: { readonly seq: number; readonly threadId: string },
): Promise<{ readonly artifacts: readonly Artifact[]; readonly records: readonly RecordChange[] }> {
  const present = await artifactsOf(reading, origin)
  if (present.length === 0) return { artifacts: [], records: [] }
  const counts = await countsAt(reading, origin, seq)
  const artifacts = present
    .filter(({ id }) => counts(id))
    .map(({ accessedAt: _, downloadedAt, isTakenBack: __, expiresAt, ...artifact }): Artifact => {
      // A time that began with a download is not that of the fork.
      const expires = downloadedAt !== undefined && artifact.afterDownloadMs !== undefined ? undefined : expiresAt
      return { ...artifact, threadId, ...(expires !== undefined && { expiresAt: expires }) }
    })
  const latest = new Map<string, number>()
  for (const { name, version } of artifacts) latest.set(name, Math.max(version, latest.get(name) ?? 0))
  const { codec } = reading
  const names = [...latest].map(([name, version]) =>
    putName(codec, { key: nameKey(name, threadId), threadId, given: { latest: version } }, undefined),
  )
  return { artifacts, records: [...artifacts.map((artifact) => putArtifact(codec, artifact)), ...names] }
}
