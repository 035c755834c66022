import { checkMs } from './duration.ts'
import { HoldfastError } from './errors.ts'
import { checkId } from './ids.ts'
import { type OptionNames, refuseUnknownOptions } from './known-options.ts'
import { endOfTime } from './record.ts'

export const artifactTypes = ['generated_file', 'data_export', 'analysis_result', 'message_content'] as const

/**
 * What an artifact is for: it decides where its content is kept, how long, and who may read it. A file that was made for someone, an export of
 * data, a result for later steps, or a part of a conversation.
 */
export type ArtifactType = (typeof artifactTypes)[number]

/** A named piece of content that a run made. */
export interface Artifact {
  readonly id: string
  readonly name: string
  readonly type: ArtifactType
  /** Of this name in its thread, from 1. */
  readonly version: number
  readonly size: number
  readonly sha256: string
  readonly contentType: string
  /** The thread that it belongs to. Absent: it belongs to its owner alone. */
  readonly threadId?: string
  readonly createdBy: ArtifactOrigin
  readonly createdAt: number
  /** When it was opened or downloaded last, to the second. Absent: never. */
  readonly accessedAt?: number
  /** When it was downloaded first. Absent: never. */
  readonly downloadedAt?: number
  /** How long it is kept after its first download. Absent: a download changes nothing. */
  readonly afterDownloadMs?: number
  /** When it is deleted. Absent: not by itself. */
  readonly expiresAt?: number
  /** The thread was taken back to before it was saved. */
  readonly isTakenBack?: true
}

/** Who saved it. */
export interface ArtifactOrigin {
  readonly runId?: string
  readonly step?: string
  readonly by?: string
}

export interface ArtifactRetention {
  /** How long it is kept after it was saved, in ms. Default for a `data_export` 30 days, for others until it is deleted. */
  readonly ttlMs?: number
  /** How long it is kept after it was downloaded first, in ms. Default for a `generated_file` a day, for others a download changes nothing. */
  readonly afterDownloadMs?: number
}

/** Which of the two places its content is in: files or objects, where they are configured, or always the store. */
export type ArtifactPlace = 'files' | 'store'

const dayMs = 86_400_000

interface TypeRule {
  readonly place: ArtifactPlace
  readonly retention: ArtifactRetention
  readonly readers: readonly Role[]
  /** Each read is logged. */
  readonly isAudited?: true
  /** Only a context of its own thread reads it. */
  readonly isOfThread?: true
}

/** A run acts for its owner, in the context of its thread. */
const typeRules: Readonly<Record<ArtifactType, TypeRule>> = {
  generated_file: { place: 'files', retention: { afterDownloadMs: dayMs }, readers: ['owner', 'thread'] },
  data_export: { place: 'files', retention: { ttlMs: 30 * dayMs }, readers: ['owner', 'thread', 'auditor'], isAudited: true },
  analysis_result: { place: 'store', retention: {}, readers: ['owner', 'thread', 'system'] },
  message_content: { place: 'store', retention: {}, readers: ['thread'], isOfThread: true },
}

export function placeOf(type: ArtifactType): ArtifactPlace {
  return typeRules[type].place
}

export function isAudited({ type }: Pick<Artifact, 'type'>): boolean {
  return typeRules[type].isAudited === true
}

export function checkArtifactType(type: unknown): ArtifactType {
  if ((artifactTypes as readonly unknown[]).includes(type)) return type as ArtifactType
  throw new HoldfastError('invalid_input', `There is no artifact type ${shown(type)}. It is one of ${artifactTypes.join(', ')}.`)
}

// ── who reads ────────────────────────────────────────────────────────────────

/**
 * Who reads an artifact: an id, which is the owner's or a stranger's, or a role. An auditor and a reader of the system are named for the log. A
 * process that runs Holdfast is trusted to say for whom it reads.
 */
export type Principal =
  | string
  | { readonly role: 'owner'; readonly id?: string }
  | { readonly role: 'auditor'; readonly id: string }
  | { readonly role: 'system'; readonly id?: string }
  | { readonly role: 'thread'; readonly threadId: string }

type Role = 'owner' | 'auditor' | 'system' | 'thread' | 'stranger'

/** A principal that was checked. */
export interface Reader {
  readonly role: Role
  readonly id?: string
}

/** Whoever works for an owner reads as the owner, unless it says something else. */
export function checkPrincipal(principal: unknown, owner: string): Reader {
  if (principal === undefined) return { role: 'owner' }
  if (typeof principal === 'string') {
    if (principal === owner) return { role: 'owner' }
    return { role: 'stranger', id: checkId('principal', principal) }
  }
  const { role, id, threadId } = (typeof principal === 'object' && principal !== null ? principal : {}) as Record<string, unknown>
  if (role === 'thread') return { role, id: checkId('thread id of a principal', threadId) }
  if (role === 'auditor') return { role, id: checkId('id of an auditor', id) }
  if (role === 'owner' && id !== undefined && id !== owner) return { role: 'stranger', id: checkId('principal', id) }
  if (role === 'owner') return { role }
  if (role === 'system') return id === undefined ? { role } : { role, id: checkId('principal', id) }
  throw new HoldfastError(
    'invalid_input',
    `The principal ${shown(principal)} is none: give the id of a person, or { role } with owner, auditor (and id), system or thread (and threadId).`,
  )
}

export function mayRead({ type, threadId }: Pick<Artifact, 'type' | 'threadId'>, reader: Reader): boolean {
  const { readers, isOfThread } = typeRules[type]
  if (!readers.includes(reader.role)) return false
  return isOfThread !== true || (threadId !== undefined && reader.id === threadId)
}

