import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { patience } from '../patience.ts'
import { describeFault, type Fault } from './fault.ts'
import type { LentStore } from './grounds/ground.ts'
import { brokenInDump } from './rules.ts'
import { inLanes, type Stage } from './stage.ts'
import type { DurableStore } from './store-address.ts'
import type { StoreDump } from './store-dump.ts'
import { WorkerProcess } from './worker-process.ts'
import type { EffectClass, ErrandInput } from './workflows.ts'

const leaseMs = patience(700)

/** Where the holder of a run is stopped. When it wakes up, what it does next is a write, or soon becomes one. */
export interface ZombiePoint {
  readonly fault: Fault
  readonly effect: EffectClass
  readonly insideMs?: number
  /** The function had returned: there is nobody to throw `lease_lost` to. */
  readonly isAfterTheEnd?: boolean
}

const before = (type: Extract<Fault, { at: 'write' }>['type'], step: string | null): Fault => ({
  at: 'write',
  type,
  step,
  when: 'before',
})

/** The points that there are on a store: without SQL there is no transaction. */
export function zombiePointsOn(kind: DurableStore): readonly ZombiePoint[] {
  return zombiePoints.filter(({ fault }) => kind !== 'redis' || fault.at !== 'act' || fault.act !== 'transact')
}

/** Between two steps, inside a step, between an effect's call and its record, and before every kind of write. */
const zombiePoints: readonly ZombiePoint[] = [
  { effect: 'neither', fault: { at: 'write', type: 'step_completed', step: 'before', when: 'after' } },
  { effect: 'neither', fault: { at: 'body', path: 'inside' } },
  { effect: 'neither', fault: { at: 'answer', name: 'send' } },
  { effect: 'check', fault: { at: 'answer', name: 'send' } },
  { effect: 'idempotent', fault: { at: 'answer', name: 'send' } },
  { effect: 'check', fault: before('step_completed', 'before') },
  { effect: 'check', fault: before('effect_intended', 'send') },
  { effect: 'idempotent', fault: before('effect_completed', 'send') },
  { effect: 'check', fault: before('timer_set', 'sleep') },
  { effect: 'check', fault: before('timer_fired', 'sleep') },
  { effect: 'check', fault: { at: 'act', act: 'transact', nth: 1, when: 'before' } },
  { effect: 'check', fault: before('value_recorded', 'checkpoint') },
  { effect: 'check', fault: before('run_completed', null), isAfterTheEnd: true },
  { effect: 'check', fault: { at: 'act', act: 'renew', nth: 1, when: 'before' }, insideMs: patience(600) },
]

export interface ZombieResult {
  readonly cycles: number
  readonly broken: readonly string[]
}

/** Stops holders past their lease, lets others finish, wakes them up, and compares. */
export async function raiseZombies(
  stage: Stage,
  options: {
    points: readonly ZombiePoint[]
    laneCount?: number
    /** How long after its lease a run may be without a holder: a promise, which is only checked where nothing else is at work. */
    takeoverMs?: number
    onCycle?: () => void
  },
): Promise<ZombieResult> {
  const { points, laneCount = 6, takeoverMs, onCycle = () => {} } = options
  const broken: string[] = []
  await inLanes(points, laneCount, async (point) => {
    broken.push(
      ...(await raiseZombie(stage, point, { ...(takeoverMs !== undefined && { takeoverMs }) })).map(
        (sentence) => `${describeFault(point.fault)} (${point.effect}): ${sentence}`,
      ),
    )
    onCycle()
  })
  return { cycles: points.length, broken }
}

