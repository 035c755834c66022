import { afterAll, beforeAll, expect, test } from 'vitest'
import { createCodec } from '../../src/model/codec.ts'
import { brokenInDump } from './rules.ts'
import { Stage } from './stage.ts'
import { dumpStore, watchStore } from './store-dump.ts'
import { until, WorkerProcess } from './worker-process.ts'
import { raiseZombie, raiseZombies, zombiePoints } from './zombies.ts'

// failure-model 2.4: holders that were stopped past their lease, and wake up.

let stage: Stage
beforeAll(async () => {
  stage = await Stage.build()
})
afterAll(() => stage.close())

test('nothing of a stopped holder gets in after its lease, on any way of writing, and its other runs go on', {
  timeout: 120_000,
}, async () => {
  const { cycles, broken } = await raiseZombies(stage, { points: zombiePoints })
  console.log(`zombies: ${cycles} cycles of SIGSTOP, takeover, SIGCONT`)
  expect(broken).toEqual([])
  expect(cycles).toBeGreaterThanOrEqual(10)
})

test('a holder whose event loop was blocked for two leases is fenced like a stopped one', { timeout: 60_000 }, async () => {
  expect(await raiseZombie(stage, { effect: 'check', fault: { at: 'body', path: 'inside' } }, 1_400)).toEqual([])
})

test('the late answer of a fenced holder is kept as evidence beside the unsure operation', { timeout: 60_000 }, async () => {
  const scene = stage.openScene()
  const runs = [{ workflow: 'errand', id: 'main', threadId: 'main', input: { effect: 'neither' } }]
  const shared = { file: scene.file, journal: scene.journal, port: stage.provider.port, account: scene.name, leaseMs: 700, runs }
  const zombie = new WorkerProcess({
    ...shared,
    number: 1,
    fault: { at: 'answer', name: 'send' },
    strike: 'SIGSTOP',
    isWorker: true,
    decides: false,
  })
  const processes = [zombie]
  try {
    await zombie.untilStopped()
    const heir = new WorkerProcess({ ...shared, number: 2, fault: null, strike: 'SIGKILL', isWorker: true, decides: false })
    processes.push(heir)
    await until(
      async () => (await watchStore(scene.file)).runs.some(({ reason }) => reason === 'person'),
      'the run waits for a person',
    )
    const before = await watchStore(scene.file)
    expect(before.operations).toMatchObject([{ status: 'unsure', evidence: null }])

    zombie.goOn()
    await until(async () => (await watchStore(scene.file)).operations[0]?.evidence != null, 'the evidence is there')
    await Promise.all([zombie.close(), heir.close()])
    const after = await dumpStore(scene.file)
    const evidence = createCodec().decode(after.operations[0]?.evidence ?? '')
    expect(evidence).toMatchObject({ result: { receipt: expect.stringContaining('receipt for') } })
    expect({ ...after, operations: after.operations.map((operation) => ({ ...operation, evidence: null })) }).toEqual(before)
    expect(scene.account.calls).toHaveLength(1)

    const person = new WorkerProcess({ ...shared, number: 3, fault: null, strike: 'SIGKILL' })
    expect(await person.over).toMatchObject({ code: 0 })
    expect((await dumpStore(scene.file)).runs).toMatchObject([{ status: 'completed' }])
    expect(scene.account.calls).toHaveLength(1)
  } finally {
    await endAll(...processes)
    stage.closeScene(scene)
  }
})

test('two workers that race for the same runs execute each of them once', { timeout: 60_000 }, async () => {
  const scene = stage.openScene()
  const runs = Array.from({ length: 40 }, (_, n) => ({
    workflow: 'steady',
    id: `run-${n}`,
    threadId: `thread-${n}`,
    input: { longMs: 1 },
  }))
  const shared = {
    file: scene.file,
    journal: scene.journal,
    port: stage.provider.port,
    account: scene.name,
    leaseMs: 10_000,
    runs,
  }
  const quiet = { fault: null, strike: 'SIGKILL', concurrency: 4 } as const
  const racers = [1, 2].map((number) => new WorkerProcess({ ...shared, ...quiet, number }))
  try {
    for (const { over } of racers) expect(await over).toMatchObject({ code: 0 })
    const dump = await dumpStore(scene.file)
    expect(brokenInDump(dump)).toEqual([])
    expect(dump.runs.map(({ status, epoch }) => ({ status, epoch }))).toEqual(
      runs.map(() => ({ status: 'completed', epoch: expect.any(Number) })),
    )
    expect(dump.threads.flatMap(({ log }) => log).filter(({ type }) => type === 'run_recovered')).toEqual([])
    const bodies = racers
      .flatMap((racer) => racer.notes())
      .flatMap((note) => (note.kind === 'body' ? `${note.run} ${note.path}` : []))
    expect(bodies).toHaveLength(runs.length * 9)
    expect(new Set(bodies).size).toBe(bodies.length)
    expect(racers.every((racer) => racer.notes().some(({ kind }) => kind === 'body'))).toBe(true)
  } finally {
    await endAll(...racers)
    stage.closeScene(scene)
  }
})

