// Timers that are overdue after a downtime: 10,000 runs wake up; how long it takes, that each fires once, how long a new run waits meanwhile
//
// Options: --store=sqlite, postgres or redis, --timers=N (default 10,000), --strict (a missed target is exit code 1).

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Holdfast, open, workflow } from 'holdfast'
import { printLoad, printMachine } from './measuring/machine.ts'
import { placesOf } from './measuring/places.ts'
import { Scorecard } from './measuring/scorecard.ts'
import { formatSpread, type Spread, spreadOf } from './measuring/spread.ts'

const timerCount = Number(optionOf('timers') ?? 10_000)
const chosen = optionOf('store')
const hourMs = 3_600_000
/** A newcomer every so often, while the timers are worked off and when nothing else is there. */
const newcomerEveryMs = 100
const scorecard = new Scorecard()
const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))

const fired = new Map<string, number>()
const sleeper = workflow('sleeper', async (ctx) => {
  await ctx.sleep(hourMs)
  fired.set(ctx.runId, (fired.get(ctx.runId) ?? 0) + 1)
})
const newcomer = workflow('newcomer', (ctx) => ctx.step('work', () => 'done'))

printMachine(folder)
console.log(
  `settings  ${timerCount} runs asleep for an hour, nobody there for two, then one worker with the defaults; a newcomer of the same queue, owner and priority every ${newcomerEveryMs} ms`,
)
try {
  for (const [name, openPlaces] of Object.entries(placesOf)) {
    if (chosen !== undefined && chosen !== name) continue
    const places = await openPlaces(folder)
    try {
      console.log(`\n${places.description}`)
      await measure(name, places.next())
    } finally {
      await places.close()
    }
  }
  console.log(`
not measured
  A network between this process and the server, several workers on one store, runs that do work once they are awake.`)
  printLoad('end')
  scorecard.print()
} finally {
  rmSync(folder, { recursive: true, force: true })
}

async function measure(name: string, url: string): Promise<void> {
  fired.clear()
  await putToSleep(url)
  const hf = await open(url, { workflows: [sleeper, newcomer], clock: 2 * hourMs })
  const startedAt = performance.now()
  const [tookMs, waits] = await Promise.all([untilAllFired(startedAt), measureNewcomers(hf, () => fired.size < timerCount)])
  await hf.queues.drain('default')
  let left = 20
  const idle = await measureNewcomers(hf, () => left-- > 0)
  const timersFired = await countFired(hf)
  await hf.close()
  const twice = [...fired.values()].filter((times) => times !== 1).length + timersFired.filter((times) => times !== 1).length
  console.log(`  all fired after   ${tookMs.toFixed(0)} ms, ${((timerCount * 1_000) / tookMs).toFixed(0)} a second
  timer_fired       ${timersFired.filter((times) => times === 1).length} runs with one, ${twice} with none or more than one
  a new run took    ${describe(spreadOf(waits))} meanwhile, from start to its result; the first of them ${waits[0]?.toFixed(0)} ms
                    ${describe(spreadOf(idle))} when nothing else was there`)
  scorecard.atMost(`${name}: timers that did not fire once`, twice, 0)
  scorecard.atMost(
    `${name}: the longest wait of a new run, as a share of the time for all timers`,
    Math.max(...waits) / tookMs,
    0.25,
  )
}

async function putToSleep(url: string): Promise<void> {
  const hf = await open(url, { workflows: [sleeper], worker: { concurrency: 500 } })
  await hf.startMany(
    Array.from({ length: timerCount }, (_, index) => ({ workflow: sleeper, options: { id: `sleeper-${index}` } })),
  )
  while ((await hf.queues.get('default')).counts.waiting < timerCount) await sleep(50)
  await hf.close()
}

async function untilAllFired(startedAt: number): Promise<number> {
  while (fired.size < timerCount) await sleep(5)
  return performance.now() - startedAt
}

/** Starts one after another, and says how long each took. */
async function measureNewcomers(hf: Holdfast, isToGoOn: () => boolean): Promise<number[]> {
  const taken: Promise<number>[] = []
  while (isToGoOn()) {
    const startedAt = performance.now()
    taken.push(hf.run(newcomer).then(() => performance.now() - startedAt))
    await sleep(newcomerEveryMs)
  }
  return Promise.all(taken)
}

async function countFired(hf: Holdfast): Promise<number[]> {
  const counts: number[] = []
  for (let index = 0; index < timerCount; index++) {
    const events = await (await hf.runs.get(`sleeper-${index}`)).events()
    counts.push(events.filter(({ type }) => type === 'timer_fired').length)
  }
  return counts
}

function describe(spread: Spread): string {
  return `${formatSpread(spread, 0, 'runs')} ms`
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
