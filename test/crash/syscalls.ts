import { createRandom } from '../../src/testing/random.ts'
import type { CrashResult } from './harness.ts'
import { brokenAnywhere } from './rules.ts'
import { inLanes, type Scene, type Stage } from './stage.ts'
import type { DurableStore } from './store-address.ts'

/** What is killed, and about how many calls of each kind it makes. */
interface Target {
  readonly isBare: boolean
  readonly runs: Scene['runs']
  readonly calls: Readonly<Record<DurableStore, readonly (readonly [weight: number, call: string, times: number])[]>>
}

const onServers = (times: number) => ({ postgres: [[1, 'write', times]], redis: [[1, 'write', times]] }) as const

/** How many calls are between two kills in a row. An effect makes 24 on SQLite, 8 of them between its event and its operation if these were two writes. */
const inARow = 6

/** Calls before the first effect. */
const firstEffectAt: Readonly<Record<DurableStore, number>> = { sqlite: 56, postgres: 1, redis: 1 }

/** All effects. */
const effectsOnly = {
  isBare: false,
  runs: [{ workflow: 'windows-neither', id: 'main', threadId: 'ops' }],
  calls: { sqlite: [[3, 'pwrite64', 175] as const, [1, 'fsync', 12] as const], ...onServers(60) },
} as const satisfies Target

/** The run that uses everything, one that is all effects, and the first run in a store that is not set up yet. */
const targets: readonly Target[] = [
  {
    isBare: false,
    runs: [{ workflow: 'everything', id: 'main', threadId: 'diary', input: { round: 1 } }],
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
 * at the n-th message to a server. strace sends the signal as the call is entered, so all is as the call before left it.
 */
export async function killAtSystemCalls(
  stage: Stage,
  { count, seed, laneCount = 2, onScene = () => {} }: { count: number; seed: number; laneCount?: number; onScene?: () => void },
): Promise<CrashResult> {
  const random = createRandom(seed)
  const killsBefore = stage.killCount
  const broken: string[] = []
  let next = 0
  const tasks = Array.from({ length: count }, (_, index) => {
    // Half of them four in a row: one of those falls between any two things that an effect writes.
    if (index % 2 === 1) {
      const { calls, ...target } = effectsOnly
      const [[, call, times]] = calls[stage.kind]
      next = index % 8 === 1 ? random.integer(firstEffectAt[stage.kind], times - 3 * inARow) : next + inARow
      return { ...target, call, nth: next }
    }
    const { calls, ...target } = random.pick(targets)
    const { call, times } = random.pickWeighted(
      calls[stage.kind].map(([weight, call, times]) => [weight, { call, times }] as const),
    )
    return { ...target, call, nth: random.integer(1, times) }
  })
  await inLanes(tasks, laneCount, async ({ call, nth: drawn, isBare, runs }) => {
    // A run that made fewer calls got through: it is played again, with a call that it does make.
    for (let nth = drawn, isHit = false; !isHit && nth >= 1; nth = Math.floor(nth / 2)) {
      const injected = `inject=${call}:signal=SIGKILL:when=${nth}`
      const strace = ['strace', '-f', '-qq', '-o', '/dev/null', '-e', `trace=${call}`, '-e', injected]
      const scene = await stage.play({ runs, isBare, nextFault: () => null, command: (life) => (life === 1 ? strace : []) })
      broken.push(...brokenAnywhere(scene).map((sentence) => `${isBare ? 'in a new store ' : ''}at ${call} ${nth}: ${sentence}`))
      isHit = scene.lives.length > 1
    }
    onScene()
  })
  return { kills: stage.killCount - killsBefore, scenes: count, broken }
}
