import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Life } from './live.ts'
import { brokenInDump } from './rules.ts'
import { type Ended, Stage } from './stage.ts'
import { dumpStore, type StoreDump, watchStore } from './store-dump.ts'
import { WorkerProcess } from './worker-process.ts'

// Runs and steps that bring their worker down: they are given up, their neighbours are not.

let stage: Stage
beforeAll(async () => {
  stage = await Stage.build()
})
afterAll(() => stage.close())

test('a run that ends its process before any step is paused as poisoned after five deaths, and others go on', {
  timeout: 60_000,
}, async () => {
  const innocent = Array.from({ length: 5 }, (_, n) => ({
    workflow: 'steady',
    id: `innocent-${n}`,
    threadId: `innocent-${n}`,
    input: { longMs: 1 },
  }))
  const runs = [...innocent.slice(0, 2), { workflow: 'poison', id: 'poison', threadId: 'poison' }, ...innocent.slice(2)]
  const { ends, dump } = await untilOneLives(runs, (left) => isSettled(left, runs.length))

  expect(ends.filter(({ code }) => code === 70)).toHaveLength(5)
  const poison = dump.runs.find(({ id }) => id === 'poison')
  expect(poison).toMatchObject({ status: 'paused', reason: 'poisoned', leaseId: null })
  expect(
    dump.runs.filter(({ id }) => id !== 'poison').map(({ id, status, reason }) => `${id} ${status} ${reason ?? ''}`),
  ).toEqual(expect.arrayContaining(innocent.map(({ id }) => `${id} completed `)))
  expect(brokenInDump(dump)).toEqual([])
})

test('a step that kills its worker three times fails with worker_died, and its fallback applies', {
  timeout: 60_000,
}, async () => {
  const runs = [{ workflow: 'killer', id: 'main', threadId: 'main', input: { by: 'kill', afterMs: 150 } }]
  const { ends, dump } = await untilOneLives(runs, (left) => isSettled(left, 1))
  expect(ends.filter(({ signal }) => signal === 'SIGKILL')).toHaveLength(3)
  expectFallback(dump)
})

test('a step that kills its worker before its start was written is found out one death later', { timeout: 60_000 }, async () => {
  const runs = [{ workflow: 'killer', id: 'main', threadId: 'main', input: { by: 'kill', afterMs: 0 } }]
  const { ends, dump } = await untilOneLives(runs, (left) => isSettled(left, 1))
  expect(ends.filter(({ signal }) => signal === 'SIGKILL')).toHaveLength(4)
  expectFallback(dump)
})

test('running out of memory is such a death', { timeout: 120_000 }, async () => {
  const runs = [{ workflow: 'killer', id: 'main', threadId: 'main', input: { by: 'memory', afterMs: 150 } }]
  const { ends, dump } = await untilOneLives(runs, (left) => isSettled(left, 1), ['--max-old-space-size=64'])
  expect(ends.filter(({ errors }) => errors.includes('heap out of memory'))).toHaveLength(3)
  expectFallback(dump)
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
  expect(brokenInDump(dump)).toEqual([])
}

/** One process after another, each started when the last has died, until the store is as it should be. */
async function untilOneLives(
  runs: Life['runs'],
  isGood: (dump: StoreDump) => boolean,
  nodeArgs: readonly string[] = [],
): Promise<{ ends: Ended[]; dump: StoreDump }> {
  const scene = stage.openScene()
  const ends: Ended[] = []
  try {
    for (;;) {
      const life: Life = {
        ...{ number: ends.length + 1, file: scene.file, journal: scene.journal, port: stage.provider.port, account: scene.name },
        ...{ fault: null, strike: 'SIGKILL', leaseMs: 60_000, runs, isWorker: true },
      }
      const process = new WorkerProcess(life, { nodeArgs })
      const dump = await untilGood(process, scene.file, isGood)
      if (dump !== null) {
        await process.close()
        return { ends, dump }
      }
      ends.push(await process.over)
      if (ends.length > 10) return { ends, dump: await dumpStore(scene.file) }
    }
  } finally {
    stage.closeScene(scene)
  }
}

/** Null when the process died first. */
async function untilGood(process: WorkerProcess, file: string, isGood: (dump: StoreDump) => boolean): Promise<StoreDump | null> {
  let isOver = false
  process.over.finally(() => {
    isOver = true
  })
  while (!isOver) {
    const dump = await watchStore(file)
    if (isGood(dump)) return dump
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  return null
}
