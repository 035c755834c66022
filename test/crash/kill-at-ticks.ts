import { type Holdfast, open } from 'holdfast'
import type { CrashTestBed, Environment } from './bed/crash-test-bed.ts'
import type { Fault } from './bed/fault.ts'
import type { StoreDump } from './bed/store-dump.ts'
import { until, WorkerProcess } from './bed/worker-process.ts'
import type { CrashResult } from './crash-harness.ts'
import { countBy } from './rules/recorded.ts'
import { violationsInDump } from './rules/store-contents.ts'

const everyMs = 10_000
/** From one process to the next: leases have expired, and ticks were missed. */
const betweenProcessesMs = 61_000
const schedule = 'bell'

/** Around everything that a schedule writes, and around the claims and deliveries that cause it. */
export const faultsOfTicks: readonly Fault[] = (['before', 'after'] as const).flatMap((when): Fault[] => [
  { at: 'write', type: 'run_started', step: null, when },
  { at: 'write', type: 'timer_set', step: 'change', when },
  { at: 'write', type: 'timer_fired', step: 'change', when },
  { at: 'write', type: 'child_started', step: 'oneStep', when },
  { at: 'write', type: 'signal_received', step: 'change', when },
  { at: 'act', act: 'claim', nth: 1, when },
  { at: 'act', act: 'claim', nth: 2, when },
])

export interface TickResult extends CrashResult {
  readonly ticks: number
}

/** Kills one process after another that executes a schedule, at one fault each; the last one completes. */
export async function killAtTicks(bed: CrashTestBed, faults: readonly Fault[] = faultsOfTicks): Promise<TickResult> {
  const environment = await bed.setUp()
  let offsetMs = 0
  let killCount = 0
  const client = await openClient(environment, () => offsetMs)
  try {
    await client.schedules.set(schedule, { everyMs, workflow: 'oneStep', ifMissed: 'all' })
    const beganAt = (await client.schedules.get(schedule)).next as number
    for (const [index, fault] of faults.entries()) {
      offsetMs += betweenProcessesMs
      // Each process finds a new setting, which must neither be lost nor reverted.
      await client.schedules.set(schedule, { everyMs, workflow: 'oneStep', ifMissed: 'all', priority: index + 1 })
      const worker = await WorkerProcess.start(bed, environment, scheduleProcess(index + 1, offsetMs, fault))
      const { signal, errors } = await worker.ended
      if (signal !== 'SIGKILL') throw new Error(`The process did not reach its fault: ${errors}`)
      killCount++
      bed.killCount++
      await environment.store.untilDisconnected(index + 1)
    }
    offsetMs += betweenProcessesMs
    const last = await WorkerProcess.start(bed, environment, scheduleProcess(faults.length + 1, offsetMs, null))
    const endsAt = beganAt + faults.length * betweenProcessesMs
    await until(() => hasCaughtUp(client, endsAt), 'the schedule has caught up')
    const { code, errors } = await last.close()
    const { settings } = await client.schedules.get(schedule)
    const violations = [
      ...(code === 0 ? [] : [`the last process ended with ${code}: ${errors}`]),
      ...(settings.priority === faults.length
        ? []
        : [`the schedule has priority ${settings.priority}, was set to ${faults.length}`]),
    ]
    const dump = await environment.store.dump()
    const ticks = ticksOf(dump)
    return {
      killCount,
      scenarioCount: 1,
      ticks: ticks.length,
      violations: [...violations, ...violationsInDump(dump), ...violationsOfTicks(dump, beganAt, endsAt)],
    }
  } finally {
    await client.close()
    await bed.tearDown(environment)
  }
}

async function openClient(environment: Environment, clockOffsetMs: () => number): Promise<Holdfast> {
  const { url } = await environment.store.addressFor(0)
  return open(url, { worker: false, clock: clockOffsetMs })
}

function scheduleProcess(number: number, clockOffsetMs: number, fault: Fault | null) {
  return { number, clockOffsetMs, fault, runs: [], isWorker: true, resolvesUnsure: false } as const
}

async function hasCaughtUp(client: Holdfast, endsAt: number): Promise<boolean> {
  const { last } = await client.schedules.get(schedule)
  if (last === undefined || last.tick < endsAt) return false
  const unfinished = await client.runs.list({
    workflow: 'oneStep',
    status: ['pending', 'running', 'waiting', 'paused'],
    limit: 1,
  })
  return unfinished.items.length === 0
}

/** Every tick has one run, and each run was executed once, to its end. */
function violationsOfTicks(dump: StoreDump, beganAt: number, endsAt: number): string[] {
  const violations: string[] = []
  const ticks = new Set(ticksOf(dump))
  for (let tick = beganAt; tick <= endsAt; tick += everyMs)
    if (!ticks.has(tick)) violations.push(`tick ${new Date(tick).toISOString()} was lost`)
  const records = dump.threads.flatMap(({ log }) => log)
  const started = countBy(
    records.filter(({ type }) => type === 'child_started'),
    ({ data }) => String(data['runId']),
  )
  const done = countBy(
    records.filter(({ type }) => type === 'step_completed'),
    ({ runId }) => runId ?? '',
  )
  for (const { id, status, workflow } of dump.runs) {
    if (workflow !== 'oneStep') continue
    if (started.get(id) !== 1) violations.push(`${id} was started ${started.get(id)} times`)
    if (status !== 'completed' || done.get(id) !== 1)
      violations.push(`${id} is ${status}, its step was done ${done.get(id)} times`)
  }
  return violations
}

function ticksOf({ runs }: StoreDump): number[] {
  return runs.filter(({ workflow }) => workflow === 'oneStep').map(({ id }) => Date.parse(id.slice(id.lastIndexOf('@') + 1)))
}
