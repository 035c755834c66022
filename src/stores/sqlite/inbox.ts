import { isTerminal } from '../../model/run.ts'
import type { Delivery, Hint, Message, RunKey } from '../../store/store.ts'
import { type Database, prepare } from './connection.ts'
import type { Line } from './line.ts'
import { dueBy } from './operations.ts'
import { type MessageRow, messageChecksum, type RunRow, toMessage } from './rows.ts'

/** Takes a message in, inside an open write transaction. Ids rise in the order in which messages become visible. */
export function prepareDeliver(db: Database, line: Line) {
  const find = prepare(
    db,
    'SELECT r.*, t.thread_id FROM holdfast_runs r JOIN holdfast_threads t ON t.id = r.thread WHERE r.owner = ? AND r.run_id = ?',
  )
  const insert = prepareInsertMessage(db)
  const isDelivered = prepare(db, 'SELECT 1 FROM holdfast_delivered WHERE run = ? AND id = ?')
  const noteDelivered = prepareNoteDelivered(db)
  const setLastMessage = prepare(db, 'UPDATE holdfast_runs SET unread_message = ? WHERE id = ?')
  const makeDue = prepare(db, 'UPDATE holdfast_runs SET due_at = ?, claim_at = ? WHERE id = ?')

  return function deliver(message: Delivery, now: number, hints: Hint[]) {
    const { owner, runId, kind, name, payload, dedupeId } = message
    const run = find.get(owner, runId) as (RunRow & { readonly thread_id: string }) | undefined
    if (run === undefined) return { ok: false, refusal: 'run_not_found' } as const
    if (dedupeId !== undefined && isDelivered.get(run.id, dedupeId) !== undefined) return { ok: true } as const
    if (isTerminal(run.status)) return { ok: false, refusal: 'conflict' } as const
    if (dedupeId !== undefined) noteDelivered(run.id, dedupeId)
    setLastMessage.run(insert(run.id, { owner, runId, kind, name, payload, at: now }), run.id)
    const isClaimable = run.status === 'waiting'
    if (isClaimable) {
      const due_at = dueBy(run.due_at, now)
      makeDue.run(due_at, line.claimAtOf({ ...run, due_at }), run.id)
    }
    hints.push({ owner, threadId: run.thread_id, runId, hasMail: true, ...(isClaimable ? { isClaimable } : {}) })
    return { ok: true } as const
  }
}

export function prepareInsertMessage(db: Database) {
  const insert = prepare(db, 'INSERT INTO holdfast_inbox (run, kind, name, payload, at, checksum) VALUES (?, ?, ?, ?, ?, ?)')
  /** Returns the message's id. */
  return (run: number, message: Omit<Message, 'id'>): number =>
    Number(insert.run(run, message.kind, message.name, message.payload, message.at, messageChecksum(message)).lastInsertRowid)
}

export function prepareNoteDelivered(db: Database) {
  const note = prepare(db, 'INSERT INTO holdfast_delivered (run, id) VALUES (?, ?)')
  return (run: number, id: string): void => void note.run(run, id)
}

export function prepareReadInbox(db: Database) {
  const all = prepare(
    db,
    `SELECT m.* FROM holdfast_runs r JOIN holdfast_inbox m ON m.run = r.id WHERE r.owner = ? AND r.run_id = ? ORDER BY m.id`,
  )
  return function readInbox({ owner, runId }: RunKey): Message[] {
    return (all.all(owner, runId) as MessageRow[]).map((row) => toMessage(row, { owner, runId }))
  }
}
