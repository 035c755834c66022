// npm run demo: a report from five sources. Its process is killed while it gathers; the analysis crashes three more; a chart fails; a
// person approves; it is sent once. Every claim at the end is checked; if one does not hold, the exit code is 1.

import { type ChildProcess, spawn } from 'node:child_process'
import { createWriteStream, existsSync, readFileSync, rmSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { open, type RunEvent, type RunHandle, recoveryPlan } from 'holdfast'
import { EventScreen, nameOf } from './event-screen.ts'
import { sources } from './gather.ts'
import { Mailer } from './mailer.ts'
import { type Report, report } from './report.ts'
import { claim, heading, line, paint, print, title } from './screen.ts'

/** Ends a demo that hangs. Generous, because processes start slowly on a busy machine. */
const deadlineMs = 600_000
const target = resolve(import.meta.dirname, '../..', '.holdfast/demo')
const folder = await mkdtemp(join(tmpdir(), 'holdfast-demo-'))
const url = `sqlite:${join(folder, 'demo.db')}`
const journal = join(folder, 'journal.txt')
/** How many processes there may be: one is killed, three run out of memory, the last one finishes. */
const maxWorkers = 8
let worker: Worker | undefined
/** The last event on the screen. */
let shownSeq = 0

interface Worker {
  readonly number: number
  readonly child: ChildProcess
  readonly exited: Promise<'killed' | 'memory' | 'done'>
}

const tooLong = setTimeout(() => stop(`The demo took longer than ${deadlineMs / 1_000} s.`), deadlineMs)
process.once('SIGINT', () => stop('Interrupted.'))
process.once('SIGTERM', () => stop('Interrupted.'))
process.stdout.once('error', () => stop('Standard output was closed.'))

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
  title('Holdfast', 'one report, five sources, and everything that can go wrong')
  const planFile = join(target, 'recovery-plan.md')
  await writeFile(planFile, recoveryPlan(report))
  print(`   What happens when a step fails is in the recovery plan: ${shown(planFile)}`)

  const input = { title: 'Refunds and sales, November 2026', folder: target, journal }
  const run = await hf.start(report, input, { id: 'report-2026-11' })
  const startedAt = (await run.events())[0]?.at ?? 0
  const watching = watch(run, startedAt)
  const workers = await supervise(run, startedAt)
  const output = await run.result()
  await watching
  showClaims(await claimsOf(run, output, workers))
}

/** What any supervisor does: when a worker's process has died, it starts another. The first one it kills itself, halfway through. */
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
    const diedAt = Date.now()
    await untilShown(run)
    const why = how === 'killed' ? `kill -9 ${worker.child.pid}` : 'out of memory'
    line(diedAt - startedAt, 'wrong', why, `process ${number} is dead`)
  }
  throw new Error(`The run needed more than ${maxWorkers} processes.`)
}

/** Starts a process with a worker and little memory. It finds the run in the store. */
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
  heading(
    `Process ${number}`,
    `pid ${child.pid}, ${number === 1 ? 'starts the run' : `continues what process ${number - 1} left`}`,
  )
  return { number, child, exited }
}

async function untilGathered(run: RunHandle, count: number): Promise<void> {
  const isSource = ({ type, step }: RunEvent) => type === 'step_completed' && step?.startsWith('gather/source') === true
  while ((await run.events()).filter(isSource).length < count) await sleep(10)
}

// ── while it runs ────────────────────────────────────────────────────────────

/** Waits until everything that a process has written is on the screen, so that it stands under that process's heading. */
async function untilShown(run: RunHandle): Promise<void> {
  const lastSeq = (await run.events()).at(-1)?.seq ?? 0
  while (shownSeq < lastSeq) await sleep(10)
}

/** Shows the run's events as they arrive, whichever process writes them, and answers its question. */
async function watch(run: RunHandle, startedAt: number): Promise<void> {
  const screen = new EventScreen(startedAt)
  for await (const event of run.watch()) {
    screen.show(event)
    if (event.type === 'question_asked') {
      await sleep(700)
      await hf.answer(run.id, 'send_it', true, { by: 'you' })
    }
    shownSeq = event.seq
  }
}

// ── afterwards ───────────────────────────────────────────────────────────────

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
  const download = await hf.artifacts.download(output.file)
  const file = join(target, download.artifact.name)
  await pipeline(download, createWriteStream(file))
  const pdf = await readFile(file)
  const sent = await new Mailer(join(target, 'outbox')).sent()
  return [
    {
      holds: before.length >= 3 && kept.length === before.length,
      text: `${before.length} sources had answered when process 1 was killed. They were not asked again.`,
    },
    {
      holds: of('step_failed', 'gather/market').length >= 1 && of('step_completed', 'gather/market').length === 1,
      text: 'One source did not answer in time, was asked again, and answered.',
    },
    {
      holds: deaths.filter((death) => death === 'memory').length === 3 && times('analyze sample') >= 1,
      text: 'The analysis crashed three processes. After the third, its fallback took a sample.',
    },
    {
      holds: of('step_skipped', 'charts/market').length === 1 && output.charts.length === sources.length - 1,
      text: 'One chart failed and was skipped. Four were drawn.',
    },
    {
      holds: pdf.subarray(0, 5).toString() === '%PDF-' && pdf.length > 1_000,
      text: `The PDF is an artifact of the run, and was downloaded: ${shown(file)}`,
    },
    {
      holds: of('question_answered', 'approve/send_it').some(({ data }) => data?.['by'] === 'you'),
      text: 'A person was asked, and the answer is in the log.',
    },
    { holds: sent.length === 1 && output.mail?.key === sent[0], text: 'One mail was sent.' },
    { holds: events.every(({ seq }, index) => seq === index + 1), text: `The log has ${events.length} events and no gap.` },
  ]
}

function showClaims(claims: readonly Claim[]): void {
  heading('What was checked')
  for (const { holds, text } of claims) claim(holds ? 'done' : 'wrong', holds ? text : `NOT TRUE: ${text}`)
  print()
  if (claims.every(({ holds }) => holds)) {
    print(` ${paint(['green', 'bold'], 'Four processes died, and the report is complete. No result was lost or made twice.')}`)
  } else {
    print(` ${paint(['red', 'bold'], 'A claim of this demo does not hold: see above.')}`)
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
