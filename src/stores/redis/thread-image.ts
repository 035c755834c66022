import { randomBytes } from 'node:crypto'
import { HoldfastError } from '../../model/errors.ts'
import { isOpenQuestion, type Operation } from '../../model/operation.ts'
import { isTerminal } from '../../model/run.ts'
import type { ThreadKey } from '../../store/store.ts'
import type { RunChunks, RunImage, ThreadImage, WholeThread } from '../../store/thread-image.ts'
import { chunksEntryOf, toStreams } from './chunks.ts'
import type { Connection } from './connection.ts'
import { toMessages } from './inbox.ts'
import { laneOf, pairOf, splitPair } from './keys.ts'
import type { Reply } from './link.ts'
import { entryOf } from './log-entry.ts'
import { messageEntryOf } from './message-entry.ts'
import { Packer, packFields, refuseTooLarge } from './pack.ts'
import { restoredFields } from './record-row.ts'
import { marked, packOperationPayload, type Row, readRow, toOperation, toRun, toThread } from './rows.ts'
import { readThreadImageScript, restoreThreadScript, stageScript } from './scripts/thread-image.ts'
import { snapshotEntryOf } from './snapshot-entry.ts'

/** A part is staged when it has about so many bytes, or so many arguments: meanwhile the server serves no other client. */
const partBytes = 4 * 1024 * 1024
const partArguments = 1_000

export async function readThreadImage(connection: Connection, { owner, threadId }: ThreadKey): Promise<ThreadImage | null> {
  const pair = pairOf(owner, threadId)
  const reply = (await connection.repeat(readThreadImageScript, pair)) as readonly Reply[]
  if (reply.length === 0) return null
  const [row, logLength, floor, runs, operations] = reply as readonly [Reply, number, Buffer, readonly Reply[], readonly Reply[]]
  return {
    thread: toThread(pair, readRow(row) as Row, logLength),
    epochFloor: Number(floor),
    runs: runs.map((one) => readRunImage(one as readonly Reply[])),
    operations: operations
      .flatMap((one) => readOperation(one as readonly Reply[]) ?? [])
      .sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key))),
  }
}

/**
 * Log, snapshots and streams are staged in parts, under keys that expire. Then one call judges, writes the rest and renames the staged keys.
 * Until then the thread does not exist, and what a crash leaves behind expires.
 */
export async function restoreThread(
  connection: Connection,
  whole: WholeThread,
  { offsetMs, publication }: { readonly offsetMs: number; readonly publication: string },
) {
  const staging = `restoring:${randomBytes(12).toString('base64url')}`
  const staged = { log: `${staging}:log`, snapshots: `${staging}:snapshots` }
  const bytesAt = new Map(whole.checkpoints.map(({ seq, bytes }) => [seq, bytes]))
  const { thread, log, snapshots } = whole
  await stage(connection, [staged.log, 'RPUSH'], log, (record) => [entryOf(record, thread, bytesAt.get(record.seq) ?? 0)])
  await stage(connection, [staged.snapshots, 'ZADD'], snapshots, (one) => [String(one.seq), snapshotEntryOf(one, thread)])
  const streams = stagedStreams(whole, staging)
  for (const { chunks, voids, records } of streams) {
    const entryAt = (one: RunChunks) => [String(one.offset), chunksEntryOf(thread.owner, one)]
    await stage(connection, [chunks, 'ZADD'], records, entryAt)
    await stage(connection, [voids, 'ZADD'], records.filter(isMark), entryAt)
  }
  const answer = await connection.once(restoreThreadScript, offsetMs, [publication, packWhole(whole, { ...staged, streams })])
  if (answer === -1) {
    const text = `Thread "${thread.threadId}" was on its way into the store for more than an hour; nothing of it was written. Restore it again.`
    throw new HoldfastError('store_unavailable', text, { retryable: true, details: { threadId: thread.threadId } })
  }
  return answer === 1 ? ({ ok: true } as const) : ({ ok: false, refusal: 'conflict' } as const)
}

/** The records of one stream, and the keys under which they are staged. */
interface StagedStream {
  readonly chunks: string
  readonly voids: string
  readonly records: RunChunks[]
}

