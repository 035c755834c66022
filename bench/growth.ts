// Growth on SQLite: bytes on disk and time a turn as a state, a chat and a run become long
//
// Options: --only=state, --only=chat or --only=long, --repeats=N (default 3), --strict (a missed target is exit code 1).

import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open, workflow } from 'holdfast'
import { accountFor, bytesOnDisk } from './measuring/disk.ts'
import { Gate } from './measuring/gate.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { randomText } from './measuring/random-text.ts'
import { Scorecard } from './measuring/scorecard.ts'
import { formatSpread, type Spread, spreadOf } from './measuring/spread.ts'

const only = optionOf('only')
const repeats = Math.max(1, Number(optionOf('repeats') ?? 3))
const kilobyte = 1024
const turnCount = 1_600
const windowSize = 50
const longRunSteps = 100_000

interface Items {
  items?: string[]
}
interface Chat {
  messages?: { role: 'user' | 'assistant'; text: string }[]
}
type Way = 'step.update' | 'ctx.update'

const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
const scorecard = new Scorecard()
let fileCount = 0
try {
  printMachine(folder)
  console.log('settings  durability full (WAL, synchronous=FULL), defaults otherwise; text is random printable ASCII')
  if (only === undefined || only === 'state') {
    await measureState('step.update')
    await measureState('ctx.update')
  }
  if (only === undefined || only === 'chat') await measureChat()
  if (only === undefined || only === 'long') measureLongRun()
  console.log(`
not measured
  Text that compresses: snapshots and records above 16 KiB are deflated, those of this size are not. States that shrink or are edited in
  the middle. Many threads in one file. Retention, which comes later. Bytes that the disk writes (WAL and checkpoints), only those that stay.`)
  printLoad('end')
  scorecard.print()
} finally {
  rmSync(folder, { recursive: true, force: true })
}

/** (a) One run, each of whose steps returns nothing and adds 1 kB to the state. */
async function measureState(way: Way): Promise<void> {
  const gates = new Map<string, Gate>()
  let times: number[] = []
  const grow = workflow<{ steps: number; gatedFrom?: number }, undefined, Items>(`grow-${way}`, async (ctx, input) => {
    times = [performance.now()]
    for (let i = 0; i < input.steps; i++) {
      if (i >= (input.gatedFrom ?? Number.POSITIVE_INFINITY)) await gates.get(ctx.threadId)?.pass()
      const add = (draft: Items): void => {
        draft.items ??= []
        draft.items.push(randomText(kilobyte))
      }
      if (way === 'ctx.update') ctx.update(add)
      await ctx.step('add', (step) => {
        if (way === 'step.update') step.update(add)
      })
      times.push(performance.now())
    }
    gates.get(ctx.threadId)?.open()
    return undefined
  })

  console.log(`\n(a) one run, each step returns nothing and adds 1 kB of text to the state with ${way}`)
  const factors: number[] = []
  let file = ''
  for (const steps of [400, 800, 1_200, turnCount]) {
    file = newFile()
    const hf = await open(`sqlite:${file}`, { workflows: [grow] })
    await hf.thread('grow').run(grow, { steps })
    await hf.close()
    const bytes = bytesOnDisk(file)
    factors.push(bytes / (steps * kilobyte))
    console.log(`  N=${String(steps).padEnd(5)} ${bytes} bytes for ${steps} kB: ${(bytes / (steps * kilobyte)).toFixed(3)} ×`)
  }
  const literal = lateness(times)
  printAccount(file, turnCount * kilobyte)
  const state = await measureReading(file, 'grow', (value) => (value as Items).items?.length === turnCount)

  // The last steps of a long run and those of a short one in turn, step by step, so that the machine's moods hurt both.
  const ratios: number[] = []
  const colds: number[] = []
  for (let repeat = 0; repeat < repeats; repeat++) {
    const timeFile = newFile()
    let hf = await open(`sqlite:${timeFile}`, { workflows: [grow] })
    const [short, long] = [new Gate(), new Gate()]
    gates.set('short', short).set('long', long)
    const longFrom = turnCount - windowSize
    const runs = [
      await hf.thread('short').start(grow, { steps: 2 * windowSize, gatedFrom: windowSize }),
      await hf.thread('long').start(grow, { steps: turnCount, gatedFrom: longFrom }),
    ]
    await Promise.all([short.reached(), long.reached()])
    ratios.push(
      await inTurns(
        () => short.go(),
        () => long.go(),
      ),
    )
    await Promise.all(runs.map((run) => run.result()))

    // Cold: the worker is closed fifty steps before the end; another takes the run up and finishes it.
    gates.set('cold', new Gate())
    await hf.thread('cold').start(grow, { steps: turnCount, gatedFrom: longFrom })
    await gates.get('cold')?.reached()
    await hf.close()
    gates.delete('cold')
    hf = await open(`sqlite:${timeFile}`, { workflows: [grow] })
    const startedAt = performance.now()
    const { items } = await hf.runs.list({ threadId: 'cold' })
    await (await hf.runs.get(items[0]?.id ?? '')).result()
    colds.push(performance.now() - startedAt)
    await hf.close()
  }
  const late = spreadOf(ratios)
  console.log(
    `  time      last ${windowSize} steps / steps 51–100, warm, in turns: ${formatSpread(late, 2, 'runs')}; of one run at a time ${literal.toFixed(2)}`,
  )
  console.log(
    `  cold      the last ${windowSize} steps in another worker, the replay of ${turnCount - windowSize} included: ${formatSpread(spreadOf(colds), 0, 'runs')} ms`,
  )
  scorecard.atMost(`(a) ${way}: bytes on disk / kilobytes, worst N`, Math.max(...factors), 2.5)
  scorecard.atMost(`(a) ${way}: last 50 / 51–100`, late.median, 1.3)
  scorecard.atMost(`(a) ${way}: thread.state(), ms, warm`, state.warm.median, 20)
  scorecard.atMost(`(a) ${way}: thread.state(), ms, cold`, state.cold.median, 20)
}

