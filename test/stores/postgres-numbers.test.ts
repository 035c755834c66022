import { describe, expect, it } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Claim, Store } from '../../src/store/store.ts'
import { usePostgres } from './postgres-scene.ts'
import { claimRequest, creating, stepping } from './sqlite-scene.ts'

const scene = usePostgres()

/** A server takes over that has heard of nothing: the numbers of its rows begin again. */
async function forgetEverything(): Promise<void> {
  const tables = ['threads', 'runs', 'log', 'snapshots', 'operations', 'inbox', 'chunks', 'labels', 'delivered']
  await scene.admin.query(`TRUNCATE ${tables.map((name) => `"${scene.schema}".${name}`).join(', ')} RESTART IDENTITY`)
}

async function claimNew(store: Store, names: readonly string[]): Promise<Claim[]> {
  await store.commit(names.map((name) => creating(name)))
  const claims = await store.claim(claimRequest())
  expect(claims).toHaveLength(names.length)
  return [...claims].sort((a, b) => (a.run.id < b.run.id ? -1 : 1))
}

const named = (letter: string, count: number) => Array.from({ length: count }, (_, at) => `${letter}-${at}`)
const step = (claim: Claim): Change => stepping(claim)
const answersOf = async (store: Store, changes: readonly Change[]) =>
  (await store.commit(changes)).map((answer) => (answer.ok ? answer.lastSeq : answer.refusal))
const headsOf = (store: Store, names: readonly string[]) =>
  Promise.all(names.map(async (threadId) => (await store.readThread({ owner: '', threadId }))?.headSeq))

describe('row numbers that a failover gives out again', () => {
  it('leases from before, beside new ones in one batch, change nothing of the new threads', async () => {
    const store = await scene.open()
    const old = await claimNew(store, named('old', 5))
    await forgetEverything()
    const names = named('new', 5)
    const fresh = await claimNew(store, names)
    const both = fresh.flatMap((claim, at) => [step(old[at] as Claim), step(claim)])
    expect(await answersOf(store, both)).toEqual(fresh.flatMap(() => ['lease_lost', 2]))
    expect(await headsOf(store, names)).toEqual(fresh.map(() => 2))
    expect(await answersOf(store, fresh.map(step))).toEqual(fresh.map(() => 3))
    for (const threadId of names) expect(await store.readLog({ owner: '', threadId })).toHaveLength(3)
  })

  it('a process from before, some of whose numbers nobody has yet, changes nothing and keeps its own new lease', async () => {
    const zombie = await scene.open()
    const old = await claimNew(zombie, named('old', 6))
    await forgetEverything()
    const other = await scene.open()
    const names = named('new', 3)
    const fresh = await claimNew(other, names)
    const [mine] = await claimNew(zombie, ['mine'])
    const changes = [...old.map(step), step(mine as Claim)]
    expect(await answersOf(zombie, changes)).toEqual([...old.map(() => 'lease_lost'), 2])
    expect(await headsOf(other, [...names, 'mine'])).toEqual([1, 1, 1, 2])
    for (const claim of old) expect(await answersOf(zombie, [step(claim)])).toEqual(['lease_lost'])
    for (const claim of [...fresh, mine as Claim]) expect((await other.commit([step(claim)]))[0]?.ok).toBe(true)
    expect(await headsOf(other, [...names, 'mine'])).toEqual([2, 2, 2, 3])
  })

  it('a lone step of a lease from before changes nothing', async () => {
    const store = await scene.open()
    const [old] = await claimNew(store, ['old'])
    await forgetEverything()
    const [fresh] = await claimNew(store, ['new'])
    expect(await answersOf(store, [step(old as Claim)])).toEqual(['lease_lost'])
    expect(await answersOf(store, [step(fresh as Claim)])).toEqual([2])
    expect((await store.readThread({ owner: '', threadId: 'new' }))?.writtenSeq).toBe(2)
  })
})

it.each(['alone', 'in a batch'])(
  'a step that waits for the lock of its thread, %s, while another worker claims its run, is lost',
  async (how) => {
    const store = await scene.open()
    const [claim, neighbour] = (await claimNew(store, ['a', 'b'])) as [Claim, Claim]
    const client = await scene.admin.connect()
    await client.query('BEGIN')
    await client.query(`SELECT FROM "${scene.schema}".threads WHERE thread_id = 'a' FOR NO KEY UPDATE`)
    const answers = answersOf(store, how === 'alone' ? [step(claim)] : [step(claim), step(neighbour)])
    await expect.poll(async () => (await waiting()).length).toBe(1)
    // As a claim does: it holds the lock of the thread, and changes the run alone.
    await client.query(`UPDATE "${scene.schema}".runs SET epoch = epoch + 1, lease_id = 'other' WHERE run_id = 'a'`)
    await client.query('COMMIT')
    client.release()
    expect(await answers).toEqual(how === 'alone' ? ['lease_lost'] : ['lease_lost', 2])
    expect(await store.readThread({ owner: '', threadId: 'a' })).toMatchObject({ headSeq: 1, writtenSeq: 0 })
  },
)

async function waiting(): Promise<unknown[]> {
  const { rows } = await scene.admin.query(
    `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'`,
    [scene.schema],
  )
  return rows
}
