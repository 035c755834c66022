import { open } from 'holdfast'
import { isTerminal } from '../../src/model/run.ts'
import { listAllRuns } from '../../src/testing/store-contents.ts'
import { brokenInDump, countBy } from './rules.ts'
import type { OpenedScene, Stage } from './stage.ts'
import { until, WorkerProcess } from './worker-process.ts'

export interface OrphanRace {
  readonly tookMs: number
  readonly broken: readonly string[]
}

/** Many processes find many runs whose holder is gone: each run is granted once, and its step is made once. */
export async function raceForOrphans(
  stage: Stage,
  { recovererCount, orphanCount }: { recovererCount: number; orphanCount: number },
): Promise<OrphanRace> {
  const scene = await stage.openScene()
  const store = await scene.store.open()
  const recoverers: WorkerProcess[] = []
  try {
    await leaveOrphans(scene, orphanCount)
    const startedAt = performance.now()
    for (let number = 1; number <= recovererCount; number++) {
      const idle = { number, runs: [], isWorker: true, decides: false, clockOffsetMs: 0 }
      recoverers.push(await WorkerProcess.start(stage, scene, idle))
    }
    await until(
      async () => (await listAllRuns(store, { owner: '', limit: 500 })).every(({ status }) => isTerminal(status)),
      'every orphan is finished',
    )
    const tookMs = Math.round(performance.now() - startedAt)
    const ends = await Promise.all(recoverers.map((recoverer) => recoverer.close()))
    const broken = ends.flatMap(({ code, errors }) => (code === 0 ? [] : [`a recoverer ended with ${code}: ${errors}`]))
    return { tookMs, broken: [...broken, ...(await brokenGrants(scene, orphanCount))] }
  } finally {
    for (const recoverer of recoverers) await recoverer.kill()
    await store.close()
    await stage.closeScene(scene)
  }
}

/** Starts runs, and claims them for somebody who never comes back. */
async function leaveOrphans(scene: OpenedScene, count: number): Promise<void> {
  const store = await scene.store.open()
  const hf = await open(store, { worker: false })
  await Promise.all(Array.from({ length: count }, (_, n) => hf.start('trifle', undefined, { id: `orphan-${n}` })))
  await hf.close()
  await store.claim({ workerId: 'gone', leaseMs: 500, limit: count, workflows: [{ name: 'trifle', version: 1 }] })
  await store.close()
}

async function brokenGrants(scene: OpenedScene, count: number): Promise<string[]> {
  const dump = await scene.store.dump()
  const broken = brokenInDump(dump)
  if (dump.runs.length !== count) broken.push(`there are ${dump.runs.length} runs, ${count} were left`)
  const recovered = dump.threads.flatMap(({ log }) => log).filter(({ type }) => type === 'run_recovered')
  const grants = countBy(recovered, ({ runId }) => runId ?? '')
  for (const { id, status, epoch } of dump.runs) {
    if (status !== 'completed' || grants.get(id) !== 1) broken.push(`${id} is ${status} after ${grants.get(id)} recoveries`)
    if (epoch !== 2) broken.push(`${id} is at epoch ${epoch}`)
  }
  return broken
}
