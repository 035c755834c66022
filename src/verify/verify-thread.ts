import type { Run } from '../model/run.ts'
import type { Thread, ThreadKey } from '../store/store.ts'
import type { RunImage, ThreadImage } from '../store/thread-image.ts'
import type { Damage } from './damage.ts'
import { attempt, Findings, type Source } from './findings.ts'
import { LogCheck, type RecordAt } from './log-check.ts'
import { logPages } from './log-pages.ts'
import { checkLostOperations, checkLostRuns, checkOperations, checkRuns, positionsOf } from './run-checks.ts'
import { Snapshots } from './snapshots.ts'

export interface ThreadFindings {
  /** As it was when it was read; null where its row is damaged. */
  readonly thread: Thread | null
  readonly runs: number
  readonly records: number
  readonly snapshots: number
  readonly operations: number
  readonly bytes: number
  readonly damaged: readonly Damage[]
}

/** One thread, with all that belongs to it, as it is at one moment. Null if there never was one. */
export async function verifyThread(source: Source, { owner, threadId }: ThreadKey): Promise<ThreadFindings | null> {
  const findings = new Findings(source.store, { owner, threadId })
  const { damaged } = findings
  const nothing = { thread: null, runs: 0, records: 0, snapshots: 0, operations: 0, bytes: 0, damaged }
  const read = await attempt(source.store, () => source.store.readThreadImage({ owner, threadId }))
  if (!('damage' in read) && read.value === null) return null
  const whole = 'damage' in read ? null : read.value
  const image = whole ?? (await readParts(source, { owner, threadId }, findings))
  if (image === null) return nothing
  const { thread, runs } = image
  if (whole !== null) checkOperations(whole, source.codec, findings)
  const counts = { runs: runs.length, operations: image.operations.length }
  if (thread.deletedAt !== null) return { ...nothing, ...counts, thread }

  const snapshots = new Snapshots(source, thread, findings)
  await snapshots.find()
  const { log, found, bytes } = await checkLog(source, { thread, runs, snapshots }, findings)
  checkRuns(thread, runs, found, findings)
  if (whole !== null || damaged.length === 0) checkLostRuns(runs, log, findings)
  await checkLostOperations(source, image, { log, findings })
  for (const { run, streams } of runs) await checkStreams(source, { run, streams }, findings)
  // What makes the whole unreadable was not among what was looked at one by one.
  if ('damage' in read && damaged.length === 0) findings.note('run', read.damage.message)
  return { thread, ...counts, records: log.records, snapshots: snapshots.size, bytes: bytes + snapshots.bytes, damaged }
}

/** Where a thread can't be read as a whole: what can be read of it, one by one. Its operations are those that its log names. */
async function readParts({ store, signal }: Source, key: ThreadKey, findings: Findings): Promise<ThreadImage | null> {
  const thread = await findings.read('thread', () => store.readThread(key))
  if (thread === undefined || thread === null) return null
  const runs: RunImage[] = []
  for (let cursor: string | undefined; ; ) {
    signal?.throwIfAborted()
    const query = { ...key, limit: 100, ...(cursor !== undefined && { cursor }) }
    const page = await findings.read('run', () => store.listRuns(query))
    for (const run of page?.items ?? []) {
      const inbox = await findings.read('message', () => store.readInbox({ owner: key.owner, runId: run.id }), { runId: run.id })
      runs.push({ run, waitKey: null, inbox: inbox ?? [], deliveredIds: [], streams: [] })
    }
    cursor = page?.cursor
    if (cursor === undefined) return { thread, epochFloor: 0, runs, operations: [] }
  }
}

interface Checked {
  readonly thread: Thread
  readonly runs: readonly RunImage[]
  readonly snapshots: Snapshots
}

/** The log with its checkpoints and snapshots. Returns which records are where rows of runs refer to. */
async function checkLog(source: Source, { thread, runs, snapshots }: Checked, findings: Findings) {
  const log = new LogCheck(thread, source.codec, findings)
  const positions = positionsOf(runs)
  const found = new Map<number, RecordAt>()
  let bytes = 0
  let listDamage: Error | null = null
  for await (const page of logPages(source, thread, findings)) {
    bytes += page.bytes
    const checkpoints: number[] = []
    for (const record of page.records) {
      const { seq, runId, type, isCheckpoint } = record
      log.add(record)
      if (isCheckpoint) checkpoints.push(seq)
      if (positions.has(seq)) found.set(seq, { seq, runId, type })
      const snapshot = await snapshots.at(seq)
      if (snapshot !== null) log.compare(snapshot)
    }
    const [first, last] = [page.records[0]?.seq ?? 0, page.records.at(-1)?.seq ?? 0]
    const problem = await checkCheckpoints(source, thread, { first, last, checkpoints }, findings)
    listDamage ??= problem
  }
  log.end()
  // Some stores read the log for it, also what comes after the page: then the record was named.
  if (listDamage !== null && !findings.damaged.some(({ what }) => what === 'record'))
    findings.note('checkpoint', listDamage.message)
  return { log, found, bytes }
}

interface Stretch {
  readonly first: number
  readonly last: number
  /** As its records say. */
  readonly checkpoints: readonly number[]
}

/** Of a stretch, and after the end of the log. Returns what keeps them from being listed. */
async function checkCheckpoints({ store }: Source, thread: Thread, stretch: Stretch, findings: Findings): Promise<Error | null> {
  const { owner, threadId, headSeq } = thread
  const { first, last, checkpoints } = stretch
  const query = { owner, threadId, afterSeq: first - 1, limit: checkpoints.length + 1 }
  const read = await attempt(store, () => store.listCheckpoints(query))
  if ('damage' in read) return read.damage
  const rows = read.value
  const listed = new Set(rows.map(({ seq }) => seq).filter((seq) => seq <= last))
  const inLog = new Set(checkpoints)
  for (const seq of listed)
    if (!inLog.has(seq)) findings.note('checkpoint', 'It is listed as a checkpoint, and no commit ended there.', { seq })
  for (const seq of inLog)
    if (!listed.has(seq)) findings.note('checkpoint', 'A commit ended there, and it is not listed as a checkpoint.', { seq })
  const beyond = rows.find(({ seq }) => seq > headSeq)
  if (beyond === undefined || last < headSeq) return null
  const again = await store.readThread({ owner, threadId })
  if (again?.headSeq === headSeq && again.incarnation === thread.incarnation)
    findings.note(
      'thread',
      `The row of the thread says that its log ends at ${headSeq}, and the log has a record at ${beyond.seq}.`,
    )
  return null
}

async function checkStreams({ store, signal }: Source, { run, streams }: Pick<RunImage, 'run' | 'streams'>, findings: Findings) {
  const { owner, id: runId }: Run = run
  for (const { stream, length } of streams) {
    for (let from = 0; from < length; ) {
      signal?.throwIfAborted()
      const at = from
      const records = await findings.read('stream', () => store.readChunks({ owner, runId, stream, from: at, limit: 100 }), {
        runId,
      })
      if (records === undefined) break
      const last = records.at(-1)
      if (last === undefined) {
        findings.note(
          'stream',
          `Stream "${stream}" of run "${runId}" has ${length} chunks, and those from ${from} on are missing.`,
          { runId },
        )
        break
      }
      from = last.offset + last.size
    }
  }
}
