import { expect } from 'vitest'
import type { LogRecord } from '../../model/event.ts'
import type { Run, RunStatus } from '../../model/run.ts'
import type { Claim, LogQuery, RunQuery } from '../../store/store.ts'
import { listAllRuns, listAllThreads, plainPayload } from '../store-contents.ts'
import { change, codeThrownBy, edit, event, newRun, ok, type Scene, type StoreTest, stepCompleted } from './scene.ts'

/**
 * A thread `t` with two runs and an edit by hand:
 *   1 run_queued a   2 run_started a   3 step_completed a + patch   4 state_migrated a + patch   5 run_completed a
 *   6 state_updated by hand + patch    7 run_queued b               8 step_completed b + patch
 */
async function history(scene: Scene): Promise<void> {
  const a = await scene.createAndClaim({ id: 'a', threadId: 't' })
  await scene.write(a, { events: [event('run_started')], isCheckpoint: false })
  await scene.write(a, { events: [event('step_completed', { step: 's', payload: '"p3"', patch: '"d3"' })] })
  const rest = [event('state_migrated', { payload: '"p4"', patch: '"d4"' }), event('run_completed', { payload: '"p5"' })]
  await scene.write(a, { events: rest, run: { status: 'completed', setsEnd: true }, stateVersion: 2 })
  const byHand = event('state_updated', { payload: '"p6"', patch: '"d6"' })
  ok(await scene.commit(edit('t', 5, { events: [byHand], isCheckpoint: true })))
  const b = await scene.createAndClaim({ id: 'b', threadId: 't' })
  await scene.write(b, { events: [event('step_completed', { step: 'x', payload: '"p8"', patch: '"d8"' })] })
}

/** Queries of that history, and the records they show: position, payload, patch. */
const logQueries: readonly [string, Partial<LogQuery>, string[]][] = [
  ['without conditions is all of it', {}, ['1 in -', '2 - -', '3 p3 d3', '4 p4 d4', '5 p5 -', '6 p6 d6', '7 in -', '8 p8 d8']],
  ['after a position leaves that position out', { afterSeq: 6 }, ['7 in -', '8 p8 d8']],
  ['up to a position includes it', { toSeq: 2 }, ['1 in -', '2 - -']],
  ['between positions', { afterSeq: 2, toSeq: 4 }, ['3 p3 d3', '4 p4 d4']],
  ['before its beginning is empty', { toSeq: 0 }, []],
  ['after its end is empty', { afterSeq: 8 }, []],
  ['with a limit is its beginning', { limit: 2 }, ['1 in -', '2 - -']],
  ['with limit 0 is empty', { limit: 0 }, []],
  ['of a run', { runId: 'b' }, ['7 in -', '8 p8 d8']],
  ['of a run that is not there is empty', { runId: 'c' }, []],
  [
    'of a run with edits shows the patches of others without their payloads',
    { runId: 'b', withEdits: true },
    [...['3 - d3', '4 p4 d4', '6 - d6', '7 in -', '8 p8 d8']],
  ],
  ['of types', { types: ['run_queued', 'state_updated'] }, ['1 in -', '6 p6 d6', '7 in -']],
  ['of no types is empty', { types: [] }, []],
  ['of types of a run', { types: ['run_queued'], runId: 'a' }, ['1 in -']],
  ['of patches has payloads only where the state was migrated', { patchesOnly: true }, ['3 - d3', '4 p4 d4', '6 - d6', '8 - d8']],
  ['of patches after a position with a limit', { patchesOnly: true, afterSeq: 3, limit: 2 }, ['4 p4 d4', '6 - d6']],
  ['bare has neither payloads nor patches', { bare: true, afterSeq: 5 }, ['6 - -', '7 - -', '8 - -']],
  ['bare of patches still knows which records have one', { bare: true, patchesOnly: true }, ['3 - -', '4 - -', '6 - -', '8 - -']],
  ['bare of a run with edits', { bare: true, runId: 'b', withEdits: true, afterSeq: 3 }, ['4 - -', '6 - -', '7 - -', '8 - -']],
  [
    'bare with the payloads of types has those and no patches',
    { payloadsOf: ['step_completed', 'run_queued'], bare: true },
    ['1 in -', '2 - -', '3 p3 -', '4 - -', '5 - -', '6 - -', '7 in -', '8 p8 -'],
  ],
  [
    'with the payloads of types of a run',
    { payloadsOf: ['step_completed', 'state_migrated'], runId: 'a', afterSeq: 2 },
    ['3 p3 -', '4 p4 -', '5 - -'],
  ],
  [
    'with the payloads of types of a run with edits',
    { payloadsOf: ['run_queued', 'state_updated'], runId: 'b', withEdits: true, afterSeq: 3 },
    ['4 - -', '6 p6 -', '7 in -', '8 - -'],
  ],
  [
    'bare with patches has those',
    { bare: true, withPatches: true, afterSeq: 3 },
    ['4 - d4', '5 - -', '6 - d6', '7 - -', '8 - d8'],
  ],
  ['bare with patches of a run', { bare: true, withPatches: true, runId: 'b' }, ['7 - -', '8 - d8']],
  [
    'with the payloads of types and patches of a run with edits',
    { payloadsOf: ['run_queued', 'state_updated'], withPatches: true, runId: 'b', withEdits: true },
    ['3 - d3', '4 - d4', '6 p6 d6', '7 in -', '8 - d8'],
  ],
  ['with the payloads of no type', { payloadsOf: [], afterSeq: 6 }, ['7 - -', '8 - -']],
  ['with a limit counts what matches, not what was passed over', { types: ['run_queued'], limit: 2 }, ['1 in -', '7 in -']],
]

