import { verifyRun, verifyThread } from '../../model/check-rows.ts'
import { payloadChecksum, verifyChecksum } from '../../model/checksum.ts'
import { type Operation, readKind } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'
import type { Run } from '../../model/run.ts'
import type { Thread } from '../../store/store.ts'
import { parseLane, splitPair } from './keys.ts'
import type { Reply } from './link.ts'
import type { Packer } from './pack.ts'
import { addPayload, unpackPayload } from './payload-bytes.ts'

/**
 * Rows as Redis keeps them, and the nouns they stand for. A field that says nothing is empty or absent; a text that may
 * itself be empty has `=` in front. What has a checksum leaves here only after it was verified.
 */

/** A run's row, as scripts answer with it. Owner and id are in its key. `until` and `holder` count only while there is a lease. */
export const runFields = [
  ...['epoch', 'lease', 'thread', 'base', 'mail', 'claims', 'step', 'until', 'status', 'number', 'lane', 'due', 'reason'],
  ...['holder', 'input', 'tape', 'end', 'fingerprint', 'created', 'started', 'finished'],
]

/**
 * Defaults of absent fields of a run, if not empty: every field costs the server time, so a new run has few. A run also has fields that are
 * not in its row: `owner`; `wait`, the operation that it waits for; `intends`, set if it ever opened an operation; and `ready`, the kind of
 * lane that it is in while it is due.
 */
export const absentFields: Readonly<Record<string, string>> = { base: '0', mail: '0', claims: '0', input: '1' }

/**
 * A thread's row. A base, version or head of 0 and a life of 1 are absent. `life` is the incarnation. `head` counts only after the thread was
 * deleted; before that it follows from the length of the log. `foreign` is how many of the last positions were not written under a lease;
 * absent for none, or for the first record alone (`foreignOf` in scripts/parts/foreign-positions.ts), so a step, which is written under a
 * lease, need not write it. `patch` and `checksum` are those of the last record with a patch. A thread also has `floor`, above which the epochs
 * of a new incarnation begin, and `run`, its only run; empty if there are none or several (docs/decisions/0018).
 */
export const threadFields = [
  ...['number', 'base', 'life', 'version', 'created', 'deleted', 'head', 'foreign', 'patch', 'checksum'],
]

export const operationFields = ['status', 'name', 'run', 'thread', 'result', 'evidence', 'by', 'intended', 'closed', 'kind']

/** The row of a run or thread: all text, so scripts answer with one JSON array, which is cheaper than twenty strings. */
export type Row = Readonly<Record<number, string>> & Iterable<string>

/** Null where there is no such row. */
export function readRow(reply: Reply): Row | null {
  const row = JSON.parse(String(reply)) as (string | false)[]
  return row[0] === false ? null : (row as string[])
}

export interface StoredRun {
  readonly run: Run
  /** Pair of its thread. */
  readonly thread: string
  readonly number: number
  readonly hasMail: boolean
}

export function toRun(pair: string, row: Row): StoredRun {
  const [epoch, lease, thread, , mail, claims, step, until, status, number, lane, due, reason, ...rest] = row as unknown as RunRow
  const [holder, input, tape, end, fingerprint, created, started, finished] = rest
  const { owner, id } = splitPair(pair)
  const { workflow, version, queue, priority } = parseLane(lane)
  const run: Run = {
    ...{ owner, id, threadId: splitPair(thread).id, workflow, version, status: status as Run['status'] },
    ...{ reason: reason === '' ? null : (reason as Run['reason']), queue, priority, fingerprint, epoch: Number(epoch) },
    ...{
      leaseId: lease === '' ? null : lease,
      leaseUntil: lease === '' ? null : Number(until),
      leaseHolder: lease === '' ? null : holder,
    },
    ...{ dueAt: numberOrNull(due), claimsWithoutProgress: Number(claims), currentStep: unmarked(step) },
    ...{ inputSeq: Number(input), tapeSeq: numberOrNull(tape), endSeq: numberOrNull(end) },
    ...{ createdAt: Number(created), startedAt: numberOrNull(started), finishedAt: numberOrNull(finished) },
  }
  return { run: verifyRun(run), thread, number: Number(number), hasMail: mail !== '0' }
}

