import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { type Holdfast, open, workflow } from 'holdfast'
import pg from 'pg'
import { createClient, RESP_TYPES } from 'redis'
import { describe, expect, it } from 'vitest'
import { createRandom, type Random } from '../../src/testing/random.ts'
import { codeOfRejection } from '../behaviour/runs.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import { startRedis } from '../servers/redis.ts'

/**
 * One value of a store is damaged at a time; then everything that users read is read. What comes back must be what was there, `corrupt_record`, or
 * that there is nothing of the name. What else came back is printed, and has to be among what the docs of the store say is not covered.
 */

/** A value that can be damaged: its table and column, or key and field. */
interface Cell {
  readonly where: string
  readonly value: string | number | Uint8Array
  write(value: Cell['value']): Promise<unknown> | unknown
}

interface Damaged {
  readonly cells: readonly Cell[]
  readonly hf: Holdfast
}

const child = workflow('child', async (ctx, n: number) => ctx.step('double', () => n * 2))
const report = workflow<{ topic: string }, string, { notes?: string[] }>('report', async (ctx, input) => {
  ctx.progress(0.25, 'begun')
  const found = await ctx.step('search', () => `about ${input.topic}`)
  ctx.update((draft) => {
    draft.notes = [found]
  })
  ctx.usage({ inputTokens: 7, cost: 0.5 })
  await ctx.checkpoint('searched')
  await ctx.once('mail', { run: () => 'sent' })
  const doubled = await ctx.call(child, 21, { id: `child-${input.topic}` })
  if (input.topic === 'failure') throw new Error('it went wrong')
  if (input.topic === 'waiting') await ctx.ask('approve', { question: 'May I?' })
  return `${found}: ${doubled}`
})

async function fill(url: string): Promise<void> {
  const hf = await open(url, { workflows: [report, child], logger: false, worker: { quietMs: 10 } })
  for (const topic of ['one', 'failure', 'waiting']) {
    const run = await hf.start(report, { topic }, { id: `report-${topic}` })
    if (topic === 'one') await run.result()
    if (topic === 'failure') await codeOfRejection(run.result())
    if (topic === 'waiting')
      for (let status = ''; status !== 'waiting'; ) {
        status = (await run.info()).status
        await new Promise((resolve) => setTimeout(resolve, 10))
      }
  }
  await hf.thread('report-one').tag('report-one@1', 'begun')
  for (const key of ['tone', 'language']) await hf.memory.session.of('report-one').set(key, `${key} of the report`)
  await hf.memory.session.of('login').set('ever', 1, { ttlMs: Number.POSITIVE_INFINITY })
  for (const likes of ['tea', 'milk']) await hf.memory.of('ann').profile.merge({ likes, [likes]: true }, { by: 'support' })
  await hf.close()
}

const seed = Number(process.env['HOLDFAST_TEST_SEED'] ?? 1)

const runIds = ['report-one', 'report-failure', 'report-waiting', 'child-one']

/** Every way in which users read, by name. */
const paths: Record<string, (hf: Holdfast) => Promise<unknown>> = {
  list: async (hf) => (await hf.runs.list()).items,
  'list by status': async (hf) => (await hf.runs.list({ status: 'completed' })).items,
  'list by label': async (hf) => (await hf.runs.list({ label: 'searched' })).items,
  inbox: (hf) => hf.inbox(),
  'memory session': (hf) => hf.memory.session.of('report-one').list(),
  'memory login': (hf) => hf.memory.session.of('login').list(),
  'memory profile': async (hf) => [await hf.memory.of('ann').profile.get()].filter((profile) => Object.keys(profile).length > 0),
  'memory history': (hf) => hf.memory.of('ann').profile.history(),
  ...Object.fromEntries(
    runIds.flatMap((id): [string, (hf: Holdfast) => Promise<unknown>][] => [
      [`info ${id}`, async (hf) => (await hf.runs.get(id)).info()],
      [`events ${id}`, async (hf) => (await hf.runs.get(id)).events()],
      [`result ${id}`, async (hf) => resultOf(hf, id)],
      [`state ${id}`, (hf) => hf.thread(id).state()],
      [`checkpoints ${id}`, (hf) => hf.thread(id).checkpoints()],
    ]),
  ),
}

