import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { Store } from '../../../src/store/store.ts'
import { openSqliteStore } from '../../../src/stores/sqlite/sqlite-store.ts'
import { emptyDump, readStore, type StoreDump } from '../store-dump.ts'
import type { Ground } from './ground.ts'

const orders = {
  insert: 'INSERT INTO orders (run, round) VALUES (?, ?)',
  count: 'SELECT count(*) AS orders FROM orders WHERE run = ?',
}

/** One file a scene: a copy of one that is set up. */
export async function prepareSqlite(): Promise<Ground> {
  const home = mkdtempSync(join(tmpdir(), 'holdfast-ground-'))
  const template = join(home, 'template.db')
  const db = new DatabaseSync(template)
  db.exec('CREATE TABLE orders (run TEXT NOT NULL, round INTEGER NOT NULL)')
  db.close()
  await (await openFile(template)).close()

  return {
    kind: 'sqlite',
    async lend({ folder, isBare }) {
      const file = join(folder, 'store.db')
      if (!isBare) copyFileSync(template, file)
      const address = { kind: 'sqlite', url: `sqlite:${file}`, orders } as const
      return {
        addressFor: async () => address,
        untilLeft: async () => {},
        dump: () => dumpFile(file, folder),
        watch: () => readFile(file),
        open: () => openFile(file),
        giveBack: async () => {},
      }
    },
    close: async () => rmSync(home, { recursive: true, force: true }),
  }
}

/** From a copy: opening the file itself would recover and clean it up, which is the next process's business. */
async function dumpFile(file: string, folder: string): Promise<StoreDump> {
  const dump = mkdtempSync(join(folder, 'dump-'))
  const copy = join(dump, 'store.db')
  try {
    for (const suffix of ['', '-wal']) if (existsSync(file + suffix)) copyFileSync(file + suffix, copy + suffix)
    return existsSync(copy) ? await readFile(copy) : emptyDump
  } finally {
    rmSync(dump, { recursive: true, force: true })
  }
}

async function readFile(file: string): Promise<StoreDump> {
  const orders = readOrders(file)
  const store = await openFile(file)
  try {
    return { ...(await readStore(store)), orders }
  } finally {
    await store.close()
  }
}

async function openFile(file: string): Promise<Store> {
  const store = await openSqliteStore({ file, durability: 'full' })
  await store.migrate()
  return store
}

function readOrders(file: string): StoreDump['orders'] {
  const db = new DatabaseSync(file, { timeout: 5_000 })
  try {
    const hasTable = db.prepare(`SELECT 1 FROM sqlite_schema WHERE name = 'orders'`).get() !== undefined
    return hasTable
      ? (db
          .prepare('SELECT run, round FROM orders ORDER BY rowid')
          .all()
          .map((row) => ({ ...row })) as { run: string; round: number }[])
      : []
  } finally {
    db.close()
  }
}