/** (b) A chat: each turn is a run on one thread; its input, its step's result and the state carry the messages. */
async function measureChat(): Promise<void> {
  const chat = workflow<{ text: string }, number, Chat>('chat', async (ctx, input) => {
    const reply = await ctx.step('reply', () => randomText(kilobyte))
    ctx.update((draft) => {
      draft.messages ??= []
      draft.messages.push({ role: 'user', text: input.text }, { role: 'assistant', text: reply })
    })
    return ctx.state.messages?.length ?? 0
  })

  console.log(`\n(b) a chat of ${turnCount} turns: 1 kB in the input, 1 kB as the result of a step, both appended to the state`)
  const said = turnCount * 2 * kilobyte
  const file = newFile()
  let hf = await open(`sqlite:${file}`, { workflows: [chat] })
  const turn = async (threadId: string): Promise<number> => hf.thread(threadId).run(chat, { text: randomText(kilobyte) })
  const times = [performance.now()]
  for (let count = 1; count <= turnCount; count++) {
    const seen = await turn('chat')
    if (seen !== 2 * count) throw new Error(`turn ${count} saw ${seen} messages`)
    times.push(performance.now())
  }
  await hf.close()
  const bytes = bytesOnDisk(file)
  printAccount(file, said)
  console.log(`  in all    ${bytes} bytes for ${said / kilobyte} kB said: ${(bytes / said).toFixed(3)} ×`)
  const state = await measureReading(file, 'chat', (value) => (value as Chat).messages?.length === 2 * turnCount)

  // Later turns of the long chat and turns 51–100 of short ones in turn. In the same file: its bytes were counted above.
  const ratios: number[] = []
  const colds: number[] = []
  hf = await open(`sqlite:${file}`, { workflows: [chat] })
  await turn('chat')
  for (let repeat = 0; repeat < repeats; repeat++) {
    for (let count = 1; count <= windowSize; count++) await turn(`short-${repeat}`)
    ratios.push(
      await inTurns(
        () => turn(`short-${repeat}`),
        () => turn('chat'),
      ),
    )
  }
  await hf.close()
  for (let repeat = 0; repeat < 7; repeat++) {
    hf = await open(`sqlite:${file}`, { workflows: [chat] })
    const startedAt = performance.now()
    await turn('chat')
    colds.push(performance.now() - startedAt)
    await hf.close()
  }
  const late = spreadOf(ratios)
  console.log(
    `  time      ${windowSize} turns from turn ${turnCount} on / turns 51–100, warm, in turns: ${formatSpread(late, 2, 'times')}; last ${windowSize} / 51–100 of the one chat ${lateness(times).toFixed(2)}`,
  )
  console.log(
    `  cold      a turn after turn ${turnCount}, the first of its worker: ${formatSpread(spreadOf(colds), 1, 'turns')} ms`,
  )
  scorecard.atMost('(b) chat: bytes on disk / what was said', bytes / said, 3.5)
  scorecard.atMost('(b) chat: last 50 / 51–100', late.median, 1.3)
  scorecard.atMost('(b) chat: thread.state(), ms, warm', state.warm.median, 20)
  scorecard.atMost('(b) chat: thread.state(), ms, cold', state.cold.median, 20)
}