/** Of a run that failed the failure: it is what `result()` says. */
async function resultOf(hf: Holdfast, id: string): Promise<unknown> {
  try {
    return await (await hf.runs.get(id)).result({ timeoutMs: 0 })
  } catch (error) {
    const { code, cause } = error as { code?: string; cause?: Error }
    if (code !== 'run_failed' && code !== 'timeout') throw error
    return { code, cause: cause?.message }
  }
}

/** What users may be told of a thing that is damaged. */
const honest = new Set(['corrupt_record', 'run_not_found', 'thread_deleted', 'invalid_id', 'operation_not_found'])

/** A value in a form that compares. Runs that are shown as damaged, and those that are not shown, are left out. */
function plain(value: unknown): string {
  const text = JSON.stringify(value, (_, part: unknown) =>
    part instanceof Error ? { name: part.name, message: part.message } : part,
  ) as string | undefined
  return text ?? 'undefined'
}

function isHonest(found: unknown, right: unknown): boolean {
  if (plain(found) === plain(right)) return true
  if (Array.isArray(found) && Array.isArray(right)) {
    const known = new Set(right.map(plain))
    return found.every((item) => known.has(plain(item)) || isShownDamaged(item))
  }
  return isShownDamaged(found)
}

function isShownDamaged(item: unknown): boolean {
  return (item as { error?: { code?: string } } | null)?.error?.code === 'corrupt_record'
}

function damage(value: Cell['value'], random: Random): Cell['value'] {
  if (typeof value === 'number') {
    const bit = 2 ** random.integer(0, value > 2 ** 32 ? 40 : 20)
    return Math.floor(value / bit) % 2 === 1 ? value - bit : value + bit
  }
  const bytes = Buffer.from(value as string)
  const at = random.integer(0, bytes.length - 1)
  // One bit of one byte; a text stays one.
  const bit = typeof value === 'string' ? random.integer(0, 4) : random.integer(0, 7)
  bytes[at] = (bytes[at] as number) ^ (1 << bit)
  if (typeof value !== 'string') return new Uint8Array(bytes)
  const text = bytes.toString()
  return text === value || text.includes('\0') || text.includes('\ufffd') ? `${value}x` : text
}

/** A few values of each column, chosen at random. */
function someOf(cells: readonly Cell[], random: Random): Cell[] {
  return [...Map.groupBy(cells, ({ where }) => where).values()].flatMap((column) => {
    const most = column[0]?.where.endsWith('.entry') ? 40 : 3
    return column
      .map((cell) => ({ cell, order: random.integer(0, 1_000_000) }))
      .toSorted((a, b) => a.order - b.order)
      .slice(0, most)
      .map(({ cell }) => cell)
  })
}

/** Damages some cells, one at a time, reads, mends it. Returns what escaped, as `where → path`. */
async function fuzz({ cells, hf }: Damaged): Promise<Map<string, string>> {
  const random = createRandom(seed)
  const sample = createRandom(seed + 1_000)
  const right = new Map<string, unknown>()
  for (const [path, read] of Object.entries(paths)) right.set(path, await read(hf))
  const escaped = new Map<string, string>()
  expect(await hf.verify()).toMatchObject({ isSound: true, damaged: [] })
  for (const cell of someOf(cells, random)) {
    const value = damage(cell.value, random)
    await cell.write(value)
    let isTold = false
    for (const [path, read] of Object.entries(paths)) {
      const problem = await read(hf).then(
        (found) => {
          isTold ||= plain(found).includes('corrupt_record') || [found].flat().some(isShownDamaged)
          return isHonest(found, right.get(path)) ? null : plain(found)
        },
        (error: { code?: string }) => {
          isTold ||= error.code === 'corrupt_record'
          return honest.has(error.code ?? '') ? null : `threw ${error.code}: ${String(error)}`
        },
      )
      if (problem !== null)
        escaped.set(`${cell.where} → ${path.split(' ')[0]}`, `${plain(cell.value)} as ${plain(value)}: ${problem.slice(0, 300)}`)
    }
    // What any reader meets, hf.verify() finds. It reads the whole store, so it is asked about every second cell.
    if (sample.integer(0, 1) === 0) {
      const verified = await hf.verify().catch((error: Error) => error)
      if (verified instanceof Error || (isTold && verified.isSound))
        escaped.set(`${cell.where} → verify`, `${plain(cell.value)} as ${plain(value)}: ${plain(verified).slice(0, 200)}`)
    }
    await cell.write(cell.value)
  }
  expect(await hf.verify()).toMatchObject({ isSound: true })
  for (const [path, read] of Object.entries(paths))
    expect(plain(await read(hf)), `${path} after all is mended`).toBe(plain(right.get(path)))
  return escaped
}