/** As `runFields` lists them. */
type RunRow = readonly [...Seven<string>, string, string, string, string, string, string, ...Seven<string>, string]

export function toThread(pair: string, row: Row, logLength: number): Thread {
  const [, base, life, version, created, deleted, head, foreign, patch, checksum] = row as unknown as ThreadRow
  const { owner, id } = splitPair(pair)
  const baseSeq = Number(base)
  const isThere = deleted === false || deleted === ''
  const headSeq = isThere ? baseSeq + logLength : Number(head)
  return verifyThread({
    owner,
    threadId: id,
    headSeq,
    writtenSeq: headSeq - (foreign === false ? Number(headSeq === baseSeq + 1) : Number(foreign)),
    patchSeq: Number(patch),
    patchChecksum: Number(checksum),
    stateVersion: Number(version),
    incarnation: life === false ? 1 : Number(life),
    baseSeq,
    createdAt: Number(created),
    deletedAt: isThere ? null : Number(deleted),
  })
}

/** As `threadFields` lists them. */
type ThreadRow = readonly [...Seven<string | false>, string | false, string | false, string | false]

type Seven<Value> = readonly [Value, Value, Value, Value, Value, Value, Value]

/** An operation's result or evidence is `<checksum> <payload>`, or empty. */
export function packOperationPayload(packer: Packer, payload: Payload | null, where: OperationPlace): void {
  packer.beginString()
  if (payload !== null) {
    packer.addText(`${operationChecksum(payload, where)} ${typeof payload === 'string' ? 's' : 'b'}`)
    addPayload(packer, payload)
  }
  packer.endString()
}

interface OperationPlace {
  readonly owner: string
  readonly key: string
  readonly part: 'result' | 'evidence'
}

function operationChecksum(payload: Payload, { owner, key, part }: OperationPlace): number {
  return payloadChecksum(['operation', owner, key, part], payload)
}

/** Null where there is no such operation. */
export function toOperation({ owner, key }: { readonly owner: string; readonly key: string }, reply: Reply): Operation | null {
  const values = reply as readonly (Buffer | null)[]
  if (values[0] === null) return null
  const [status, name, run, thread, result, evidence, by, intended, closed, kind] = values as unknown as readonly [
    ...Seven<Buffer>,
    Buffer,
    Buffer,
    Buffer | null,
  ]
  const payload = (field: Buffer, part: 'result' | 'evidence'): Payload | null => {
    if (field.length === 0) return null
    const end = field.indexOf(32)
    const found = unpackPayload(field, end + 1)
    const expected = Number(field.toString('latin1', 0, end))
    verifyChecksum(expected, operationChecksum(found, { owner, key, part }), `The ${part} of operation ${JSON.stringify(key)}`)
    return found
  }
  return {
    owner,
    key,
    ...readKind(kind === null ? null : String(kind), String(name)),
    runId: run.length === 0 ? '' : splitPair(String(run)).id,
    threadId: splitPair(String(thread)).id,
    status: String(status) as Operation['status'],
    result: payload(result, 'result'),
    evidence: payload(evidence, 'evidence'),
    resolvedBy: unmarked(String(by)),
    intendedAt: Number(intended),
    closedAt: numberOrNull(String(closed)),
  }
}

/** A text that may be empty, marked so that it is not taken for nothing. */
export function marked(value: string | null): string {
  return value === null ? '' : `=${value}`
}

function unmarked(field: string): string | null {
  return field === '' ? null : field.slice(1)
}

function numberOrNull(field: string): number | null {
  return field === '' ? null : Number(field)
}
