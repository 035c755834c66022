// Speed on SQLite with full sync: a lone run's step, and 500 runs at once, against raw transactions with the same rows
//
// Options: --slices=N (default 9), --only=lone or --only=load, --strict (a missed target is exit code 1).

import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { open, workflow } from 'holdfast'
import { type Load, prepareLoad, runCount, stepsARun } from './measuring/engine-speed.ts'
import { Floor, recycleWal, walPages } from './measuring/floor.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { Scorecard } from './measuring/scorecard.ts'
import { formatSpread, spreadOf } from './measuring/spread.ts'

const sliceCount = Math.max(7, Number(optionOf('slices') ?? 9))
const only = optionOf('only')
const stepsASlice = 500
/** Floor and engine take turns after so many steps: short enough that both meet the machine in the same mood. */
const blockSize = 50
/** More than the 1000 pages after which SQLite copies its WAL into the database and begins it anew. */
const warmUpSteps = 1_500

const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
const scorecard = new Scorecard()
try {
  printMachine(folder)
  console.log(
    'settings  durability full (WAL, synchronous=FULL), defaults otherwise; floor and engine on two files of the same file system, in turn',
  )
  if (only !== 'load') await measureLoneStep()
  if (only !== 'lone') await measureLoad()
  console.log(`
not measured
  Other machines and disks: an fsync that is slow makes the first ratio better and one that is free makes it worse. Several processes on
  one file. Steps that do work, large results, states, effects. Postgres and Redis.`)
  printLoad('end')
  scorecard.print()
} finally {
  rmSync(folder, { recursive: true, force: true })
}

/** (a) One run, one step after the other: each pays a durable write of its own. */
async function measureLoneStep(): Promise<void> {
  const engineFile = join(folder, 'lone.db')
  const floorFile = join(folder, 'lone-floor.db')
  const slices: { floorUs: number; engineUs: number }[] = []
  let floor: Floor | undefined
  let enginePages = 0
  const lone = workflow('lone', async (ctx, input: { blocks: number }) => {
    // The first commit of a run also starts its tape; it is not a step's.
    await ctx.step('s', () => 0)
    const pagesBefore = walPages(engineFile)
    let [engineMs, floorMs] = [0, 0]
    for (let block = 0; block < input.blocks; block++) {
      const startedAt = performance.now()
      for (let i = 0; i < blockSize; i++) await ctx.step('s', () => i)
      const between = performance.now()
      floor?.write(blockSize)
      engineMs += between - startedAt
      floorMs += performance.now() - between
    }
    const steps = input.blocks * blockSize
    enginePages = (walPages(engineFile) - pagesBefore) / steps
    slices.push({ engineUs: (engineMs * 1_000) / steps, floorUs: (floorMs * 1_000) / steps })
  })
  const hf = await open(`sqlite:${engineFile}`, { workflows: [lone] })
  await hf.run(lone, { blocks: warmUpSteps / blockSize })
  floor = await Floor.open(floorFile, { like: engineFile, threads: 1 })
  floor.write(warmUpSteps)

  // Where floor and engine differ in the pages that they write, they do not write the same.
  for (const file of [engineFile, floorFile]) recycleWal(file)
  floor.write(1)
  const pagesBefore = walPages(floorFile)
  await hf.run(lone, { blocks: 4 })
  const pages = { engine: enginePages, floor: (walPages(floorFile) - pagesBefore) / (4 * blockSize) }

  slices.length = 0
  for (let slice = 0; slice < sliceCount; slice++) await hf.run(lone, { blocks: stepsASlice / blockSize })
  const wal = { floor: statSync(`${floorFile}-wal`).size, engine: statSync(`${engineFile}-wal`).size }
  await hf.close()
  floor.close()

  const floorUs = spreadOf(slices.map((slice) => slice.floorUs))
  const engineUs = spreadOf(slices.map((slice) => slice.engineUs))
  const ratios = spreadOf(slices.map((slice) => slice.engineUs / slice.floorUs))
  console.log(`
(a) a lone run's step: await ctx.step('s', () => i) in a loop
    timed: the loop inside the function, call to return; ${blockSize} steps, then ${blockSize} transactions of the floor, and so on, ${stepsASlice} of each a slice
    written: two log rows and the head of the thread in one commit, by both
  floor     ${formatSpread(floorUs, 0)} µs a transaction, ${perSecond(floorUs.median)}/s; ${pages.floor.toFixed(2)} WAL pages each, WAL ${kilobytes(wal.floor)}
  engine    ${formatSpread(engineUs, 0)} µs a step, ${perSecond(engineUs.median)}/s; ${pages.engine.toFixed(2)} WAL pages each, WAL ${kilobytes(wal.engine)}
  ratio     ${formatSpread(ratios)} engine / floor, slice by slice; ${(engineUs.median - floorUs.median).toFixed(0)} µs more`)
  scorecard.atMost(
    "a lone run's step against a raw transaction",
    ratios.median,
    1.5,
    `stretch 1.3 ${ratios.median <= 1.3 ? 'met' : 'not met'}`,
  )
}

