import { createRandom } from '../../src/testing/random.ts'
import type { CrashResult } from './harness.ts'
import { brokenAnywhere } from './rules.ts'
import { inLanes, type Stage } from './stage.ts'

/** What is killed: the run that uses everything, one that is all effects, or the first run in a file that is not there yet. */
const acts = [
  {
    isBare: false,
    runs: [{ workflow: 'everything', id: 'main', threadId: 'diary', input: { round: 1 } }],
    writes: 320,
    flushes: 46,
  },
  { isBare: false, runs: [{ workflow: 'windows-neither', id: 'main', threadId: 'ops' }], writes: 90, flushes: 12 },
  { isBare: true, runs: [{ workflow: 'windows-idempotent', id: 'main', threadId: 'ops' }], writes: 120, flushes: 22 },
]

/**
 * Kills inside the store, where no hook reaches: at the n-th write or flush of a file, between two parts of one transaction.
 * strace sends the signal as the call is entered, so the file is as the call before left it.
 */
export async function killAtSystemCalls(
  stage: Stage,
  { count, seed, laneCount = 2, onScene = () => {} }: { count: number; seed: number; laneCount?: number; onScene?: () => void },
): Promise<CrashResult> {
  const random = createRandom(seed)
  const killsBefore = stage.killCount
  const broken: string[] = []
  const tasks = Array.from({ length: count }, () => {
    const act = random.pick(acts)
    const call = random.pickWeighted([
      [3, 'pwrite64'],
      [1, 'fsync'],
    ] as const)
    return { ...act, call, nth: random.integer(1, call === 'fsync' ? act.flushes : act.writes) }
  })
  await inLanes(tasks, laneCount, async ({ call, nth, isBare, runs }) => {
    const strace = [
      'strace',
      '-f',
      '-qq',
      '-o',
      '/dev/null',
      '-e',
      `trace=${call}`,
      '-e',
      `inject=${call}:signal=SIGKILL:when=${nth}`,
    ]
    const scene = await stage.play({ runs, isBare, nextFault: () => null, command: (life) => (life === 1 ? strace : []) })
    broken.push(...brokenAnywhere(scene).map((sentence) => `${isBare ? 'in a new file ' : ''}at ${call} ${nth}: ${sentence}`))
    onScene()
  })
  return { kills: stage.killCount - killsBefore, scenes: count, broken }
}
