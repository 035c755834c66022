import { recordChecksum, sealChecksum } from '../model/checksum.ts'
import { HoldfastError } from '../model/errors.ts'
import { type EventType, eventTypes, type LogRecord } from '../model/event.ts'
import { checkId, maxIdBytes } from '../model/ids.ts'
import { type Operation, type OperationStatus, readKind } from '../model/operation.ts'
import type { Payload } from '../model/payload.ts'
import { endOfTime, type KeyedRecord } from '../model/record.ts'
import { isTerminal, type Run, type RunStatus, runStatuses } from '../model/run.ts'
import type { Snapshot, Thread } from '../store/store.ts'
import type { RunChunks, RunImage, WholeThread } from '../store/thread-image.ts'

/**
 * Reads the content of a bundle, which is untrusted: every field is checked, so that nothing gets into a store that the store would not
 * have written itself. Anything inconsistent is `invalid_input`, and nothing is imported.
 */
export function readContent(content: unknown, owner: string): WholeThread {
  const fields = new Fields(content, 'content')
  const log = fields.list('log').map((record) => readRecord(record))
  const thread = readThread(fields.object('thread'), owner, log)
  const { threadId } = thread
  const chunks = fields.list('chunks').map((record) => readChunks(record))
  const runs = fields.list('runs').map((run) => readRun(run, { owner, threadId, chunks }))
  const operations = fields.list('operations').map((operation) => readOperation(operation, { owner, threadId }))
  const checkpoints = fields.list('checkpoints').map((checkpoint) => ({
    seq: checkpoint.integer('seq'),
    label: checkpoint.textOrNull('label'),
    bytes: checkpoint.integer('bytes'),
  }))
  const snapshots = fields.list('snapshots').map((snapshot): Snapshot => {
    const state = snapshot.payload('state')
    if (state === null) throw snapshot.refused('state', 'a payload')
    return { seq: snapshot.integer('seq'), state, stateVersion: snapshot.integer('stateVersion') }
  })
  const records = fields.value('records') === undefined ? [] : fields.list('records').map((one) => readKeyedRecord(one, thread))
  const whole = {
    thread,
    epochFloor: fields.integer('epochFloor'),
    runs,
    operations,
    records,
    log,
    checkpoints,
    snapshots,
    chunks,
  }
  checkSense(whole)
  return whole
}

function readThread(fields: Fields, owner: string, log: readonly LogRecord[]): Thread {
  const threadId = checkId('thread id', fields.value('threadId'))
  const last = log.findLast(({ patch }) => patch !== null)
  return {
    owner,
    threadId,
    // No worker holds a run of a bundle, so none has seen more than it contains.
    writtenSeq: 0,
    patchSeq: last?.seq ?? 0,
    patchChecksum: last === undefined ? 0 : sealChecksum(recordChecksum({ owner, threadId }, last), last.seq),
    headSeq: fields.integer('headSeq'),
    stateVersion: fields.integer('stateVersion'),
    incarnation: fields.integer('incarnation'),
    baseSeq: fields.integer('baseSeq'),
    createdAt: fields.integer('createdAt'),
    deletedAt: fields.integerOrNull('deletedAt'),
  }
}

interface RunPlace {
  readonly owner: string
  readonly threadId: string
  readonly chunks: readonly RunChunks[]
}

function readRun(fields: Fields, { owner, threadId, chunks }: RunPlace): RunImage {
  const id = checkId('run id', fields.value('id'))
  const status = fields.oneOf('status', runStatuses) as RunStatus
  if (status === 'running') throw fields.refused('status', 'another one, because no worker holds a run of a bundle')
  const run: Run = {
    ...{ owner, id, threadId, status, leaseId: null, leaseUntil: null, leaseHolder: null },
    workflow: checkId('workflow name', fields.value('workflow')),
    queue: checkId('queue name', fields.value('queue')),
    version: fields.integer('version'),
    reason: fields.textOrNull('reason') as Run['reason'],
    priority: fields.integer('priority'),
    fingerprint: fields.text('fingerprint'),
    epoch: fields.integer('epoch'),
    dueAt: fields.integerOrNull('dueAt'),
    claimsWithoutProgress: fields.integer('claimsWithoutProgress'),
    currentStep: fields.textOrNull('currentStep'),
    inputSeq: fields.integer('inputSeq'),
    tapeSeq: fields.integerOrNull('tapeSeq'),
    endSeq: fields.integerOrNull('endSeq'),
    createdAt: fields.integer('createdAt'),
    startedAt: fields.integerOrNull('startedAt'),
    finishedAt: fields.integerOrNull('finishedAt'),
  }
  if (isTerminal(status) !== (run.finishedAt !== null))
    throw fields.refused('finishedAt', 'a time if and only if the run has ended')
  const inbox = fields.list('inbox').map((message, id) => ({
    ...{ owner, runId: run.id, id, kind: message.text('kind'), name: message.textOrNull('name') },
    ...{ payload: message.payload('payload'), at: message.integer('at') },
  }))
  const lengths = new Map<string, number>()
  for (const { runId, stream, offset, size } of chunks) if (runId === id) lengths.set(stream, offset + size)
  const streams = [...lengths].map(([stream, length]) => ({ stream, length }))
  return { run, waitKey: fields.textOrNull('waitKey'), inbox, deliveredIds: readDeliveredIds(fields), streams }
}