function stagedStreams({ chunks }: WholeThread, staging: string): StagedStream[] {
  const streams = new Map<string, StagedStream>()
  for (const record of chunks) {
    const key = JSON.stringify([record.runId, record.stream])
    const number = streams.size
    const stream = streams.get(key) ?? { chunks: `${staging}:chunks:${number}`, voids: `${staging}:voids:${number}`, records: [] }
    stream.records.push(record)
    streams.set(key, stream)
  }
  return [...streams.values()]
}

function isMark({ payload }: RunChunks): boolean {
  return payload === null
}

async function stage<Item>(
  connection: Connection,
  place: readonly [key: string, act: 'RPUSH' | 'ZADD'],
  items: readonly Item[],
  argumentsOf: (item: Item) => (string | Buffer)[],
): Promise<void> {
  let part: (string | Buffer)[] = []
  let bytes = 0
  for (const [index, item] of items.entries()) {
    const added = argumentsOf(item)
    part.push(...added)
    bytes += added.reduce((sum, { length }) => sum + length, 0)
    if (bytes < partBytes && part.length < partArguments && index < items.length - 1) continue
    await connection.once(stageScript, 0, [...place, ...part])
    part = []
    bytes = 0
  }
}

interface Staged {
  readonly log: string
  readonly snapshots: string
  readonly streams: readonly StagedStream[]
}

/** In the form that `restoreThreadScript` reads. */
function packWhole(whole: WholeThread, staged: Staged): Buffer {
  const { thread, runs, operations, checkpoints, log, snapshots } = whole
  const { owner, threadId } = thread
  const labels = checkpoints.filter(({ label }) => label !== null)
  const runIds = new Set(runs.map(({ run }) => run.id))
  const intents = operations.filter(
    (operation) => (operation.status === 'intended' || isOpenQuestion(operation)) && runIds.has(operation.runId),
  )
  const intending = new Set(intents.map(({ runId }) => runId))
  const packer = new Packer()
  packFields(packer, [
    ['thread', () => packer.text(pairOf(owner, threadId))],
    ['owner', () => packer.text(owner)],
    ['version', () => packer.text(String(thread.stateVersion))],
    ['is_deleted', () => packer.boolean(thread.deletedAt !== null)],
    ['row', () => packThreadRow(packer, whole)],
    ['staged_log', () => packer.text(staged.log)],
    ['staged_snapshots', () => packer.text(staged.snapshots)],
    ['records', () => packer.number(log.length)],
    ['snapshots', () => packer.number(snapshots.length)],
    [
      'labels',
      () =>
        packFields(
          packer,
          labels.map(({ seq, label }) => {
            const runId = log[seq - thread.baseSeq - 1]?.runId ?? null
            const run = runId === null ? '' : pairOf(owner, runId)
            return [label as string, () => packer.array(2).text(String(seq)).text(run)]
          }),
        ),
    ],
    ['streams', () => packEach(packer, staged.streams, (one) => packStream(packer, one, owner))],
    ['runs', () => packEach(packer, runs, (one) => packRun(packer, one, { thread, isIntending: intending.has(one.run.id) }))],
    ['kept', () => packEach(packer, whole.records, (one) => packFields(packer, restoredFields(packer, { ...one, owner })))],
    ['operations', () => packEach(packer, operations, (one) => packOperation(packer, one, intents.includes(one)))],
  ])
  refuseTooLarge(`What belongs to thread "${threadId}" besides its log`, packer)
  return packer.end()
}

function packStream(packer: Packer, { chunks, voids, records }: StagedStream, owner: string): void {
  const last = records.at(-1) as RunChunks
  packFields(packer, [
    ['run', () => packer.text(pairOf(owner, last.runId))],
    ['stream', () => packer.text(last.stream)],
    ['length', () => packer.number(last.offset + last.size)],
    ['chunks', () => packer.text(chunks)],
    ['voids', () => packer.text(voids)],
    ['records', () => packer.number(records.length)],
    ['marks', () => packer.number(records.filter(isMark).length)],
  ])
}

function packEach<Item>(packer: Packer, items: readonly Item[], pack: (item: Item) => void): void {
  packer.array(items.length)
  for (const item of items) pack(item)
}