/** The owner deletes everything that is theirs, and a run what its owner may read. */
export function mayDelete(artifact: Pick<Artifact, 'type' | 'threadId'>, reader: Reader): boolean {
  return reader.role === 'owner' || (reader.role === 'thread' && mayRead(artifact, reader))
}

export function accessDenied({ id, type }: Pick<Artifact, 'id' | 'type'>, reader: Reader, verb: string): HoldfastError {
  const who = reader.id === undefined ? `The ${reader.role}` : `${reader.role} ${JSON.stringify(reader.id)}`
  const readers = typeRules[type].isOfThread ? ['its own thread'] : typeRules[type].readers.filter((role) => role !== 'thread')
  return new HoldfastError(
    'access_denied',
    `${who} may not ${verb} artifact "${id}": a ${type} is for ${readers.map((one) => (one.startsWith('its') ? one : `the ${one}`)).join(', ')}.`,
    { details: { artifactId: id, type, role: reader.role } },
  )
}

// ── what is saved ────────────────────────────────────────────────────────────

/** What is to be saved, besides its content. */
export interface ArtifactRequest {
  readonly name: string
  readonly type: ArtifactType
  readonly contentType?: string
  readonly retention?: ArtifactRetention
  readonly threadId?: string | null
  readonly by?: string
}

/** As it was checked. */
export interface CheckedRequest {
  readonly name: string
  readonly type: ArtifactType
  readonly contentType: string
  readonly threadId?: string
  readonly ttlMs?: number
  readonly afterDownloadMs?: number
  readonly by?: string
}

const requestNames: OptionNames<ArtifactRequest & { content: unknown }> = {
  ...{ name: true, type: true, content: true, contentType: true, retention: true, threadId: true, by: true },
}

/** `threadId`: of a run, its own. */
export function checkRequest(given: unknown, own?: string): CheckedRequest {
  if (typeof given !== 'object' || given === null)
    throw new HoldfastError('invalid_input', 'artifacts.save takes an object: { name, type, content }.')
  refuseUnknownOptions('artifacts.save', given, requestNames)
  const { name, type, contentType, retention, content, threadId = own ?? null, by } = given as Record<string, unknown>
  const checkedType = checkArtifactType(type)
  const thread = threadId === null ? undefined : checkId('thread id', threadId)
  if (typeRules[checkedType].isOfThread && thread === undefined)
    throw new HoldfastError('invalid_input', `A ${checkedType} belongs to a thread: give its threadId.`)
  const { ttlMs, afterDownloadMs } = { ...typeRules[checkedType].retention, ...checkRetention(retention) }
  return {
    ...{ name: checkArtifactName(name), type: checkedType, contentType: checkContentType(contentType, content) },
    ...(thread !== undefined && { threadId: thread }),
    ...(by !== undefined && { by: checkId('name of who saves', by) }),
    ...(ttlMs !== undefined && ttlMs < endOfTime && { ttlMs: Math.ceil(ttlMs) }),
    ...(afterDownloadMs !== undefined && afterDownloadMs < endOfTime && { afterDownloadMs: Math.ceil(afterDownloadMs) }),
  }
}

function checkRetention(retention: unknown): ArtifactRetention {
  refuseUnknownOptions('retention of an artifact', retention, { ttlMs: true, afterDownloadMs: true })
  const { ttlMs, afterDownloadMs } = (retention ?? {}) as ArtifactRetention
  checkMs('ttlMs of an artifact', ttlMs, 1)
  checkMs('afterDownloadMs of an artifact', afterDownloadMs)
  return { ...(ttlMs !== undefined && { ttlMs }), ...(afterDownloadMs !== undefined && { afterDownloadMs }) }
}

// Names of devices on Windows, and signs that turn the direction of writing: `report\u202Efdp.exe` looks like a PDF.
const deviceName = /^(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)/i
const turningSigns = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/

/**
 * A name, with folders if you like (`charts/sales.png`). What could lead a program astray that keeps it as a file is refused: Holdfast itself never
 * makes a path of it.
 */
export function checkArtifactName(name: unknown): string {
  const checked = checkId('artifact name', name)
  const parts = checked.split('/')
  const why =
    (parts.includes('') && 'it has an empty part around "/"') ||
    (parts.some((part) => /^\.+$/.test(part)) && 'a part of it is only dots') ||
    (checked.includes('\\') && 'it contains a backslash') ||
    (/^[a-z]:/i.test(checked) && 'it begins with a drive') ||
    (parts.some((part) => deviceName.test(part)) && 'it is the name of a device on Windows') ||
    (parts.some((part) => /[. ]$|^ /.test(part)) && 'a part of it begins or ends with a space or ends with a dot') ||
    (turningSigns.test(checked) && 'it turns the direction of writing')
  if (why === false) return checked
  throw new HoldfastError('invalid_id', `The artifact name ${JSON.stringify(checked)} is not valid: ${why}.`, {
    details: { kind: 'artifact name' },
  })
}

function checkContentType(contentType: unknown, content: unknown): string {
  if (contentType === undefined) return typeof content === 'string' ? 'text/plain; charset=utf-8' : 'application/octet-stream'
  const isOne =
    typeof contentType === 'string' &&
    contentType.length <= 255 &&
    /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+(?:\s*;\s*[\w!#$&^.+-]+=(?:[\w!#$&^.+-]+|"[\x20\x21\x23-\x5b\x5d-\x7e]*"))*$/.test(contentType)
  if (isOne) return contentType
  throw new HoldfastError('invalid_input', `${shown(contentType)} is no content type. Write one as application/pdf.`)
}

function shown(value: unknown): string {
  const text =
    typeof value === 'string' ? JSON.stringify(value) : typeof value === 'object' ? JSON.stringify(value) : String(value)
  return text !== undefined && text.length > 100 ? `${text.slice(0, 100)}…` : String(text)
}
