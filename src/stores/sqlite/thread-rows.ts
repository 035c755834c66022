import type { Snapshot, ThreadKey } from '../../store/store.ts'
import { type Database, prepare } from './connection.ts'
import { snapshotChecksum } from './rows.ts'

/** A thread's row as far as a write looks at it. */
export interface FoundThread {
  /** holdfast_threads.id */
  readonly thread: number
  readonly headSeq: number
  readonly headRecord: number | null
  readonly writtenSeq: number
  readonly stateVersion: number
  readonly deletedAt: number | null
}

export interface OpenedThread extends FoundThread {
  /** The highest epoch of a run that was deleted. */
  readonly epochFloor: number
}

/** Finds, opens and writes rows of threads, inside an open write transaction. */
export function prepareThreads(db: Database) {
  const find = prepare(
    db,
    `SELECT id AS thread, head_seq AS headSeq, head_record AS headRecord, written_seq AS writtenSeq, state_version AS stateVersion,
       epoch_floor AS epochFloor, deleted_at AS deletedAt FROM holdfast_threads WHERE owner = ? AND thread_id = ?`,
  )
  const insert = prepare(
    db,
    `INSERT INTO holdfast_threads (owner, thread_id, head_seq, head_record, state_version, incarnation, base_seq, epoch_floor, created_at)
     VALUES (?, ?, ?, ?, 0, 1, 0, 0, ?) ON CONFLICT DO NOTHING`,
  )
  const revive = prepare(
    db,
    'UPDATE holdfast_threads SET incarnation = incarnation + 1, base_seq = head_seq, deleted_at = NULL WHERE id = ?',
  )
  const setStateVersion = prepare(db, 'UPDATE holdfast_threads SET state_version = ? WHERE id = ?')
  const saveSnapshot = prepare(
    db,
    'INSERT OR REPLACE INTO holdfast_snapshots (thread, seq, state, state_version, checksum) VALUES (?, ?, ?, ?, ?)',
  )

  return {
    find: ({ owner, threadId }: ThreadKey) => find.get(owner, threadId) as OpenedThread | undefined,

    /** A new thread, or null where it is or was. Its row ends at the first record, which the caller writes under this id. */
    begin({ owner, threadId }: ThreadKey, headRecord: number, now: number): OpenedThread | null {
      const { changes, lastInsertRowid } = insert.run(owner, threadId, 1, headRecord, now)
      return changes === 0 ? null : newThread(Number(lastInsertRowid))
    },

    /** The thread as it is; a new one where there is none; a new life where it was deleted. */
    open<Found extends FoundThread>(found: Found | undefined, { owner, threadId }: ThreadKey, now: number): Found | OpenedThread {
      if (found === undefined) return newThread(Number(insert.run(owner, threadId, 0, null, now).lastInsertRowid))
      if (found.deletedAt === null) return found
      revive.run(found.thread)
      return { ...found, deletedAt: null }
    },

    setStateVersion: (thread: number, stateVersion: number) => setStateVersion.run(stateVersion, thread),

    saveSnapshot(key: ThreadKey & { readonly thread: number }, snapshot: Snapshot): void {
      const { seq, state, stateVersion } = snapshot
      saveSnapshot.run(key.thread, seq, state, stateVersion, snapshotChecksum(key, snapshot))
    },
  }
}

export type Threads = ReturnType<typeof prepareThreads>

function newThread(thread: number): OpenedThread {
  return { thread, headSeq: 0, headRecord: null, writtenSeq: 0, stateVersion: 0, epochFloor: 0, deletedAt: null }
}