export function testReading(test: StoreTest): void {
  testLogs(test)
  testCheckpoints(test)
  testLists(test)
  testFilters(test)
  testListOfThreads(test)
}

function testLogs(test: StoreTest): void {
  for (const [name, query, expected] of logQueries) {
    test(`the log ${name}`, async (scene) => {
      await history(scene)
      const log = await scene.store.readLog({ owner: '', threadId: 't', ...query })
      const plain = (payload: (typeof log)[number]['payload']) =>
        payload === null ? '-' : (plainPayload(payload) ?? '').replace(/^text:"(p\d|d\d|in)?.*"$/, (_, short) => short ?? 'in')
      expect(log.map(({ seq, payload, patch }) => `${seq} ${plain(payload)} ${plain(patch)}`)).toEqual(expected)
    })
  }

  test('what many runs have done can be asked for at once, of short and of long ones: each gets its own, whole and in order', async (scene) => {
    await history(scene)
    const sizes = Object.entries({ short: 3, long: 450, empty: 0 })
    for (const [id, size] of sizes) {
      const claim = await scene.createAndClaim({ id })
      const events = Array.from({ length: size }, (_, index) => stepCompleted(`${id} ${index}`, String(index)))
      if (size > 0) await scene.write(claim, { events })
    }
    const tapeOf = (threadId: string, runId: string, afterSeq: number) =>
      scene.store.readLog({ owner: '', threadId, runId, afterSeq, withEdits: true })
    const [edits, nobody, nowhere, ...tapes] = await Promise.all([
      tapeOf('t', 'b', 5),
      tapeOf('t', 'c', 6),
      tapeOf('nothing', 'short', 0),
      ...sizes.map(([id]) => tapeOf(id, id, 1)),
    ])
    expect(edits?.map(({ seq }) => seq)).toEqual([6, 7, 8])
    expect(nobody?.map(({ seq }) => seq)).toEqual([8])
    expect(nowhere).toEqual([])
    for (const [index, [id, size]] of sizes.entries())
      expect(tapes[index]?.map(({ step }) => step)).toEqual(Array.from({ length: size }, (_, n) => `${id} ${n}`))
  })

  test('stretches of many logs can be asked for at once: each is answered as if it were asked for alone, in order', async (scene) => {
    await history(scene)
    for (const id of ['x', 'y', 'z']) await scene.create({ id })
    const stretches: LogQuery[] = [
      ...logQueries.map(([, query]) => ({ owner: '', threadId: 't', ...query })),
      { owner: '', threadId: 'nothing' },
      { owner: 'other', threadId: 't' },
      ...['z', 'x', 'y'].map((threadId) => ({ owner: '', threadId })),
    ]
    const answers = await scene.store.readLogs(stretches)
    expect(answers).toHaveLength(stretches.length)
    for (const [index, query] of stretches.entries())
      expect(answers[index], JSON.stringify(query)).toEqual({ records: await scene.store.readLog(query) })
    expect(await scene.store.readLogs([])).toEqual([])
  })

  test('long and large logs can be asked for at once', async (scene) => {
    const sizes = { long: 2_500, large: 6, none: 0 }
    for (const [id, size] of Object.entries(sizes)) {
      const claim = await scene.createAndClaim({ id })
      const payload = id === 'large' ? 'x'.repeat(1_000_000) : '1'
      const events = Array.from({ length: size }, (_, index) => stepCompleted(`${id} ${index}`, payload))
      if (size > 0) await scene.write(claim, { events })
    }
    const queries = Object.keys(sizes).map((id) => ({ owner: '', threadId: id, runId: id }))
    const whole = await scene.store.readLogs(queries)
    const some = await scene.store.readLogs(queries.map((query) => ({ ...query, payloadsOf: ['run_queued'] as const })))
    for (const [index, size] of Object.values(sizes).entries()) {
      expect(whole[index]).toEqual({ records: await scene.store.readLog(queries[index] as LogQuery) })
      const { records } = some[index] as { records: LogRecord[] }
      expect(records.map(({ seq }) => seq)).toEqual(Array.from({ length: size + 1 }, (_, n) => n + 1))
      expect(records.filter(({ payload }) => payload !== null).map(({ type }) => type)).toEqual(['run_queued'])
    }
  })

  test('a record comes back with all its fields', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const full = event('step_failed', {
      step: 'a/b',
      count: 4,
      attempt: 3,
      at: 99,
      durationMs: 1_234,
      payload: '"p"',
      patch: '[]',
    })
    const empty = event('run_paused')
    await scene.write(claim, { events: [full, empty], isCheckpoint: false })
    const log = await scene.store.readLog({ owner: '', threadId: 'r', afterSeq: 1 })
    expect(log).toEqual([
      { ...full, seq: 2, runId: 'r', isCheckpoint: false },
      { ...empty, seq: 3, runId: 'r', isCheckpoint: false },
    ])
  })

  test('the log of a thread that does not exist is empty', async (scene) => {
    expect(await scene.store.readLog({ owner: '', threadId: 'nothing' })).toEqual([])
    expect(await scene.store.readThread({ owner: '', threadId: 'nothing' })).toBeNull()
    expect(await scene.store.listCheckpoints({ owner: '', threadId: 'nothing' })).toEqual([])
    expect(await scene.store.readSnapshot({ owner: '', threadId: 'nothing', atSeq: 10 })).toBeNull()
    expect(await scene.store.readRun({ owner: '', runId: 'nothing' })).toBeNull()
    expect(await scene.store.readOperation({ owner: '', key: 'nothing' })).toBeNull()
  })
}

