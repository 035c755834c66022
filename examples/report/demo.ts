// npm run demo: a report from five sources. Its process is killed while it gathers; the analysis brings three more down; a chart
// fails; a person approves; it is sent once. Every claim at the end is checked; one that does not hold is exit code 1.

import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { open, type RunEvent, type RunHandle, recoveryPlan } from 'holdfast'
import { sources } from './gather.ts'
import { Mailer } from './mailer.ts'
import { type Report, report } from './report.ts'
import { bar, claim, duration, heading, line, paint, print, remark, title } from './screen.ts'

/** Ends a demo that hangs; on a busy machine each of its processes takes a while to start. */
const deadlineMs = 600_000
const target = resolve(import.meta.dirname, '../..', '.holdfast/demo')
const folder = await mkdtemp(join(tmpdir(), 'holdfast-demo-'))
const url = `sqlite:${join(folder, 'demo.db')}`
const journal = join(folder, 'journal.txt')
/** How many processes there may be: one is killed, three run out of memory, the last one finishes. */
const maxWorkers = 8
let worker: Worker | undefined

interface Worker {
  readonly number: number
  readonly child: ChildProcess
  readonly exited: Promise<'killed' | 'memory' | 'done'>
}

const tooLong = setTimeout(() => stop(`The demo took longer than ${deadlineMs / 1_000} s.`), deadlineMs)
process.once('SIGINT', () => stop('Interrupted.'))
process.once('SIGTERM', () => stop('Interrupted.'))
process.stdout.once('error', () => stop('Nobody reads what the demo says.'))

await rm(target, { recursive: true, force: true })
await mkdir(target, { recursive: true })
// This process starts the run, watches it and answers its question; it has no worker, so it executes nothing.
const hf = await open(url, { worker: false })
try {
  await demo()
} finally {
  clearTimeout(tooLong)
  worker?.child.kill('SIGKILL')
  await hf.close()
  await rm(folder, { recursive: true, force: true })
}

async function demo(): Promise<void> {
  title('Holdfast', 'a report from five sources, through everything that goes wrong on the way')
  const planFile = join(target, 'recovery-plan.md')
  await writeFile(planFile, recoveryPlan(report))
  print(`   What happens when a step fails was written down before it ran: ${shown(planFile)}`)

  const input = { title: 'Refunds and sales, November 2026', folder: target, journal }
  const run = await hf.start(report, input, { id: 'report-2026-11' })
  const startedAt = (await run.events())[0]?.at ?? 0
  const watching = watch(run, startedAt)
  const ends = await supervise(run, startedAt)
  const output = await run.result()
  await watching
  heading('The report', shown(output.file))
  showClaims([...(await claimsOf(run, output, ends))])
}

/** What any supervisor does: when the worker's process is gone, it starts another. The first one it kills itself, in the middle. */
async function supervise(run: RunHandle, startedAt: number): Promise<Worker[]> {
  const workers: Worker[] = []
  for (let number = 1; number <= maxWorkers; number++) {
    worker = startWorker(number, run.id)
    workers.push(worker)
    if (number === 1) {
      await untilGathered(run, 3)
      worker.child.kill('SIGKILL')
    }
    const how = await worker.exited
    if (how === 'done') return workers
    const why = how === 'killed' ? `kill -9 ${worker.child.pid}` : 'out of memory'
    line(Date.now() - startedAt, 'killed', why, `process ${number} is gone`)
  }
  throw new Error(`The run needed more than ${maxWorkers} processes.`)
}

/** Starts a process with a worker and little memory. It finds the run in the store, whoever left it there. */
function startWorker(number: number, runId: string): Worker {
  const program = join(import.meta.dirname, 'worker.ts')
  const args = ['--max-old-space-size=48', ...process.execArgv, program, url, runId]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'pipe'] })
  let errors = ''
  child.stderr?.on('data', (chunk) => {
    errors += String(chunk)
  })
  const exited = new Promise<'killed' | 'memory' | 'done'>((done, fail) => {
    child.once('error', fail)
    child.once('close', (code, signal) => {
      if (code === 0) done('done')
      else if (signal === 'SIGKILL') done('killed')
      else if (errors.includes('heap out of memory')) done('memory')
      else fail(new Error(`Process ${number} ended with ${code ?? signal}: ${errors}`))
    })
  })
  heading(`Process ${number}`, `pid ${child.pid}`)
  return { number, child, exited }
}

async function untilGathered(run: RunHandle, count: number): Promise<void> {
  const isSource = ({ type, step }: RunEvent) => type === 'step_completed' && step?.startsWith('gather/source') === true
  while ((await run.events()).filter(isSource).length < count) await sleep(10)
}

// ── what is shown while it happens ───────────────────────────────────────────

