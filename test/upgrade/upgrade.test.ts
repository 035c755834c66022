import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open, workflow } from 'holdfast'
import pg from 'pg'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { storeKinds } from '../behaviour/places.ts'
import { startProgram } from '../behaviour/programs.ts'
import { patience } from '../patience.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import { sharedRedis } from '../servers/redis.ts'
import { makeCounting, readJournal } from './counting.ts'
import { unpackOldVersion } from './unpack-old-version.ts'

/** A new store that two versions open, one after the other. */
const places: Readonly<Record<string, (folder: string) => Promise<string>>> = {
  sqlite: async (folder) => `sqlite:${join(folder, 'store.db')}`,
  postgres: async () => `${(await sharedPostgres()).url}?schema=upgrade_${randomBytes(6).toString('hex')}`,
  redis: async () => `${(await sharedRedis()).url}?namespace=upgrade-${randomBytes(6).toString('hex')}`,
}

const stores = Object.keys(places).filter((name) => storeKinds.some((kind) => kind.name === name))

describe.each(stores)('a process of 09549e1 that is still open when this version opens its store, on %s', (store) => {
  test('writes nothing more, and its runs are taken over', async () => {
    const folder = makeFolder()
    await expectFenced(folder, (await places[store]?.(folder)) as string)
  })

  test('is refused when it is started again', async () => {
    const folder = makeFolder()
    const url = (await places[store]?.(folder)) as string
    await (await open(url, { worker: false })).close()
    const old = startProgram('old-version', unpackOldVersion(folder), url, folder, '1000')
    await expect(old.said('waits')).rejects.toThrow(/schema_too_new/)
  })
})

test.each(stores.filter((store) => store === 'postgres'))(
  'what a process of 09549e1 is writing while the tables of %s are migrated is taken back',
  async () => {
    const folder = makeFolder()
    const url = (await places['postgres']?.(folder)) as string
    const schema = new URL(url).searchParams.get('schema') as string
    const client = new pg.Client({ connectionString: url.split('?')[0] })
    await client.connect()
    onTestFinished(() => client.end())
    const waiting = async (relation: string) => {
      const { rows } = await client.query('SELECT FROM pg_locks WHERE NOT granted AND relation = $1::regclass', [
        `${schema}.${relation}`,
      ])
      return rows.length > 0
    }
    const during = async (goOn: () => void) => {
      // The migration has changed the threads and waits for the writers, while the old version waits for the threads.
      await vi.waitUntil(() => waiting('writers'))
      goOn()
      await vi.waitUntil(() => waiting('threads'))
      await client.query('COMMIT')
    }
    const before = () => client.query(`BEGIN; LOCK TABLE ${schema}.writers IN ACCESS SHARE MODE`)
    await expectFenced(folder, url, { before, during })
  },
)

interface Acts {
  /** Just before this version opens the store. */
  readonly before?: () => Promise<unknown>
  /** While it does. The old version may go on here; else it does when the store is open. */
  readonly during?: (goOn: () => void) => Promise<void>
}

async function expectFenced(folder: string, url: string, { before, during }: Acts = {}): Promise<void> {
  const leaseMs = patience(2_000)
  const old = startProgram('old-version', unpackOldVersion(folder), url, folder, String(leaseMs))
  await old.said('waits')

  const counting = makeCounting({ workflow, folder, who: 'new', second: async () => {} })
  const goOn = () => writeFileSync(join(folder, 'go'), '')
  await before?.()
  const opening = open(url, { workflows: [counting], worker: { pollMs: 50, leaseMs }, logger: false })
  await during?.(goOn)
  const hf = await opening
  onTestFinished(() => hf.close())
  goOn()
  await old.said('goes on')
  expect(await old.said('tried')).toEqual({
    ...{ start: 'refused', signal: 'refused', edit: 'refused', queue: 'refused', delete: 'refused', cancel: 'refused' },
  })

  expect(await (await hf.runs.get('under-way')).result({ timeoutMs: patience(60_000) })).toBe('new')
  expect(await (await hf.runs.get('in-line')).result({ timeoutMs: patience(60_000) })).toBe('new')
  // Nobody holds a lease by now: what the old one could still do, it has done.
  expect(await hf.run('counting', undefined, { id: 'after' })).toBe('new')

  expect(readJournal(folder)).toEqual([
    ...['old: under-way first', 'old: under-way second', 'new: under-way second'],
    ...['new: in-line first', 'new: in-line second', 'new: after first', 'new: after second'],
  ])
  expect(await hf.thread('under-way').state()).toEqual({
    steps: ['under-way first', 'under-way second by new', 'in-line first', 'in-line second by new'],
  })
  const ids = (await hf.runs.list()).items.map(({ id }) => id)
  expect(ids.sort()).toEqual(['after', 'in-line', 'under-way'])
  expect((await hf.queues.list()).map(({ name }) => name)).not.toContain('late')
  await old.kill()
}

function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-upgrade-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}
