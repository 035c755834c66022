import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { Coverage } from './coverage.ts'
import type { StoreName } from './grounds.ts'
import { printCase } from './print.ts'
import { runMany, tryCase } from './run-many.ts'
import { shrink } from './shrink.ts'

// Programs of every construct against acts and faults at random moments, judged by the contract; torture plays more of them.

/** Fixed, so that a change is to blame for what a run finds; HOLDFAST_SEED=N chooses others. */
const seed = Number(process.env['HOLDFAST_SEED'] ?? 7) * 10_000
const coverage = new Coverage()
/** Rules whose breach takes long to be seen: such programs are not made small here. */
const slow = ['stuck', 'endless', 'act_hangs', 'broken']

test.each([
  ['memory', 1_800],
  ['sqlite', 200],
] as const)(
  'whatever is done to a random program, it keeps the contract, on %s',
  { timeout: patience(300_000) },
  async (store, programs) => {
    console.log(`${programs} programs on ${store}, seeds from ${seed}`)
    expect(await play(store, programs), `seeds from ${seed}`).toEqual([])
  },
)

test('each construct meets acts, faults and stores', () => {
  const { rows } = coverage.rows()
  const rare = rows.filter(({ counts }) => counts.filter((count) => count > 0).length < counts.length / 2)
  expect(rare.map(({ name }) => name)).toEqual([])
})

/** What was wrong, the first three as small programs. */
async function play(store: StoreName, programs: number): Promise<string[]> {
  const findings = await runMany({
    ...{ store, programs, seed, lanes: 40 },
    onCase: (given, seen) => seen !== undefined && coverage.add(given, seen.journal),
    isEnough: (found) => found >= 5,
  })
  const told: string[] = []
  for (const { given, violations } of findings) {
    const rules = violations.map(({ rule, what }) => `${rule}: ${what}`).join('\n')
    const breaks = async (candidate: typeof given) =>
      (await tryCase(candidate)).violations.some(({ rule }) => violations.some((violation) => violation.rule === rule))
    const isQuick = violations.every(({ rule }) => !slow.includes(rule))
    const small = isQuick && told.length < 3 ? await shrink(given, breaks, { tries: 60, times: 1 }) : given
    told.push(`seed ${given.seed} on ${store}: ${rules}\n${printCase(small)}`)
  }
  return told
}
