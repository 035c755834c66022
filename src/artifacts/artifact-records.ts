import { createHash } from 'node:crypto'
import type { Artifact, ArtifactPlace } from '../model/artifact.ts'
import { placeOf } from '../model/artifact.ts'
import type { Codec } from '../model/codec.ts'
import { pairKey } from '../model/ids.ts'
import type { KeyedRecord, RecordChange } from '../model/record.ts'
import type { RecordQuery } from '../store/store.ts'

/**
 * Artifacts as records:
 *
 *   artifact          one for each version, and each thread that has it: a fork has the ids of its origin under its own thread
 *   artifact_name     the latest version of a name that was given out
 *   artifact_content  content that is there, once per owner, place and sum; its version rises with everything that begins to refer to it
 *   artifact_chunk    content inside the store (store-backend.ts)
 *   artifact_read     reads of what is audited
 *   artifact_owner    of the owner with the empty name: who has content
 */
export const artifactCollection = 'artifact'
const nameCollection = 'artifact_name'
const contentCollection = 'artifact_content'
export const readCollection = 'artifact_read'
const ownerCollection = 'artifact_owner'

/** What is kept of an artifact; times of expiry are those of its record. */
type Kept = Omit<Artifact, 'expiresAt'>

/** What is about bytes, which each store keeps in its own way. */
export function isAboutContent(collection: string): boolean {
  return collection === contentCollection || collection === 'artifact_chunk' || collection === ownerCollection
}

type Put = Extract<RecordChange, { kind: 'put' }>

export function putArtifact(codec: Codec, artifact: Artifact): Put {
  const { expiresAt, ...kept } = artifact
  const { id, name, threadId, type, sha256 } = kept
  return {
    ...{ kind: 'put', collection: artifactCollection, key: artifactKey(id, threadId), parent: nameKey(name, threadId) },
    threadId: threadId ?? null,
    fields: [
      { name: 'id', value: id },
      { name: 'content', value: contentKey(placeOf(type), sha256) },
      ...(threadId === undefined ? [{ name: 'shared', value: '1' }] : [{ name: 'thread', value: threadId }]),
    ],
    payload: codec.encode(kept satisfies Kept),
    expires: expiresAt === undefined ? 'never' : { at: expiresAt },
  }
}

export function readArtifact(codec: Codec, { payload, expiresAt }: Pick<KeyedRecord, 'payload' | 'expiresAt'>): Artifact {
  const kept = codec.decode(payload) as Kept
  return { ...kept, ...(expiresAt !== null && { expiresAt }) }
}

/** In the order of ids, which begin with the time. */
export function artifactKey(id: string, threadId: string | undefined): string {
  return `${id}:${sum(threadId ?? '').slice(0, 16)}`
}

/** A name in its thread, or of the owner alone. A sum, so that it is no longer than any other key. */
export function nameKey(name: string, threadId: string | undefined): string {
  return sum(pairKey(threadId ?? '', name))
}

export function byId(owner: string, id: string): RecordQuery {
  return { owner, collection: artifactCollection, where: { field: { name: 'id', value: id } }, limit: 1_000 }
}

/** The latest first. */
export function byName(owner: string, name: string, threadId: string | undefined): RecordQuery {
  const where = { parent: nameKey(name, threadId) }
  return { owner, collection: artifactCollection, where, isDescending: true, limit: 200 }
}

export function contentKey(place: ArtifactPlace, sha256: string): string {
  return `${place}:${sha256}`
}

function sum(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

/** Content as the store knows it. */
export interface KeptContent {
  readonly size: number
  readonly generation: string
  readonly backend: string
}

export function contentQuery(owner: string, key: string): RecordQuery {
  return { owner, collection: contentCollection, where: { keys: [key] }, limit: 1 }
}

/** A page of all contents of an owner. */
export function allContents(owner: string, afterKey: string | undefined): RecordQuery {
  return { owner, collection: contentCollection, ...(afterKey !== undefined && { afterKey }), limit: 200 }
}

/** Whether anything refers to a content. */
export function referenceQuery(owner: string, key: string): RecordQuery {
  return { owner, collection: artifactCollection, where: { field: { name: 'content', value: key } }, limit: 1 }
}

export function deleteContent({ key, version, updatedAt }: KeyedRecord): RecordChange {
  return { kind: 'delete', collection: contentCollection, key, ifVersion: version, ifUpdatedAt: updatedAt }
}

export function putContent(codec: Codec, key: string, content: KeptContent, expected: KeyedRecord | undefined): Put {
  return {
    ...{ kind: 'put', collection: contentCollection, key, parent: null, threadId: null, fields: [], expires: 'never' },
    payload: codec.encode(content),
    ifVersion: expected?.version ?? 0,
    ...(expected !== undefined && { ifUpdatedAt: expected.updatedAt }),
  }
}

/** The latest version of a name that was given out, and to whom: another attempt of the same call gets it again. */
export interface GivenOut {
  readonly latest: number
  readonly to?: string
}

export function nameQuery(owner: string, key: string): RecordQuery {
  return { owner, collection: nameCollection, where: { keys: [key] }, limit: 1 }
}

export function putName(
  codec: Codec,
  { key, threadId, given }: { readonly key: string; readonly threadId: string | undefined; readonly given: GivenOut },
  expected: KeyedRecord | undefined,
): Put {
  return {
    ...{ kind: 'put', collection: nameCollection, key, parent: null, threadId: threadId ?? null, fields: [], expires: 'never' },
    payload: codec.encode(given),
    ifVersion: expected?.version ?? 0,
    ...(expected !== undefined && { ifUpdatedAt: expected.updatedAt }),
  }
}

/** A page of all owners who have content, or had. */
export function ownersQuery(afterKey: string | undefined): RecordQuery {
  return { owner: '', collection: ownerCollection, ...(afterKey !== undefined && { afterKey }), limit: 200 }
}

export function ownerQuery(owner: string): RecordQuery {
  return { owner: '', collection: ownerCollection, where: { keys: [sum(owner)] }, limit: 1 }
}

export function deleteOwner(owner: string): RecordChange {
  return { kind: 'delete', collection: ownerCollection, key: sum(owner) }
}

export function putOwner(codec: Codec, owner: string): Put {
  return {
    ...{ kind: 'put', collection: ownerCollection, key: sum(owner), parent: null, threadId: null, fields: [], expires: 'never' },
    payload: codec.encode({ owner }),
  }
}
