import { dueBy } from '../../model/due.ts'
import { isTerminal } from '../../model/run.ts'
import { hintOfMail } from '../../store/hints.ts'
import type { Delivery, Hint, Message, RunKey } from '../../store/store.ts'
import { type Database, prepare } from './connection.ts'
import { type MessageRow, messageChecksum, toMessage } from './rows.ts'
import type { ThreadQueue, UnfinishedRun } from './thread-queue.ts'

/** Takes a message in, inside an open write transaction. Ids rise in the order in which messages become visible. */
export function prepareDeliver(db: Database, queue: ThreadQueue) {
  const find = prepare(
    db,
    `SELECT r.id AS run, r.thread, r.status, r.due_at AS dueAt, r.lease_until AS leaseUntil, t.thread_id AS threadId
     FROM holdfast_runs r JOIN holdfast_threads t ON t.id = r.thread WHERE r.owner = ? AND r.run_id = ?`,
  )
  const insert = prepareInsertMessage(db)
  const isDelivered = prepare(db, 'SELECT 1 FROM holdfast_delivered WHERE run = ? AND id = ?')
  const noteDelivered = prepareNoteDelivered(db)
  const setLastMessage = prepare(db, 'UPDATE holdfast_runs SET unread_message = ? WHERE id = ?')

  return function deliver(message: Delivery, now: number, hints: Hint[]) {
    const { owner, runId, kind, name, payload, dedupeId } = message
    const found = find.get(owner, runId) as (UnfinishedRun & { readonly threadId: string }) | undefined
    if (found === undefined) return { ok: false, refusal: 'run_not_found' } as const
    const { run, status, dueAt } = found
    if (dedupeId !== undefined && isDelivered.get(run, dedupeId) !== undefined) return { ok: true } as const
    if (isTerminal(status)) return { ok: false, refusal: 'conflict' } as const
    if (dedupeId !== undefined) noteDelivered(run, dedupeId)
    setLastMessage.run(insert(run, { owner, runId, kind, name, payload, at: now }), run)
    if (status === 'waiting') queue.makeDue(found, dueBy(dueAt, now))
    hints.push(hintOfMail(message, found))
    return { ok: true } as const
  }
}

/** Takes messages that were dealt with out of the inbox. */
export function prepareUnread(db: Database) {
  const remove = prepare(db, 'DELETE FROM holdfast_inbox WHERE id = ? AND run = ?')
  const last = prepare(db, 'SELECT coalesce(max(id), 0) FROM holdfast_inbox WHERE run = ?').pluck()
  const setLastMessage = prepare(db, 'UPDATE holdfast_runs SET unread_message = ? WHERE id = ?')
  const lastOf = (run: number) => last.get(run) as number

  return {
    /** The latest message of a run, 0 for none. */
    lastOf,
    /** Returns the latest message that is left, 0 for none. */
    remove({ run, unreadMessage }: { readonly run: number; readonly unreadMessage: number }, read: readonly number[]): number {
      for (const id of read) remove.run(id, run)
      const lastMessage = lastOf(run)
      if (lastMessage !== unreadMessage) setLastMessage.run(lastMessage, run)
      return lastMessage
    },
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
