import { expect } from 'vitest'
import { listAllRuns, listAllThreads } from '../store-contents.ts'
import { change, claimRequest, event, leased, newRun, ok, refusalOf, type StoreTest, stepCompleted } from './scene.ts'

/** Ids that are plain data and nothing else, among them pairs that a careless key would mix up. */
const oddIds = [
  ...['a', 'a/1', 'a/10', 'a/', '/', '//', 'x:y', 'x', 'y', ':', '::', 'x,y', 'x y', ' ', ' x', 'x '],
  ...[
    '*',
    '?',
    '%',
    '_',
    'a%',
    'a_',
    '[a]',
    '{a}',
    '(a)',
    '\\',
    '\\\\',
    "'",
    '"',
    "''",
    "a'; drop table runs; --",
    '`',
    '$1',
    '@',
    't@1',
  ],
  ...[
    '__proto__',
    'constructor',
    'hasOwnProperty',
    'toString',
    'null',
    'undefined',
    'NaN',
    '0',
    '-1',
    '1e3',
    'true',
    '..',
    '../x',
    '#',
    '&',
    '=',
    '+',
  ],
  ...['A', 'é', 'e\u0301', 'ß', 'ss', 'İ', 'i', '日本語', '🦞', '\u{1F469}\u200D\u{1F52C}', '\uFEFFx', '\u00A0', 'Ω', '\u2126'],
  ...['x'.repeat(512), `${'x'.repeat(511)}y`, '日'.repeat(170), '🦞'.repeat(128)],
]

