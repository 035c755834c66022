import { createRandom } from '../../src/testing/random.ts'
import type { CrashResult } from './harness.ts'
import { brokenAnywhere } from './rules.ts'
import { inLanes, type Stage } from './stage.ts'

const runs = [{ workflow: 'everything', id: 'main', threadId: 'diary', input: { round: 1 } }]

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
  const tasks = Array.from({ length: count }, () => ({
    call: random.pickWeighted([[4, 'pwrite64'], [1, 'fsync']] as const),
    nth: random.integer(1, 400),
    // The tables are created under fire too, now and then.
    isBare: false,
  }))
  await inLanes(tasks, laneCount, async ({ call, isBare, ...task }) => {
    const nth = call === 'fsync' ? 1 + (task.nth % 120) : task.nth
    const scene = await stage.play({
      runs,
      isBare,
      nextFault: () => null,
      command: (life) =>
        life === 1 ? ['strace', '-f', '-qq', '-o', '/dev/null', '-e', `trace=${call}`, '-e', `inject=${call}:signal=SIGKILL:when=${nth}`] : [],
    })
    broken.push(...brokenAnywhere(scene).map((sentence) => `at ${call} ${nth}: ${sentence}`))
    onScene()
  })
  return { kills: stage.killCount - killsBefore, scenes: count, broken }
}
