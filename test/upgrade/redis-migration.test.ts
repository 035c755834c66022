import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { createClient } from 'redis'
import { expect, onTestFinished, test } from 'vitest'
import type { Store } from '../../src/store/store.ts'
import { openRedisStore } from '../../src/stores/redis/redis-store.ts'
import { codeOfRejection } from '../behaviour/runs.ts'
import { startRedis } from '../servers/redis.ts'
import { claimRequest } from '../stores/sqlite-scene.ts'
import { unpackOldVersion } from './unpack-old-version.ts'

const [ownerCount, queueCount, hourMs] = [30, 40, 3_600_000]

test('a namespace that 09549e1 has filled is migrated once by twenty that open it at once, and every run in it is found', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-upgrade-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const server = await startRedis({ fsync: 'everysec' })
  onTestFinished(() => server.stop())
  const old = (await import(/* @vite-ignore */ pathToFileURL(unpackOldVersion(folder)).href)) as typeof import('holdfast')
  const report = old.workflow('report', () => 'done')
  const before = await old.open(server.url, { workflows: [report], worker: false, durability: 'relaxed', logger: false })
  onTestFinished(() => before.close())
  await before.queues.set('q-1', { concurrency: 3 })
  for (let owner = 0; owner < ownerCount; owner++) {
    const runs = (name: string, count: number, options: object) =>
      Array.from({ length: count }, (_, index) => ({
        workflow: report,
        options: { id: `${name}-${owner}-${index}`, queue: `q-${index % queueCount}`, priority: index % 2, ...options },
      }))
    await before.as(`o-${owner}`).startMany([...runs('due', 80, {}), ...runs('later', 40, { delayMs: hourMs })])
  }

  let clockOffsetMs = 0
  const options = { url: server.url, durability: 'relaxed', clockOffsetMs: () => clockOffsetMs } as const
  const stores = await Promise.all(Array.from({ length: 20 }, () => openRedisStore(options)))
  onTestFinished(async () => void (await Promise.all(stores.map((store) => store.close()))))
  await Promise.all(stores.map((store) => store.migrate()))
  const admin = await createClient({ url: server.url }).connect()
  onTestFinished(() => admin.destroy())
  expect(await admin.get('holdfast:{default}:life')).toMatch(/^3:/)
  expect(await admin.exists('holdfast:{default}:lanes')).toBe(0)
  expect(await codeOfRejection(before.start('report', undefined))).toBe('store_unavailable')

  const [store] = stores as [Store]
  await store.setQueue({ name: 'q-1', concurrency: null })
  expect(await claimAll(stores)).toEqual(expectedIds('due', 80))
  clockOffsetMs = 2 * hourMs
  expect((await claimAll(stores)).filter((id) => id.startsWith('later'))).toEqual(expectedIds('later', 40))
})

test('what is damaged in a namespace of 09549e1 keeps nothing else of it from being opened and listed', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-upgrade-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const server = await startRedis({ fsync: 'everysec' })
  onTestFinished(() => server.stop())
  const old = (await import(/* @vite-ignore */ pathToFileURL(unpackOldVersion(folder)).href)) as typeof import('holdfast')
  const report = old.workflow('report', async (ctx) => void (await ctx.checkpoint('here')))
  const before = await old.open(server.url, { workflows: [report], durability: 'relaxed', logger: false })
  for (const id of ['entry', 'place', 'row', 'none', 'whole']) await before.run('report', undefined, { id })
  await before.close()
  const admin = await createClient({ url: server.url }).connect()
  onTestFinished(() => admin.destroy())
  const key = (name: string) => `holdfast:{default}:${name}`
  const at = Number(await admin.hGet(key('labels:0:entry'), 'Lhere'))
  await admin.lSet(key('log:0:entry'), at - 1, '12 Dbroken')
  await admin.hSet(key('labels:0:place'), 'Lhere', 'x')
  await admin.hSet(key('run:0:row'), 'lane', 'broken')
  await admin.del(key('run:0:none'))

  const store = await openRedisStore({ url: server.url, durability: 'relaxed' })
  onTestFinished(() => store.close())
  await store.migrate()
  const list = async (query: object) => (await store.listRuns({ owner: '', limit: 10, ...query })).items.map(({ id }) => id)
  expect(await list({})).toEqual(['whole', 'place', 'entry'])
  expect(await list({ label: 'here' })).toEqual(['whole'])
})

/** What all stores together claim, each as much as it gets. */
async function claimAll(stores: readonly Store[]): Promise<string[]> {
  const ids: string[] = []
  await Promise.all(
    stores.map(async (store) => {
      for (let found = 1; found > 0; ) {
        const claims = await store.claim(claimRequest({ limit: 50, leaseMs: hourMs }))
        found = claims.length
        ids.push(...claims.map(({ run }) => run.id))
      }
    }),
  )
  return ids.sort()
}

function expectedIds(name: string, count: number): string[] {
  const owners = Array.from({ length: ownerCount }, (_, owner) => owner)
  return owners.flatMap((owner) => Array.from({ length: count }, (_, index) => `${name}-${owner}-${index}`)).sort()
}
