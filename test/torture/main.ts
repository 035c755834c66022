// npm run torture -- [--stores STORE[,STORE…]] [--kills N] [--zombies N] [--operations N] [--minutes N] [--opens N] [--seed N]
//   [--lanes N] [--only PART[,PART…]] [--programs N] [--rounds N] [--on FOLDER]
//
// The same as the crash tests, for longer: kills processes until there were so many kills on each store, raises zombies, makes
// stores fail, restarts servers under load, lets servers forget their last commits under load (`forgets`: N rounds of every way to
// forget), opens empty stores, compares stores, plants mutants, plays random programs against random acts and faults (`model`; of these
// N in memory and a ninth of it on other stores). `--on` tries the Holdfast of another checkout, in `forgets` and `model`. Prints what it
// does and a summary; ends with 1 when a rule was broken.

import { parseArgs } from 'node:util'
import { CrashHarness, type CrashResult } from '../crash/harness.ts'
import { raceForOrphans } from '../crash/recoverers.ts'
import { Stage } from '../crash/stage.ts'
import { type DurableStore, durableStores } from '../crash/store-address.ts'
import { killAtSystemCalls } from '../crash/syscalls.ts'
import { killAtTicks } from '../crash/ticks.ts'
import { walkWindows, windowClasses } from '../crash/windows.ts'
import { raiseZombies, type ZombiePoint, zombiePointsOn } from '../crash/zombies.ts'
import { playScene, sceneNames } from '../forgets/scene.ts'
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
const broken: string[] = []
const startedAt = performance.now()
say(`seed ${seed}, ${chosen.join(', ')}, on ${stores.join(', ')}`)
for (const kind of stores) {
  if (chosen.includes('crash')) await onStage(kind, (stage) => tortureByKills(stage, Number(values.kills)))
  if (chosen.includes('zombies')) await onStage(kind, (stage) => tortureByZombies(stage, Number(values.zombies)))
  if (chosen.includes('recoverers')) await onStage(kind, tortureByOrphans)
  if (chosen.includes('faults')) await onStage(kind, tortureByFaults)
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
for (const sentence of broken) console.error(`BROKEN ${sentence}`)
console.log(`${broken.length} broken rules, seed ${seed}, ${elapsed()}`)
process.exit(broken.length === 0 ? 0 : 1)

async function onStage(kind: DurableStore, torture: (stage: Stage) => Promise<void>): Promise<void> {
  const stage = await Stage.build(kind)
  try {
    await torture(stage)
  } finally {
    await stage.close()
  }
}

/** Round after round of kills everywhere, with a seed of its own each, until there were enough. */
async function tortureByKills(stage: Stage, target: number): Promise<void> {
  const counts = new Map<string, { kills: number; scenes: number }>()
  const take = (name: string, result: CrashResult) => {
    const { kills, scenes } = counts.get(name) ?? { kills: 0, scenes: 0 }
    counts.set(name, { kills: kills + result.kills, scenes: scenes + result.scenes })
    note(stage.kind, result.broken)
    say(`${stage.kind}: ${stage.killCount} kills, ${broken.length} broken rules (${name})`)
  }
  const harness = await CrashHarness.prepare(stage, { laneCount })
  const envoy = await CrashHarness.prepare(stage, { laneCount, cast: 'envoy' })
  const herald = await CrashHarness.prepare(stage, { laneCount, cast: 'herald' })
  const isEnough = () => stage.killCount >= target || broken.length > 20
  for (let round = 0; !isEnough(); round++) {
    const ofRound = seed + round * 1_000
    take('once, at every boundary', await harness.killOnce())
    if (!isEnough()) take('of a run that waits for others', await envoy.killOnce())
    if (!isEnough()) take('of a run of which others hear', await herald.killOnce())
    if (!isEnough()) take('at ticks of a schedule', await killAtTicks(stage))
    if (!isEnough()) take('again and again', await harness.killOnAndOn(40, ofRound))
    if (!isEnough()) take('of a run that waits for others, again and again', await envoy.killOnAndOn(10, ofRound))
    if (!isEnough()) take('crash windows of effects', await killInWindows(stage))
    for (const one of [harness, envoy, herald]) if (!isEnough()) take('twice', await one.killTwice(40, ofRound))
    if (!isEnough()) take('at system calls', await killAtSystemCalls(stage, { count: 30, seed: ofRound, laneCount }))
  }
  for (const [name, { kills, scenes }] of counts) summary.push(`${stage.kind}, kills ${name}: ${kills} in ${scenes} scenes`)
  const length = [harness, envoy, herald].reduce((sum, { boundaries }) => sum + boundaries.length, 0)
  summary.push(
    `${stage.kind}, kills in all: ${stage.killCount} real SIGKILLs over ${length} boundaries; ${bound(stage.killCount)}`,
  )
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

async function tortureByZombies(stage: Stage, target: number): Promise<void> {
  const kinds = zombiePointsOn(stage.kind)
  const points = Array.from({ length: target }, (_, index) => kinds[index % kinds.length] as ZombiePoint)
  let done = 0
  const onCycle = () => {
    if (++done % 20 === 0) say(`${stage.kind}: ${done} zombies`)
  }
  const result = await raiseZombies(stage, { points, laneCount: laneCount * 4, takeoverMs: 5_000, onCycle })
  note(stage.kind, result.broken)
  summary.push(`${stage.kind}, zombies: ${result.cycles} cycles over ${kinds.length} points; ${bound(result.cycles)}`)
}

async function tortureByOrphans(stage: Stage): Promise<void> {
  for (let round = 1; round <= 10; round++) {
    const result = await raceForOrphans(stage, { recovererCount: 16, orphanCount: 1_000 })
    note(stage.kind, result.broken)
    say(`${stage.kind}: 16 recoverers, 1,000 orphans, ${result.tookMs} ms`)
  }
  summary.push(`${stage.kind}, recoverers: 10 times 16 processes and 1,000 orphans; ${bound(10_000)}`)
}

async function tortureByFaults(stage: Stage): Promise<void> {
  for (const cast of ['everything', 'envoy', 'herald'] as const) await tortureByFaultsOf(stage, cast)
}

async function tortureByFaultsOf(stage: Stage, cast: 'everything' | 'envoy' | 'herald'): Promise<void> {
  const harness = await CrashHarness.prepare(stage, { laneCount, cast })
  const take = (result: CrashResult, what: string) => {
    note(stage.kind, result.broken)
    summary.push(`${stage.kind}, ${cast}, ${what}`)
    say(summary.at(-1) as string)
  }
  for (const strike of ['store_unavailable', 'outcome_unknown'] as const) {
    const result = await harness.failOnce(strike)
    take(result, `${strike}: ${result.scenes} failures of the store, one at every write`)
  }
  for (const ofFailure of [0.02, 0.1]) {
    const result = await harness.failByChance(100, { ofFailure, seed })
    take(result, `${ofFailure * 100} % of all acts of the store fail: ${result.scenes} seeds from ${seed} on`)
  }
}

async function tortureByOutages(kind: 'postgres' | 'redis', minutes: number): Promise<void> {
  const onRestart = (nth: number) => {
    if (nth % 10 === 0) say(`${kind}: ${nth} restarts`)
  }
  const { restarts, runs, steps, effects, ...result } = await sufferOutages(kind, { seconds: minutes * 60, seed, onRestart })
  note(kind, result.broken)
  const outcome = result.broken.length === 0 ? '0 lost, 0 doubled, 0 stuck' : `${result.broken.length} broken rules`
  summary.push(`${kind}, outages: ${restarts} restarts under ${runs} runs, ${steps} steps, ${effects} effects; ${outcome}`)
  say(summary.at(-1) as string)
}

/** Every way in which a store forgets, again and again, each round with a seed of its own. */
async function tortureByForgetting(rounds: number): Promise<void> {
  const canBeImaged = (await loadTarget(values.on)).createOpenMemoryStore() !== null
  if (!canBeImaged) say(`${values.on} has no memory store that can be imaged: left out`)
  const scenes = sceneNames.filter((name) => modelStores.some((store) => name.startsWith(store)))
  for (const scene of scenes.filter((name) => canBeImaged || !name.startsWith('memory'))) {
    const sums = new Map<string, number>()
    const brokenBefore = broken.length
    for (let round = 0; round < rounds; round++) {
      const ofRound = seed + round * 1_000
      const verdict = await playScene(scene, { seed: ofRound, ...(values.on !== undefined && { on: values.on }) })
      for (const [figure, count] of Object.entries(verdict.figures)) sums.set(figure, (sums.get(figure) ?? 0) + count)
      for (const sentence of verdict.broken) {
        broken.push(`${scene}, seed ${ofRound}: ${sentence}`)
        console.error(`BROKEN ${broken.at(-1)}`)
      }
      say(`${scene}: ${JSON.stringify(verdict.figures)}, ${verdict.broken.length} broken rules`)
    }
    const figures = [...sums].map(([figure, count]) => `${figure} ${count}`).join(', ')
    summary.push(`${scene}, ${rounds} rounds: ${figures}; ${broken.length - brokenBefore} broken rules`)
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
        say(`differed, and did not when the same acts were done again: ${difference}`)
      },
    })
    summary.push(
      `stores: ${operations} acts on memory, sqlite, postgres and redis, ${kinds} kinds of answers, no lasting difference, ${passing} that passed`,
    )
  } catch (error) {
    broken.push(String((error as Error).message))
  }
}

