import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { patience } from '../patience.ts'
import { type CrashTestBed, inLanes } from './bed/crash-test-bed.ts'
import { describeFault, type Fault } from './bed/fault.ts'
import type { DurableStore } from './bed/store-address.ts'
import type { StoreDump } from './bed/store-dump.ts'
import { WorkerProcess } from './bed/worker-process.ts'
import type { StoreFixture } from './fixtures/store-fixtures.ts'
import { violationsInDump } from './rules/store-contents.ts'
import type { AllWritesInput } from './workflows/all-writes.ts'
import type { EffectClass } from './workflows/recorded-calls.ts'

const leaseMs = patience(700)

/** Where the holder of a run is stopped. When it resumes, its next action is a write, or soon leads to one. */
export interface ZombiePoint {
  readonly fault: Fault
  readonly effect: EffectClass
  readonly insideMs?: number
  /** The function had returned, so `lease_lost` is not thrown to it. */
  readonly isAfterTheEnd?: boolean
}

const before = (type: Extract<Fault, { at: 'write' }>['type'], step: string | null): Fault => ({
  at: 'write',
  type,
  step,
  when: 'before',
})

/** The points that exist on a store: without SQL there is no transaction. */
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
  readonly violations: readonly string[]
}

/** Stops holders until their lease has expired, lets others finish their runs, wakes the holders up, and compares. */
export async function wakeZombies(
  bed: CrashTestBed,
  options: {
    points: readonly ZombiePoint[]
    laneCount?: number
    /** How long after its lease a run may be without a holder. Checked only on a quiet machine. */
    takeoverMs?: number
    onCycle?: () => void
  },
): Promise<ZombieResult> {
  const { points, laneCount = 6, takeoverMs, onCycle = () => {} } = options
  const violations: string[] = []
  await inLanes(points, laneCount, async (point) => {
    violations.push(
      ...(await wakeZombie(bed, point, { ...(takeoverMs !== undefined && { takeoverMs }) })).map(
        (sentence) => `${describeFault(point.fault)} (${point.effect}): ${sentence}`,
      ),
    )
    onCycle()
  })
  return { cycles: points.length, violations }
}

/** One cycle. The zombie also holds a second run, which only it can execute. `failure` may also be a blocked event loop, in ms. */
export async function wakeZombie(
  bed: CrashTestBed,
  point: ZombiePoint,
  { failure = 'SIGSTOP', takeoverMs = Number.POSITIVE_INFINITY }: { failure?: 'SIGSTOP' | number; takeoverMs?: number } = {},
): Promise<string[]> {
  const environment = await bed.setUp()
  const enough = join(environment.folder, 'enough')
  const { effect, insideMs = 0 } = point
  const run = { workflow: 'allWrites', id: 'main', threadId: 'main', input: { effect, insideMs } satisfies AllWritesInput }
  // Real time: the lease has to expire while the holder is stopped.
  const shared = { leaseMs, clockOffsetMs: 0 }
  const first = {
    ...{ ...shared, number: 1, fault: point.fault, failure, isWorker: true, resolvesUnsure: false },
    runs: [run, { workflow: 'untilFileExists', id: 'other', threadId: 'other', input: { until: enough } }],
  } as const
  const second = { ...shared, number: 2, runs: [run], workflows: ['allWrites'] }
  const zombie = await WorkerProcess.start(bed, environment, first)
  const violations: string[] = []
  try {
    await zombie.untilNoted(({ kind }) => kind === 'fault', 'the zombie meets its fault')
    if (failure === 'SIGSTOP') await zombie.untilStopped()
    const successorAt = Date.now()
    const successor = await WorkerProcess.start(bed, environment, second)
    const { code, errors } = await successor.ended
    if (code !== 0) return [`the successor ended with ${code}: ${errors.slice(-1_000)}`]
    const left = await environment.store.dump()
    zombie.resume()
    if (point.isAfterTheEnd !== true)
      await zombie.untilNoted((note) => note.kind === 'thrown' && note.run === 'main', 'the zombie receives lease_lost')
    writeFileSync(enough, '')
    const { code: ownCode, errors: ownErrors } = await closeWhenDone(zombie, environment.store)
    if (ownCode !== 0) violations.push(`the zombie ended with ${ownCode}: ${ownErrors.slice(-1_000)}`)
    const found = await environment.store.dump()
    violations.push(
      ...violationsInDump(found),
      ...differences(left, found),
      ...violationsOfTakeover(found, zombie, successorAt + leaseMs + takeoverMs),
      ...violationsOfWaking(zombie, point, { found, kind: bed.kind }),
    )
    const acted = [...environment.account.acted.values()]
    if (acted.some((times) => times > 1)) violations.push(`the effect happened ${acted} times`)
    if (environment.account.calls.length > 2) violations.push(`the effect was sent ${environment.account.calls.length} times`)
    return violations
  } catch (error) {
    return [...violations, String(error)]
  } finally {
    await zombie.kill()
    await bed.tearDown(environment)
  }
}

/** The zombie's other run must complete by itself; then the process is told to close. */
async function closeWhenDone(zombie: WorkerProcess, store: StoreFixture): Promise<{ code: number | null; errors: string }> {
  for (let looks = 0; looks < 100; looks++) {
    const { runs } = await store.watch()
    if (runs.find(({ id }) => id === 'other')?.status === 'completed') break
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  return zombie.close()
}

/** Nothing of the zombie was written: log, runs and operations of that thread are what the successor left. */
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

function violationsOfTakeover(found: StoreDump, zombie: WorkerProcess, latestAt: number): string[] {
  const log = found.threads.find(({ thread }) => thread.threadId === 'main')?.log ?? []
  const takeovers = log.filter(({ type }) => type === 'run_recovered')
  const recovered = takeovers.map(({ data }) => data as { why: string; holder: string })
  const isRight =
    recovered.length === 1 && recovered[0]?.why === 'lease_expired' && recovered[0].holder.includes(`:${zombie.pid}:`)
  const violations = isRight ? [] : [`the takeover is logged as ${JSON.stringify(recovered)}`]
  const lateMs = Math.max(...takeovers.map(({ at }) => at)) - latestAt
  if (lateMs > 0) violations.push(`the takeover came ${lateMs} ms later than promised`)
  const run = found.runs.find(({ id }) => id === 'main')
  // A run that waited for a person was claimed once more.
  if (run?.status !== 'completed' || run.epoch < 2 || run.epoch > 3)
    violations.push(`the run is ${run?.status} at epoch ${run?.epoch}`)
  return violations
}

/**
 * The zombie is alive, received `lease_lost`, and has continued its other run under its first lease. A claim that was in flight when the
 * process was stopped may have taken that run from its own process, on stores where claims take a while.
 */
function violationsOfWaking(
  zombie: WorkerProcess,
  point: ZombiePoint,
  { found, kind }: { found: StoreDump; kind: DurableStore },
): string[] {
  const violations: string[] = []
  const codes = zombie.notes().flatMap((note) => (note.kind === 'thrown' ? note.code : []))
  if (point.isAfterTheEnd !== true && !isDeepStrictEqual(codes, ['lease_lost'])) violations.push(`the zombie was thrown ${codes}`)
  const other = found.runs.find(({ id }) => id === 'other')
  if (other?.status !== 'completed' || other.epoch > (kind === 'sqlite' ? 1 : 2))
    violations.push(`the zombie's other run is ${other?.status} at epoch ${other?.epoch}`)
  return violations
}
