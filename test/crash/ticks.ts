import { type Holdfast, open } from 'holdfast'
import type { Fault } from './fault.ts'
import type { CrashResult } from './harness.ts'
import { brokenInDump, countBy } from './rules.ts'
import type { OpenedScene, Stage } from './stage.ts'
import type { StoreDump } from './store-dump.ts'
import { until, WorkerProcess } from './worker-process.ts'

const everyMs = 10_000
/** From one life to the next: leases are over, and some ticks were missed. */
const betweenLivesMs = 61_000
const schedule = 'bell'

/** Around everything that a schedule writes, and around the claims and deliveries that make it do so. */
export const faultsOfTicks: readonly Fault[] = (['before', 'after'] as const).flatMap((when): Fault[] => [
  { at: 'write', type: 'run_started', step: null, when },
  { at: 'write', type: 'timer_set', step: 'change', when },
  { at: 'write', type: 'timer_fired', step: 'change', when },
  { at: 'write', type: 'child_started', step: 'trifle', when },
  { at: 'write', type: 'signal_received', step: 'change', when },
  { at: 'act', act: 'claim', nth: 1, when },
  { at: 'act', act: 'claim', nth: 2, when },
])

export interface TickResult extends CrashResult {
  readonly ticks: number
}

/** Kills one process after another that keeps a schedule, at one fault each; a last one comes to its end. */
export async function killAtTicks(stage: Stage, faults: readonly Fault[] = faultsOfTicks): Promise<TickResult> {
  const scene = await stage.openScene()
  let offsetMs = 0
  let kills = 0
  const client = await openClient(scene, () => offsetMs)
  try {
    await client.schedules.set(schedule, { everyMs, workflow: 'trifle', ifMissed: 'all' })
    const beganAt = (await client.schedules.get(schedule)).next as number
    for (const [index, fault] of faults.entries()) {
      offsetMs += betweenLivesMs
      // A change for each: it must neither be lost nor come back.
      await client.schedules.set(schedule, { everyMs, workflow: 'trifle', ifMissed: 'all', priority: index + 1 })
      const worker = await WorkerProcess.start(stage, scene, lifeOf(index + 1, offsetMs, fault))
      const { signal, errors } = await worker.over
      if (signal !== 'SIGKILL') throw new Error(`The process did not come to its fault: ${errors}`)
      kills++
      stage.killCount++
      await scene.store.untilLeft(index + 1)
    }
    offsetMs += betweenLivesMs
    const last = await WorkerProcess.start(stage, scene, lifeOf(faults.length + 1, offsetMs, null))
    const endsAt = beganAt + faults.length * betweenLivesMs
    await until(() => hasCaughtUp(client, endsAt), 'the schedule has caught up')
    const { code, errors } = await last.close()
    const { settings } = await client.schedules.get(schedule)
    const broken = [
      ...(code === 0 ? [] : [`the last life ended with ${code}: ${errors}`]),
      ...(settings.priority === faults.length
        ? []
        : [`the schedule has priority ${settings.priority}, was set to ${faults.length}`]),
    ]
    const dump = await scene.store.dump()
    const ticks = ticksOf(dump)
    return {
      kills,
      scenes: 1,
      ticks: ticks.length,
      broken: [...broken, ...brokenInDump(dump), ...brokenTicks(dump, beganAt, endsAt)],
    }
  } finally {
    await client.close()
    await stage.closeScene(scene)
  }
}

async function openClient(scene: OpenedScene, clockOffsetMs: () => number): Promise<Holdfast> {
  const { url } = await scene.store.addressFor(0)
  return open(url, { worker: false, clock: clockOffsetMs })
}

function lifeOf(number: number, clockOffsetMs: number, fault: Fault | null) {
  return { number, clockOffsetMs, fault, runs: [], isWorker: true, decides: false } as const
}

async function hasCaughtUp(client: Holdfast, endsAt: number): Promise<boolean> {
  const { last } = await client.schedules.get(schedule)
  if (last === undefined || last.tick < endsAt) return false
  const unfinished = await client.runs.list({ workflow: 'trifle', status: ['pending', 'running', 'waiting', 'paused'], limit: 1 })
  return unfinished.items.length === 0
}

/** None is lost, none is doubled: every tick has one run, and each run was executed to its end, once. */
function brokenTicks(dump: StoreDump, beganAt: number, endsAt: number): string[] {
  const broken: string[] = []
  const ticks = new Set(ticksOf(dump))
  for (let tick = beganAt; tick <= endsAt; tick += everyMs)
    if (!ticks.has(tick)) broken.push(`tick ${new Date(tick).toISOString()} was lost`)
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
    if (workflow !== 'trifle') continue
    if (started.get(id) !== 1) broken.push(`${id} was started ${started.get(id)} times`)
    if (status !== 'completed' || done.get(id) !== 1) broken.push(`${id} is ${status}, its step was done ${done.get(id)} times`)
  }
  return broken
}

function ticksOf({ runs }: StoreDump): number[] {
  return runs.filter(({ workflow }) => workflow === 'trifle').map(({ id }) => Date.parse(id.slice(id.lastIndexOf('@') + 1)))
}
