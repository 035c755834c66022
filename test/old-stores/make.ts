// Writes the stores in `written/`, which `old-stores.test.ts` opens. It has to be executed by the code of commit 09549e1, and so in a
// checkout of that commit, into which this folder is copied. From the root of the repository:
//
//   git worktree add --detach ../holdfast-09549e1 09549e1
//   cp -r test/old-stores ../holdfast-09549e1/test/
//   (cd ../holdfast-09549e1 && npm ci && node --conditions=holdfast-source test/old-stores/make.ts)
//   cp -r ../holdfast-09549e1/test/old-stores/written test/old-stores/
//   git worktree remove --force ../holdfast-09549e1
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { open } from 'holdfast'
import pg from 'pg'
import { startPostgres } from '../servers/postgres.ts'
import { startRedis } from '../servers/redis.ts'
import { dumpPostgres, dumpRedis, dumpSqlite, oldName } from './dumps.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const commit = execFileSync('git', ['rev-parse', 'HEAD'], { cwd: root, encoding: 'utf8' }).trim()
const changed = execFileSync('git', ['status', '--porcelain', '--', 'src'], { cwd: root, encoding: 'utf8' }).trim()
if (!commit.startsWith('09549e1') || changed !== '') throw new Error('This is not commit 09549e1: see the top of make.ts.')

const folder = mkdtempSync(join(tmpdir(), 'holdfast-old-stores-'))
mkdirSync(new URL('./written', import.meta.url), { recursive: true })

const file = join(folder, 'holdfast.db')
const sqliteAt = await writeStore(`sqlite:${file}`)
dumpSqlite(file)

const postgres = await startPostgres()
const setUp = await captureSetUp(`${postgres.url}?schema=${oldName}`)
const postgresAt = await writeStore(`${postgres.url}?schema=${oldName}`)
await dumpPostgres(postgres.url, setUp)
await postgres.stop()

const redis = await startRedis()
const redisAt = await writeStore(`${redis.url}?namespace=${oldName}`)
await dumpRedis(redis.url)
await redis.stop()

rmSync(folder, { recursive: true })
const times = { sqlite: sqliteAt, postgres: postgresAt, redis: redisAt }
writeFileSync(new URL('./written/times.json', import.meta.url), `${JSON.stringify(times, null, 2)}\n`)

/** Returns the time at which the store was left. */
async function writeStore(url: string): Promise<number> {
  const parts = ['settle', 'mismatch', 'poison', 'poison', 'poison', 'poison', 'poison', 'poisoned', 'inFlight', 'leave']
  for (const part of parts) {
    console.log(`${url.split(':')[0]}: ${part}`)
    const program = fileURLToPath(new URL('./author.ts', import.meta.url))
    const child = spawn(process.execPath, ['--conditions=holdfast-source', program, url, part], { stdio: 'inherit' })
    const [code, signal] = (await once(child, 'exit')) as [number | null, string | null]
    const expected = part === 'poison' || part === 'inFlight' ? 'SIGKILL' : 0
    if ((signal ?? code) !== expected) throw new Error(`${part} ended with ${signal ?? code}`)
  }
  return Date.now()
}

/** Opens a store on Postgres for the first time, and returns the SQL that made its tables. */
async function captureSetUp(url: string): Promise<string> {
  const texts: string[] = []
  const { query } = pg.Client.prototype
  pg.Client.prototype.query = function (this: pg.Client, ...args: unknown[]) {
    if (typeof args[0] === 'string' && args[0].includes('CREATE TABLE')) texts.push(args[0])
    return Reflect.apply(query, this, args)
  } as typeof query
  await (await open(url, { worker: false })).close()
  pg.Client.prototype.query = query
  if (texts.length !== 1) throw new Error(`${texts.length} statements made the tables`)
  return texts[0]!
}
