// History: timeline, stateAt and blame in a thread of 100,000 events beside plain reads, what forks cost, and explore
//
// Options: --only=sqlite, postgres, redis or explore, --events=N (default 100,000), --thread=FILE (an exported thread instead of a made one),
// --rounds=N (default 9), --strict (a missed target is exit code 1).

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open, workflow } from 'holdfast'
import { explore } from 'holdfast/testing'
import { readingsOf } from './history/calls.ts'
import { copyInto, makeOriginal, type Original, openStore, readOriginal } from './history/copies.ts'
import { forkPoints, measureForkSize, measureForkTime } from './history/forks.ts'
import { type PlainReads, plainReadsOf } from './history/plain-reads.ts'
import { type Measured, measureReading, type Place, type Reading } from './history/readings.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { placesOf } from './measuring/places.ts'
import { Scorecard } from './measuring/scorecard.ts'
import { formatSpread, spreadOf } from './measuring/spread.ts'

const only = optionOf('only')
const rounds = Math.max(3, Number(optionOf('rounds') ?? 9))
const coldRounds = Math.max(3, Math.ceil(rounds / 2))
const events = Number(optionOf('events') ?? 100_000)
const scorecard = new Scorecard()
const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))

printMachine(folder)
console.log('settings  durability full, defaults otherwise; no worker; everything in one process, servers on the same cores')
try {
  if (only !== 'explore') await measureStores()
  if (only === undefined || only === 'explore') await measureExplore()
  console.log(`
not measured
  A network between this process and the server, a cold disk, other work on the store meanwhile.`)
  printLoad('end')
  scorecard.print()
} finally {
  rmSync(folder, { recursive: true, force: true })
}

async function measureStores(): Promise<void> {
  const file = optionOf('thread')
  const long = file === undefined ? await makeOriginal(events) : await readOriginal(file)
  const short = await makeOriginal(10_000)
  describeThread('long', long)
  describeThread('short', short)
  console.log(`
reading   ms of the call; beside it, in turn, plain reads of the bytes that it can't do without, and the call / each of them:
            client    the rows, by the database's own client
            contract  the same, read and verified through the contract of the store, nothing decoded
            parsed    the same, each content inflated where it is deflated, and parsed as JSON: the least that a program does that wants the values
          cpu: processor time of this thread, in ms: of the call, of the contract's read, of the parsed one
            a page of the timeline: all records of its checkpoints; a later one also the heads of all records before it, and the state there
            buckets: all records. stateAt: the last snapshot and the changes after it. blame: the state, and the changes back to the last
            writer that it tells, to the beginning where there are fewer than it looks for
          warm: a client that has asked before; cold: the first call of a client that was just opened`)
  for (const [name, openPlaces] of Object.entries(placesOf)) {
    if (only !== undefined && only !== name) continue
    const places = await openPlaces(folder)
    try {
      console.log(`\n${places.description}`)
      await measureStore(name, { url: places.next(), original: long }, { url: places.next(), original: short })
    } finally {
      await places.close()
    }
  }
}

async function measureStore(name: string, long: Place, short: Place): Promise<void> {
  for (const place of [long, short]) await copyInto(place.url, place.original)
  const plain = await (plainReadsOf[name] as (typeof plainReadsOf)[string])(long.url, long.original.whole.thread.threadId)
  try {
    await measureReadings(name, long, plain)
    await measureForks(name, { long, short }, plain)
  } finally {
    await plain.close()
  }
}

async function measureReadings(name: string, place: Place, plain: PlainReads): Promise<void> {
  const store = await openStore(place.url)
  const hf = await open(store, { worker: false })
  const { shown, states } = await readingsOf(hf, place.original)
  await hf.close()
  await store.close()
  for (const reading of shown) {
    const warm = await measureReading(reading, { ...place, plain, rounds, isCold: false })
    printReading(reading, 'warm', warm)
    judge(name, reading, warm)
    if (reading.isPromised)
      printReading(reading, 'cold', await measureReading(reading, { ...place, plain, rounds: coldRounds, isCold: true }))
  }
  const sweep: Measured[] = []
  for (const reading of states) sweep.push(await measureReading(reading, { ...place, plain, rounds: 3, isCold: false }))
  const middles = (of: (measured: Measured) => number) => spreadOf(sweep.map(of))
  const ratios = middles(({ ratio }) => ratio.parsed.median)
  console.log(
    `  stateAt of ${states.length} checkpoints from the first tenth to the end, each the middle of 3: ${formatSpread(
      middles(({ ms }) => ms.call.median),
      1,
      'checkpoints',
    )} ms, ` +
      `cpu ${formatSpread(
        middles(({ cpuMs }) => cpuMs.call),
        1,
        'checkpoints',
      )} ms; / contract ${formatSpread(
        middles(({ ratio }) => ratio.contract.median),
        2,
        'checkpoints',
      )}, ` +
      `/ parsed ${formatSpread(ratios, 2, 'checkpoints')}, by processor time ${formatSpread(
        middles(({ cpuMs }) => cpuMs.call / cpuMs.parsed),
        2,
        'checkpoints',
      )}`,
  )
  if (name !== 'redis') scorecard.atMost(`${name}: stateAt of any checkpoint, the worst / plain read, parsed`, ratios.max, 3)
}

