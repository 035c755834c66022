import { isTerminal, type Run } from '../model/run.ts'

/**
 * What two stores may answer differently, and why:
 *
 *   lease ids        random; each is named after the claim that it came from
 *   message ids      counted as the store likes; a message is known by its place in the inbox
 *   cursors          opaque; both lists are followed to their end
 *   lease holders    a store adds what tells whether the holder's process lives
 *   times            within 2 s: a store reads its clock once, the test clock a moment later
 *   leaseUntil       after a commit that asks for about as long as is left: a store may spare itself the write
 *   dueAt            of a run that neither is pending nor waits: nothing asks for it
 *   reason           of a running run: it says why the run stopped before
 *   endSeq           of a run that is neither finished nor paused: it says where it stopped before
 *   stateVersion     of a deleted thread: there is no state; so its patchSeq and patchChecksum
 *   hasMail          of a lease that is not held: the answer is for the holder
 */
const timeToleranceMs = 2_000

const timeFields = new Set([
  'at',
  'now',
  'createdAt',
  'startedAt',
  'finishedAt',
  'dueAt',
  'leaseUntil',
  'intendedAt',
  'closedAt',
  'deletedAt',
  'updatedAt',
  'expiresAt',
])
const stateFields = new Set(['stateVersion', 'patchSeq', 'patchChecksum'])
const unseenFields = new Set(['cursor', 'leaseHolder', 'holder', 'messageId'])

/** Gives both stores' lease ids one name. */
export type NameOf = (leaseId: string) => string

export interface Difference {
  readonly path: string
  readonly reference: unknown
  readonly candidate: unknown
}

/** The first difference that matters between two answers; null when there is none. */
export function differenceOf(reference: unknown, candidate: unknown, nameOf: NameOf, path = ''): Difference | null {
  if (reference instanceof Uint8Array && candidate instanceof Uint8Array) {
    return Buffer.from(reference).equals(Buffer.from(candidate)) ? null : { path, reference, candidate }
  }
  if (!isObject(reference) || !isObject(candidate) || reference instanceof Uint8Array || candidate instanceof Uint8Array) {
    return Object.is(reference, candidate) ? null : { path, reference, candidate }
  }
  if (Array.isArray(reference) !== Array.isArray(candidate)) return { path, reference, candidate }
  const fields = new Set([...Object.keys(reference), ...Object.keys(candidate)])
  for (const field of fields) {
    if (!isCompared(field, reference)) continue
    const at = `${path}.${field}`
    const [left, right] = [reference[field], candidate[field]]
    const difference = field === 'leaseId' ? compareNames(left, right, nameOf, at) : compareField(field, left, right, nameOf, at)
    if (difference !== null) return difference
  }
  return null
}

function compareNames(reference: unknown, candidate: unknown, nameOf: NameOf, path: string): Difference | null {
  const name = (leaseId: unknown) => (typeof leaseId === 'string' ? nameOf(leaseId) : leaseId)
  return name(reference) === name(candidate) ? null : { path, reference: name(reference), candidate: name(candidate) }
}

function compareField(field: string, reference: unknown, candidate: unknown, nameOf: NameOf, path: string): Difference | null {
  if (timeFields.has(field) && typeof reference === 'number' && typeof candidate === 'number') {
    return Math.abs(reference - candidate) <= timeToleranceMs ? null : { path, reference, candidate }
  }
  return differenceOf(reference, candidate, nameOf, path)
}

function isCompared(field: string, owner: Record<string, unknown>): boolean {
  if (unseenFields.has(field)) return false
  if ('claimsWithoutProgress' in owner) return isRunFieldCompared(field, owner as unknown as Run)
  if ('isHeld' in owner) return field !== 'hasMail' || owner['isHeld'] === true
  if ('incarnation' in owner) return !stateFields.has(field) || owner['deletedAt'] === null
  // Inbox messages: the only rows with both.
  if ('kind' in owner && 'runId' in owner) return field !== 'id'
  return true
}

function isRunFieldCompared(field: string, { status }: Run): boolean {
  if (field === 'dueAt') return status === 'pending' || status === 'waiting'
  if (field === 'reason') return status !== 'running'
  if (field === 'endSeq') return isTerminal(status) || status === 'paused'
  return true
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}
