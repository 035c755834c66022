import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Codec } from '../model/codec.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId, pairKey } from '../model/ids.ts'
import { isPlainObject, mergePatch } from '../model/merge-patch.ts'
import type { KeyedRecord, RecordChange } from '../model/record.ts'
import { validate } from '../model/schema.ts'
import type { RecordQuery } from '../store/store.ts'

/** Profiles as records: one for each subject, and one for each change of it. */

const profiles = 'profile'
const changes = 'profile_change'

/** A merge that is to be written. */
export interface Merge {
  readonly patch: Readonly<Record<string, unknown>>
  readonly schema: StandardSchemaV1 | undefined
  /** Who, why and where, for the history. */
  readonly origin: ChangeOrigin
}

export interface ChangeOrigin {
  readonly why?: string
  readonly by?: string
  readonly runId?: string
  readonly threadId?: string
  readonly step?: string
}

export function checkSubject(subject: unknown): string {
  return checkId('subject', subject)
}

export function checkPatch(subject: string, patch: unknown): Readonly<Record<string, unknown>> {
  if (isPlainObject(patch)) return patch
  throw new HoldfastError(
    'invalid_input',
    `The profile of "${subject}" is merged with a plain object; this is ${patch === null ? 'null' : Array.isArray(patch) ? 'an array' : typeof patch}.`,
    { details: { subject } },
  )
}

export function profileQuery(owner: string, subject: string): RecordQuery {
  return { owner, collection: profiles, where: { keys: [subject] }, limit: 1 }
}

/** The latest changes first. */
export function historyQuery(owner: string, subject: string, { limit = 100 }: { readonly limit?: number }): RecordQuery {
  if (!Number.isInteger(limit) || limit < 0)
    throw new HoldfastError('invalid_input', `limit of profile.history is ${String(limit)}; it must be a whole number from 0.`, {
      details: { subject },
    })
  return { owner, collection: changes, where: { parent: subject }, isDescending: true, limit }
}

export function isProfileOf(subject: string, { collection, key }: Pick<KeyedRecord, 'collection' | 'key'>): boolean {
  return collection === profiles && key === subject
}

export function readProfile(codec: Codec, record: KeyedRecord | null): unknown {
  return record === null ? {} : codec.decode(record.payload)
}

/** The profile after these merges, one after the other. */
export async function mergeAll(subject: string, profile: unknown, merges: readonly Merge[]): Promise<unknown> {
  let merged = profile
  for (const { patch, schema } of merges) {
    merged = mergePatch(merged, patch)
    if (schema !== undefined) merged = await validate(schema, merged, `The profile of "${subject}"`)
  }
  return merged
}

/** The records that these merges write over a profile as it is, which must still be that when they are written. */
export async function mergedRecords(
  codec: Codec,
  subject: string,
  found: KeyedRecord | null,
  merges: readonly Merge[],
): Promise<RecordChange[]> {
  const payload = codec.encode(await mergeAll(subject, readProfile(codec, found), merges))
  const version = (found?.version ?? 0) + 1
  const place = { parent: null, threadId: null, fields: [], expires: 'never' } as const
  return [
    {
      kind: 'put',
      collection: profiles,
      key: subject,
      ...place,
      payload,
      ifVersion: version - 1,
      ...(found !== null && { ifUpdatedAt: found.updatedAt }),
    },
    ...merges.map(({ patch, origin }, index): RecordChange => {
      const key = pairKey(subject, `${digits(version)}.${digits(index)}`)
      const change = codec.encode({ version, patch, ...origin })
      return { kind: 'put', collection: changes, key, ...place, parent: subject, payload: change }
    }),
  ]
}

/** In the order of numbers, bytewise. */
function digits(number: number): string {
  return String(number).padStart(12, '0')
}

/** A change as its history has it. */
export function readChange(payload: unknown, { updatedAt }: KeyedRecord): RecordedChange {
  return { ...(payload as Omit<RecordedChange, 'at'>), at: updatedAt }
}

interface RecordedChange extends ChangeOrigin {
  readonly version: number
  readonly at: number
  readonly patch: unknown
}
