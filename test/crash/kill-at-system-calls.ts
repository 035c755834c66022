import { createRandom } from '../../src/testing/random.ts'
import { type CrashTestBed, inLanes, type Scenario } from './bed/crash-test-bed.ts'
import type { DurableStore } from './bed/store-address.ts'
import type { CrashResult } from './crash-harness.ts'
import { violationsAnywhere } from './rules/violations.ts'

/** What is killed, and about how many calls of each kind it makes. */
interface Target {
  readonly isBare: boolean
  readonly runs: Scenario['runs']
  readonly calls: Readonly<Record<DurableStore, readonly (readonly [weight: number, call: string, times: number])[]>>
}

const onServers = (times: number) => ({ postgres: [[1, 'write', times]], redis: [[1, 'write', times]] }) as const

/** Calls between consecutive kills. An effect makes 24 on SQLite; if its event and its operation were two writes, 8 would be between them. */
const inARow = 6

/** Calls before the first effect. */
const firstEffectAt: Readonly<Record<DurableStore, number>> = { sqlite: 56, postgres: 1, redis: 1 }

/** Nothing but effects. */
const effectsOnly = {
  isBare: false,
  runs: [{ workflow: 'windows-neither', id: 'main', threadId: 'ops' }],
  calls: { sqlite: [[3, 'pwrite64', 175] as const, [1, 'fsync', 12] as const], ...onServers(60) },
} as const satisfies Target

/** The run that uses all features, one with nothing but effects, and the first run in a store that is not set up yet. */
const targets: readonly Target[] = [
  {
    isBare: false,
    runs: [{ workflow: 'allFeatures', id: 'main', threadId: 'diary', input: { round: 1 } }],
    calls: {
      ...{ sqlite: [[3, 'pwrite64', 320] as const, [1, 'fsync', 46] as const] },
      ...onServers(160),
    },
  },
  effectsOnly,
  {
    isBare: true,
    runs: [{ workflow: 'windows-idempotent', id: 'main', threadId: 'ops' }],
    calls: { sqlite: [[3, 'pwrite64', 120] as const, [1, 'fsync', 22] as const], ...onServers(60) },
  },
]

/**
 * Kills inside the store, where no hook reaches: at the n-th write or flush of a file, between two parts of one transaction, or
 * at the n-th message to a server. strace sends the signal when the call is entered, so everything is as the call before left it.
 */
export async function killAtSystemCalls(
  bed: CrashTestBed,
  {
    count,
    seed,
    laneCount = 2,
    onScenario = () => {},
  }: { count: number; seed: number; laneCount?: number; onScenario?: () => void },
): Promise<CrashResult> {
  const random = createRandom(seed)
  const killsBefore = bed.killCount
  const violations: string[] = []
  let next = 0
  const tasks = Array.from({ length: count }, (_, index) => {
    // Half of them are series of four, one of which falls between any two writes of an effect.
    if (index % 2 === 1) {
      const { calls, ...target } = effectsOnly
      const [[, call, times]] = calls[bed.kind]
      next = index % 8 === 1 ? random.integer(firstEffectAt[bed.kind], times - 3 * inARow) : next + inARow
      return { ...target, call, nth: next }
    }
    const { calls, ...target } = random.pick(targets)
    const { call, times } = random.pickWeighted(
      calls[bed.kind].map(([weight, call, times]) => [weight, { call, times }] as const),
    )
    return { ...target, call, nth: random.integer(1, times) }
  })
  await inLanes(tasks, laneCount, async ({ call, nth: drawn, isBare, runs }) => {
    // A run that made fewer calls was not hit: again, with a call that it does make.
    for (let nth = drawn, isHit = false; !isHit && nth >= 1; nth = Math.floor(nth / 2)) {
      const injected = `inject=${call}:signal=SIGKILL:when=${nth}`
      const strace = ['strace', '-f', '-qq', '-o', '/dev/null', '-e', `trace=${call}`, '-e', injected]
      const result = await bed.run({
        runs,
        isBare,
        nextFault: () => null,
        command: (processNumber) => (processNumber === 1 ? strace : []),
      })
      violations.push(
        ...violationsAnywhere(result).map((sentence) => `${isBare ? 'in a new store ' : ''}at ${call} ${nth}: ${sentence}`),
      )
      isHit = result.processes.length > 1
    }
    onScenario()
  })
  return { killCount: bed.killCount - killsBefore, scenarioCount: count, violations }
}
