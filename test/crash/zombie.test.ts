import { open } from 'holdfast'
import { expect, test } from 'vitest'
import { createCodec } from '../../src/model/codec.ts'
import { patience } from '../patience.ts'
import { onEveryDurableStore } from './bed/on-every-durable-store.ts'
import { until, WorkerProcess } from './bed/worker-process.ts'
import { violationsInDump } from './rules/store-contents.ts'
import { wakeZombie, wakeZombies, zombiePointsOn } from './wake-zombies.ts'

const seed = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 1_000_000)

// failure-model 2.4: holders that were stopped past their lease, and wake up.

onEveryDurableStore((on) => {
  test('nothing of a stopped holder gets in after its lease, on any way of writing, and its other runs continue', {
    timeout: patience(120_000),
  }, async () => {
    // On servers every other point, by turns from run to run; torture and the mutants take all of them.
    const every = on.kind === 'sqlite' || process.env['HOLDFAST_BOUNDARIES'] === 'all' ? 1 : 2
    const points = zombiePointsOn(on.kind).filter((_, index) => index % every === seed % every)
    const { cycles, violations } = await wakeZombies(on.bed, { points })
    console.log(`zombies on ${on.kind}: ${cycles} cycles of SIGSTOP, takeover, SIGCONT`)
    expect(violations, `seed ${seed}`).toEqual([])
    expect(cycles).toBeGreaterThanOrEqual(6)
  })

  test('a holder whose event loop was blocked for several leases is fenced like a stopped one', async () => {
    expect(
      await wakeZombie(on.bed, { effect: 'check', fault: { at: 'body', path: 'inside' } }, { failure: patience(3_000) }),
    ).toEqual([])
  })

  test('the late answer of a fenced holder is kept as evidence beside the unsure operation', async () => {
    const environment = await on.bed.setUp()
    const runs = [{ workflow: 'allWrites', id: 'main', threadId: 'main', input: { effect: 'neither' } }]
    const shared = { leaseMs: patience(700), clockOffsetMs: 0, runs }
    const zombie = await WorkerProcess.start(on.bed, environment, {
      ...{ ...shared, number: 1, fault: { at: 'answer', name: 'send' }, failure: 'SIGSTOP' },
      ...{ isWorker: true, resolvesUnsure: false },
    })
    const processes = [zombie]
    try {
      await zombie.untilStopped()
      const successor = await WorkerProcess.start(on.bed, environment, {
        ...shared,
        number: 2,
        isWorker: true,
        resolvesUnsure: false,
      })
      processes.push(successor)
      await until(
        async () => (await environment.store.watch()).runs.some(({ reason }) => reason === 'person'),
        'the run waits for a person',
      )
      const before = await environment.store.watch()
      expect(before.operations).toMatchObject([{ status: 'unsure', evidence: null }])

      zombie.resume()
      await until(async () => (await environment.store.watch()).operations[0]?.evidence != null, 'the evidence is there')
      await Promise.all([zombie.close(), successor.close()])
      const after = await environment.store.dump()
      const evidence = createCodec().decode(after.operations[0]?.evidence ?? '')
      expect(evidence).toMatchObject({ result: { receipt: expect.stringContaining('receipt for') } })
      expect({ ...after, operations: after.operations.map((operation) => ({ ...operation, evidence: null })) }).toEqual(before)
      expect(environment.account.calls).toHaveLength(1)

      const person = await WorkerProcess.start(on.bed, environment, { ...shared, number: 3 })
      expect(await person.ended).toMatchObject({ code: 0 })
      expect((await environment.store.dump()).runs).toMatchObject([{ status: 'completed' }])
      expect(environment.account.calls).toHaveLength(1)
    } finally {
      await endAll(...processes)
      await on.bed.tearDown(environment)
    }
  })

  test('a thread that was deleted while a stopped process held it stays deleted', async () => {
    const environment = await on.bed.setUp()
    const runs = [{ workflow: 'allWrites', id: 'main', threadId: 'main', input: { effect: 'check' } }]
    const held = { fault: { at: 'body', path: 'inside' }, failure: 'SIGSTOP', isWorker: true, resolvesUnsure: false } as const
    const zombie = await WorkerProcess.start(on.bed, environment, { leaseMs: patience(700), number: 1, runs, ...held })
    const store = await environment.store.open()
    try {
      await zombie.untilStopped()
      const hf = await open(store, { worker: false })
      await hf.thread('main').delete()
      await hf.close()
      const left = await environment.store.watch()
      expect(left.runs).toEqual([])
      expect(left.threads.flatMap(({ log }) => log)).toEqual([])

      zombie.resume()
      await zombie.untilNoted(({ kind }) => kind === 'thrown', 'the zombie receives lease_lost')
      expect(await zombie.close()).toMatchObject({ code: 0 })
      expect(zombie.notes().filter(({ kind }) => kind === 'thrown')).toMatchObject([{ code: 'lease_lost' }])
      expect(await environment.store.dump()).toEqual(left)
      expect(environment.account.calls).toEqual([])
    } finally {
      await store.close()
      await endAll(zombie)
      await on.bed.tearDown(environment)
    }
  })

  test('two workers that race for the same runs execute each of them once', async () => {
    const environment = await on.bed.setUp()
    const runs = Array.from({ length: 40 }, (_, n) => ({
      workflow: 'shortSteps',
      id: `run-${n}`,
      threadId: `thread-${n}`,
      // So long that one which comes a second later still finds some.
      input: { longMs: 150 },
    }))
    const shared = { leaseMs: 10_000, clockOffsetMs: 0, runs }
    const racers = await Promise.all(
      [1, 2].map((number) => WorkerProcess.start(on.bed, environment, { ...shared, concurrency: 4, number })),
    )
    try {
      for (const { ended } of racers) expect(await ended).toMatchObject({ code: 0 })
      const dump = await environment.store.dump()
      expect(violationsInDump(dump)).toEqual([])
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
      await on.bed.tearDown(environment)
    }
  })

  test('a SIGTERM under load hands the runs over: steps that run finish, nothing counts as a death', async () => {
    const environment = await on.bed.setUp()
    const runs = Array.from({ length: 30 }, (_, n) => ({
      workflow: 'shortSteps',
      id: `run-${n}`,
      threadId: `thread-${n}`,
      input: { longMs: 500 + n * 50 },
    }))
    const shared = { leaseMs: 60_000, clockOffsetMs: 0, runs }
    const first = await WorkerProcess.start(on.bed, environment, { ...shared, number: 1, isWorker: true })
    try {
      await first.untilNoted((note) => note.kind === 'body' && note.path === 'long', 'the long steps have begun')
      expect(await first.close('SIGTERM')).toMatchObject({ code: 0 })
      const dump = await environment.store.dump()
      expect(violationsInDump(dump)).toEqual([])
      const unfinished = dump.runs.filter(({ status }) => status !== 'completed')
      expect(unfinished.length).toBeGreaterThan(10)
      for (const run of unfinished)
        expect(run).toMatchObject({ leaseId: null, claimsWithoutProgress: 0, status: expect.stringMatching(/pending|waiting/) })

      const successor = await WorkerProcess.start(on.bed, environment, { ...shared, number: 2 })
      expect(await successor.ended).toMatchObject({ code: 0 })
      const after = await environment.store.dump()
      expect(after.threads.flatMap(({ log }) => log).filter(({ type }) => type === 'run_recovered')).toEqual([])
      const bodies = [first, successor]
        .flatMap((one) => one.notes())
        .flatMap((note) => (note.kind === 'body' ? `${note.run} ${note.path}` : []))
      expect(new Set(bodies).size).toBe(bodies.length)
      expect(bodies).toHaveLength(runs.length * 9)
    } finally {
      await endAll(first)
      await on.bed.tearDown(environment)
    }
  })

  test('a step that outlasts the grace of a close is handed over too, and is no death however often', async () => {
    const environment = await on.bed.setUp()
    const runs = [{ workflow: 'shortSteps', id: 'slow', threadId: 'slow', input: { longMs: 5_000, isLongFirst: true } }]
    const shared = { leaseMs: 60_000, clockOffsetMs: 0, runs }
    try {
      for (let number = 1; number <= 6; number++) {
        const closed = await WorkerProcess.start(on.bed, environment, { ...shared, number, isWorker: true, closeGraceMs: 10 })
        await closed.untilNoted((note) => note.kind === 'body' && note.path === 'long', 'the long step has begun')
        closed.signal('SIGTERM')
        await until(async () => (await environment.store.watch()).runs[0]?.status === 'pending', 'the run is handed over')
        await endAll(closed)
        expect((await environment.store.dump()).runs).toMatchObject([
          { status: 'pending', leaseId: null, claimsWithoutProgress: 0 },
        ])
      }
      const successor = await WorkerProcess.start(on.bed, environment, { ...shared, number: 7 })
      expect(await successor.ended).toMatchObject({ code: 0 })
      const log = (await environment.store.dump()).threads.flatMap((thread) => thread.log)
      expect(log.filter(({ type }) => type === 'run_recovered')).toEqual([])
      expect(log.filter(({ type, step }) => type === 'step_completed' && step === 'long')).toHaveLength(1)
    } finally {
      await on.bed.tearDown(environment)
    }
  })
})

async function endAll(...processes: readonly WorkerProcess[]): Promise<void> {
  for (const one of processes) await one.kill()
}
