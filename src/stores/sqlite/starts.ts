import { type Database, prepare } from './connection.ts'
import type { RunRow } from './rows.ts'

/** So many new runs are inserted by one statement: one for each takes a third longer, and more than ten at once gain nothing. */
export const startsAtOnce = 10

/** Inserts new threads, each with its first run and the id of the record with which its log begins. */
export function prepareStarts(db: Database) {
  const one = { threads: prepare(db, threadsSql(1)), runs: prepare(db, runsSql(1)) }
  const many = { threads: prepare(db, threadsSql(startsAtOnce)), runs: prepare(db, runsSql(startsAtOnce)) }
  // Ids rise with those of records: in that range only what was just inserted has a record that is not written yet.
  const removeThreads = prepare(db, 'DELETE FROM holdfast_threads WHERE id BETWEEN ? AND ? AND head_record >= ?')
  const removeRuns = prepare(db, 'DELETE FROM holdfast_runs WHERE id BETWEEN ? AND ? AND input_id >= ?')

  /**
   * One start, or `startsAtOnce` of them, with `thread` yet to be known and `input_id` in order. Answers with the first number of the
   * threads and of the runs, the others follow; or null, with nothing inserted, where a thread or an id is there already.
   */
  return function insert(rows: readonly StartingRow[]): { readonly thread: number; readonly run: number } | null {
    const count = rows.length
    const statements = count === 1 ? one : many
    const firstRecord = (rows[0] as StartingRow).input_id
    const threadValues: unknown[] = []
    for (const { owner, threadId, input_id, created_at } of rows) threadValues.push(owner, threadId, input_id, created_at)
    const threads = statements.threads.run(...threadValues)
    const lastThread = Number(threads.lastInsertRowid)
    const firstThread = lastThread - count + 1
    if (threads.changes !== count) {
      if (threads.changes > 0) removeThreads.run(firstThread, lastThread, firstRecord)
      return null
    }
    const values: unknown[] = []
    for (let i = 0; i < count; i++) {
      const { owner, run_id, workflow, version, queue, priority, fingerprint, due_at, ready, input_id, created_at } = rows[
        i
      ] as StartingRow
      values.push(owner, run_id, firstThread + i, workflow, version, queue, priority, fingerprint)
      values.push(due_at, due_at, ready, input_id, created_at)
    }
    const runs = statements.runs.run(...values)
    const lastRun = Number(runs.lastInsertRowid)
    const firstRun = lastRun - count + 1
    if (runs.changes !== count) {
      removeThreads.run(firstThread, lastThread, firstRecord)
      if (runs.changes > 0) removeRuns.run(firstRun, lastRun, firstRecord)
      return null
    }
    return { thread: firstThread, run: firstRun }
  }
}

export type StartingRow = RunRow & { readonly threadId: string }

function threadsSql(count: number): string {
  return `INSERT INTO holdfast_threads (owner, thread_id, head_seq, head_record, state_version, incarnation, base_seq, epoch_floor, created_at)
    VALUES ${Array(count).fill('(?, ?, 1, ?, 0, 1, 0, 0, ?)').join(', ')} ON CONFLICT DO NOTHING`
}

/** What is the same for all of them is not bound: that takes as long as writing it. */
function runsSql(count: number): string {
  return `INSERT INTO holdfast_runs (owner, run_id, thread, workflow, version, status, queue, priority, fingerprint, epoch, due_at, claim_at, ready,
      claims_without_progress, input_seq, input_id, created_at, unread_message)
    VALUES ${Array(count).fill(`(?, ?, ?, ?, ?, 'pending', ?, ?, ?, 0, ?, ?, ?, 0, 1, ?, ?, 0)`).join(', ')} ON CONFLICT DO NOTHING`
}