async function tortureByMutants(): Promise<void> {
  const problems = await runMutants([], { say })
  broken.push(...problems)
  summary.push(`mutants: ${problems.length === 0 ? 'all caught' : `${problems.length} problems`}`)
}

/** So many random programs in memory, a ninth of that on the other stores, and on each of them as many as `kills` with real kills. */
async function tortureByPrograms(programs: number, kills: number): Promise<void> {
  const coverage = new Coverage()
  const play = async (store: StoreName, count: number, isKilled: boolean) => {
    const on = values.on === undefined ? {} : { on: values.on }
    const result = await playModel({ ...{ store, programs: count, seed, processes: laneCount, kills: isKilled, say }, ...on })
    coverage.merge(result.coverage.toJSON())
    for (const sentence of result.broken) {
      broken.push(sentence)
      console.error(`BROKEN ${sentence}`)
    }
    summary.push(
      `${store}, ${result.played} programs${isKilled ? ' with SIGKILL' : ''}: ${result.broken.length} broke the contract`,
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

/** Said at once, too: it may be hours to the summary. */
function note(kind: DurableStore, sentences: readonly string[]): void {
  for (const sentence of sentences) {
    broken.push(`${kind}: ${sentence}`)
    console.error(`BROKEN ${kind}: ${sentence}`)
  }
}

/** No failure in n trials: with 95 % confidence the rate is below 3/n. */
function bound(trials: number): string {
  return broken.length === 0
    ? `none wrong, so less than ${((3 / trials) * 100).toFixed(3)} % are (95 %, 3/n)`
    : `${broken.length} broken rules`
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
