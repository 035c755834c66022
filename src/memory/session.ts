import type { Codec } from '../model/codec.ts'
import { checkMs } from '../model/duration.ts'
import { checkId, pairKey } from '../model/ids.ts'
import { endOfTime, type KeyedRecord, type RecordChange } from '../model/record.ts'
import type { RecordQuery } from '../store/store.ts'

/** Session memory as records: one for each value, whose parent is the session. */

const collection = 'session'
const defaultTtlMs = 3_600_000
/** A value that is used gets its whole time again, written at most so often: once per tenth of it. */
const refreshShare = 1 / 10

export interface SessionPlace {
  readonly owner: string
  readonly sessionId: string
}

/** What is kept: the value, and how long it is kept after its last use. */
interface Kept {
  readonly value: unknown
  /** Absent: until it is deleted. */
  readonly ttlMs?: number
}

export function checkSession(sessionId: unknown): string {
  return checkId('session id', sessionId)
}

export function checkSessionKey(key: unknown): string {
  return checkId('key of session memory', key)
}

/** How long a value is kept; undefined: until it is deleted. */
export function checkTtl(ttlMs: number = defaultTtlMs): number | undefined {
  checkMs('ttlMs of session memory', ttlMs, 1)
  return ttlMs === Number.POSITIVE_INFINITY ? undefined : Math.ceil(Math.min(endOfTime, ttlMs))
}

export function setValue(
  codec: Codec,
  sessionId: string,
  { key, value, ttlMs }: { readonly key: string; readonly value: unknown; readonly ttlMs: number | undefined },
): Extract<RecordChange, { kind: 'put' }> {
  const kept: Kept = { value, ...(ttlMs !== undefined && { ttlMs }) }
  return {
    ...{ kind: 'put', collection, key: recordKey(sessionId, key), parent: sessionId, threadId: sessionId, fields: [] },
    ...{ payload: codec.encode(kept), expires: ttlMs === undefined ? 'never' : { inMs: ttlMs } },
  }
}

export function deleteValue(sessionId: string, key: string): Extract<RecordChange, { kind: 'delete' }> {
  return { kind: 'delete', collection, key: recordKey(sessionId, key) }
}

export function queryFor({ owner, sessionId }: SessionPlace, key: string): RecordQuery {
  return { owner, collection, where: { keys: [recordKey(sessionId, key)] }, limit: 1 }
}

/** A page of a session. */
export function queryAll({ owner, sessionId }: SessionPlace, afterKey: string | undefined): RecordQuery {
  return { owner, collection, where: { parent: sessionId }, limit: pageSize, ...(afterKey !== undefined && { afterKey }) }
}

export const pageSize = 500

export function readValue(codec: Codec, sessionId: string, record: KeyedRecord): { readonly key: string } & Kept {
  return { key: record.key.slice(recordKey(sessionId, '').length), ...(codec.decode(record.payload) as Kept) }
}

/** The change that begins the time of a value that was used now anew, unless it is set meanwhile; null where it is too early for that. */
export function refresh(record: KeyedRecord, ttlMs: number | undefined, now: number): RecordChange | null {
  if (ttlMs === undefined || record.expiresAt === null) return null
  const usedMs = ttlMs - (record.expiresAt - now)
  if (usedMs < ttlMs * refreshShare) return null
  return { kind: 'touch', collection, key: record.key, expires: { inMs: ttlMs }, ofVersion: record.version }
}

/** The session is in the key, too: a key is unique in its collection. */
function recordKey(sessionId: string, key: string): string {
  return pairKey(sessionId, key)
}