/** Absent if the run received no such message, and in bundles of version 0.1. */
function readDeliveredIds(fields: Fields): string[] {
  const ids = fields.value('deliveredIds') ?? []
  if (!Array.isArray(ids) || new Set(ids).size < ids.length) throw fields.refused('deliveredIds', 'a list of different ids')
  return ids.map((id) => checkId('signal id', id))
}

function readOperation(fields: Fields, { owner, threadId }: { owner: string; threadId: string }): Operation {
  return {
    ...{ owner, threadId },
    key: checkId('operation key', fields.value('key')),
    ...readKind(
      fields.value('kind') === undefined ? 'effect' : fields.oneOf('kind', ['effect', 'question']),
      fields.text('name'),
    ),
    runId: fields.text('runId'),
    status: fields.oneOf('status', ['intended', 'completed', 'failed', 'unsure', 'undone']) as OperationStatus,
    result: fields.payload('result'),
    evidence: fields.payload('evidence'),
    resolvedBy: fields.textOrNull('resolvedBy'),
    intendedAt: fields.integer('intendedAt'),
    closedAt: fields.integerOrNull('closedAt'),
  }
}

/** Of the bundle's thread. Its key may be made of two names. */
function readKeyedRecord(fields: Fields, { owner, threadId }: { owner: string; threadId: string }): KeyedRecord {
  const payload = fields.payload('payload')
  if (payload === null) throw fields.refused('payload', 'a payload')
  const version = fields.integer('version')
  if (version < 1) throw fields.refused('version', 'a number from 1')
  return {
    ...{ owner, threadId, version, payload, collection: fields.name('collection'), key: fields.name('key', 2 * maxIdBytes + 4) },
    parent: fields.value('parent') === null ? null : fields.name('parent'),
    fields: fields.list('fields').map((field) => ({ name: field.name('name'), value: field.name('value') })),
    ...{ createdAt: fields.moment('createdAt'), updatedAt: fields.moment('updatedAt') },
    expiresAt: fields.value('expiresAt') === null ? null : fields.moment('expiresAt'),
  }
}

function readRecord(fields: Fields): LogRecord {
  return {
    seq: fields.integer('seq'),
    runId: fields.textOrNull('runId'),
    type: fields.oneOf('type', eventTypes) as EventType,
    step: fields.textOrNull('step'),
    count: fields.integer('count'),
    attempt: fields.integer('attempt'),
    at: fields.number('at'),
    durationMs: fields.value('durationMs') === null ? null : fields.number('durationMs'),
    payload: fields.payload('payload'),
    patch: fields.payload('patch'),
    isCheckpoint: fields.boolean('isCheckpoint'),
  }
}

function readChunks(fields: Fields): RunChunks {
  return {
    runId: fields.text('runId'),
    stream: checkId('stream name', fields.value('stream')),
    offset: fields.integer('offset'),
    size: fields.integer('size'),
    tape: fields.integer('tape'),
    step: fields.textOrNull('step'),
    count: fields.integer('count'),
    attempt: fields.integer('attempt'),
    payload: fields.payload('payload'),
  }
}

/** Each stream begins at 0 and has no gaps. */
function areGapless(chunks: readonly RunChunks[]): boolean {
  const ends = new Map<string, number>()
  return chunks.every(({ runId, stream, offset, size }) => {
    const key = JSON.stringify([runId, stream])
    const isNext = offset === (ends.get(key) ?? 0) && size > 0
    ends.set(key, offset + size)
    return isNext
  })
}