test('a SIGTERM under load hands the runs over: steps that run finish, nothing counts as a death', {
  timeout: 60_000,
}, async () => {
  const scene = stage.openScene()
  const runs = Array.from({ length: 30 }, (_, n) => ({
    workflow: 'steady',
    id: `run-${n}`,
    threadId: `thread-${n}`,
    input: { longMs: 50 + n * 10 },
  }))
  const shared = {
    file: scene.file,
    journal: scene.journal,
    port: stage.provider.port,
    account: scene.name,
    leaseMs: 60_000,
    runs,
  }
  const first = new WorkerProcess({ ...shared, number: 1, fault: null, strike: 'SIGKILL', isWorker: true })
  try {
    await first.untilNoted((note) => note.kind === 'body' && note.path === 'long', 'the long steps have begun')
    expect(await first.close('SIGTERM')).toMatchObject({ code: 0 })
    const dump = await dumpStore(scene.file)
    expect(brokenInDump(dump)).toEqual([])
    const unfinished = dump.runs.filter(({ status }) => status !== 'completed')
    expect(unfinished.length).toBeGreaterThan(10)
    for (const run of unfinished)
      expect(run).toMatchObject({ leaseId: null, claimsWithoutProgress: 0, status: expect.stringMatching(/pending|waiting/) })

    const heir = new WorkerProcess({ ...shared, number: 2, fault: null, strike: 'SIGKILL' })
    expect(await heir.over).toMatchObject({ code: 0 })
    const after = await dumpStore(scene.file)
    expect(after.threads.flatMap(({ log }) => log).filter(({ type }) => type === 'run_recovered')).toEqual([])
    const bodies = [first, heir]
      .flatMap((one) => one.notes())
      .flatMap((note) => (note.kind === 'body' ? `${note.run} ${note.path}` : []))
    expect(new Set(bodies).size).toBe(bodies.length)
    expect(bodies).toHaveLength(runs.length * 9)
  } finally {
    await endAll(first)
    stage.closeScene(scene)
  }
})

test('a step that outlasts the grace of a close is handed over too, and is no death however often', {
  timeout: 60_000,
}, async () => {
  const scene = stage.openScene()
  const runs = [{ workflow: 'steady', id: 'slow', threadId: 'slow', input: { longMs: 5_000, isLongFirst: true } }]
  const shared = {
    file: scene.file,
    journal: scene.journal,
    port: stage.provider.port,
    account: scene.name,
    leaseMs: 60_000,
    runs,
  }
  try {
    for (let number = 1; number <= 6; number++) {
      const closed = new WorkerProcess({ ...shared, number, fault: null, strike: 'SIGKILL', isWorker: true, closeGraceMs: 10 })
      await closed.untilNoted((note) => note.kind === 'body' && note.path === 'long', 'the long step has begun')
      closed.child.kill('SIGTERM')
      await until(async () => (await watchStore(scene.file)).runs[0]?.status === 'pending', 'the run is handed over')
      await endAll(closed)
      expect((await dumpStore(scene.file)).runs).toMatchObject([{ status: 'pending', leaseId: null, claimsWithoutProgress: 0 }])
    }
    const heir = new WorkerProcess({ ...shared, number: 7, fault: null, strike: 'SIGKILL' })
    expect(await heir.over).toMatchObject({ code: 0 })
    const log = (await dumpStore(scene.file)).threads.flatMap((thread) => thread.log)
    expect(log.filter(({ type }) => type === 'run_recovered')).toEqual([])
    expect(log.filter(({ type, step }) => type === 'step_completed' && step === 'long')).toHaveLength(1)
  } finally {
    stage.closeScene(scene)
  }
})

async function endAll(...processes: readonly WorkerProcess[]): Promise<void> {
  for (const { child, over } of processes) {
    child.kill('SIGKILL')
    await over
  }
}