/** One cycle. The zombie also holds a second run, which only it can execute. `strike` may also be a blocked event loop, in ms. */
export async function raiseZombie(
  stage: Stage,
  point: ZombiePoint,
  { strike = 'SIGSTOP', takeoverMs = Number.POSITIVE_INFINITY }: { strike?: 'SIGSTOP' | number; takeoverMs?: number } = {},
): Promise<string[]> {
  const scene = await stage.openScene()
  const enough = join(scene.folder, 'enough')
  const { effect, insideMs = 0 } = point
  const errand = { workflow: 'errand', id: 'main', threadId: 'main', input: { effect, insideMs } satisfies ErrandInput }
  // Real time: that the lease runs out while the holder sleeps is the point.
  const shared = { leaseMs, clockOffsetMs: 0 }
  const first = {
    ...{ ...shared, number: 1, fault: point.fault, strike, isWorker: true, decides: false },
    runs: [errand, { workflow: 'bystander', id: 'other', threadId: 'other', input: { until: enough } }],
  } as const
  const second = { ...shared, number: 2, runs: [errand], workflows: ['errand'] }
  const zombie = await WorkerProcess.start(stage, scene, first)
  const broken: string[] = []
  try {
    await zombie.untilNoted(({ kind }) => kind === 'struck', 'the zombie is struck')
    if (strike === 'SIGSTOP') await zombie.untilStopped()
    const heirAt = Date.now()
    const heir = await WorkerProcess.start(stage, scene, second)
    const { code, errors } = await heir.over
    if (code !== 0) return [`the heir ended with ${code}: ${errors.slice(-1_000)}`]
    const left = await scene.store.dump()
    zombie.goOn()
    if (point.isAfterTheEnd !== true)
      await zombie.untilNoted((note) => note.kind === 'thrown' && note.run === 'main', 'the zombie is told')
    writeFileSync(enough, '')
    const { code: ownCode, errors: ownErrors } = await closeWhenDone(zombie, scene.store)
    if (ownCode !== 0) broken.push(`the zombie ended with ${ownCode}: ${ownErrors.slice(-1_000)}`)
    const found = await scene.store.dump()
    broken.push(
      ...brokenInDump(found),
      ...differences(left, found),
      ...brokenTakeover(found, zombie, heirAt + leaseMs + takeoverMs),
      ...brokenWaking(zombie, point, { found, kind: stage.kind }),
    )
    const acted = [...scene.account.acted.values()]
    if (acted.some((times) => times > 1)) broken.push(`the effect happened ${acted} times`)
    if (scene.account.calls.length > 2) broken.push(`the effect was sent ${scene.account.calls.length} times`)
    return broken
  } catch (error) {
    return [...broken, String(error)]
  } finally {
    await zombie.kill()
    await stage.closeScene(scene)
  }
}

/** The zombie's other run must come to its end by itself; then the process is asked to close. */
async function closeWhenDone(zombie: WorkerProcess, store: LentStore): Promise<{ code: number | null; errors: string }> {
  for (let looks = 0; looks < 100; looks++) {
    const { runs } = await store.watch()
    if (runs.find(({ id }) => id === 'other')?.status === 'completed') break
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  return zombie.close()
}

/** Nothing of the zombie's got in: log, runs and operations of that thread are what the heir left. */
function differences(left: StoreDump, found: StoreDump): string[] {
  const of = (dump: StoreDump) => ({
    run: dump.runs.find(({ id }) => id === 'main'),
    thread: dump.threads.find(({ thread }) => thread.threadId === 'main'),
    operations: dump.operations.filter(({ runId }) => runId === 'main').map(({ evidence: _, ...operation }) => operation),
    orders: dump.orders.filter(({ run }) => run === 'main'),
  })
  const [before, after] = [of(left), of(found)]
  return (['run', 'thread', 'operations', 'orders'] as const)
    .filter((part) => !isDeepStrictEqual(before[part], after[part]))
    .map((part) => `the zombie changed the ${part}: ${JSON.stringify(before[part])} became ${JSON.stringify(after[part])}`)
}

function brokenTakeover(found: StoreDump, zombie: WorkerProcess, latestAt: number): string[] {
  const log = found.threads.find(({ thread }) => thread.threadId === 'main')?.log ?? []
  const takeovers = log.filter(({ type }) => type === 'run_recovered')
  const recovered = takeovers.map(({ data }) => data as { why: string; holder: string })
  const isRight =
    recovered.length === 1 && recovered[0]?.why === 'lease_expired' && recovered[0].holder.includes(`:${zombie.pid}:`)
  const broken = isRight ? [] : [`the takeover is logged as ${JSON.stringify(recovered)}`]
  const lateMs = Math.max(...takeovers.map(({ at }) => at)) - latestAt
  if (lateMs > 0) broken.push(`the takeover came ${lateMs} ms later than promised`)
  const run = found.runs.find(({ id }) => id === 'main')
  // A run that waited for a person was claimed once more.
  if (run?.status !== 'completed' || run.epoch < 2 || run.epoch > 3)
    broken.push(`the run is ${run?.status} at epoch ${run?.epoch}`)
  return broken
}

/**
 * The zombie lives, was told `lease_lost`, and has gone on with its other run under its first lease. Where a claim takes a
 * while to reach the store, one that was on its way when the process was stopped may have taken the run from its own process.
 */
function brokenWaking(
  zombie: WorkerProcess,
  point: ZombiePoint,
  { found, kind }: { found: StoreDump; kind: DurableStore },
): string[] {
  const broken: string[] = []
  const codes = zombie.notes().flatMap((note) => (note.kind === 'thrown' ? note.code : []))
  if (point.isAfterTheEnd !== true && !isDeepStrictEqual(codes, ['lease_lost'])) broken.push(`the zombie was thrown ${codes}`)
  const other = found.runs.find(({ id }) => id === 'other')
  if (other?.status !== 'completed' || other.epoch > (kind === 'sqlite' ? 1 : 2))
    broken.push(`the zombie's other run is ${other?.status} at epoch ${other?.epoch}`)
  return broken
}
