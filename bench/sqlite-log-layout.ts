import { mkdtempSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import BetterSqlite3 from 'better-sqlite3'

/**
 * How should SQLite keep the logs of many threads: clustered by thread, in the order of commits with an index over
 * (thread, seq), or in the order of commits as chains? Bare prepared statements, synchronous=FULL, changes of two events over
 * 500 threads in turn. What it does not measure: Holdfast's own work, several processes.
 *
 *   node bench/sqlite-log-layout.ts [FOLDER]     default: a temporary folder; name one on the disk you care about
 */

const threadCount = 500
const changeCount = 20_000
const payload = JSON.stringify({ ok: true, text: 'x'.repeat(60) })
const shared =
  'run INTEGER, type TEXT, step TEXT, count INTEGER, attempt INTEGER, at INTEGER, duration_ms INTEGER, payload, checksum INTEGER'
const sharedHoles = Array(9).fill('?').join(', ')

interface Layout {
  append(thread: number): void
  read(thread: number): unknown[]
}

type Database = BetterSqlite3.Database

const layouts: Record<string, (db: Database) => Layout> = {
  'clustered by thread'(db) {
    db.exec(`CREATE TABLE log (id INTEGER PRIMARY KEY, ${shared})`)
    const head = db
      .prepare('SELECT id & 4294967295 FROM log WHERE id > (? << 32) AND id < (? << 32) ORDER BY id DESC LIMIT 1')
      .pluck()
    const insert = db.prepare(`INSERT INTO log VALUES ((? << 32) | ?, ${sharedHoles}), ((? << 32) | ?, ${sharedHoles})`)
    const range = db.prepare('SELECT * FROM log WHERE id > (? << 32) AND id < (? << 32) ORDER BY id').raw()
    return {
      append(thread) {
        const seq = (head.get(thread, thread + 1) as number | undefined) ?? 0
        insert.run(thread, seq + 1, ...started(thread), thread, seq + 2, ...completed(thread))
      },
      read: (thread) => range.all(thread, thread + 1),
    }
  },

  'in commit order, indexed'(db) {
    db.exec(
      `CREATE TABLE log (id INTEGER PRIMARY KEY, thread INTEGER, seq INTEGER, ${shared}); CREATE UNIQUE INDEX by_seq ON log (thread, seq)`,
    )
    const head = db.prepare('SELECT seq FROM log WHERE thread = ? ORDER BY seq DESC LIMIT 1').pluck()
    const insert = db.prepare(`INSERT INTO log VALUES (?, ?, ?, ${sharedHoles}), (?, ?, ?, ${sharedHoles})`)
    const range = db.prepare('SELECT * FROM log WHERE thread = ? AND seq > 0 ORDER BY seq').raw()
    let id = 1
    return {
      append(thread) {
        const seq = (head.get(thread) as number | undefined) ?? 0
        insert.run(id++, thread, seq + 1, ...started(thread), id++, thread, seq + 2, ...completed(thread))
      },
      read: (thread) => range.all(thread),
    }
  },

  'in commit order, chained'(db) {
    db.exec(`
      CREATE TABLE threads (id INTEGER PRIMARY KEY, thread_id TEXT, head_seq INTEGER, head_id INTEGER);
      CREATE TABLE log (id INTEGER PRIMARY KEY, thread INTEGER, seq INTEGER, prev INTEGER, ${shared});
      CREATE INDEX marks ON log (thread, seq) WHERE (seq & 31) = 0`)
    for (let thread = 1; thread <= threadCount; thread++)
      db.prepare('INSERT INTO threads VALUES (?, ?, 0, NULL)').run(thread, `thread-${thread}`)
    const head = db.prepare('SELECT head_seq, head_id FROM threads WHERE id = ?').raw()
    const setHead = db.prepare('UPDATE threads SET head_seq = ?, head_id = ? WHERE id = ?')
    const insert = db.prepare(`INSERT INTO log VALUES (?, ?, ?, ?, ${sharedHoles}), (?, ?, ?, ?, ${sharedHoles})`)
    const chain = db
      .prepare(
        `WITH RECURSIVE back (id, prev) AS (
           SELECT id, prev FROM log WHERE id = ? UNION ALL SELECT l.id, l.prev FROM back JOIN log l ON l.id = back.prev
         ) SELECT l.* FROM back CROSS JOIN log l ON l.id = back.id`,
      )
      .raw()
    let id = 1
    return {
      append(thread) {
        const [seq, last] = head.get(thread) as [number, number | null]
        insert.run(id, thread, seq + 1, last, ...started(thread), id + 1, thread, seq + 2, id, ...completed(thread))
        setHead.run(seq + 2, id + 1, thread)
        id += 2
      },
      read: (thread) => chain.all((head.get(thread) as [number, number])[1]).reverse(),
    }
  },
}

console.log(`${cpus()[0]?.model ?? 'unknown CPU'}, ${cpus().length} cores, Node ${process.versions.node}`)
console.log(`medians of 5 rounds (lowest–highest); ${threadCount} threads, two events a change`)
for (const eventsBefore of [0, 600]) {
  for (const batchSize of [100, 500]) {
    for (const [name, create] of Object.entries(layouts)) {
      const rounds = Array.from({ length: 5 }, () => measure(create, { eventsBefore, batchSize }))
      const writing = spread(rounds.map(({ writeMicroseconds }) => writeMicroseconds))
      const reading = spread(rounds.map(({ readMicroseconds }) => readMicroseconds))
      console.log(
        `${name.padEnd(26)} after ${eventsBefore} events, batches of ${batchSize}: ${writing} µs a change · ${reading} µs a record read`,
      )
    }
  }
}

function measure(create: (db: Database) => Layout, { eventsBefore, batchSize }: { eventsBefore: number; batchSize: number }) {
  const folder = mkdtempSync(join(process.argv[2] ?? tmpdir(), 'holdfast-bench-'))
  const db = new BetterSqlite3(join(folder, 'log.db'))
  db.pragma('journal_mode = WAL')
  db.pragma('synchronous = OFF')
  const layout = create(db)
  let turn = 0
  const write = db.transaction((size: number) => {
    for (let i = 0; i < size; i++) layout.append((turn++ % threadCount) + 1)
  })
  for (let i = 0; i < eventsBefore / 2; i++) write(threadCount)
  db.pragma('wal_checkpoint(TRUNCATE)')
  db.pragma('synchronous = FULL')

  const startedAt = performance.now()
  for (let written = 0; written < changeCount; written += batchSize) write(batchSize)
  const writeMicroseconds = ((performance.now() - startedAt) * 1_000) / changeCount

  const readAt = performance.now()
  let records = 0
  for (let thread = 1; thread <= 100; thread++) records += layout.read(thread).length
  const readMicroseconds = ((performance.now() - readAt) * 1_000) / records
  db.close()
  rmSync(folder, { recursive: true })
  return { writeMicroseconds, readMicroseconds }
}

function started(thread: number): unknown[] {
  return [thread, 'step_started', 'load_data', 1, 1, 1_800_000_000_000, null, null, 123_456_789]
}

function completed(thread: number): unknown[] {
  return [thread, 'step_completed', 'load_data', 1, 1, 1_800_000_000_003, 3, payload, 1_234_567_890]
}

function spread(values: readonly number[]): string {
  const sorted = [...values].sort((a, b) => a - b)
  const show = (value: number | undefined) => (value ?? 0).toPrecision(3)
  return `${show(sorted[sorted.length >> 1])} (${show(sorted[0])}–${show(sorted.at(-1))})`
}
