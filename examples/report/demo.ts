// npm run demo: a report in three steps is killed in the middle of the second and taken up by another process.
// Every claim at the end is checked against the log and against what the step bodies wrote; one that fails is exit code 1.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { open, type RunEvent, type RunHandle } from 'holdfast'
import { type ReportInput, regions, report } from './report.ts'
import { claim, duration, heading, line, paint, print, quote, remark, seconds, table, title } from './screen.ts'

const deadlineMs = 30_000
const root = resolve(import.meta.dirname, '../..')
const folder = await mkdtemp(join(tmpdir(), 'holdfast-demo-'))
const url = `sqlite:${join(folder, 'demo.db')}`
const input: ReportInput = {
  topic: 'refunds',
  file: join(root, '.holdfast/demo/report.md'),
  journal: join(folder, 'journal.txt'),
}
const steps = ['load_data', 'summarize', 'write_report']
const children: ChildProcess[] = []

const tooLong = setTimeout(() => stop(`The demo took longer than ${deadlineMs / 1_000} s.`), deadlineMs)
process.once('SIGINT', () => stop('Interrupted.'))
process.once('SIGTERM', () => stop('Interrupted.'))
process.stdout.once('error', () => stop('Nobody reads what the demo says.'))

// This process starts the run and watches it; it has no worker, so it executes nothing.
const hf = await open(url, { worker: false })
try {
  await demo()
} finally {
  clearTimeout(tooLong)
  for (const child of children) child.kill('SIGKILL')
  await hf.close()
  await rm(folder, { recursive: true, force: true })
}

async function demo(): Promise<void> {
  title('Holdfast', 'a report in three steps, killed in the middle of the second')
  const run = await hf.start(report, input, { id: 'refunds-2026-11' })
  const [queued] = await run.events()
  const startedAt = queued?.at ?? 0
  const watching = watch(run, startedAt)

  const first = startWorker('Process 1', run.id)
  await untilHalfSummarized(run)
  const killedAt = await kill(first, startedAt)

  const second = startWorker('Process 2', run.id)
  watching.takenOverFrom = { pid: first.pid ?? 0, killedAt }
  const output = await run.result()
  const [exitCode] = second.exitCode === null ? await once(second, 'exit') : [second.exitCode]
  await watching.ended

  const events = await run.events()
  const executed = readJournal()
  const story: Story = { firstPid: first.pid ?? 0, secondPid: second.pid ?? 0, killedAt, startedAt, events, executed }
  showExecuted(story)
  showLog(story)
  heading('The report', relative(process.cwd(), output.file))
  print()
  quote(output.text)
  const [text, { mtimeMs }] = [await readFile(output.file, 'utf8'), await stat(output.file)]
  showClaims([
    ...claimsOf(story),
    { holds: output.text === text && mtimeMs > killedAt, text: 'The report on disk is the result that the run recorded.' },
    { holds: exitCode === 0, text: 'The second process ended by itself.' },
  ])
}

/** Starts a process with a worker. It finds the run in the store, whoever left it there. */
function startWorker(name: string, runId: string): ChildProcess {
  const program = join(import.meta.dirname, 'worker.ts')
  const child = spawn(process.execPath, [...process.execArgv, program, url, runId], { stdio: ['ignore', 'ignore', 'inherit'] })
  children.push(child)
  heading(name, `pid ${child.pid}`)
  return child
}

/** The start of `summarize` is in the log, and its body has done half of its work. */
async function untilHalfSummarized(run: RunHandle): Promise<void> {
  const isBegun = async () => (await run.events()).some(({ type, step }) => type === 'step_started' && step === 'summarize')
  while (summarizedRegions() < regions.length / 2 || !(await isBegun())) await sleep(10)
}

async function kill(child: ChildProcess, startedAt: number): Promise<number> {
  const exited = once(child, 'exit')
  child.kill('SIGKILL')
  const killedAt = Date.now()
  const [, signal] = await exited
  if (signal !== 'SIGKILL') throw new Error(`Process ${child.pid} ended before it was killed.`)
  line(
    killedAt - startedAt,
    'killed',
    `kill -9 ${child.pid}`,
    `in summarize, ${summarizedRegions()} of ${regions.length} regions done`,
  )
  return killedAt
}

// ── what is shown while it happens ───────────────────────────────────────────

interface Watching {
  takenOverFrom: { readonly pid: number; readonly killedAt: number } | null
  readonly ended: Promise<void>
}

/** Shows the run's events as they arrive from whichever process writes them. */
function watch(run: RunHandle, startedAt: number): Watching {
  const watching: Watching = { takenOverFrom: null, ended: follow() }
  return watching

  async function follow(): Promise<void> {
    const begun = new Set<string>()
    const completed = new Set<string>()
    for await (const event of run.watch()) {
      const atMs = event.at - startedAt
      const step = event.step ?? ''
      if (event.type === 'step_started') line(atMs, 'begun', step, begun.has(step) ? 'again, from its start' : '')
      if (event.type === 'step_started') begun.add(step)
      if (event.type === 'step_completed') line(atMs, 'done', step, duration(event.durationMs ?? 0))
      if (event.type === 'step_completed') completed.add(step)
      if (event.type === 'run_recovered') showTakeover(event, atMs, completed)
      if (event.type === 'run_completed') line(atMs, 'done', 'completed')
    }
  }

  function showTakeover(event: RunEvent, atMs: number, completed: ReadonlySet<string>): void {
    const { why, leaseUntil } = event.data as { why: string; leaseUntil: number }
    const { pid, killedAt } = watching.takenOverFrom ?? { pid: 0, killedAt: event.at }
    line(atMs, 'taken', 'run_recovered', `${duration(event.at - killedAt)} after the kill, the start of Node included`)
    if (why === 'holder_died') remark(`from pid ${pid}, dead with ${seconds(leaseUntil - event.at)} s of its lease left`)
    else remark(`from pid ${pid}, whose lease ran out`)
    for (const step of completed) line(null, 'done', step, 'from the log, not executed again')
  }
}

