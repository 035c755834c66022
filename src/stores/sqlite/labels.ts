import { type Database, prepare } from './connection.ts'

/** Labels a position of a thread: the latest wins, of the label and of the position. `run` is that of the record there. */
export function prepareSaveLabel(db: Database) {
  const save = prepare(
    db,
    `INSERT OR REPLACE INTO holdfast_labels (thread, label, seq, run, owner, created_at)
     SELECT ?, ?, ?, r.id, r.owner, r.created_at FROM (SELECT ? AS id) given LEFT JOIN holdfast_runs r ON r.id = given.id`,
  )
  return (thread: number, { seq, label, run }: { seq: number; label: string; run: number | null }): void => {
    save.run(thread, label, seq, run)
  }
}
