import { newRun } from '../../model/new-run.ts'
import type { Run } from '../../model/run.ts'
import type { Change, Committed, NewRun, Refusal } from '../../store/change.ts'
import { isStart } from '../../store/kinds-of-change.ts'
import type { Connection } from './connection.ts'
import { partlyWrittenError } from './errors.ts'
import { pairOf } from './keys.ts'
import type { Reply } from './link.ts'
import { packChanges } from './pack-changes.ts'
import { refusingRecord } from './records.ts'
import { type Row, readRow, toOperation, toRun } from './rows.ts'
import { commitScript } from './scripts/commit.ts'

/**
 * Writes a batch in one call. The script judges and writes; this file sends it the packed changes and reads its answers.
 */
export async function commit(connection: Connection, changes: readonly Change[], options: CommitOptions): Promise<Committed[]> {
  const { count, packed } = packChanges(changes)
  const [now, ...answers] = (await connection.once(commitScript, options.offsetMs, [
    options.publication,
    packed,
  ])) as readonly Reply[]
  const written = answers.map((answer, i) => readAnswer(changes[i] as Change, answer, Number(now)))
  if (count === changes.length) return written
  try {
    return [...written, ...(await commit(connection, changes.slice(count), options))]
  } catch (cause) {
    throw partlyWrittenError(cause)
  }
}

interface CommitOptions {
  readonly offsetMs: number
  /** What is published in the same call. */
  readonly publication: string
}

function readAnswer(change: Change, answer: Reply, now: number): Committed {
  if (typeof answer === 'number') {
    if (isStart(change)) return readStarted(change.creates[0], answer, now)
    return readPlainAnswer(change, answer, now)
  }
  const [first, last, hasMail, created] = answer as readonly Reply[]
  if (first instanceof Buffer && String(first) === 'record_changed')
    return { ok: false, refusal: 'record_changed', record: refusingRecord(change, [last, hasMail]) }
  if (first instanceof Buffer) return readRefusal(change, String(first) as Refusal, last)
  return {
    ok: true,
    firstSeq: Number(first),
    lastSeq: Number(last),
    now,
    created: (change.creates ?? []).map((create, i) => readCreated(create, (created as readonly Reply[])[i] as Reply, now)),
    hasMail: hasMail === 1,
  }
}

function readPlainAnswer({ events }: Change, answer: number, now: number): Committed {
  if (answer === 0) return { ok: false, refusal: 'lease_lost' }
  const firstSeq = Math.floor(answer / 2)
  return { ok: true, firstSeq, lastSeq: firstSeq + Math.max(0, events.length - 1), now, created: [], hasMail: answer % 2 === 1 }
}

function readRefusal({ owner, operation }: Change, refusal: Refusal, row: Reply | undefined): Committed {
  const found = row === undefined || operation === undefined ? null : toOperation({ owner, key: operation.key }, row)
  return found === null ? { ok: false, refusal } : { ok: false, refusal, operation: found }
}

function readCreated(create: NewRun, answer: Reply, now: number): { run: Run; isNew: boolean } {
  const { owner, id } = create
  const [isNew, row, epoch, dueAt] = answer as readonly Reply[]
  if (isNew !== 1) {
    return { run: toRun(pairOf(owner, id), readRow(row as Reply) as Row).run, isNew: false }
  }
  return {
    run: newRun(create, { inputSeq: Number(row), epoch: Number(epoch), dueAt: Number(dueAt), now }),
    isNew: true,
  }
}

/** A run that began its thread. */
function readStarted(create: NewRun, dueAt: number, now: number): Committed {
  const run = newRun(create, { inputSeq: 1, epoch: 0, dueAt, now })
  return { ok: true, firstSeq: 1, lastSeq: 1, now, created: [{ run, isNew: true }], hasMail: false }
}
