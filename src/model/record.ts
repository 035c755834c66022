import { payloadChecksum, verifyChecksum } from './checksum.ts'
import type { Due } from './due.ts'
import type { Payload } from './payload.ts'

/**
 * A value that a store keeps by itself, beside the threads: a session value, a profile, a fact. Unique per owner, collection and key, and
 * in the order of its key, bytewise.
 */
export interface KeyedRecord extends RecordKey {
  /** What it is looked up by besides its key: records of one parent are read together, in order of their keys. */
  readonly parent: string | null
  /** The thread that it belongs to: it moves with the thread and is deleted with it. Whether the thread exists does not matter. */
  readonly threadId: string | null
  /** Names and values that it is looked up by, too. A name may occur several times. */
  readonly fields: readonly RecordField[]
  /** 1, and one more with every put. Begins again at 1 when it was deleted or had expired. */
  readonly version: number
  readonly payload: Payload
  /** When it was put first, and last. */
  readonly createdAt: number
  readonly updatedAt: number
  /** From then on it is as good as deleted. Null: never. */
  readonly expiresAt: number | null
}

export interface RecordKey {
  readonly owner: string
  readonly collection: string
  readonly key: string
}

/** Plain text without control characters. */
export interface RecordField {
  readonly name: string
  readonly value: string
}

/**
 * What a change does to a record of its owner. A change names a record once. With `ifVersion` the record must have this version when
 * the change is written, 0 meaning that there is none; else the whole change is refused with `record_changed`. With `ifUpdatedAt` it must have been put
 * last at this time, too: in a store that has lost its last commits another put may have the same version.
 */
export type RecordChange =
  /** Writes it, whether it is there or not. */
  | {
      readonly kind: 'put'
      readonly collection: string
      readonly key: string
      readonly parent: string | null
      readonly threadId: string | null
      readonly fields: readonly RecordField[]
      readonly payload: Payload
      readonly expires: Due
      readonly ifVersion?: number
      readonly ifUpdatedAt?: number
    }
  /** Deletes it. Where there is none nothing happens. */
  | {
      readonly kind: 'delete'
      readonly collection: string
      readonly key: string
      readonly ifVersion?: number
      readonly ifUpdatedAt?: number
    }
  /** Moves the time at which it expires, and nothing else. Where there is none nothing happens, nor where it is not of `ofVersion`, if given. */
  | {
      readonly kind: 'touch'
      readonly collection: string
      readonly key: string
      readonly expires: Due
      readonly ofVersion?: number
    }
  /** Puts it there as it was elsewhere, with its version and its times. Where there is one already that stays as it is. */
  | { readonly kind: 'restore'; readonly record: Omit<KeyedRecord, 'owner'> }

/** Where a change's record is. */
export function placeOfRecord(change: RecordChange): Omit<RecordKey, 'owner'> {
  return change.kind === 'restore' ? change.record : change
}

/** Both, each record once: where both name one, what `second` does to it. */
export function joinChanges(first: readonly RecordChange[], second: readonly RecordChange[]): readonly RecordChange[] {
  if (first.length === 0) return second
  const nameOf = (change: RecordChange) => JSON.stringify([placeOfRecord(change).collection, placeOfRecord(change).key])
  return [...new Map([...first, ...second].map((change) => [nameOf(change), change])).values()]
}

export function hasExpired({ expiresAt }: Pick<KeyedRecord, 'expiresAt'>, now: number): boolean {
  return expiresAt !== null && expiresAt <= now
}

/** Whether the change is refused with `record_changed`. `found` is the record as it is; undefined also where it has expired. */
export function isOtherVersion(found: Pick<KeyedRecord, 'version' | 'updatedAt'> | undefined, change: RecordChange): boolean {
  if (change.kind !== 'put' && change.kind !== 'delete') return false
  const { ifVersion, ifUpdatedAt } = change
  if (ifVersion !== undefined && (found?.version ?? 0) !== ifVersion) return true
  return ifUpdatedAt !== undefined && found?.updatedAt !== ifUpdatedAt
}

/** The record after the change: null where there is none any more, undefined where it stays as it is. */
export function recordAfter(
  found: KeyedRecord | undefined,
  change: RecordChange,
  { owner, now }: { readonly owner: string; readonly now: number },
): KeyedRecord | null | undefined {
  switch (change.kind) {
    case 'put': {
      const { collection, key, parent, threadId, fields, payload, expires } = change
      const times = { createdAt: found?.createdAt ?? now, updatedAt: now, expiresAt: expiresAtOf(expires, now) }
      return { owner, collection, key, parent, threadId, fields, version: (found?.version ?? 0) + 1, payload, ...times }
    }
    case 'delete':
      return found === undefined ? undefined : null
    case 'touch':
      if (found === undefined || (change.ofVersion ?? found.version) !== found.version) return undefined
      return { ...found, expiresAt: expiresAtOf(change.expires, now) }
    case 'restore':
      return found === undefined ? { owner, ...change.record } : undefined
  }
}

/** The latest time that a store can keep: that of a Date. */
export const endOfTime = 8_640_000_000_000_000

/** Whole ms, not before 0. Rounded up: nothing expires before its time. */
export function expiresAtOf(expires: Due, now: number): number | null {
  if (expires === 'never') return null
  return Math.ceil(Math.min(endOfTime, Math.max(0, 'at' in expires ? expires.at : now + expires.inMs)))
}

/** Over what the writer of a record knows. The rest is added when it is written: `sealRecord`. */
export function recordPayloadChecksum(record: Omit<KeyedRecord, 'version' | 'createdAt' | 'updatedAt' | 'expiresAt'>): number {
  const { owner, collection, key, parent, threadId, fields, payload } = record
  return payloadChecksum(['record', owner, collection, key, parent, threadId, fieldsText(fields)], payload)
}

type Sealed = Pick<KeyedRecord, 'version' | 'createdAt' | 'updatedAt' | 'expiresAt'>

/** Binds the checksum to version and times. A store can do so by itself, in any language: it is a sum, modulo 2^32. */
function sealRecord(checksum: number, { version, createdAt, updatedAt, expiresAt }: Sealed): number {
  const parts = [version * 65_537, createdAt, updatedAt * 3, (expiresAt ?? 0) % wholeRange]
  return parts.reduce((sum, part) => (sum + (part % wholeRange)) % wholeRange, checksum)
}

/** The checksum of a record of which only version and times have changed. What was damaged stays so. */
export function resealRecord(checksum: number, before: Sealed, after: Sealed): number {
  return (checksum + wholeRange - sealRecord(0, before) + sealRecord(0, after)) % wholeRange
}

const wholeRange = 2 ** 32

export function keyedRecordChecksum(record: KeyedRecord): number {
  return sealRecord(recordPayloadChecksum(record), record)
}

/** Refuses a damaged one. */
export function verifyKeyedRecord(record: KeyedRecord, stored: number): KeyedRecord {
  const { owner, collection, key } = record
  const what = `Record ${JSON.stringify(key)} of ${collection}`
  verifyChecksum(stored, keyedRecordChecksum(record), what, { owner, collection, key })
  return record
}

/** Fields as stores keep them; empty for none. */
export function fieldsText(fields: readonly RecordField[]): string {
  return fields.length === 0 ? '' : JSON.stringify(fields.map(({ name, value }) => [name, value]))
}

export function readFields(text: string): RecordField[] {
  if (text === '') return []
  try {
    return (JSON.parse(text) as [string, string][]).map(([name, value]) => ({ name, value }))
  } catch {
    // Damaged: with other fields the checksum does not match.
    return [{ name: text, value: '' }]
  }
}
