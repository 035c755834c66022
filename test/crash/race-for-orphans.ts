import { open } from 'holdfast'
import { isTerminal } from '../../src/model/run.ts'
import { listAllRuns } from '../../src/testing/store-contents.ts'
import type { CrashTestBed, Environment } from './bed/crash-test-bed.ts'
import { until, WorkerProcess } from './bed/worker-process.ts'
import { countBy } from './rules/recorded.ts'
import { violationsInDump } from './rules/store-contents.ts'

export interface OrphanRace {
  readonly tookMs: number
  readonly violations: readonly string[]
}

/** Many processes find many runs whose holder is gone: each run is granted once, and its step is executed once. */
export async function raceForOrphans(
  bed: CrashTestBed,
  { recovererCount, orphanCount }: { recovererCount: number; orphanCount: number },
): Promise<OrphanRace> {
  const environment = await bed.setUp()
  const store = await environment.store.open()
  const recoverers: WorkerProcess[] = []
  try {
    await leaveOrphans(environment, orphanCount)
    const startedAt = performance.now()
    for (let number = 1; number <= recovererCount; number++) {
      const idle = { number, runs: [], isWorker: true, resolvesUnsure: false, clockOffsetMs: 0 }
      recoverers.push(await WorkerProcess.start(bed, environment, idle))
    }
    await until(
      async () => (await listAllRuns(store, { owner: '', limit: 500 })).every(({ status }) => isTerminal(status)),
      'every orphan is finished',
    )
    const tookMs = Math.round(performance.now() - startedAt)
    const ends = await Promise.all(recoverers.map((recoverer) => recoverer.close()))
    const violations = ends.flatMap(({ code, errors }) => (code === 0 ? [] : [`a recoverer ended with ${code}: ${errors}`]))
    return { tookMs, violations: [...violations, ...(await violationsOfGrants(environment, orphanCount))] }
  } finally {
    for (const recoverer of recoverers) await recoverer.kill()
    await store.close()
    await bed.tearDown(environment)
  }
}

/** Starts runs, and claims them for a worker that does not exist. */
async function leaveOrphans(environment: Environment, count: number): Promise<void> {
  const store = await environment.store.open()
  const hf = await open(store, { worker: false })
  await Promise.all(Array.from({ length: count }, (_, n) => hf.start('oneStep', undefined, { id: `orphan-${n}` })))
  await hf.close()
  await store.claim({ workerId: 'gone', leaseMs: 500, limit: count, workflows: [{ name: 'oneStep', version: 1 }] })
  await store.close()
}

async function violationsOfGrants(environment: Environment, count: number): Promise<string[]> {
  const dump = await environment.store.dump()
  const violations = violationsInDump(dump)
  if (dump.runs.length !== count) violations.push(`there are ${dump.runs.length} runs, ${count} were left`)
  const recovered = dump.threads.flatMap(({ log }) => log).filter(({ type }) => type === 'run_recovered')
  const grants = countBy(recovered, ({ runId }) => runId ?? '')
  for (const { id, status, epoch } of dump.runs) {
    if (status !== 'completed' || grants.get(id) !== 1) violations.push(`${id} is ${status} after ${grants.get(id)} recoveries`)
    if (epoch !== 2) violations.push(`${id} is at epoch ${epoch}`)
  }
  return violations
}