function packRow(packer: Packer, row: Readonly<Record<string, string | number | null>>): void {
  const fields = Object.entries(row)
  packer.array(2 * fields.length)
  for (const [field, value] of fields) packer.text(field).text(String(value ?? ''))
}

/** Without its number, which the script assigns. */
function packThreadRow(packer: Packer, { thread, epochFloor }: WholeThread): void {
  const {
    baseSeq: base,
    incarnation: life,
    stateVersion: version,
    deletedAt: deleted,
    headSeq: head,
    createdAt: created,
    writtenSeq,
    patchSeq: patch,
    patchChecksum: checksum,
  } = thread
  const foreign = head - writtenSeq
  packRow(packer, { base, life, version, deleted, floor: epochFloor, head, created, foreign, patch, checksum })
}

function packRun(packer: Packer, image: RunImage, { thread, isIntending }: RunPlace): void {
  const { run, inbox, deliveredIds } = image
  const wait = image.waitKey === null ? '' : pairOf(run.owner, image.waitKey)
  packFields(packer, [
    ['run', () => packer.text(pairOf(run.owner, run.id))],
    ['wait', () => packer.text(wait)],
    ['is_open', () => packer.boolean(!isTerminal(run.status))],
    ['inbox', () => packEach(packer, inbox, (message) => packer.bytes(messageEntryOf(message)))],
    ['delivered', () => packEach(packer, deliveredIds, (id) => packer.text(id))],
    // Without its number, which the script assigns.
    [
      'row',
      () =>
        packRow(packer, {
          ...{ epoch: run.epoch, lease: run.leaseId, thread: pairOf(run.owner, run.threadId), base: thread.baseSeq },
          ...{ claims: run.claimsWithoutProgress, step: marked(run.currentStep), until: run.leaseUntil },
          ...{ status: run.status, lane: laneOf(run), due: run.dueAt, wait, intends: isIntending ? 1 : '' },
          ...{ reason: run.reason, holder: run.leaseHolder, input: run.inputSeq, tape: run.tapeSeq, end: run.endSeq },
          ...{ fingerprint: run.fingerprint, created: run.createdAt, started: run.startedAt, finished: run.finishedAt },
        }),
    ],
  ])
}

interface RunPlace {
  readonly thread: Pick<WholeThread['thread'], 'baseSeq'>
  /** It left an operation intended. */
  readonly isIntending: boolean
}

function packOperation(packer: Packer, operation: Operation, isIntent: boolean): void {
  const { owner, key, kind, name, runId, threadId, status, result, evidence, resolvedBy, intendedAt, closedAt } = operation
  const run = runId === '' ? '' : pairOf(owner, runId)
  packFields(packer, [
    ['operation', () => packer.text(pairOf(owner, key))],
    ['intended_by', () => (isIntent ? packer.text(run) : packer.boolean(false))],
    ['unsure_since', () => (status === 'unsure' ? packer.text(String(intendedAt)) : packer.boolean(false))],
    [
      'row',
      () => {
        packer.array(20)
        packer
          .text('status')
          .text(status)
          .text('kind')
          .text(kind)
          .text('name')
          .text(name)
          .text('run')
          .text(run)
          .text('thread')
          .text(pairOf(owner, threadId))
        packOperationPayload(packer.text('result'), result, { owner, key, part: 'result' })
        packOperationPayload(packer.text('evidence'), evidence, { owner, key, part: 'evidence' })
        packer
          .text('by')
          .text(marked(resolvedBy))
          .text('intended')
          .text(String(intendedAt))
          .text('closed')
          .text(String(closedAt ?? ''))
      },
    ],
  ])
}

function readRunImage([pair, row, wait, inbox, streams, delivered]: readonly Reply[]): RunImage {
  const { run } = toRun(String(pair), readRow(row as Reply) as Row)
  const waitKey = String(wait)
  return {
    run,
    waitKey: waitKey === '' ? null : splitPair(waitKey).id,
    inbox: toMessages(inbox as readonly Buffer[], { owner: run.owner, runId: run.id }),
    deliveredIds: (delivered as readonly Reply[]).map(String).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))),
    streams: toStreams(streams as Reply),
  }
}

function readOperation([pair, row]: readonly Reply[]): Operation | null {
  const { owner, id } = splitPair(String(pair))
  return toOperation({ owner, key: id }, row as Reply)
}
