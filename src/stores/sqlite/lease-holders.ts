import { type Database, prepare } from './connection.ts'
import { describeHolder, isDead, parseHolder, thisProcess } from './holder.ts'

/** The names behind `lease_holder`, kept once instead of in every run. */
export function prepareLeaseHolders(db: Database) {
  const here = thisProcess()
  const find = prepare(db, 'SELECT id FROM holdfast_holders WHERE holder = ?').pluck()
  const insert = prepare(db, 'INSERT INTO holdfast_holders (holder) VALUES (?)')
  const removeIdle = prepare(
    db,
    'DELETE FROM holdfast_holders WHERE id <> ? AND NOT EXISTS (SELECT 1 FROM holdfast_runs WHERE lease_holder = holdfast_holders.id)',
  )

  return {
    /** The row of this worker. A newcomer takes those away that hold nothing; one of them that claims again comes back. */
    register(workerId: string): { id: number; text: string } {
      const text = describeHolder(workerId, here)
      const found = find.get(text) as number | undefined
      if (found !== undefined) return { id: found, text }
      const id = Number(insert.run(text).lastInsertRowid)
      removeIdle.run(id)
      return { id, text }
    },
    forget(ids: readonly number[]): void {
      if (ids.length > 0) removeIdle.run(0)
    },
  }
}

/** Finds holders of leases whose process is gone, as far as this machine can tell. Verdicts on the living last a second. */
export function prepareDeadHolders(db: Database) {
  const all = prepare(db, 'SELECT id, holder FROM holdfast_holders')
  const seenAlive = new Map<number, number>()
  const here = thisProcess()

  return function findDead(): number[] {
    const dead: number[] = []
    for (const { id, holder: text } of all.all() as { id: number; holder: string }[]) {
      if (performance.now() - (seenAlive.get(id) ?? Number.NEGATIVE_INFINITY) < 1_000) continue
      const holder = parseHolder(text)
      if (holder !== null && isDead(holder, here)) dead.push(id)
      else seenAlive.set(id, performance.now())
    }
    return dead
  }
}