/** (b) Many runs at once: they share durable writes. */
async function measureLoad(): Promise<void> {
  const engineFile = join(folder, 'load.db')
  const floorFile = join(folder, 'load-floor.db')
  // Runs are queued by a client without a worker. The worker learns of the workflow when the clock starts.
  const queue = await open(`sqlite:${engineFile}`, { worker: false })
  const hf = await open(`sqlite:${engineFile}`, { worker: { concurrency: runCount } })
  for (const name of ['warm-up-1', 'warm-up-2', 'warm-up-3']) await (await prepareLoad({ queue, hf, name }))()
  const floor = await Floor.open(floorFile, { like: engineFile, threads: runCount })
  floor.write(warmUpSteps)
  floor.write(10_000, 500)

  const loads: Load[] = []
  const floorRates: number[] = []
  const batchedRates: number[] = []
  let longestMs = 0
  for (let slice = 0; slice < sliceCount; slice++) {
    const runLoad = await prepareLoad({ queue, hf, name: `load-${slice}` })
    // Half of the floor before the load and half after it, so that a drift of the machine hurts both.
    let floorMs = 0
    const writeFloor = (): void => {
      const startedAt = performance.now()
      longestMs = Math.max(longestMs, floor.write(stepsASlice / 2).longestMs)
      floorMs += performance.now() - startedAt
    }
    writeFloor()
    loads.push(await runLoad())
    writeFloor()
    floorRates.push((stepsASlice * 1_000) / floorMs)
  }
  for (let slice = 0; slice < sliceCount; slice++) {
    const startedAt = performance.now()
    floor.write(5_000, 500)
    batchedRates.push(5_000_000 / (performance.now() - startedAt))
  }

  // The event loop is watched over loads that follow each other at once, without a floor that blocks it in between.
  const sustained = await Promise.all(
    Array.from({ length: 8 }, (_, index) => prepareLoad({ queue, hf, name: `sustained-${index}` })),
  )
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  for (const runLoad of sustained) await runLoad()
  delay.disable()
  await hf.close()
  await queue.close()
  floor.close()

  const steps = runCount * stepsARun
  const totalRates = loads.map(({ totalMs }) => (steps * 1_000) / totalMs)
  const stepRates = loads.map(({ stepsMs }) => (steps * 1_000) / stepsMs)
  const gains = spreadOf(totalRates.map((rate, slice) => rate / (floorRates[slice] as number)))
  const stepGains = spreadOf(stepRates.map((rate, slice) => rate / (floorRates[slice] as number)))
  const p99 = delay.percentile(99) / 1e6
  console.log(`
(b) ${runCount} runs × ${stepsARun} steps at once, worker concurrency ${runCount}
    timed: from all runs queued and durable to the last result in the caller's hands, claims and completions included
  floor     ${formatSpread(spreadOf(floorRates), 0)} steps/s, one transaction a step, ${runCount} threads in turn
  floor     ${formatSpread(spreadOf(batchedRates), 0)} steps/s, 500 steps a transaction: the most that group commit could reach
  engine    ${formatSpread(spreadOf(totalRates), 0)} steps/s in all; ${formatSpread(spreadOf(stepRates), 0)} from the first step to the last
  ratio     ${formatSpread(gains)} × the floor in all; ${formatSpread(stepGains)} × for the steps only
  loop      event-loop delay p50 ${ms(delay.percentile(50))}, p90 ${ms(delay.percentile(90))}, p99 ${ms(delay.percentile(99))}, max ${ms(delay.max)}
            over ${delay.count} samples in 8 such loads on end (resolution 1 ms, included); the longest raw transaction took ${longestMs.toFixed(1)} ms`)
  scorecard.atLeast(`${runCount} × ${stepsARun} steps against one transaction a step`, gains.median, 8)
  scorecard.atMost('p99 event-loop delay under that load, ms', p99, 50)
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}

function perSecond(us: number): string {
  return (1e6 / us).toFixed(0)
}

function kilobytes(bytes: number): string {
  return `${(bytes / 1024).toFixed(0)} kB`
}

function ms(nanoseconds: number): string {
  return `${(nanoseconds / 1e6).toFixed(1)} ms`
}
