// npm run torture -- [--kills N] [--zombies N] [--operations N] [--seed N] [--lanes N] [--only PART[,PART…]]
//
// The same as the crash tests, for longer: kills processes until there were so many kills, raises zombies, makes the
// store fail, compares stores, plants mutants. Prints what it does and a summary; ends with 1 when a rule was broken.

import { parseArgs } from 'node:util'
import { CrashHarness, type CrashResult } from '../crash/harness.ts'
import { Stage } from '../crash/stage.ts'
import { killAtSystemCalls } from '../crash/syscalls.ts'
import { walkWindows, windowClasses } from '../crash/windows.ts'
import { raiseZombies, zombiePoints } from '../crash/zombies.ts'
import { runMutants } from '../mutants/run-mutants.ts'
import { compareManyActs } from './compare-many-acts.ts'

const parts = ['crash', 'zombies', 'faults', 'stores', 'mutants'] as const
type Part = (typeof parts)[number]

const { values } = parseArgs({
  options: {
    kills: { type: 'string', default: '3000' },
    zombies: { type: 'string', default: '200' },
    operations: { type: 'string', default: '200000' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    lanes: { type: 'string', default: '2' },
    only: { type: 'string', default: parts.join(',') },
  },
})
const seed = Number(values.seed)
const laneCount = Number(values.lanes)
const chosen = values.only.split(',')
const unknown = chosen.filter((part) => !parts.includes(part as Part))
if (unknown.length > 0) throw new Error(`There is no part ${unknown.join(', ')}; there are ${parts.join(', ')}.`)

const summary: string[] = []
const broken: string[] = []
const startedAt = performance.now()
say(`seed ${seed}, ${chosen.join(', ')}`)
if (chosen.includes('crash')) await tortureByKills(Number(values.kills))
if (chosen.includes('zombies')) await tortureByZombies(Number(values.zombies))
if (chosen.includes('faults')) await tortureByFaults()
if (chosen.includes('stores')) await tortureByComparing(Number(values.operations))
if (chosen.includes('mutants')) await tortureByMutants()

console.log('')
for (const line of summary) console.log(line)
for (const sentence of broken) console.error(`BROKEN ${sentence}`)
console.log(`${broken.length} broken rules, seed ${seed}, ${elapsed()}`)
process.exitCode = broken.length === 0 ? 0 : 1

/** Round after round of kills everywhere, with a seed of its own each, until there were enough. */
async function tortureByKills(target: number): Promise<void> {
  const stage = await Stage.build()
  const counts = new Map<string, { kills: number; scenes: number }>()
  const take = (name: string, result: CrashResult) => {
    const { kills, scenes } = counts.get(name) ?? { kills: 0, scenes: 0 }
    counts.set(name, { kills: kills + result.kills, scenes: scenes + result.scenes })
    broken.push(...result.broken)
    say(`${stage.killCount} kills, ${broken.length} broken rules (${name})`)
  }
  try {
    const harness = await CrashHarness.prepare(stage, { laneCount })
    const isEnough = () => stage.killCount >= target || broken.length > 20
    for (let round = 0; !isEnough(); round++) {
      const ofRound = seed + round * 1_000
      take('once, at every boundary', await harness.killOnce())
      if (!isEnough()) take('again and again', await harness.killOnAndOn(40, ofRound))
      if (!isEnough()) take('crash windows of effects', await killInWindows(stage))
      if (!isEnough()) take('twice', await harness.killTwice(40, ofRound))
      if (!isEnough()) take('at system calls', await killAtSystemCalls(stage, { count: 30, seed: ofRound, laneCount }))
    }
    for (const [name, { kills, scenes }] of counts) summary.push(`kills ${name}: ${kills} in ${scenes} scenes`)
    summary.push(
      `kills in all: ${stage.killCount} real SIGKILLs over ${harness.boundaries.length} boundaries; ${bound(stage.killCount)}`,
    )
  } finally {
    stage.close()
  }
}

async function killInWindows(stage: Stage): Promise<CrashResult> {
  const outcomes = []
  for (const of of windowClasses) outcomes.push(...(await walkWindows(stage, of, { laneCount })))
  const promises = outcomes.flatMap(({ class: of, window, duplicated, missing }) => {
    const isAllowed = of === 'step' && (window === 'W3' || window === 'W4')
    return missing > 0 || (duplicated > 0 && !isAllowed) ? [`${of} ${window}: ${duplicated} duplicated, ${missing} missing`] : []
  })
  return {
    kills: outcomes.reduce((sum, { kills }) => sum + kills, 0),
    scenes: outcomes.length,
    broken: [...outcomes.flatMap((outcome) => outcome.broken), ...promises],
  }
}

async function tortureByZombies(target: number): Promise<void> {
  const stage = await Stage.build()
  try {
    const points = Array.from(
      { length: target },
      (_, index) => zombiePoints[index % zombiePoints.length] as (typeof zombiePoints)[number],
    )
    let done = 0
    const onCycle = () => {
      if (++done % 20 === 0) say(`${done} zombies`)
    }
    const result = await raiseZombies(stage, { points, laneCount: laneCount * 4, onCycle })
    broken.push(...result.broken)
    summary.push(`zombies: ${result.cycles} cycles over ${zombiePoints.length} points; ${bound(result.cycles)}`)
  } finally {
    stage.close()
  }
}

async function tortureByFaults(): Promise<void> {
  const stage = await Stage.build()
  try {
    const harness = await CrashHarness.prepare(stage, { laneCount })
    for (const strike of ['store_unavailable', 'outcome_unknown'] as const) {
      const result = await harness.failOnce(strike)
      broken.push(...result.broken)
      summary.push(`${strike}: ${result.scenes} failures of the store, one at every write`)
      say(summary.at(-1) as string)
    }
    for (const ofFailure of [0.02, 0.1]) {
      const result = await harness.failByChance(100, { ofFailure, seed })
      broken.push(...result.broken)
      summary.push(`${ofFailure * 100} % of all acts of the store fail: ${result.scenes} seeds from ${seed} on`)
      say(summary.at(-1) as string)
    }
  } finally {
    stage.close()
  }
}

async function tortureByComparing(operations: number): Promise<void> {
  try {
    const { kinds } = await compareManyActs({ operations, seed, onBatch: (done) => say(`${done} acts compared`) })
    summary.push(`stores: ${operations} acts on memory and sqlite, ${kinds} kinds of answers, no difference`)
  } catch (error) {
    broken.push(String((error as Error).message))
  }
}

async function tortureByMutants(): Promise<void> {
  const problems = await runMutants([], { say })
  broken.push(...problems)
  summary.push(`mutants: ${problems.length === 0 ? 'all caught' : `${problems.length} problems`}`)
}

/** No failure in n trials: with 95 % confidence the rate is below 3/n. */
function bound(trials: number): string {
  return broken.length === 0
    ? `none wrong, so less than ${((3 / trials) * 100).toFixed(3)} % are (95 %, 3/n)`
    : `${broken.length} broken rules`
}

function say(line: string): void {
  console.log(`${elapsed().padStart(8)}  ${line}`)
}

function elapsed(): string {
  return `${((performance.now() - startedAt) / 1000).toFixed(0)} s`
}