/** What users see and no checksum covers, as the docs of the stores list it. */
const uncovered = [
  /^runs\.(workflow|queue|version|created_at|started_at|finished_at|due_at) → (list|info)$/,
  // The thread is not found under its name, as if it had never been.
  /^threads\.(thread_id|owner) → state$/,
  /^labels\.\w+ → (checkpoints|list)$/,
  /^log\.checkpoint_bytes → checkpoints$/,
  /^operations\.\w+ → inbox$/,
  // Of Postgres alone: the record is taken for one of another run.
  /^log\.run → events$/,
]

function expectCovered(name: string, cells: readonly Cell[], escaped: ReadonlyMap<string, string>): void {
  const columns = new Set(cells.map(({ where }) => where))
  console.log(`${name}: values of ${columns.size} columns damaged with seed ${seed}; ${escaped.size} kinds of escapes`)
  for (const [what, how] of escaped) console.log(`  ${what}: ${how}`)
  expect([...escaped.keys()].filter((what) => !uncovered.some((pattern) => pattern.test(what)))).toEqual([])
}

describe('a damaged value never comes back as another', () => {
  it('on SQLite', { timeout: 600_000 }, async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-damage-'))
    const url = `sqlite:${join(folder, 'store.db')}`
    await fill(url)
    const db = new DatabaseSync(join(folder, 'store.db'), { timeout: 5_000 })
    const hf = await open(url, { worker: false })
    try {
      const cells: Cell[] = []
      for (const table of ['threads', 'runs', 'log', 'snapshots', 'operations', 'labels', 'chunks', 'records']) {
        const key = table === 'labels' ? 'thread, seq' : 'id'
        for (const row of db.prepare(`SELECT ${key}, * FROM holdfast_${table}`).all() as Record<string, Cell['value'] | null>[]) {
          const where = key.split(', ').map((column) => `${column} = ${String(row[column])}`)
          for (const [column, value] of Object.entries(row)) {
            if (value === null || column === 'is_held' || key.includes(column)) continue
            const set = db.prepare(`UPDATE holdfast_${table} SET ${column} = ? WHERE ${where.join(' AND ')}`)
            cells.push({ where: `${table}.${column}`, value, write: (damaged) => set.run(damaged) })
          }
        }
      }
      expectCovered('SQLite', cells, await fuzz({ cells, hf }))
    } finally {
      await hf.close()
      db.close()
      rmSync(folder, { recursive: true, force: true })
    }
  })

  it('on Postgres', { timeout: 600_000 }, async () => {
    const { url } = await sharedPostgres()
    const schema = 'damage'
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    await client.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`)
    await fill(`${url}?schema=${schema}`)
    const hf = await open(`${url}?schema=${schema}`, { worker: false })
    try {
      const cells: Cell[] = []
      for (const table of ['threads', 'runs', 'log', 'snapshots', 'operations', 'labels', 'records']) {
        const { rows } = await client.query(`SELECT ctid::text AS place, t.* FROM ${schema}.${table} t`)
        const keys: Record<string, string[]> = {
          log: ['thread', 'seq'],
          snapshots: ['thread', 'seq'],
          labels: ['thread', 'seq'],
          operations: ['owner', 'key'],
          records: ['owner', 'collection', 'key'],
        }
        for (const { place: _, ...row } of rows as Record<string, unknown>[]) {
          const key = keys[table] ?? ['id']
          const where = key.map((column, n) => `${column} = $${n + 2}`).join(' AND ')
          for (const [column, value] of Object.entries(row)) {
            if (value === null || key.includes(column) || typeof value === 'boolean') continue
            const isNumber =
              typeof value === 'number' || (typeof value === 'string' && /^-?\d{1,16}$/.test(value) && column !== 'payload')
            const shown = (isNumber ? Number(value) : value) as Cell['value']
            const write = (damaged: Cell['value']) =>
              client.query(`UPDATE ${schema}.${table} SET ${column} = $1 WHERE ${where}`, [
                damaged,
                ...key.map((name) => row[name]),
              ])
            cells.push({ where: `${table}.${column}`, value: shown, write })
          }
        }
      }
      const some = cells.filter(({ where }) => !/^runs\.(is_|ready)/.test(where))
      expectCovered('Postgres', some, await fuzz({ cells: some, hf }))
    } finally {
      await hf.close()
      await client.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`)
      await client.end()
    }
  })

  it('on Redis', { timeout: 600_000 }, async () => {
    const server = await startRedis()
    const client = createClient({ url: server.url }).withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer })
    await client.connect()
    await fill(server.url)
    const hf = await open(server.url, { worker: false })
    try {
      const cells: Cell[] = []
      const prefix = 'holdfast:{default}:'
      for (const raw of (await client.sendCommand(['KEYS', `${prefix}*`])) as unknown as Buffer[]) {
        const key = raw.toString()
        const kind = key.slice(prefix.length).split(':')[0] as string
        if (['log', 'run', 'thread', 'snapshots', 'operation', 'labels', 'record'].includes(kind))
          cells.push(...(await cellsOf(client as never, key, kind)))
      }
      expectCovered('Redis', cells, await fuzz({ cells, hf }))
    } finally {
      await hf.close()
      client.destroy()
      await server.stop()
    }
  })
})