function printReading({ name }: Reading, how: string, { ms, ratio, cpuMs, bytes }: Measured): void {
  const plain = (['client', 'contract', 'parsed'] as const).map(
    (way) => `${way} ${ms[way].median.toFixed(1).padStart(6)} (${formatSpread(ratio[way], 2, '×').replace(/, \d+ ×/, '')})`,
  )
  const cpu = [cpuMs.call, cpuMs.contract, cpuMs.parsed].map((one) => one.toFixed(1)).join(', ')
  console.log(
    `  ${name.padEnd(46)} ${how}  ${formatSpread(ms.call, 1, 'calls').padEnd(32)} ms; ${kilobytes(bytes).padStart(8)}: ${plain.join(', ')}; cpu ${cpu}`,
  )
}

function judge(name: string, reading: Reading, { ms, ratio, cpuMs }: Measured): void {
  if (!reading.isPromised || name === 'redis') return
  const byCpu = (way: 'contract' | 'parsed') => `${(cpuMs.call / cpuMs[way]).toFixed(2)} × by processor time`
  scorecard.atMost(`${name}: ${reading.name} / plain read`, ratio.contract.median, 3, byCpu('contract'))
  if (reading.isDecoded === true)
    scorecard.atMost(`${name}: ${reading.name} / plain read, parsed`, ratio.parsed.median, 3, byCpu('parsed'))
  if (reading.aimMs !== undefined)
    scorecard.atMost(
      `${name}: ${reading.name}, ms`,
      ms.call.median,
      reading.aimMs,
      `an aim; ${cpuMs.call.toFixed(0)} ms of processor time`,
    )
}

async function measureForks(name: string, { long, short }: { long: Place; short: Place }, plain: PlainReads): Promise<void> {
  const points = { long: forkPoints(long.original), short: forkPoints(short.original) }
  for (const [what, at] of Object.entries(points.long)) {
    const { grown, log, state, tape } = await measureForkSize({ ...long, plain }, at)
    const size = log / (state + tape)
    console.log(
      `  fork ${what}: its records ${kilobytes(log)}, the store grows by ${kilobytes(grown)}; the state encoded ${kilobytes(state)}, the tape where it was ${kilobytes(tape)}: ` +
        `${size.toFixed(2)} × and ${(grown / (state + tape)).toFixed(2)} ×`,
    )
    scorecard.atMost(`${name}: bytes of a fork ${what} / state and tape`, Math.max(size, grown / (state + tape)), 1.3)
  }
  for (const what of ['between runs', 'in a run'] as const) {
    const times = await measureForkTime({ ...long, at: points.long[what] }, { ...short, at: points.short[what] }, rounds)
    console.log(
      `  time of a fork ${what}: ${formatSpread(times.long, 1, 'forks')} ms in the long thread, ${formatSpread(times.short, 1, 'forks')} ms in the short one; ratio ${formatSpread(times.ratio, 2, 'rounds')}`,
    )
    scorecard.atMost(`${name}: time of a fork ${what}, long thread / short thread`, times.ratio.median, 1.5)
  }
}

/** Single crash points of twenty steps, in memory. */
async function measureExplore(): Promise<void> {
  const twenty = workflow('twenty', async (ctx) => {
    let sum = 0
    for (let i = 0; i < 20; i++) sum += await ctx.step(`step-${i}`, async () => i)
    return sum
  })
  for (const faults of [['crash'], undefined] as const) {
    const times: number[] = []
    let cases = 0
    for (let round = -1; round < 5; round++) {
      const startedAt = performance.now()
      const report = await explore({ workflow: twenty, ...(faults !== undefined && { faults }) })
      if (report.failures.length > 0) throw new Error(String(report))
      cases = report.cases.length
      if (round >= 0) times.push((performance.now() - startedAt) / 1_000)
    }
    const spread = spreadOf(times)
    const what = faults === undefined ? 'crashes, lost answers and stalls' : 'crashes'
    console.log(
      `\nexplore, a workflow of 20 steps in memory, single ${what}: ${cases} cases in ${formatSpread(spread, 2, 'times')} s`,
    )
    scorecard.atMost(`explore: single ${what} of 20 steps, s`, spread.median, 3)
  }
}

function describeThread(name: string, { whole, longRun }: Original): void {
  const sum = (of: (record: (typeof whole.log)[number]) => { readonly length: number } | null) =>
    whole.log.reduce((total, record) => total + (of(record)?.length ?? 0), 0)
  const snapshots = whole.snapshots.reduce((total, { state }) => total + state.length, 0)
  console.log(
    `${name.padEnd(9)} thread: ${whole.log.length} events, ${whole.checkpoints.length} checkpoints, ${whole.runs.length} runs, the longest ${longRun.lastSeq - longRun.firstSeq + 1} events; ` +
      `data ${kilobytes(sum(({ payload }) => payload))}, changes ${kilobytes(sum(({ patch }) => patch))}, ${whole.snapshots.length} snapshots ${kilobytes(snapshots)} (deflated)`,
  )
}

function kilobytes(bytes: number): string {
  return `${(bytes / 1_024).toFixed(0)} kB`
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
