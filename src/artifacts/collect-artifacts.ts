import type { ArtifactPlace } from '../model/artifact.ts'
import { allContents, contentKey, contentQuery, type KeptContent, ownersQuery } from './artifact-records.ts'
import type { ArtifactParts } from './artifacts-parts.ts'
import type { ArtifactBackend } from './backend.ts'

export interface CollectOptions {
  /** Content that was used since stays: a save may be about to refer to it. Default a day. */
  readonly graceMs?: number
  /** Removes nothing, and says what would be. Default false. */
  readonly dryRun?: boolean
  /** True: it ends after what it is at. The next one begins anew. */
  readonly isStopping?: () => boolean
  /** Called after every content that was looked at. */
  readonly onProgress?: (collected: CollectedArtifacts) => void
}

/** What was removed, or would be. */
export interface CollectedArtifacts {
  /** Contents that were looked at. */
  readonly seen: number
  /** Contents that nothing referred to. */
  readonly contents: number
  /** Their bytes. */
  readonly bytes: number
  /** Content without a record: of a save or a removal whose process died. */
  readonly leftovers: number
  /** Content that was being taken in when its process died. */
  readonly received: number
}

const dayMs = 86_400_000
const pageSize = 200

/**
 * Removes the content that no artifact refers to, of all owners. Safe beside saves, deletions and other collectors, and to be ended at any point
 * (A2 of contents.ts). Costs a look-up for each content that is older than the grace.
 */
export async function collectArtifacts(parts: ArtifactParts, options: CollectOptions = {}): Promise<CollectedArtifacts> {
  const { graceMs = dayMs, isStopping = () => false } = options
  const { store, codec } = parts
  const before = (await store.now()) - graceMs
  const collected = { seen: 0, contents: 0, bytes: 0, leftovers: 0, received: 0 }
  for (let afterKey: string | undefined; ; ) {
    const page = await store.readRecords(ownersQuery(afterKey))
    for (const record of page) {
      const { owner } = codec.decode(record.payload) as { readonly owner: string }
      await collectOf(parts, owner, before, options, collected)
      if (isStopping()) return collected
    }
    afterKey = page.at(-1)?.key
    if (afterKey === undefined || page.length < pageSize) break
  }
  // By the clock of this machine, as the times of files are.
  if (options.dryRun !== true)
    for (const backend of backendsOf(parts)) collected.received += await backend.removeReceived(Date.now() - graceMs)
  return collected
}

type Collected = { -readonly [Name in keyof CollectedArtifacts]: number }

async function collectOf(
  parts: ArtifactParts,
  owner: string,
  before: number,
  options: CollectOptions,
  collected: Collected,
): Promise<void> {
  const { store, codec, contents } = parts
  const { dryRun = false, isStopping = () => false, onProgress } = options
  for (let afterKey: string | undefined; ; ) {
    const page = await store.readRecords(allContents(owner, afterKey))
    for (const record of page) {
      if (isStopping()) return
      const removed = record.updatedAt <= before && (await contents.removeUnused(owner, record, dryRun))
      collected.seen++
      if (removed) {
        collected.contents++
        collected.bytes += (codec.decode(record.payload) as KeptContent).size
      }
      onProgress?.({ ...collected })
    }
    afterKey = page.at(-1)?.key
    if (afterKey === undefined || page.length < pageSize) break
  }
  for (const backend of backendsOf(parts)) collected.leftovers += await removeLeftovers(parts, owner, backend, options)
}

/** Content that no record names any more, or not yet again: whoever saves it has another generation. */
async function removeLeftovers(
  { store, codec }: ArtifactParts,
  owner: string,
  backend: ArtifactBackend,
  { dryRun = false, isStopping = () => false }: CollectOptions,
): Promise<number> {
  let count = 0
  for await (const blob of backend.list(owner)) {
    if (isStopping()) return count
    const places: readonly ArtifactPlace[] = ['files', 'store']
    const keys = places.map((place) => contentKey(place, blob.sha256))
    const records = (await Promise.all(keys.map((key) => store.readRecords(contentQuery(owner, key))))).flat()
    const isNamed = records.some(({ payload }) => (codec.decode(payload) as KeptContent).generation === blob.generation)
    if (isNamed) continue
    count++
    if (!dryRun) await backend.remove(blob)
  }
  return count
}

/** Removes all content of an owner, whoever refers to it. Returns how much there was. */
export async function forgetContents(parts: ArtifactParts, owner: string, signal: AbortSignal | undefined): Promise<number> {
  let count = 0
  for (const backend of backendsOf(parts)) {
    for await (const blob of backend.list(owner)) {
      signal?.throwIfAborted()
      await backend.remove(blob)
      count++
    }
  }
  await parts.contents.forgetOwner(owner)
  return count
}

function backendsOf({ contents }: ArtifactParts): readonly ArtifactBackend[] {
  return [...new Set(Object.values(contents.parts.backends))]
}