/** What can't be seen in single fields. */
function checkSense({ thread, runs, records, log, checkpoints, snapshots, operations, chunks }: WholeThread): void {
  const { threadId, headSeq, baseSeq, deletedAt } = thread
  const refuse = (what: string): never => {
    throw new HoldfastError('invalid_input', `The bundle of thread "${threadId}" is inconsistent: ${what}. Nothing was imported.`)
  }
  const length = deletedAt === null ? headSeq - baseSeq : 0
  if (log.length !== length || log.some(({ seq }, index) => seq !== baseSeq + 1 + index)) refuse('its log has gaps')
  if (deletedAt !== null && runs.length + snapshots.length > 0) refuse('it is deleted and has runs or snapshots')
  const runIds = new Set(runs.map(({ run }) => run.id))
  if (runIds.size !== runs.length) refuse('two runs have the same id')
  const places = records.map(({ collection, key }) => JSON.stringify([collection, key]))
  if (new Set(places).size !== places.length) refuse('two records have the same key')
  if (new Set(operations.map(({ key }) => key)).size !== operations.length) refuse('two operations have the same key')
  if (chunks.some(({ runId }) => !runIds.has(runId)) || !areGapless(chunks)) refuse('its streams have gaps')
  if (log.some(({ runId }) => runId !== null && !runIds.has(runId))) refuse('its log names a run that it does not contain')
  const isPosition = (seq: number | null) => seq === null || (seq > baseSeq && seq <= headSeq)
  const positions = runs.flatMap(({ run }) => [run.inputSeq, run.tapeSeq, run.endSeq])
  if (![...positions, ...snapshots.map(({ seq }) => seq)].every(isPosition)) refuse('a position is outside of its log')
  const ends = log.filter(({ isCheckpoint }) => isCheckpoint)
  const isSame = ends.length === checkpoints.length && ends.every(({ seq }, index) => checkpoints[index]?.seq === seq)
  if (!isSame) refuse('its checkpoints are not those of its log')
}

/** An object whose fields are not checked yet. */
class Fields {
  readonly #fields: Readonly<Record<string, unknown>>
  readonly #path: string

  constructor(value: unknown, path: string) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) throw refused(path, 'an object')
    this.#fields = value as Readonly<Record<string, unknown>>
    this.#path = path
  }

  value(name: string): unknown {
    return Object.hasOwn(this.#fields, name) ? this.#fields[name] : undefined
  }

  object(name: string): Fields {
    return new Fields(this.value(name), `${this.#path}.${name}`)
  }

  list(name: string): Fields[] {
    const list = this.value(name)
    if (!Array.isArray(list)) throw this.refused(name, 'a list')
    return list.map((item, index) => new Fields(item, `${this.#path}.${name}[${index}]`))
  }

  text(name: string): string {
    const value = this.value(name)
    // Postgres can't store NUL in a text; no store ever wrote one.
    if (typeof value !== 'string' || value.includes('\0') || !value.isWellFormed()) throw this.refused(name, 'a text')
    return value
  }

  /** What others look it up by, so that a store can hold it. */
  name(name: string, mostBytes = maxIdBytes): string {
    const value = this.text(name)
    const isName = value !== '' && Buffer.byteLength(value) <= mostBytes && !/\p{Cc}/u.test(value)
    if (!isName) throw this.refused(name, `a text of 1 to ${mostBytes} bytes without control characters`)
    return value
  }

  textOrNull(name: string): string | null {
    return this.value(name) === null ? null : this.text(name)
  }

  number(name: string): number {
    const value = this.value(name)
    if (typeof value !== 'number' || !Number.isFinite(value)) throw this.refused(name, 'a number')
    return value
  }

  integer(name: string): number {
    const value = this.value(name)
    if (!Number.isSafeInteger(value)) throw this.refused(name, 'a whole number')
    return value as number
  }

  moment(name: string): number {
    const value = this.integer(name)
    if (value < 0 || value > endOfTime) throw this.refused(name, 'a time')
    return value
  }

  integerOrNull(name: string): number | null {
    return this.value(name) === null ? null : this.integer(name)
  }

  boolean(name: string): boolean {
    const value = this.value(name)
    if (typeof value !== 'boolean') throw this.refused(name, 'true or false')
    return value
  }

  oneOf(name: string, allowed: readonly string[]): string {
    const value = this.text(name)
    if (!allowed.includes(value)) throw this.refused(name, `one of ${allowed.join(', ')}`)
    return value
  }

  payload(name: string): Payload | null {
    const value = this.value(name)
    if (typeof value !== 'object' || value === null) return this.textOrNull(name)
    const base64 = this.object(name).text('base64')
    return new Uint8Array(Buffer.from(base64, 'base64'))
  }

  refused(name: string, what: string): HoldfastError {
    return refused(`${this.#path}.${name}`, what)
  }
}

function refused(path: string, what: string): HoldfastError {
  return new HoldfastError(
    'invalid_input',
    `The bundle is not one of Holdfast's: ${path} is not ${what}. Nothing was imported.`,
    {
      details: { path },
    },
  )
}