function testCheckpoints(test: StoreTest): void {
  test('checkpoints are the positions where commits ended that left one, with what they added', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r', queued: event('run_queued', { payload: '12345' }) })
    await scene.write(claim, {
      events: [stepCompleted('a', 'ä'), event('step_completed', { step: 'b', at: 77, payload: null, patch: '123' })],
    })
    await scene.write(claim, { events: [event('effect_intended', { payload: '1234567' })], isCheckpoint: false })
    await scene.write(claim, { events: [event('run_completed', { payload: new Uint8Array(9) })], label: 'end' })
    expect(await scene.store.listCheckpoints({ owner: '', threadId: 'r' })).toEqual([
      { seq: 1, at: 1_700_000_000_000, runId: 'r', step: null, label: null, bytes: 5 },
      { seq: 3, at: 77, runId: 'r', step: 'b', label: null, bytes: 5 },
      { seq: 5, at: 1_700_000_000_000, runId: 'r', step: null, label: 'end', bytes: 9 },
    ])
    const log = await scene.store.readLog({ owner: '', threadId: 'r' })
    expect(log.map(({ isCheckpoint }) => isCheckpoint)).toEqual([true, false, true, false, true])
  })

  test('checkpoints can be asked for after a position, with a limit, by label', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    for (const label of ['a', 'b', 'c']) await scene.write(claim, { events: [stepCompleted(label)], label })
    const seqs = async (query: object) =>
      (await scene.store.listCheckpoints({ owner: '', threadId: 'r', ...query })).map(({ seq }) => seq)
    expect(await seqs({})).toEqual([1, 2, 3, 4])
    expect(await seqs({ afterSeq: 2 })).toEqual([3, 4])
    expect(await seqs({ limit: 2 })).toEqual([1, 2])
    expect(await seqs({ limit: 0 })).toEqual([])
    expect(await seqs({ label: 'b' })).toEqual([3])
    expect(await seqs({ label: 'b', afterSeq: 3 })).toEqual([])
    expect(await seqs({ label: 'B' })).toEqual([])
  })

  test('a tag labels a checkpoint, and only a checkpoint', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { events: [stepCompleted('a'), stepCompleted('b')] })
    expect(await scene.store.tag({ owner: '', threadId: 'r', seq: 3, label: 'good' })).toEqual({ ok: true })
    for (const seq of [0, 2, 4, -1]) {
      expect(await scene.store.tag({ owner: '', threadId: 'r', seq, label: 'good' })).toMatchObject({ ok: false })
    }
    expect(await scene.store.tag({ owner: '', threadId: 'nothing', seq: 1, label: 'good' })).toMatchObject({ ok: false })
    expect(await scene.store.listCheckpoints({ owner: '', threadId: 'r', label: 'good' })).toMatchObject([{ seq: 3 }])
  })

  test('a label names one position of a thread: the latest wins, by tag or by commit', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { events: [stepCompleted('a')], label: 'here' })
    await scene.write(claim, { events: [stepCompleted('b')], label: 'here' })
    const labels = async () => (await scene.store.listCheckpoints({ owner: '', threadId: 'r' })).map(({ label }) => label)
    expect(await labels()).toEqual([null, null, 'here'])
    await scene.store.tag({ owner: '', threadId: 'r', seq: 1, label: 'here' })
    expect(await labels()).toEqual(['here', null, null])
    await scene.store.tag({ owner: '', threadId: 'r', seq: 1, label: 'there' })
    expect(await labels()).toEqual(['there', null, null])
    expect(await scene.store.listCheckpoints({ owner: '', threadId: 'r', label: 'here' })).toEqual([])
  })

  test('the same label on two threads names a position of each', async (scene) => {
    await scene.create({ id: 'a' })
    await scene.create({ id: 'b' })
    for (const threadId of ['a', 'b']) await scene.store.tag({ owner: '', threadId, seq: 1, label: 'start' })
    for (const threadId of ['a', 'b']) {
      expect(await scene.store.listCheckpoints({ owner: '', threadId, label: 'start' })).toHaveLength(1)
    }
  })

  test('the snapshot at or before a position is found', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { events: [stepCompleted('a'), stepCompleted('b')], snapshot: '{"at":3}', stateVersion: 1 })
    await scene.write(claim, { events: [stepCompleted('c')] })
    await scene.write(claim, { events: [stepCompleted('d')], snapshot: new Uint8Array([5]), stateVersion: 2 })
    const at = (atSeq: number) => scene.store.readSnapshot({ owner: '', threadId: 'r', atSeq })
    expect(await at(2)).toBeNull()
    expect(await at(3)).toEqual({ seq: 3, state: '{"at":3}', stateVersion: 1 })
    expect(await at(4)).toMatchObject({ seq: 3, stateVersion: 1 })
    const latest = await at(1_000_000)
    expect(latest).toMatchObject({ seq: 5, stateVersion: 2 })
    expect(plainPayload(latest?.state ?? null)).toBe('bytes:05')
  })

  test('a snapshot without a new state version has the version of the thread', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { events: [stepCompleted('a')], stateVersion: 4 })
    await scene.write(claim, { events: [stepCompleted('b')], snapshot: '{}' })
    expect(await scene.store.readSnapshot({ owner: '', threadId: 'r', atSeq: 3 })).toEqual({
      seq: 3,
      state: '{}',
      stateVersion: 4,
    })
  })
}

