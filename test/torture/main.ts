// npm run torture -- [--stores STORE[,STORE…]] [--kills N] [--zombies N] [--operations N] [--minutes N] [--opens N] [--seed N]
//   [--lanes N] [--only PART[,PART…]] [--programs N] [--rounds N] [--on FOLDER]
//
// The same as the crash tests, for longer: kills processes, as many times as asked for on each store, wakes zombies, makes
// stores fail, restarts servers under load, lets servers forget their last commits under load (`forgets`: N rounds of every way to
// forget), opens empty stores, compares stores, plants mutants, plays random programs against random acts and faults (`model`; of these
// N in memory and a ninth of it on other stores). `--on` tries the Holdfast of another checkout, in `forgets` and `model`. Prints what it
// does and a summary; exits with 1 if a rule was violated.

import { parseArgs } from 'node:util'
import { CrashTestBed } from '../crash/bed/crash-test-bed.ts'
import { type DurableStore, durableStores } from '../crash/bed/store-address.ts'
import { CrashHarness, type CrashResult, type ScenarioName } from '../crash/crash-harness.ts'
import { walkWindows, windowClasses } from '../crash/crash-windows.ts'
import { killAtSystemCalls } from '../crash/kill-at-system-calls.ts'
import { killAtTicks } from '../crash/kill-at-ticks.ts'
import { raceForOrphans } from '../crash/race-for-orphans.ts'
import { wakeZombies, type ZombiePoint, zombiePointsOn } from '../crash/wake-zombies.ts'
import { runScenario, scenarioNames } from '../forgets/scenario.ts'
import { loadTarget } from '../forgets/target.ts'
import { Coverage } from '../model/coverage.ts'
import { type StoreName, storeNames } from '../model/grounds.ts'
import { runMutants } from '../mutants/run-mutants.ts'
import { compareManyActs } from './compare-many-acts.ts'
import { emptyStores } from './empty-stores.ts'
import { openAtOnce } from './open-at-once.ts'
import { sufferOutages } from './outages.ts'
import { playModel } from './play-model.ts'

const parts = ['crash', 'zombies', 'recoverers', 'faults', 'outages', 'forgets', 'opens', 'stores', 'mutants', 'model'] as const

