import { pairKey } from '../../model/ids.ts'
import type { Payload } from '../../model/payload.ts'
import type { ThreadKey } from '../../store/store.ts'
import type { RunImage, ThreadImage, WholeThread } from '../../store/thread-image.ts'
import { restoreChunks, streamsOf } from './chunks.ts'
import { readInbox } from './inbox.ts'
import { copyOperation } from './operations.ts'
import { putRecord, readRecord } from './records.ts'
import {
  copyPayload,
  findRun,
  findThread,
  placeUnfinished,
  type RunRow,
  setWaitKey,
  type Tables,
  type ThreadRow,
  tellListeners,
} from './tables.ts'

export function readThreadImage(tables: Tables, { owner, threadId }: ThreadKey): ThreadImage | null {
  const row = findThread(tables, owner, threadId)
  if (row === undefined) return null
  const operations = [...tables.operations.values()].filter((one) => one.owner === owner && one.threadId === threadId)
  return {
    thread: { ...row.thread },
    epochFloor: row.epochFloor,
    runs: row.runs.map((one) => ({
      run: { ...one.run },
      waitKey: one.waitKey,
      inbox: readInbox(tables, { owner, runId: one.run.id }),
      deliveredIds: [...one.deliveredIds].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))),
      streams: streamsOf(one),
    })),
    operations: operations.map(copyOperation).sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key))),
  }
}

export function restoreThread(tables: Tables, whole: WholeThread, now: number) {
  const { owner, threadId } = whole.thread
  if (isTaken(tables, whole, now)) return { ok: false, refusal: 'conflict' } as const
  const thread: ThreadRow = {
    number: ++tables.lastNumber,
    thread: { ...whole.thread },
    log: whole.log.map((record) => ({ ...record, payload: copyPayload(record.payload), patch: copyPayload(record.patch) })),
    snapshots: whole.snapshots.map((snapshot) => ({ ...snapshot, state: copyPayload<Payload>(snapshot.state) })),
    checkpoints: whole.checkpoints.map(({ seq, label, bytes }) => ({ seq, label, bytes })),
    runs: [],
    unfinished: [],
    epochFloor: whole.epochFloor,
  }
  tables.threads.set(pairKey(owner, threadId), thread)
  for (const operation of whole.operations) tables.operations.set(pairKey(owner, operation.key), copyOperation(operation))
  for (const image of whole.runs) restoreRun(tables, thread, image)
  for (const { runId, ...record } of whole.chunks) restoreChunks(findRun(tables, owner, runId), record)
  for (const { key, runId } of whole.operations) findRun(tables, owner, runId)?.openedKeys.add(pairKey(owner, key))
  for (const record of whole.records) putRecord(tables, { ...record, owner })
  tellListeners(tables, { owner, threadId, isClaimable: true })
  return { ok: true } as const
}

function isTaken(tables: Tables, { thread, runs, operations, records }: WholeThread, now: number): boolean {
  const { owner, threadId } = thread
  if (findThread(tables, owner, threadId) !== undefined) return true
  if (runs.some(({ run }) => findRun(tables, owner, run.id) !== undefined)) return true
  if (records.some((record) => readRecord(tables, { ...record, owner }, now) !== undefined)) return true
  return operations.some(({ key }) => tables.operations.has(pairKey(owner, key)))
}

function restoreRun(tables: Tables, thread: ThreadRow, { run, waitKey, inbox, deliveredIds }: RunImage): void {
  const number = ++tables.lastNumber
  const row: RunRow = {
    number,
    run: { ...run },
    waitKey: null,
    inbox: [],
    deliveredIds: new Set(deliveredIds),
    streams: new Map(),
    openedKeys: new Set(),
  }
  row.inbox = inbox.map((message) => ({ ...message, id: ++tables.lastNumber, payload: copyPayload(message.payload) }))
  tables.runs.set(pairKey(run.owner, run.id), row)
  thread.runs.push(row)
  setWaitKey(tables, row, waitKey)
  placeUnfinished(tables, thread, row)
}