/** (c) A run of very many steps is killed near its end; another process takes it up. */
function measureLongRun(): void {
  const file = newFile()
  console.log(
    `\n(c) one run of ${longRunSteps} steps, killed (SIGKILL) at step ${longRunSteps - 10} and taken up by a new process`,
  )
  const startedAt = performance.now()
  const fill = runProcess('fill', file)
  if (fill.signal !== 'SIGKILL') throw new Error(`the filling process ended with ${fill.signal ?? fill.status}: ${fill.stderr}`)
  console.log(
    `  filled    in ${seconds(performance.now() - startedAt)} with durability relaxed; ${megabytes(bytesOnDisk(file))} on disk`,
  )
  const resume = runProcess('resume', file)
  const report = JSON.parse(resume.stdout) as LongRunReport
  if (!report.isRight) throw new Error('the run that was taken up gave a wrong result')
  console.log(
    `  resumed   first new step after ${seconds(report.untilLiveMs)}, result after ${seconds(report.totalMs)} (opening included)`,
  )
  console.log(
    `  memory    peak RSS ${megabytes(report.rssPeak)}, ${megabytes(report.rssBefore)} before opening: ` +
      `${((report.rssPeak - report.rssBefore) / longRunSteps / 1024).toFixed(2)} kB a step`,
  )
}

interface LongRunReport {
  readonly isRight: boolean
  readonly untilLiveMs: number
  readonly totalMs: number
  readonly rssBefore: number
  readonly rssPeak: number
}

function runProcess(act: 'fill' | 'resume', file: string) {
  const script = join(import.meta.dirname, 'measuring', 'long-run.ts')
  return spawnSync(process.execPath, [...process.execArgv, script, act, file, String(longRunSteps)], { encoding: 'utf8' })
}

/** thread.state() of a finished thread: cold in a client that was just opened, warm in one that has read it before. */
async function measureReading(
  file: string,
  threadId: string,
  isRight: (state: unknown) => boolean,
): Promise<{ cold: Spread; warm: Spread }> {
  const times: Record<'cold' | 'warm', number[]> = { cold: [], warm: [] }
  const cpuTimes: number[] = []
  for (let i = 0; i < 15; i++) {
    const hf = await open(`sqlite:${file}`, { worker: false })
    for (const how of ['cold', 'warm'] as const) {
      const cpuBefore = process.cpuUsage()
      const startedAt = performance.now()
      const state = await hf.thread(threadId).state()
      times[how].push(performance.now() - startedAt)
      const cpu = process.cpuUsage(cpuBefore)
      if (how === 'warm') cpuTimes.push((cpu.user + cpu.system) / 1_000)
      if (!isRight(state)) throw new Error('the state is not what was written')
    }
    await hf.close()
  }
  const spreads = { cold: spreadOf(times.cold), warm: spreadOf(times.warm) }
  console.log(`  state()   cold ${formatSpread(spreads.cold, 1, 'reads')} ms, warm ${formatSpread(spreads.warm, 1, 'reads')} ms,`)
  console.log(`            of processor time ${formatSpread(spreadOf(cpuTimes), 1, 'reads')} ms`)
  return spreads
}

/** Time of fifty late turns over that of fifty early ones, one of each in turn. */
async function inTurns(early: () => Promise<unknown>, late: () => Promise<unknown>): Promise<number> {
  let [earlyMs, lateMs] = [0, 0]
  for (let i = 0; i < windowSize; i++) {
    const startedAt = performance.now()
    await early()
    const between = performance.now()
    await late()
    earlyMs += between - startedAt
    lateMs += performance.now() - between
  }
  return lateMs / earlyMs
}

/** Time of the last turns over that of turns 51–100; `times` has the beginning and then the end of each turn. */
function lateness(times: readonly number[]): number {
  const span = (from: number, to: number) => (times[to] ?? Number.NaN) - (times[from] ?? Number.NaN)
  const last = times.length - 1
  return span(last - windowSize, last) / span(windowSize, 2 * windowSize)
}

function printAccount(file: string, said: number): void {
  const whole = bytesOnDisk(file)
  const accounts = accountFor(file)
  const sum = accounts.reduce((total, { bytes }) => total + bytes, 0)
  const small = accounts.filter(({ bytes }) => bytes > 0 && bytes <= 16_384)
  for (const { what, bytes } of accounts) if (bytes > 16_384) printBytes(bytes, said, what)
  printBytes(
    small.reduce((total, { bytes }) => total + bytes, 0),
    said,
    `${small.length} others of two pages at most: ${small.map(({ what }) => what.replace(/^(table|index) /, '')).join(', ')}`,
  )
  printBytes(sum, said, `together; ${whole === sum ? 'that is the whole file' : `${whole - sum} bytes are NOT accounted for`}`)
}

function printBytes(bytes: number, said: number, what: string): void {
  console.log(`    ${String(bytes).padStart(9)}  ${(bytes / said).toFixed(3)} ×  ${what}`)
}

function newFile(): string {
  return join(folder, `growth-${++fileCount}.db`)
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(2)} s`
}

function megabytes(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(1)} MB`
}