const { values } = parseArgs({
  options: {
    stores: { type: 'string' },
    kills: { type: 'string', default: '3000' },
    zombies: { type: 'string', default: '200' },
    operations: { type: 'string', default: '200000' },
    minutes: { type: 'string', default: '10' },
    opens: { type: 'string', default: '50' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    lanes: { type: 'string', default: '2' },
    programs: { type: 'string', default: '90000' },
    rounds: { type: 'string', default: '20' },
    on: { type: 'string' },
    only: { type: 'string', default: parts.join(',') },
  },
})
const seed = Number(values.seed)
const laneCount = Number(values.lanes)
const chosen = chooseFrom(parts, values.only, 'part')
const modelStores = chooseFrom(storeNames, values.stores ?? storeNames.join(','), 'store')
const stores = durableStores.filter((kind) => modelStores.includes(kind))
const servers = stores.filter((kind) => kind !== 'sqlite')

const summary: string[] = []
const violations: string[] = []
const startedAt = performance.now()
say(`seed ${seed}, ${chosen.join(', ')}, on ${stores.join(', ')}`)
for (const kind of stores) {
  if (chosen.includes('crash')) await onTestBed(kind, (bed) => tortureByKills(bed, Number(values.kills)))
  if (chosen.includes('zombies')) await onTestBed(kind, (bed) => tortureByZombies(bed, Number(values.zombies)))
  if (chosen.includes('recoverers')) await onTestBed(kind, tortureByOrphans)
  if (chosen.includes('faults')) await onTestBed(kind, tortureByFaults)
}
for (const kind of servers) {
  if (chosen.includes('outages')) await tortureByOutages(kind, Number(values.minutes))
  if (chosen.includes('opens')) await tortureByOpening(kind, Number(values.opens))
}
if (chosen.includes('forgets')) await tortureByForgetting(Number(values.rounds))
if (chosen.includes('stores')) await tortureByComparing(Number(values.operations))
if (chosen.includes('mutants')) await tortureByMutants()
if (chosen.includes('model')) await tortureByPrograms(Number(values.programs), Math.min(600, Number(values.kills)))

console.log('')
for (const line of summary) console.log(line)
for (const sentence of violations) console.error(`VIOLATION ${sentence}`)
console.log(`${violations.length} violations, seed ${seed}, ${elapsed()}`)
process.exit(violations.length === 0 ? 0 : 1)

async function onTestBed(kind: DurableStore, torture: (bed: CrashTestBed) => Promise<void>): Promise<void> {
  const bed = await CrashTestBed.create(kind)
  try {
    await torture(bed)
  } finally {
    await bed.close()
  }
}

/** Round after round of kills everywhere, each with another seed, until there were enough. */
async function tortureByKills(bed: CrashTestBed, target: number): Promise<void> {
  const counts = new Map<string, { kills: number; scenarios: number }>()
  const take = (name: string, result: CrashResult) => {
    const { kills, scenarios } = counts.get(name) ?? { kills: 0, scenarios: 0 }
    counts.set(name, { kills: kills + result.killCount, scenarios: scenarios + result.scenarioCount })
    note(bed.kind, result.violations)
    say(`${bed.kind}: ${bed.killCount} kills, ${violations.length} violations (${name})`)
  }
  const harness = await CrashHarness.prepare(bed, { laneCount })
  const waitsForOthers = await CrashHarness.prepare(bed, { laneCount, scenario: 'waitsForOthers' })
  const notifiesOthers = await CrashHarness.prepare(bed, { laneCount, scenario: 'notifiesOthers' })
  const remembers = await CrashHarness.prepare(bed, { laneCount, scenario: 'remembers' })
  const savesArtifacts = await CrashHarness.prepare(bed, { laneCount, scenario: 'savesArtifacts' })
  const agent = await CrashHarness.prepare(bed, { laneCount, scenario: 'agent' })
  const isEnough = () => bed.killCount >= target || violations.length > 20
  for (let round = 0; !isEnough(); round++) {
    const ofRound = seed + round * 1_000
    take('once, at every boundary', await harness.killOnce())
    if (!isEnough()) take('of a run that waits for others', await waitsForOthers.killOnce())
    if (!isEnough()) take('of a run that notifies others', await notifiesOthers.killOnce())
    if (!isEnough()) take('of a run that remembers', await remembers.killOnce())
    if (!isEnough()) take('of a run that saves artifacts', await savesArtifacts.killOnce())
    if (!isEnough()) take('of an agent', await agent.killOnce())
    if (!isEnough()) take('at ticks of a schedule', await killAtTicks(bed))
    if (!isEnough()) take('repeatedly', await harness.killRepeatedly(40, ofRound))
    if (!isEnough()) take('of a run that waits for others, repeatedly', await waitsForOthers.killRepeatedly(10, ofRound))
    if (!isEnough()) take('crash windows of effects', await killInWindows(bed))
    for (const one of [harness, waitsForOthers, notifiesOthers, remembers, savesArtifacts, agent])
      if (!isEnough()) take('twice', await one.killTwice(40, ofRound))
    if (!isEnough()) take('at system calls', await killAtSystemCalls(bed, { count: 30, seed: ofRound, laneCount }))
  }
  for (const [name, { kills, scenarios }] of counts)
    summary.push(`${bed.kind}, kills ${name}: ${kills} in ${scenarios} scenarios`)
  const length = [harness, waitsForOthers, notifiesOthers, remembers, savesArtifacts, agent].reduce(
    (sum, { boundaries }) => sum + boundaries.length,
    0,
  )
  summary.push(`${bed.kind}, kills in all: ${bed.killCount} real SIGKILLs over ${length} boundaries; ${bound(bed.killCount)}`)
}

async function killInWindows(bed: CrashTestBed): Promise<CrashResult> {
  const outcomes = []
  for (const of of windowClasses) outcomes.push(...(await walkWindows(bed, of, { laneCount })))
  const promises = outcomes.flatMap(({ class: of, window, duplicated, missing }) => {
    const isAllowed = of === 'step' && (window === 'W3' || window === 'W4')
    return missing > 0 || (duplicated > 0 && !isAllowed) ? [`${of} ${window}: ${duplicated} duplicated, ${missing} missing`] : []
  })
  return {
    killCount: outcomes.reduce((sum, { killCount }) => sum + killCount, 0),
    scenarioCount: outcomes.length,
    violations: [...outcomes.flatMap((outcome) => outcome.violations), ...promises],
  }
}

async function tortureByZombies(bed: CrashTestBed, target: number): Promise<void> {
  const kinds = zombiePointsOn(bed.kind)
  const points = Array.from({ length: target }, (_, index) => kinds[index % kinds.length] as ZombiePoint)
  let done = 0
  const onCycle = () => {
    if (++done % 20 === 0) say(`${bed.kind}: ${done} zombies`)
  }
  const result = await wakeZombies(bed, { points, laneCount: laneCount * 4, takeoverMs: 5_000, onCycle })
  note(bed.kind, result.violations)
  summary.push(`${bed.kind}, zombies: ${result.cycles} cycles over ${kinds.length} points; ${bound(result.cycles)}`)
}

async function tortureByOrphans(bed: CrashTestBed): Promise<void> {
  for (let round = 1; round <= 10; round++) {
    const result = await raceForOrphans(bed, { recovererCount: 16, orphanCount: 1_000 })
    note(bed.kind, result.violations)
    say(`${bed.kind}: 16 recoverers, 1,000 orphans, ${result.tookMs} ms`)
  }
  summary.push(`${bed.kind}, recoverers: 10 times 16 processes and 1,000 orphans; ${bound(10_000)}`)
}

async function tortureByFaults(bed: CrashTestBed): Promise<void> {
  for (const scenario of ['allFeatures', 'waitsForOthers', 'notifiesOthers', 'remembers', 'savesArtifacts', 'agent'] as const)
    await tortureByFaultsOf(bed, scenario)
}

async function tortureByFaultsOf(bed: CrashTestBed, scenario: ScenarioName): Promise<void> {
  const harness = await CrashHarness.prepare(bed, { laneCount, scenario })
  const take = (result: CrashResult, what: string) => {
    note(bed.kind, result.violations)
    summary.push(`${bed.kind}, ${scenario}, ${what}`)
    say(summary.at(-1) as string)
  }
  for (const failure of ['store_unavailable', 'outcome_unknown'] as const) {
    const result = await harness.failOnce(failure)
    take(result, `${failure}: ${result.scenarioCount} failures of the store, one at every write`)
  }
  for (const probability of [0.02, 0.1]) {
    const result = await harness.failByChance(100, { probability, seed })
    take(result, `${probability * 100} % of all calls of the store fail: ${result.scenarioCount} seeds from ${seed} on`)
  }
}

async function tortureByOutages(kind: 'postgres' | 'redis', minutes: number): Promise<void> {
  const onRestart = (nth: number) => {
    if (nth % 10 === 0) say(`${kind}: ${nth} restarts`)
  }
  const { restarts, runs, steps, effects, ...result } = await sufferOutages(kind, { seconds: minutes * 60, seed, onRestart })
  note(kind, result.violations)
  const outcome = result.violations.length === 0 ? '0 lost, 0 doubled, 0 stuck' : `${result.violations.length} violations`
  summary.push(`${kind}, outages: ${restarts} restarts under ${runs} runs, ${steps} steps, ${effects} effects; ${outcome}`)
  say(summary.at(-1) as string)
}

/** Every way in which a store forgets, round after round, each with another seed. */
async function tortureByForgetting(rounds: number): Promise<void> {
  const canBeImaged = (await loadTarget(values.on)).createOpenMemoryStore() !== null
  if (!canBeImaged) say(`${values.on} has no memory store that can be imaged: left out`)
  const scenarios = scenarioNames.filter((name) => modelStores.some((store) => name.startsWith(store)))
  for (const scenario of scenarios.filter((name) => canBeImaged || !name.startsWith('memory'))) {
    const sums = new Map<string, number>()
    const violationsBefore = violations.length
    for (let round = 0; round < rounds; round++) {
      const ofRound = seed + round * 1_000
      const verdict = await runScenario(scenario, { seed: ofRound, ...(values.on !== undefined && { on: values.on }) })
      for (const [figure, count] of Object.entries(verdict.figures)) sums.set(figure, (sums.get(figure) ?? 0) + count)
      for (const sentence of verdict.violations) {
        violations.push(`${scenario}, seed ${ofRound}: ${sentence}`)
        console.error(`VIOLATION ${violations.at(-1)}`)
      }
      say(`${scenario}: ${JSON.stringify(verdict.figures)}, ${verdict.violations.length} violations`)
    }
    const figures = [...sums].map(([figure, count]) => `${figure} ${count}`).join(', ')
    summary.push(`${scenario}, ${rounds} rounds: ${figures}; ${violations.length - violationsBefore} violations`)
  }
}

async function tortureByOpening(kind: 'postgres' | 'redis', times: number): Promise<void> {
  let done = 0
  const onStore = () => {
    if (++done % 10 === 0) say(`${kind}: ${done} empty stores opened`)
  }
  note(kind, await openAtOnce(await emptyStores[kind](times), { onStore }))
  summary.push(`${kind}, opens: ${times} empty stores, each opened by 20 processes at once`)
}

async function tortureByComparing(operations: number): Promise<void> {
  try {
    let passing = 0
    const { kinds } = await compareManyActs({
      operations,
      seed,
      onBatch: (done) => say(`${done} acts compared`),
      onPassing: (difference) => {
        passing++
        say(`differed, and did not when the same acts were repeated: ${difference}`)
      },
    })
    summary.push(
      `stores: ${operations} acts on memory, sqlite, postgres and redis, ${kinds} kinds of answers, no lasting difference, ${passing} that passed`,
    )
  } catch (error) {
    violations.push(String((error as Error).message))
  }
}

async function tortureByMutants(): Promise<void> {
  const problems = await runMutants([], { say })
  violations.push(...problems)
  summary.push(`mutants: ${problems.length === 0 ? 'all caught' : `${problems.length} problems`}`)
}

/** So many random programs in memory, a ninth of that on the other stores, and on each of them as many as `kills` with real kills. */
async function tortureByPrograms(programs: number, kills: number): Promise<void> {
  const coverage = new Coverage()
  const play = async (store: StoreName, count: number, isKilled: boolean) => {
    const on = values.on === undefined ? {} : { on: values.on }
    const result = await playModel({ ...{ store, programs: count, seed, processes: laneCount, kills: isKilled, say }, ...on })
    coverage.merge(result.coverage.toJSON())
    for (const sentence of result.wrong) {
      violations.push(sentence)
      console.error(`VIOLATION ${sentence}`)
    }
    summary.push(
      `${store}, ${result.played} programs${isKilled ? ' with SIGKILL' : ''}: ${result.wrong.length} broke the contract`,
    )
  }
  if (modelStores.includes('memory')) await play('memory', programs, false)
  for (const store of stores) {
    await play(store, Math.ceil(programs / 9 / durableStores.length), false)
    await play(store, kills, true)
  }
  console.log(coverage.print(kills > 0 && stores.length > 0 ? ['SIGKILL'] : []))
  const missing = coverage.missing()
  summary.push(
    `model: ${missing.length === 0 ? 'each construct met each act, fault and store' : `never met: ${missing.join(', ')}`}`,
  )
}

/** Printed at once as well, because the summary may be hours away. */
function note(kind: DurableStore, sentences: readonly string[]): void {
  for (const sentence of sentences) {
    violations.push(`${kind}: ${sentence}`)
    console.error(`VIOLATION ${kind}: ${sentence}`)
  }
}

/** No failure in n trials: with 95 % confidence the rate is below 3/n. */
function bound(trials: number): string {
  return violations.length === 0
    ? `none wrong, so less than ${((3 / trials) * 100).toFixed(3)} % are (95 %, 3/n)`
    : `${violations.length} violations`
}

function chooseFrom<Name extends string>(all: readonly Name[], list: string, what: string): Name[] {
  const names = list.split(',')
  const unknown = names.filter((name) => !all.includes(name as Name))
  if (unknown.length > 0) throw new Error(`There is no ${what} ${unknown.join(', ')}; there are ${all.join(', ')}.`)
  return all.filter((name) => names.includes(name))
}

function say(line: string): void {
  console.log(`${elapsed().padStart(8)}  ${line}`)
}

function elapsed(): string {
  return `${((performance.now() - startedAt) / 1000).toFixed(0)} s`
}
