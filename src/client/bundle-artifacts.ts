import { isDeepStrictEqual } from 'node:util'
import { putArtifact, readArtifact } from '../artifacts/artifact-records.ts'
import type { Core } from '../control/core.ts'
import { type Artifact, checkArtifactName, checkArtifactType, placeOf } from '../model/artifact.ts'
import { HoldfastError } from '../model/errors.ts'
import type { KeyedRecord } from '../model/record.ts'
import type { WholeThread } from '../store/thread-image.ts'

/** The most that the contents of a bundle may have: it is one text in memory. */
const mostBytes = 256 * 1024 * 1024
const ofThreads = ['artifact', 'artifact_name', 'artifact_read']

/** The content of artifacts as a bundle has it. */
interface BundledContent {
  readonly sha256: string
  readonly base64: string
}

/** The contents of the artifacts among these records, each once. */
export async function exportContents(
  { artifacts, codec }: Core,
  owner: string,
  { records }: WholeThread,
): Promise<BundledContent[]> {
  const contents = new Map<string, BundledContent>()
  let bytes = 0
  for (const record of records.filter(({ collection }) => collection === 'artifact')) {
    const { type, sha256, size } = readArtifact(codec, record)
    if (contents.has(sha256)) continue
    bytes += size
    if (bytes > mostBytes)
      throw new HoldfastError(
        'value_too_large',
        `The artifacts of the thread have more than ${mostBytes / 1024 / 1024} MiB: too much for a bundle. Export it without them, { artifacts: false }, or copy the store with copyStore.`,
      )
    const read = await artifacts.contents.open(owner, placeOf(type), sha256, size)
    const parts: Uint8Array[] = []
    for await (const part of read()) parts.push(part)
    contents.set(sha256, { sha256, base64: Buffer.concat(parts).toString('base64') })
  }
  return [...contents.values()]
}

/** A thread without its artifacts. */
export function withoutArtifacts(whole: WholeThread): WholeThread {
  return { ...whole, records: whole.records.filter(({ collection }) => !ofThreads.includes(collection)) }
}

/** Keeps the contents of a bundle's artifacts, before the thread is there. What does not belong together is refused. */
export async function importContents(
  { artifacts, codec }: Core,
  { thread, records }: WholeThread,
  given: unknown,
): Promise<void> {
  const contents = new Map(readContents(given).map((bytes) => [bytes.sha256, bytes]))
  for (const record of records.filter(({ collection }) => collection.startsWith('artifact'))) {
    if (!ofThreads.includes(record.collection)) throw refused(`a record of ${record.collection} belongs to no thread`)
    if (record.collection !== 'artifact') continue
    const artifact = checkedArtifact(() => readArtifact(codec, record))
    const { collection, key, parent, threadId, fields } = putArtifact(codec, artifact)
    const isOfRecord = isDeepStrictEqual({ collection, key, parent, threadId, fields }, partsOf(record))
    if (!isOfRecord || artifact.threadId !== thread.threadId) throw refused(`artifact "${artifact.id}" is not that of its record`)
    const { bytes } = contents.get(artifact.sha256) ?? {}
    if (bytes?.byteLength !== artifact.size) throw refused(`it has no content for artifact "${artifact.id}"`)
    const { content } = await artifacts.contents.keep(thread.owner, placeOf(artifact.type), once(bytes))
    if (content.sha256 !== artifact.sha256) throw refused(`the content of artifact "${artifact.id}" has another sum`)
  }
}

function partsOf({ collection, key, parent, threadId, fields }: KeyedRecord) {
  return { collection, key, parent, threadId, fields }
}

function checkedArtifact(read: () => Artifact): Artifact {
  try {
    const artifact = read()
    checkArtifactName(artifact.name)
    checkArtifactType(artifact.type)
    const { id, version, size, sha256, contentType, createdAt } = artifact
    const isOne =
      [id, contentType].every((text) => typeof text === 'string' && text !== '') &&
      /^[0-9a-f]{64}$/.test(sha256) &&
      [version, size, createdAt].every((number) => Number.isSafeInteger(Math.floor(number)) && number >= 0)
    if (isOne) return artifact
  } catch (cause) {
    throw refused('an artifact in it is none', cause)
  }
  throw refused('an artifact in it is none')
}

function readContents(given: unknown): { readonly sha256: string; readonly bytes: Uint8Array }[] {
  if (given === undefined) return []
  if (!Array.isArray(given)) throw refused('its contents are no list')
  return given.map((one: Partial<BundledContent> | null) => {
    if (typeof one?.sha256 !== 'string' || typeof one.base64 !== 'string') throw refused('a content in it is none')
    return { sha256: one.sha256, bytes: new Uint8Array(Buffer.from(one.base64, 'base64')) }
  })
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  if (bytes.byteLength > 0) yield bytes
}

function refused(why: string, cause?: unknown): HoldfastError {
  return new HoldfastError('invalid_input', `The bundle is inconsistent: ${why}. Nothing was imported.`, {
    ...(cause !== undefined && { cause }),
  })
}
