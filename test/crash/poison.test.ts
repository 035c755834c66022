import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { onEveryDurableStore } from './bed/on-every-durable-store.ts'
import type { ProcessEnd } from './bed/process-under-test.ts'
import type { ProcessRun } from './bed/run-process.ts'
import type { StoreDump } from './bed/store-dump.ts'
import { WorkerProcess } from './bed/worker-process.ts'
import type { StoreFixture } from './fixtures/store-fixtures.ts'
import { violationsInDump } from './rules/store-contents.ts'

// Runs and steps that crash their worker are given up; runs beside them are not.

onEveryDurableStore((on) => {
  test('a run that ends its process before any step is paused as poisoned after five deaths, and others continue', async () => {
    const innocent = Array.from({ length: 5 }, (_, n) => ({
      workflow: 'shortSteps',
      id: `innocent-${n}`,
      threadId: `innocent-${n}`,
      input: { longMs: 1 },
    }))
    const runs = [...innocent.slice(0, 2), { workflow: 'poison', id: 'poison', threadId: 'poison' }, ...innocent.slice(2)]
    const { ends, dump } = await untilOneSurvives(runs, (left) => isSettled(left, runs.length))

    expect(ends.filter(({ code }) => code === 70)).toHaveLength(5)
    const poison = dump.runs.find(({ id }) => id === 'poison')
    expect(poison).toMatchObject({ status: 'paused', reason: 'poisoned', leaseId: null })
    expect(
      dump.runs.filter(({ id }) => id !== 'poison').map(({ id, status, reason }) => `${id} ${status} ${reason ?? ''}`),
    ).toEqual(expect.arrayContaining(innocent.map(({ id }) => `${id} completed `)))
    expect(violationsInDump(dump)).toEqual([])
  })

  test('a step that kills its worker three times fails with worker_died, and its fallback applies', async () => {
    const runs = [{ workflow: 'killer', id: 'main', threadId: 'main', input: { by: 'kill', afterMs: 600 } }]
    const { ends, dump } = await untilOneSurvives(runs, (left) => isSettled(left, 1))
    expect(ends.filter(({ signal }) => signal === 'SIGKILL')).toHaveLength(3)
    expectFallback(dump)
  })

  test('a step that kills its worker before its start was written is found out one death later', async () => {
    const runs = [{ workflow: 'killer', id: 'main', threadId: 'main', input: { by: 'kill', afterMs: 0 } }]
    const { ends, dump } = await untilOneSurvives(runs, (left) => isSettled(left, 1))
    expect(ends.filter(({ signal }) => signal === 'SIGKILL')).toHaveLength(4)
    expectFallback(dump)
  })

  // To a store it is a death like the others.
  if (on.kind === 'sqlite')
    test('running out of memory is such a death', { timeout: patience(120_000) }, async () => {
      const runs = [{ workflow: 'killer', id: 'main', threadId: 'main', input: { by: 'memory', afterMs: 600 } }]
      const { ends, dump } = await untilOneSurvives(runs, (left) => isSettled(left, 1), ['--max-old-space-size=64'])
      expect(ends.filter(({ errors }) => errors.includes('heap out of memory'))).toHaveLength(3)
      expectFallback(dump)
    })

  /** One process after another, each started when the last has died, until the store is as it should be. */
  async function untilOneSurvives(
    runs: ProcessRun['runs'],
    isGood: (dump: StoreDump) => boolean,
    nodeArgs: readonly string[] = [],
  ): Promise<{ ends: ProcessEnd[]; dump: StoreDump }> {
    const environment = await on.bed.setUp()
    const ends: ProcessEnd[] = []
    try {
      for (;;) {
        const number = ends.length + 1
        const process = await WorkerProcess.start(on.bed, environment, { number, runs, isWorker: true }, { nodeArgs })
        const dump = await untilGood(process, environment.store, isGood)
        if (dump !== null) {
          await process.close()
          return { ends, dump }
        }
        ends.push(await process.ended)
        await environment.store.untilDisconnected(number)
        if (ends.length > 10) return { ends, dump: await environment.store.dump() }
      }
    } finally {
      await on.bed.tearDown(environment)
    }
  }
})

function isSettled({ runs }: StoreDump, count: number): boolean {
  return runs.length === count && runs.every(({ status }) => status === 'completed' || status === 'paused')
}

function expectFallback(dump: StoreDump): void {
  const log = dump.threads.flatMap((thread) => thread.log)
  expect(log.filter(({ type }) => type === 'step_failed')).toMatchObject([
    { step: 'deadly', data: { error: { code: 'worker_died' }, final: true } },
  ])
  expect(log.findLast(({ type }) => type === 'run_completed')?.data).toEqual({ output: 'fallback after worker_died' })
  expect(log.filter(({ type, step }) => type === 'step_completed' && step === 'harmless')).toHaveLength(1)
  expect(violationsInDump(dump)).toEqual([])
}

/** Null when the process died first. */
async function untilGood(
  process: WorkerProcess,
  store: StoreFixture,
  isGood: (dump: StoreDump) => boolean,
): Promise<StoreDump | null> {
  let isOver = false
  process.ended.finally(() => {
    isOver = true
  })
  while (!isOver) {
    const dump = await store.watch()
    if (isGood(dump)) return dump
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  return null
}
