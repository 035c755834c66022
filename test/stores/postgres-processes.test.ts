import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { open } from 'holdfast'
import pg from 'pg'
import { afterEach, describe, expect, it, vi } from 'vitest'
import type { Hint } from '../../src/store/store.ts'
import { patience } from '../patience.ts'
import { startRelay } from '../servers/relay.ts'
import { makeDeposit } from './postgres-deposit.ts'
import { usePostgres } from './postgres-scene.ts'
import { createAndClaim, stepping } from './sqlite-scene.ts'

const scene = usePostgres()

describe('one server, many processes', () => {
  const children: ChildProcess[] = []

  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
  })

  function startWorker(target: string): { child: ChildProcess; lines: string[]; ended: Promise<unknown> } {
    const child = spawn(process.execPath, [join(import.meta.dirname, 'postgres-worker.ts'), target], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    children.push(child)
    const lines: string[] = []
    child.stdout?.on('data', (chunk) => lines.push(...String(chunk).split('\n').filter(Boolean)))
    return { child, lines, ended: once(child, 'exit') }
  }

  it('one that is stopped inside a transaction holds nobody up beyond its lease and the time limit of the transaction', async () => {
    const own = await scene.ownDatabase()
    const user = new pg.Client({ connectionString: own })
    await user.connect()
    scene.afterwards(() => user.end())
    await user.query('CREATE TABLE accounts (balance int); INSERT INTO accounts VALUES (0)')
    const target = `${own}?schema=${scene.schema}`
    const queue = await open(target, { worker: false })
    scene.afterwards(() => queue.close())
    const run = await queue.start('deposit')
    const { child, lines, ended } = startWorker(target)
    await vi.waitFor(() => expect(lines).toContain('in the body'), 20_000)
    child.kill('SIGSTOP')
    const stoppedAt = performance.now()

    const worker = await open(target, { workflows: [makeDeposit(() => {})], worker: { pollMs: 100 } })
    scene.afterwards(() => worker.close())
    expect(await run.result()).toBe(1)
    // The row is free when the server has ended the session: 5 s for the body, one more for the server. The lease is over before.
    expect(performance.now() - stoppedAt).toBeLessThan(patience(6_000 + 1_000 + 5_000))

    child.kill('SIGCONT')
    child.stdin?.end()
    await ended
    expect((await user.query('SELECT balance FROM accounts')).rows).toEqual([{ balance: 1 }])
    const types = (await run.events()).map(({ type }) => type)
    expect(types.filter((type) => type === 'step_completed' || type === 'run_recovered')).toEqual([
      'run_recovered',
      'step_completed',
    ])
  })

  it('one whose connections broke closes, and ends by itself', async () => {
    const own = await scene.ownDatabase()
    const relay = await startRelay(own)
    scene.afterwards(() => relay.stop())
    /** The server process of the session that listens. */
    const listener = async (): Promise<number | undefined> => {
      const sessions = "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND application_name = 'holdfast listen'"
      return (await scene.admin.query(sessions, [new URL(own).pathname.slice(1)])).rows[0]?.pid
    }
    const target = new URL(relay.url)
    target.searchParams.set('schema', scene.schema)
    const program = `
      import { open } from ${JSON.stringify(join(import.meta.dirname, '../../src/index.ts'))}
      import { openPostgresStore } from ${JSON.stringify(join(import.meta.dirname, '../../src/stores/postgres/postgres-store.ts'))}
      const store = await openPostgresStore({ url: ${JSON.stringify(target.href)}, durability: 'full' })
      const hf = await open(store, { logger: false, worker: {} })
      const cut = Promise.withResolvers()
      process.stdin.once('data', cut.resolve)
      console.log('open')
      await cut.promise
      process.stdin.destroy()
      await hf.close()
      await store.close()
      console.log('closed')`
    const child = spawn(process.execPath, ['--input-type=module-typescript', '-e', program], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    children.push(child)
    let output = ''
    child.stdout?.on('data', (chunk) => {
      output += chunk
    })
    const ended = once(child, 'exit')
    await vi.waitFor(() => expect(output).toBe('open\n'))
    const before = await vi.waitUntil(listener)
    relay.cut()
    await vi.waitUntil(async () => ![undefined, before].includes(await listener()))
    child.stdin?.write('close\n')
    expect(await ended).toEqual([0, null])
    expect(output).toBe('open\nclosed\n')
  })

  it('one hears of what another started, ended and sent; steps are not announced', async () => {
    const [here, there] = [await scene.open(), await scene.open()]
    const heard: Hint[] = []
    const end = here.subscribe?.((hint) => heard.push(hint))
    // The first hint says that it listens now.
    await vi.waitFor(() => expect(heard).toHaveLength(1), 10_000)
    const claim = await createAndClaim(there, 'a run/1 "ü"')
    const named = { owner: '', threadId: claim.run.threadId, runId: claim.run.id }
    await vi.waitFor(() => expect(heard).toContainEqual({ ...named, isClaimable: true }), 10_000)
    await there.deliver({ owner: '', runId: claim.run.id, kind: 'signal', name: null, payload: null })
    await vi.waitFor(() => expect(heard).toContainEqual({ ...named, hasMail: true }), 10_000)
    const other = await createAndClaim(there, 'other')
    const message = { owner: '', runId: claim.run.id, kind: 'signal', name: null, payload: null }
    await there.commit([stepping(other, { delivers: [message] })])
    await vi.waitFor(
      () => expect(heard).toContainEqual({ owner: '', runId: claim.run.id, isClaimable: true, hasMail: true }),
      10_000,
    )
    heard.length = 0
    await there.commit([stepping(claim)])
    await there.commit([stepping(claim, { run: { status: 'completed' } })])
    await vi.waitFor(() => expect(heard).toEqual([{ ...named, isClaimable: true }]), 10_000)
    end?.()
  })

  it('runs of two that deliver to each other never wait in a circle', async () => {
    const own = await scene.ownDatabase({ deadlock_timeout: '10ms' })
    const stores = [await scene.open({ url: own }), await scene.open({ url: own })] as const
    const claims = []
    for (let i = 0; i < 8; i++) claims.push(await createAndClaim(stores[i % 2 === 0 ? 0 : 1], `r-${i}`))
    const message = (to: number) => ({ owner: '', runId: `r-${to % 8}`, kind: 'signal', name: null, payload: `${to}` })
    for (let round = 0; round < 25; round++) {
      // Each names its own run first and others behind and before it, so that no two agree on an order by themselves.
      const batches = claims.map((claim, i) => [
        stepping(claim, { delivers: [message(i + 3), message(i + round), message(i + 7)] }),
        stepping(claim, { delivers: [message(i + 5)] }),
      ])
      const answers = await Promise.all(batches.map((batch, i) => stores[i % 2 === 0 ? 0 : 1].commit(batch)))
      expect(answers.flat().every(({ ok }) => ok)).toBe(true)
    }
    const [reader] = stores
    const inboxes = await Promise.all(claims.map(({ run }) => reader.readInbox({ owner: '', runId: run.id })))
    expect(inboxes.flat()).toHaveLength(25 * 8 * 4)
    // Sessions hand in what they have counted when they end.
    for (const store of stores) await store.close()
    const counted = 'SELECT deadlocks FROM pg_stat_database WHERE datname = $1'
    const { rows } = await scene.admin.query(counted, [new URL(own).pathname.slice(1)])
    expect(rows).toEqual([{ deadlocks: '0' }])
  })
})