// ── what is shown afterwards ─────────────────────────────────────────────────

interface Story {
  readonly firstPid: number
  readonly secondPid: number
  readonly startedAt: number
  readonly killedAt: number
  readonly events: readonly RunEvent[]
  readonly executed: readonly Executed[]
}

/** That a step's body began, in which process. */
interface Executed {
  readonly pid: number
  readonly step: string
}

function showExecuted({ events, executed, firstPid }: Story): void {
  heading('What was executed', 'each body notes itself in a file, results are in the log')
  print()
  const rows = steps.map((step) => {
    const bodies = executed.filter((body) => body.step === step)
    const where = bodies.map(({ pid }) => `process ${pid === firstPid ? 1 : 2}`).join(', ')
    return [step, String(bodies.length), where, String(count(events, 'step_completed', step))]
  })
  table([{ name: 'step' }, { name: 'bodies', isNumber: true }, { name: 'in' }, { name: 'results', isNumber: true }], rows)
}

function showLog({ events, startedAt, killedAt, firstPid }: Story): void {
  heading('The event log')
  print()
  const toRow = ({ seq, at, type, step, attempt, durationMs }: RunEvent) => [
    String(seq),
    `${seconds(at - startedAt)} s`,
    type,
    step ?? '',
    attempt === undefined ? '' : String(attempt),
    durationMs === undefined ? '' : duration(durationMs),
  ]
  table(
    [
      { name: 'seq', isNumber: true },
      { name: 'time', isNumber: true },
      { name: 'type' },
      { name: 'step' },
      { name: 'attempt', isNumber: true },
      { name: 'duration', isNumber: true },
    ],
    [
      ...events.filter(({ at }) => at <= killedAt).map(toRow),
      `kill -9 ${firstPid}`,
      ...events.filter(({ at }) => at > killedAt).map(toRow),
    ],
  )
}

interface Claim {
  readonly holds: boolean
  readonly text: string
}

function claimsOf({ events, executed, firstPid, secondPid, killedAt }: Story): Claim[] {
  const recovered = events.find(({ type }) => type === 'run_recovered')
  const { holder = '', running = [] } = (recovered?.data ?? {}) as { holder?: string; running?: string[] }
  const bodiesOf = (step: string) => executed.filter((body) => body.step === step).map(({ pid }) => pid)
  const results = steps.map((step) => count(events, 'step_completed', step))
  return [
    {
      holds: bodiesOf('load_data').join() === String(firstPid) && count(events, 'step_started', 'load_data') === 1,
      text: 'load_data was executed once. After the kill its result came from the log.',
    },
    {
      holds: bodiesOf('summarize').join() === `${firstPid},${secondPid}` && running.join() === 'step:summarize#1',
      text: 'summarize was running at the kill: it was executed again, from its start.',
    },
    { holds: results.every((found) => found === 1), text: 'Each step has exactly one recorded result.' },
    {
      holds: holder.includes(`:${firstPid}:`) && (recovered?.at ?? 0) >= killedAt,
      text: 'The log says who was replaced, and why.',
    },
    { holds: events.every(({ seq }, index) => seq === index + 1), text: 'The log has no gap.' },
  ]
}

function showClaims(claims: readonly Claim[]): void {
  heading('Shown and checked')
  print()
  for (const { holds, text } of claims) claim(holds ? 'done' : 'wrong', holds ? text : `NOT TRUE: ${text}`)
  print()
  if (claims.every(({ holds }) => holds)) {
    print(` ${paint(['green', 'bold'], 'A process died, another went on. Nothing recorded was lost or done again.')}`)
  } else {
    print(` ${paint(['red', 'bold'], 'Something that this demo claims does not hold; see above.')}`)
    process.exitCode = 1
  }
  print()
}

function count(events: readonly RunEvent[], type: RunEvent['type'], step: string): number {
  return events.filter((event) => event.type === type && event.step === step).length
}

// ── what the step bodies wrote ───────────────────────────────────────────────

function readJournal(): Executed[] {
  const lines = existsSync(input.journal) ? readFileSync(input.journal, 'utf8').trim().split('\n') : []
  return lines.map((text) => {
    const [pid = '', step = ''] = text.split(' ')
    return { pid: Number(pid), step }
  })
}

/** How many regions the process that is at work, or was killed at it, has summarized. */
function summarizedRegions(): number {
  return readJournal().filter(({ step }) => step.startsWith('summarize:')).length
}

function stop(message: string): never {
  for (const child of children) child.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
  console.error(`\n${message}`)
  process.exit(1)
}