function testLists(test: StoreTest): void {
  test('runs are listed newest first, page by page, none twice and none missed', async (scene) => {
    const ids = Array.from({ length: 25 }, (_, index) => `r-${index}`)
    for (const id of ids) await scene.create({ id })
    for (const limit of [1, 4, 5, 24, 25, 26, 1_000]) {
      const runs = await listAllRuns(scene.store, { owner: '', limit })
      expect(runs.map(({ id }) => id)).toEqual(ids.toReversed())
    }
    const page = await scene.store.listRuns({ owner: '', limit: 4 })
    expect(page.items).toHaveLength(4)
    expect(page.items[0]).toEqual(await scene.run('r-24'))
  })

  test('a page goes on where the last one ended, whatever was created or deleted meanwhile', async (scene) => {
    for (let index = 0; index < 6; index++) await scene.create({ id: `r-${index}` })
    const first = await scene.store.listRuns({ owner: '', limit: 2 })
    await scene.create({ id: 'new' })
    await scene.store.deleteThread({ owner: '', threadId: 'r-4', at: 1 })
    await scene.store.deleteThread({ owner: '', threadId: 'r-3', at: 1 })
    const second = await scene.store.listRuns({ owner: '', limit: 10, cursor: first.cursor ?? '' })
    expect(first.items.map(({ id }) => id)).toEqual(['r-5', 'r-4'])
    expect(second.items.map(({ id }) => id)).toEqual(['r-2', 'r-1', 'r-0'])
    expect(second.cursor).toBeUndefined()
  })

  test('runs can be asked for by thread, workflow, queue and status, together', async (scene) => {
    await scene.create({ id: 'a', threadId: 't', workflow: 'chat', queue: 'fast' })
    await scene.create({ id: 'b', threadId: 't', workflow: 'report', queue: 'slow' })
    await scene.create({ id: 'c', threadId: 'u', workflow: 'report', queue: 'fast' })
    await scene.create({ id: 'd', threadId: 'v', workflow: 'report', queue: 'fast' })
    const claims = await scene.claim()
    await scene.leave(claims.find(({ run }) => run.id === 'd') as never, 'failed')
    const ids = async (query: object) =>
      (await scene.store.listRuns({ owner: '', limit: 10, ...query })).items.map(({ id }) => id)
    expect(await ids({ threadId: 't' })).toEqual(['b', 'a'])
    expect(await ids({ workflow: 'report' })).toEqual(['d', 'c', 'b'])
    expect(await ids({ queue: 'fast' })).toEqual(['d', 'c', 'a'])
    expect(await ids({ statuses: ['failed', 'pending'] })).toEqual(['d', 'b', 'a'])
    expect(await ids({ statuses: ['running'] })).toEqual(['c'])
    expect(await ids({ statuses: [] })).toEqual([])
    expect(await ids({ workflow: 'report', queue: 'fast', statuses: ['failed'] })).toEqual(['d'])
    expect(await ids({ threadId: 't', workflow: 'report', queue: 'fast' })).toEqual([])
    expect(await ids({ workflow: 'REPORT' })).toEqual([])
  })

  test('a list shows what its filters say, whatever statuses are asked for together', async (scene) => {
    const statuses: readonly RunStatus[] = ['pending', 'running', 'waiting', 'paused', 'completed', 'failed', 'cancelled']
    const runs: Pick<Run, 'id' | 'workflow' | 'queue' | 'status'>[] = []
    const names = ['chat', 'mail']
    for (let index = 0; index < 28; index++) {
      const status = statuses[(index * 5) % 7] as RunStatus
      const run = { id: `r-${index}`, workflow: names[index % 2] as string, queue: `q${(index >> 1) % 2}`, status }
      runs.unshift(run)
      await scene.create({ ...run, due: { inMs: status === 'pending' ? 1_000_000 : 0 } })
      if (status === 'pending') continue
      const claim = await scene.claimOne({ workflows: names.map((name) => ({ name, version: 1 })) })
      if (status !== 'running') await scene.leave(claim, status, { due: { inMs: 1_000_000 } })
    }
    for (let set = 0; set < 2 ** statuses.length; set++) {
      const asked = statuses.filter((_, index) => (set & (1 << index)) !== 0)
      const [workflow, queue] = [set % 3 === 0 ? {} : { workflow: 'mail' }, set % 5 < 2 ? {} : { queue: 'q1' }]
      const query = { owner: '', statuses: asked, ...workflow, ...queue, limit: 1 + (set % 6) }
      const expected = runs.filter(
        (run) =>
          asked.includes(run.status) &&
          run.workflow === (query.workflow ?? run.workflow) &&
          run.queue === (query.queue ?? run.queue),
      )
      const listed = await listAllRuns(scene.store, query)
      expect(
        listed.map(({ id }) => id),
        JSON.stringify(query),
      ).toEqual(expected.map(({ id }) => id))
    }
  })

  test('runs can be asked for by when they were created, together with everything else, page by page', async (scene) => {
    const created: Run[] = []
    for (let index = 0; index < 12; index++) {
      created.push(await scene.create({ id: `r-${index}`, queue: index % 2 === 0 ? 'even' : 'odd' }))
      if (index % 3 === 2) scene.advance(60_000)
    }
    const timeOf = (index: number) => (created[index] as Run).createdAt
    const ids = async (query: object) => (await listAllRuns(scene.store, { owner: '', limit: 2, ...query })).map(({ id }) => id)
    const expected = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => `r-${to - index}`)
    expect(await ids({ createdAfter: timeOf(5) })).toEqual(expected(6, 11))
    expect(await ids({ createdBefore: timeOf(3) })).toEqual(expected(0, 2))
    expect(await ids({ createdAfter: timeOf(2), createdBefore: timeOf(9) })).toEqual(expected(3, 8))
    expect(await ids({ createdAfter: timeOf(11) })).toEqual([])
    expect(await ids({ createdBefore: timeOf(0) })).toEqual([])
    expect(await ids({ createdAfter: -1, createdBefore: 8.64e15 })).toEqual(expected(0, 11))
    expect(await ids({ createdAfter: timeOf(2), queue: 'odd', createdBefore: timeOf(9) })).toEqual(['r-7', 'r-5', 'r-3'])
    expect(await ids({ createdAfter: timeOf(2), statuses: ['pending'], workflow: 'report' })).toEqual(expected(3, 11))
    expect(await ids({ createdAfter: timeOf(2), statuses: ['failed'] })).toEqual([])
    expect(await ids({ threadId: 'r-4', createdAfter: timeOf(2) })).toEqual(['r-4'])
    expect(await ids({ threadId: 'r-4', createdBefore: timeOf(2) })).toEqual([])
  })

  test('the clock set back: newer is what was created later by the clock', async (scene) => {
    await scene.create({ id: 'a' })
    scene.advance(60_000)
    await scene.create({ id: 'b' })
    scene.advance(-30_000)
    for (const id of ['c', 'd']) await scene.create({ id })
    for (const limit of [1, 2, 10]) {
      const runs = await listAllRuns(scene.store, { owner: '', limit })
      expect(runs.map(({ id }) => id)).toEqual(['b', 'd', 'c', 'a'])
      const some = await listAllRuns(scene.store, { owner: '', limit, statuses: ['pending', 'failed'], queue: 'default' })
      expect(some.map(({ id }) => id)).toEqual(['b', 'd', 'c', 'a'])
    }
  })

  test('runs can be asked for by a label that points to one of their records', async (scene) => {
    const claims: Claim[] = []
    for (const [index, id] of ['a', 'b', 'c', 'd', 'e'].entries()) {
      const fields = { id, threadId: id === 'b' ? 'a' : id, queue: index % 2 === 0 ? 'even' : 'odd' }
      if (id === 'b') await scene.leave(claims[0] as Claim, 'completed')
      claims.push(await scene.createAndClaim(fields))
    }
    const [, b, c, d] = claims as [Claim, Claim, Claim, Claim]
    const ids = async (query: object) => (await listAllRuns(scene.store, { owner: '', limit: 1, ...query })).map(({ id }) => id)
    for (const claim of [b, c, d]) await scene.write(claim, { events: [stepCompleted('x')], label: 'good' })
    await scene.store.tag({ owner: '', threadId: 'e', seq: 1, label: 'good' })
    await scene.store.tag({ owner: '', threadId: 'a', seq: 1, label: 'first' })
    ok(await scene.commit(change({ threadId: 'z', events: [event('state_updated', { patch: '[]' })], label: 'good' })))
    expect(await ids({ label: 'good' })).toEqual(['e', 'd', 'c', 'b'])
    expect(await ids({ label: 'first' })).toEqual(['a'])
    expect(await ids({ label: 'GOOD' })).toEqual([])
    expect(await ids({ label: 'good', owner: 'other' })).toEqual([])
    expect(await ids({ label: 'good', threadId: 'a' })).toEqual(['b'])
    expect(await ids({ label: 'good', threadId: 'z' })).toEqual([])
    expect(await ids({ label: 'good', queue: 'odd' })).toEqual(['d', 'b'])
    expect(await ids({ label: 'good', workflow: 'other' })).toEqual([])
    expect(await ids({ label: 'good', withoutPrefix: 'rep' })).toEqual([])
    await scene.leave(d, 'failed')
    expect(await ids({ label: 'good', statuses: ['failed'] })).toEqual(['d'])
    const after = c.run.createdAt
    expect(await ids({ label: 'good', createdAfter: after })).toEqual(
      [claims[4] as Claim, d].filter(({ run }) => run.createdAt > after).map(({ run }) => run.id),
    )
    // The label moves to another record of the thread, and another label takes its place.
    await scene.store.tag({ owner: '', threadId: 'a', seq: 1, label: 'good' })
    expect(await ids({ label: 'good' })).toEqual(['e', 'd', 'c', 'a'])
    expect(await ids({ label: 'first' })).toEqual([])
    const { lastSeq } = await scene.write(c, { events: [stepCompleted('y')] })
    await scene.store.tag({ owner: '', threadId: 'c', seq: lastSeq, label: 'good' })
    expect(await ids({ label: 'good' })).toEqual(['e', 'd', 'c', 'a'])
    await scene.store.tag({ owner: '', threadId: 'c', seq: lastSeq, label: 'better' })
    expect(await ids({ label: 'good' })).toEqual(['e', 'd', 'a'])
    await scene.store.deleteThread({ owner: '', threadId: 'a', at: 1 })
    expect(await ids({ label: 'good' })).toEqual(['e', 'd'])
    expect(await ids({ label: 'better' })).toEqual(['c'])
  })

  test('a label that many runs have is found with what few of them have', async (scene) => {
    const ids = Array.from({ length: 330 }, (_, index) => `r-${index}`)
    await scene.commitAll(
      ids.map((id, index) => change({ threadId: id, creates: [newRun({ id, queue: index === 3 ? 'rare' : 'default' })] })),
    )
    await Promise.all(ids.map((threadId) => scene.store.tag({ owner: '', threadId, seq: 1, label: 'often' })))
    const found = async (query: object) =>
      (await listAllRuns(scene.store, { owner: '', limit: 5, label: 'often', ...query })).map(({ id }) => id)
    expect(await found({ queue: 'rare' })).toEqual(['r-3'])
    expect(await found({ queue: 'rare', statuses: ['failed'] })).toEqual([])
    expect(await found({ limit: 400 })).toHaveLength(330)
    expect(await found({ limit: 100, statuses: ['pending'] })).toEqual(await found({}))
    const [claim] = await scene.claim({ limit: 1 })
    await scene.leave(claim as Claim, 'failed')
    expect(await found({ statuses: ['failed'], withoutPrefix: 'holdfast.' })).toEqual([claim?.run.id])
  })
}