export function testOwners(test: StoreTest): void {
  test('S7: the same id under two owners is two runs on two threads', async (scene) => {
    for (const owner of ['ann', 'bob', '']) await scene.create({ id: 'r', threadId: 't', owner, fingerprint: `of ${owner}` })
    for (const owner of ['ann', 'bob', '']) {
      expect(await scene.run('r', owner)).toMatchObject({ owner, fingerprint: `of ${owner}`, inputSeq: 1 })
      expect((await scene.thread('t', owner)).headSeq).toBe(1)
      expect(await listAllRuns(scene.store, { owner, limit: 10 })).toHaveLength(1)
      expect(await listAllThreads(scene.store, { owner, limit: 10 })).toHaveLength(1)
    }
    const claims = await scene.store.claim(claimRequest())
    expect(claims.map(({ run }) => run.owner).sort()).toEqual(['', 'ann', 'bob'])
  })

  test("S7: another owner's things are as good as absent", async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r', threadId: 't', owner: 'ann' })
    const operation = { kind: 'intend', key: 'k', name: 'send' } as const
    await scene.write(claim, { events: [stepCompleted('s')], snapshot: '{}', label: 'mark', operation })
    await scene.deliver({ owner: 'ann', runId: 'r' })
    const { store } = scene
    for (const owner of ['bob', '', 'an', 'ann ', 'Ann', 'ann%', '%', '*']) {
      expect(await store.readRun({ owner, runId: 'r' })).toBeNull()
      expect(await store.readThread({ owner, threadId: 't' })).toBeNull()
      expect(await store.readLog({ owner, threadId: 't' })).toEqual([])
      expect(await store.readSnapshot({ owner, threadId: 't', atSeq: 100 })).toBeNull()
      expect(await store.listCheckpoints({ owner, threadId: 't' })).toEqual([])
      expect(await store.readInbox({ owner, runId: 'r' })).toEqual([])
      expect(await store.readOperation({ owner, key: 'k' })).toBeNull()
      expect(await store.listRuns({ owner, limit: 10 })).toEqual({ items: [] })
      expect(await store.listThreads({ owner, limit: 10 })).toEqual({ items: [] })
      expect(await store.tag({ owner, threadId: 't', seq: 1, label: 'x' })).toMatchObject({ ok: false })
      expect(await store.deleteThread({ owner, threadId: 't', at: 1 })).toBe(false)
      expect(await scene.deliver({ owner, runId: 'r' })).toEqual({ ok: false, refusal: 'run_not_found' })
    }
    expect(await store.readInbox({ owner: 'ann', runId: 'r' })).toHaveLength(1)
  })

  test("S7: nobody writes under another owner's name", async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r', threadId: 't', owner: 'ann' })
    const events = [event('run_cancelled')]
    const run = { status: 'cancelled' } as const
    expect(refusalOf(await scene.commit(leased(claim, { owner: 'bob', events, run })))).toBe('lease_lost')
    const { epoch, status } = claim.run
    const guard = { kind: 'run', epoch, status } as const
    expect(refusalOf(await scene.commit(change({ owner: 'bob', threadId: 't', runId: 'r', guard, events, run })))).toBe(
      'run_not_found',
    )
    const lease = { owner: 'bob', runId: 'r', epoch, leaseId: claim.leaseId }
    expect(await scene.store.renew({ leaseMs: 99_000_000, leases: [lease] })).toMatchObject([{ isHeld: false }])
    expect(await scene.run('r', 'ann')).toEqual(claim.run)
    expect(await scene.store.readThread({ owner: 'bob', threadId: 't' })).toBeNull()
  })

  test('S7: one key under two owners is two operations, and closing one wakes only its owner', async (scene) => {
    const creates = ['ann', 'bob'].flatMap((owner) => ['opener', 'waiter'].map((id) => newRun({ id, owner })))
    ok(await scene.commit(change({ threadId: 'x', creates })))
    const claims = await scene.claim({ leaseMs: 99_000_000 })
    const claimOf = (owner: string, id: string) =>
      claims.find(({ run }) => run.owner === owner && run.id === id) as (typeof claims)[number]
    for (const owner of ['ann', 'bob']) {
      await scene.write(claimOf(owner, 'opener'), { operation: { kind: 'intend', key: 'k', name: owner } })
      await scene.leave(claimOf(owner, 'waiter'), 'waiting', { reason: 'effect', due: 'never', waitKey: 'k' })
    }
    await scene.write(claimOf('ann', 'opener'), { operation: { kind: 'complete', key: 'k', result: '1' } })
    expect(await scene.operation('k', 'ann')).toMatchObject({ name: 'ann', status: 'completed' })
    expect(await scene.operation('k', 'bob')).toMatchObject({ name: 'bob', status: 'intended' })
    const woken = await scene.claim()
    expect(woken.map(({ run }) => [run.owner, run.id])).toEqual([['ann', 'waiter']])
  })

  test("S7: deleting one owner's thread leaves the other's", async (scene) => {
    for (const owner of ['ann', 'bob']) await scene.create({ id: 'r', threadId: 't', owner })
    expect(await scene.store.deleteThread({ owner: 'ann', threadId: 't', at: 1 })).toBe(true)
    expect((await scene.run('r', 'bob')).status).toBe('pending')
    expect(await scene.store.readLog({ owner: 'bob', threadId: 't' })).toHaveLength(1)
    expect(await scene.store.readRun({ owner: 'ann', runId: 'r' })).toBeNull()
  })

  test("S6: a thread's line is not held up by another owner's thread of the same id", async (scene) => {
    await scene.create({ id: 'a', threadId: 't', owner: 'ann' })
    await scene.create({ id: 'b', threadId: 't', owner: 'bob', ifBusy: 'reject' })
    expect((await scene.claimedIds()).sort()).toEqual(['a', 'b'])
  })

  test('S7: owners and ids are joined so that no two pairs meet', async (scene) => {
    const pairs = [
      ...[
        ['a', 'b/c'],
        ['a/b', 'c'],
        ['a:b', 'c'],
        ['a', 'b:c'],
        ['', 'ab'],
        ['a', 'b'],
        ['ab', 'c'],
        ['a', 'bc'],
      ],
      ...[
        ['1', '11'],
        ['11', '1'],
        ['', '1:1'],
        ['1', ':1'],
        ['"', ','],
        ['","', ''].map((part) => part || '"'),
        ['1:a', 'b'],
        ['1', 'a:b'],
      ],
    ] as [string, string][]
    const names = new Set(pairs.map((pair) => JSON.stringify(pair)))
    for (const [owner, id] of pairs) await scene.create({ owner, id, fingerprint: JSON.stringify([owner, id]) })
    for (const [owner, id] of pairs) expect((await scene.run(id, owner)).fingerprint).toBe(JSON.stringify([owner, id]))
    expect(await scene.claim()).toHaveLength(names.size)
  })

  test('S8: any id is plain data: runs, threads and their histories do not mix', async (scene) => {
    const answers = await scene.commitAll(
      oddIds.map((id) => change({ threadId: id, creates: [newRun({ id, fingerprint: `f:${id}` })] })),
    )
    expect(answers.map((answer) => ok(answer).created[0]?.isNew)).toEqual(oddIds.map(() => true))
    const claims = new Map((await scene.claim()).map((claim) => [claim.run.id, claim]))
    expect([...claims.keys()].sort()).toEqual([...oddIds].sort())
    for (const [index, id] of oddIds.entries()) {
      const claim = claims.get(id) as never
      const key = { kind: 'intend', key: id, name: id } as const
      await scene.write(claim, {
        events: [stepCompleted(`step ${index}`)],
        label: id,
        operation: key,
        snapshot: JSON.stringify(id),
      })
      await scene.deliver({ runId: id, kind: id, name: id, payload: JSON.stringify(id) })
    }
    for (const [index, id] of oddIds.entries()) {
      expect(await scene.run(id)).toMatchObject({ id, threadId: id, fingerprint: `f:${id}`, epoch: 1 })
      const log = await scene.store.readLog({ owner: '', threadId: id })
      expect(log.map(({ step, runId }) => [step, runId])).toEqual([
        [null, id],
        [`step ${index}`, id],
      ])
      expect(await scene.store.readLog({ owner: '', threadId: id, runId: id })).toEqual(log)
      expect(await scene.store.listCheckpoints({ owner: '', threadId: id, label: id })).toMatchObject([{ seq: 2, label: id }])
      expect(await scene.store.readSnapshot({ owner: '', threadId: id, atSeq: 2 })).toMatchObject({ state: JSON.stringify(id) })
      expect(await scene.operation(id)).toMatchObject({ key: id, name: id, runId: id, threadId: id })
      expect(await scene.store.readInbox({ owner: '', runId: id })).toMatchObject([
        { runId: id, kind: id, name: id, payload: JSON.stringify(id) },
      ])
      const listed = await scene.store.listRuns({ owner: '', threadId: id, limit: 10 })
      expect(listed.items.map((run) => run.id)).toEqual([id])
    }
  })

  test('S8: any owner is plain data', async (scene) => {
    await scene.commitAll(
      oddIds.map((owner) => change({ owner, threadId: 't', creates: [newRun({ owner, id: 'r', threadId: 't' })] })),
    )
    for (const owner of oddIds) {
      expect((await listAllRuns(scene.store, { owner, limit: 10 })).map((run) => run.owner)).toEqual([owner])
      expect((await scene.thread('t', owner)).headSeq).toBe(1)
    }
    expect(await scene.store.deleteThread({ owner: '*', threadId: 't', at: 1 })).toBe(true)
    expect(await scene.store.deleteThread({ owner: '%', threadId: 't', at: 1 })).toBe(true)
    expect(await scene.claim()).toHaveLength(oddIds.length - 2)
  })

  test('S8: queue, workflow, worker and step names are plain data too', async (scene) => {
    for (const [index, name] of oddIds.entries()) await scene.create({ id: `r-${index}`, queue: name, workflow: name })
    for (const name of oddIds) {
      const claims = await scene.claim({ workerId: name, queues: [name], workflows: [{ name, version: 1 }] })
      expect(claims.map(({ run }) => [run.queue, run.workflow])).toEqual([[name, name]])
      await scene.write(claims[0] as never, { events: [stepCompleted(name)], run: { currentStep: name } })
      const run = await scene.run(claims[0]?.run.id ?? '')
      expect(run.currentStep).toBe(name)
    }
  })
}