interface RawClient {
  sendCommand(args: readonly (string | Buffer)[]): Promise<unknown>
}

/** The values under a key of Redis. Fields of rows are told as columns of the tables of the other stores. */
async function cellsOf(client: RawClient, key: string, kind: string): Promise<Cell[]> {
  const bytesOf = (value: Cell['value']) => (typeof value === 'number' ? String(value) : Buffer.from(value as Uint8Array))
  if (kind === 'log') {
    const entries = (await client.sendCommand(['LRANGE', key, '0', '-1'])) as Buffer[]
    return entries.flatMap((entry, index) =>
      // Several places of each entry: its checksum, its head and its contents are one value here.
      Array.from({ length: 8 }, () => ({
        where: 'log.entry',
        value: new Uint8Array(entry),
        write: (damaged: Cell['value']) => client.sendCommand(['LSET', key, String(index), bytesOf(damaged)]),
      })),
    )
  }
  if (kind === 'snapshots') {
    const members = (await client.sendCommand(['ZRANGE', key, '0', '-1'])) as Buffer[]
    return members.map((member) => {
      let there: string | Buffer = member
      return {
        where: 'snapshots.entry',
        value: new Uint8Array(member),
        write: async (damaged: Cell['value']) => {
          const score = String((await client.sendCommand(['ZSCORE', key, there])) as Buffer)
          await client.sendCommand(['ZREM', key, there])
          there = bytesOf(damaged)
          await client.sendCommand(['ZADD', key, score, there])
        },
      }
    })
  }
  const fields = (await client.sendCommand(['HGETALL', key])) as Buffer[] | Map<Buffer, Buffer> | Record<string, Buffer>
  const pairs = Array.isArray(fields)
    ? fields.flatMap((field, index) => (index % 2 === 0 ? [[field.toString(), fields[index + 1] as Buffer] as const] : []))
    : Object.entries(fields as Record<string, Buffer>)
  return pairs
    .filter(([, value]) => value.length > 0)
    .map(([field, value]) => ({
      where: `${kind === 'run' ? 'runs' : kind === 'thread' ? 'threads' : kind === 'operation' ? 'operations' : kind}.${columnOf(kind, field)}`,
      value: new Uint8Array(value),
      write: (damaged: Cell['value']) => client.sendCommand(['HSET', key, field, bytesOf(damaged)]),
    }))
}

function columnOf(kind: string, field: string): string {
  const columns: Record<string, string> = {
    ...{ input: 'input_seq', end: 'end_seq', tape: 'tape_seq', lane: 'workflow', created: 'created_at', started: 'started_at' },
    ...{ finished: 'finished_at', due: 'due_at', lease: 'lease_id', holder: 'lease_holder', until: 'wake_at', number: 'id' },
    ...{ claims: 'claims_without_progress', step: 'current_step', wait: 'wait_key', mail: 'last_message', intends: 'ready' },
  }
  const ofThread: Record<string, string> = {
    base: 'base_seq',
    version: 'state_version',
    life: 'incarnation',
    created: 'created_at',
    number: 'id',
  }
  if (kind === 'thread') return ofThread[field] ?? field
  return kind === 'run' ? (columns[field] ?? field) : field
}