function testFilters(test: StoreTest): void {
  test('runs of many workflows and queues are listed in order, whatever is asked for', async (scene) => {
    const names = ['', 'ann'].flatMap((owner) =>
      ['report', 'own.x', 'zeta'].flatMap((workflow) => ['q', 'q1', '\u{10ffff}'].map((queue) => ({ owner, workflow, queue }))),
    )
    const created: (Run & { readonly nth: number })[] = []
    for (let round = 0; round < 4; round++) {
      for (const [index, name] of names.entries()) {
        const id = `${round}-${index}`
        created.push({ ...(await scene.create({ ...name, id })), nth: created.length })
      }
    }
    const all = { workflows: ['report', 'own.x', 'zeta'].map((name) => ({ name, version: 1 })), limit: 20 }
    const claims = await scene.claim(all)
    for (const [index, claim] of claims.entries())
      if (index % 3 !== 0) await scene.leave(claim, index % 3 === 1 ? 'failed' : 'completed')
    const status = new Map(claims.map(({ run }, index) => [run.id + run.owner, ['running', 'failed', 'completed'][index % 3]]))
    const queries = ['', 'ann'].flatMap((owner) =>
      [
        {},
        { workflow: 'report' },
        { queue: 'q1' },
        { queue: '\u{10ffff}' },
        { workflow: 'zeta', queue: 'q' },
        { withoutPrefix: 'own.' },
      ].flatMap((query) =>
        [{}, { statuses: ['pending'] }, { statuses: ['failed', 'running'] }].map((statuses) => ({
          owner,
          ...query,
          ...statuses,
        })),
      ),
    ) as unknown as RunQuery[]
    for (const query of queries) {
      const expected = created
        .filter((run) => run.owner === query.owner && (query.workflow ?? run.workflow) === run.workflow)
        .filter((run) => (query.queue ?? run.queue) === run.queue && !run.workflow.startsWith(query.withoutPrefix ?? '-'))
        .filter((run) => query.statuses?.includes((status.get(run.id + run.owner) ?? 'pending') as RunStatus) ?? true)
        .toSorted((one, other) => other.createdAt - one.createdAt || other.nth - one.nth)
      const found = await listAllRuns(scene.store, { ...query, limit: 7 })
      expect(
        found.map(({ id }) => id),
        JSON.stringify(query),
      ).toEqual(expected.map(({ id }) => id))
    }
  })

  for (const field of ['workflow', 'queue', 'threadId', 'label', 'withoutPrefix'] as const) {
    test(`a ${field} with NUL or a lone surrogate in it is no name that anything has`, async (scene) => {
      await scene.create({ id: 'r' })
      for (const value of ['\u0000', 'report\u0000', 'default\u0000x', '\ud800'])
        expect((await scene.store.listRuns({ owner: '', limit: 10, [field]: value })).items.map(({ id }) => id)).toEqual(
          field === 'withoutPrefix' ? ['r'] : [],
        )
    })
  }

  test('runs of workflows whose names begin in some way can be left out', async (scene) => {
    await scene.create({ id: 'a', workflow: 'own.%notify/x' })
    await scene.create({ id: 'b', workflow: 'own' })
    await scene.create({ id: 'c', workflow: 'my own.%notify' })
    await scene.create({ id: 'd', workflow: 'OWN.%notify', queue: 'slow' })
    const ids = async (query: object) => (await listAllRuns(scene.store, { owner: '', limit: 2, ...query })).map(({ id }) => id)
    expect(await ids({ withoutPrefix: 'own.%' })).toEqual(['d', 'c', 'b'])
    expect(await ids({ withoutPrefix: 'own' })).toEqual(['d', 'c'])
    expect(await ids({ withoutPrefix: 'own%' })).toEqual(['d', 'c', 'b', 'a'])
    expect(await ids({ withoutPrefix: 'own.', queue: 'slow' })).toEqual(['d'])
    expect(await ids({ withoutPrefix: 'own.', workflow: 'own.%notify/x' })).toEqual([])
    expect(await ids({ withoutPrefix: 'own.', threadId: 'a' })).toEqual([])
  })

  test("runs of Holdfast's own can be left out, however many there are", async (scene) => {
    const names = ['report', 'holdfast.notify/x', 'holdfast', 'holdfast.schedule', 'a.holdfast.']
    for (let index = 0; index < 20; index++) {
      const queue = index % 5 === 2 ? '.notify' : 'default'
      await scene.create({ id: `r-${index}`, workflow: names[index % 5] as string, queue })
    }
    await scene.leave(await scene.claimOne({ limit: 1 }), 'failed')
    const ids = async (query: object) =>
      (await listAllRuns(scene.store, { owner: '', limit: 3, withoutPrefix: 'holdfast.', ...query })).map(({ id }) => id)
    const expected = Array.from({ length: 20 }, (_, index) => `r-${19 - index}`)
    const isShown = (id: string) => ![1, 3].includes(Number(id.slice(2)) % 5)
    expect(await ids({})).toEqual(expected.filter(isShown))
    expect(await ids({ statuses: ['failed'] })).toEqual(['r-0'])
    expect(await ids({ statuses: ['pending'] })).toEqual(expected.filter(isShown).slice(0, -1))
    expect(await ids({ queue: '.notify' })).toEqual(['r-17', 'r-12', 'r-7', 'r-2'])
    expect(await ids({ threadId: 'r-1' })).toEqual([])
    await scene.store.deleteThread({ owner: '', threadId: 'r-19', at: 1 })
    expect(await ids({})).toEqual(expected.filter(isShown).slice(1))
  })

  test('a filtered list is paged as well', async (scene) => {
    for (let index = 0; index < 20; index++) await scene.create({ id: `r-${index}`, queue: index % 3 === 0 ? 'x' : 'y' })
    const runs = await listAllRuns(scene.store, { owner: '', limit: 2, queue: 'x' })
    expect(runs.map(({ id }) => id)).toEqual(['r-18', 'r-15', 'r-12', 'r-9', 'r-6', 'r-3', 'r-0'])
  })

  test('a list with limit 0 is empty and does not go on', async (scene) => {
    await scene.create({ id: 'r' })
    expect(await scene.store.listRuns({ owner: '', limit: 0 })).toEqual({ items: [] })
    expect(await scene.store.listThreads({ owner: '', limit: 0 })).toEqual({ items: [] })
  })

  test('a list of nothing is empty', async (scene) => {
    expect(await scene.store.listRuns({ owner: '', limit: 10 })).toEqual({ items: [] })
    expect(await scene.store.listThreads({ owner: '', limit: 10 })).toEqual({ items: [] })
  })

  for (const cursor of [
    '',
    'nonsense',
    '-1',
    '1; drop table runs',
    '\u0000',
    '{"a":1}',
    'n1e9',
    'n1.1e9',
    'n.1',
    '9'.repeat(400),
  ]) {
    test(`the cursor ${JSON.stringify(cursor.slice(0, 24))} is refused with invalid_input`, async (scene) => {
      await scene.create({ id: 'r' })
      expect(await codeThrownBy(() => scene.store.listRuns({ owner: '', limit: 10, cursor }))).toBe('invalid_input')
      expect(await codeThrownBy(() => scene.store.listThreads({ owner: '', limit: 10, cursor }))).toBe('invalid_input')
    })
  }
}

function testListOfThreads(test: StoreTest): void {
  test('threads are listed in order of creation, page by page', async (scene) => {
    const ids = Array.from({ length: 12 }, (_, index) => `t-${index}`)
    for (const id of ids) await scene.create({ id })
    for (const limit of [1, 5, 12, 100]) {
      const threads = await listAllThreads(scene.store, { owner: '', limit })
      expect(threads.map(({ threadId }) => threadId)).toEqual(ids)
    }
    const { items } = await scene.store.listThreads({ owner: '', limit: 1 })
    expect(items[0]).toEqual(await scene.thread('t-0'))
  })
}