/** Shows the run's events as they arrive from whichever process writes them, and answers its question. */
async function watch(run: RunHandle, startedAt: number): Promise<void> {
  const begun = new Set<string>()
  for await (const event of run.watch()) {
    const atMs = event.at - startedAt
    const step = nameOf(event)
    switch (event.type) {
      case 'step_started':
        // What runs inside a step of the plan is shown when it ends; an attempt that begins again is worth a line.
        if (!step.includes('/') || begun.has(step)) line(atMs, 'begun', step, begun.has(step) ? 'again' : '')
        begun.add(step)
        break
      case 'step_completed':
        line(
          atMs,
          'done',
          step,
          `${duration(event.durationMs ?? 0)}${event.data?.['via'] === 'fallback' ? ', by its fallback' : ''}`,
        )
        break
      case 'step_failed':
        line(atMs, 'wrong', step, firstWords(event.error?.message ?? ''))
        break
      case 'step_skipped':
        line(atMs, 'taken', step, 'skipped')
        break
      case 'effect_completed':
        line(atMs, 'done', step, `${duration(event.durationMs ?? 0)}, once and never again`)
        break
      case 'run_recovered':
        line(atMs, 'taken', 'recovered', 'what has a result is not executed again')
        break
      case 'progress_reported':
        bar(Number(event.data?.['fraction']), String(event.data?.['note'] ?? ''))
        break
      case 'question_asked':
        await answer(run, event, startedAt)
        break
      case 'run_completed':
        line(atMs, 'done', 'completed')
    }
  }
}

async function answer(run: RunHandle, { data = {}, at }: RunEvent, startedAt: number): Promise<void> {
  const { text } = data['question'] as { text: string }
  line(at - startedAt, 'begun', 'a question', text)
  await sleep(700)
  await hf.answer(run.id, 'send_it', true, { by: 'you' })
  remark('yes, says you')
}

/** As much of a message as fits on a line. */
function firstWords(message: string): string {
  const text = message.replace(/^Step "[^"]*" (of run "[^"]*" )?/, '')
  return text.length <= 50 ? text : `${text.slice(0, 49)}…`
}

/** `gather/source[2]` is the source of that number. */
function nameOf({ step = '' }: RunEvent): string {
  return step.replace(/source\[(\d)\]/, (_, index) => sources[Number(index)] ?? '')
}

// ── what is shown afterwards ─────────────────────────────────────────────────

interface Claim {
  readonly holds: boolean
  readonly text: string
}

async function claimsOf(run: RunHandle, output: Report, workers: readonly Worker[]): Promise<Claim[]> {
  const events = await run.events()
  const bodies = readJournal()
  const of = (type: RunEvent['type'], step: string) => events.filter((event) => event.type === type && nameOf(event) === step)
  const recovered = events.findIndex(({ type }) => type === 'run_recovered')
  const before = events
    .slice(0, recovered)
    .filter(({ type }) => type === 'step_completed')
    .map(nameOf)
  const times = (what: string) => bodies.filter((body) => body.what === what).length
  const first = workers[0]?.child.pid
  const kept = before.filter((step) => bodies.every(({ pid, what }) => what !== step.replace('/', ' ') || pid === first))
  const deaths = await Promise.all(workers.map(({ exited }) => exited))
  const pdf = existsSync(output.file) ? await readFile(output.file) : Buffer.alloc(0)
  const sent = await new Mailer(join(target, 'outbox')).sent()
  return [
    {
      holds: before.length >= 3 && kept.length === before.length,
      text: `${before.length} sources had a result when the process was killed. They were not asked again.`,
    },
    {
      holds: of('step_failed', 'gather/market').length >= 1 && of('step_completed', 'gather/market').length === 1,
      text: 'The market did not answer in time, was tried again, and answered.',
    },
    {
      holds: deaths.filter((death) => death === 'memory').length === 3 && times('analyze sample') >= 1,
      text: 'The analysis brought three workers down; after the third the sample was taken.',
    },
    {
      holds: of('step_skipped', 'charts/market').length === 1 && output.charts.length === sources.length - 1,
      text: 'One chart failed and was skipped, four were drawn.',
    },
    { holds: pdf.subarray(0, 5).toString() === '%PDF-' && pdf.length > 1_000, text: `The PDF is on disk: ${shown(output.file)}` },
    {
      holds: of('question_answered', 'approve/send_it').some(({ data }) => data?.['by'] === 'you'),
      text: 'A person was asked, and the answer is in the log.',
    },
    { holds: sent.length === 1 && output.mail?.key === sent[0], text: 'One mail was sent.' },
    { holds: events.every(({ seq }, index) => seq === index + 1), text: `The log has ${events.length} events and no gap.` },
  ]
}

function showClaims(claims: readonly Claim[]): void {
  heading('Shown and checked')
  print()
  for (const { holds, text } of claims) claim(holds ? 'done' : 'wrong', holds ? text : `NOT TRUE: ${text}`)
  print()
  if (claims.every(({ holds }) => holds)) {
    print(` ${paint(['green', 'bold'], 'Four processes died, the report came out. Nothing recorded was lost or done again.')}`)
  } else {
    print(` ${paint(['red', 'bold'], 'Something that this demo claims does not hold; see above.')}`)
    process.exitCode = 1
  }
  print()
}

function readJournal(): { readonly pid: number; readonly what: string }[] {
  const lines = existsSync(journal) ? readFileSync(journal, 'utf8').trim().split('\n') : []
  return lines.map((text) => {
    const space = text.indexOf(' ')
    return { pid: Number(text.slice(0, space)), what: text.slice(space + 1) }
  })
}

function shown(file: string): string {
  return relative(process.cwd(), file)
}

function stop(message: string): never {
  worker?.child.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
  console.error(`\n${message}`)
  process.exit(1)
}
