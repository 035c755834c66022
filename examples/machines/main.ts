// Four worker processes on one Postgres: one is killed, one is stopped, one loses its connection; all runs end, every mail goes out once.
// node --conditions=holdfast-source examples/machines/main.ts [postgres://…]   Without a URL it starts a Postgres of its own.

import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { open, type RunEvent, type RunHandle } from 'holdfast'
import pg from 'pg'
import { claim, heading, line, paint, print, seconds, table, title } from '../report/screen.ts'
import { type NewsletterInput, newsletter, paragraphs } from './newsletter.ts'
import { layCable, startProvider } from './surroundings.ts'

const readers = 60
const database = process.argv[2] ?? process.env['DATABASE_URL'] ?? (await startOwnPostgres())
const schema = `machines_${randomBytes(4).toString('hex')}`
const withSchema = (address: string) => `${address}${address.includes('?') ? '&' : '?'}schema=${schema}`

const provider = await startProvider()
const cable = await layCable(database)
const children: ChildProcess[] = []
process.once('exit', () => {
  for (const child of children) child.kill('SIGKILL')
})

// This process starts the runs and looks on; the machines execute them.
const hf = await open(withSchema(database), { worker: false, pool: { min: 1, max: 4 } })
try {
  await story()
} finally {
  for (const child of children) child.kill('SIGKILL')
  await hf.close()
  cable.stop()
  provider.stop()
  await dropSchema()
}

async function story(): Promise<void> {
  title('Four machines, one Postgres', `${readers} newsletters, ${paragraphs} steps and one mail each`)
  const machines = [await startMachine(1), await startMachine(2), await startMachine(3, cable.url), await startMachine(4)]
  const [first, second, third] = machines as [Machine, Machine, Machine]
  const startedAt = Date.now()
  const since = () => Date.now() - startedAt
  const inputs = Array.from(
    { length: readers },
    (_, n): NewsletterInput => ({ reader: `reader-${n + 1}`, provider: provider.url }),
  )
  const runs = await Promise.all(inputs.map((input) => hf.start(newsletter, input, { id: input.reader })))

  heading('What happens to them')
  await sleep(1_000)
  first.child.kill('SIGKILL')
  line(since(), 'wrong', 'machine 1', `kill -9 ${first.child.pid}: it never comes back`)
  second.child.kill('SIGSTOP')
  line(since(), 'wrong', 'machine 2', `kill -STOP ${second.child.pid}: it is frozen, and does not know it`)
  cable.cut()
  line(since(), 'wrong', 'machine 3', 'its cable is cut: it works, and reaches nothing')
  const faultAt = Date.now()
  await untilReplaced(runs, [first, second, third])
  cable.plugIn()
  line(since(), 'done', 'machine 3', 'its cable is plugged in again')
  second.child.kill('SIGCONT')
  line(since(), 'done', 'machine 2', 'continues: what it held belongs to others now')

  await Promise.all(runs.map((run) => run.result({ timeoutMs: 60_000 })))
  line(since(), 'done', 'all runs', 'completed')
  third.child.kill('SIGTERM')

  const events = (await Promise.all(runs.map((run) => run.events()))).flat()
  showRecoveries(events, { machines, faultAt })
  showClaims(events)
}

/** Waits until a run of each machine has been taken over by another, however busy the others are. */
async function untilReplaced(runs: readonly RunHandle[], machines: readonly Machine[]): Promise<void> {
  const patientUntil = Date.now() + 20_000
  for (let waiting = machines; waiting.length > 0 && Date.now() < patientUntil; await sleep(200)) {
    const events = (await Promise.all(runs.map((run) => run.events()))).flat()
    waiting = waiting.filter((machine) => takenFrom(events, machine).length === 0)
  }
}

function takenFrom(events: readonly RunEvent[], { child }: Machine): RunEvent[] {
  return events.filter(({ type, data }) => type === 'run_recovered' && String(data?.['holder']).includes(`:${child.pid}:`))
}

interface Machine {
  readonly number: number
  readonly child: ChildProcess
}

async function startMachine(number: number, address = database): Promise<Machine> {
  const program = join(import.meta.dirname, 'worker.ts')
  const child = spawn(process.execPath, [...process.execArgv, program, withSchema(address)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  await once(child.stdout, 'data')
  return { number, child }
}

/** Which machines were replaced, with how many runs, and how soon. */
function showRecoveries(
  events: readonly RunEvent[],
  { machines, faultAt }: { machines: readonly Machine[]; faultAt: number },
): void {
  heading('Which were replaced', 'leases here last 2 s')
  print()
  const rows = machines.map((machine) => {
    const from = takenFrom(events, machine)
    const delays = from.map(({ at }) => at - faultAt).sort((a, b) => a - b)
    return [
      `machine ${machine.number}`,
      String(from.length),
      delays.length === 0 ? '' : `${seconds(delays[0] ?? 0)}–${seconds(delays.at(-1) ?? 0)} s`,
    ]
  })
  table([{ name: 'from' }, { name: 'runs', isNumber: true }, { name: 'after the fault', isNumber: true }], rows)
}

function showClaims(events: readonly RunEvent[]): void {
  const count = (type: RunEvent['type']) => events.filter((event) => event.type === type).length
  const repeated = provider.bodies.length - new Set(provider.bodies).size
  const claims: [boolean, string][] = [
    [count('run_completed') === readers, `${count('run_completed')} of ${readers} runs completed.`],
    [count('step_completed') === readers * paragraphs, `${count('step_completed')} steps have a result, each exactly one.`],
    [new Set(provider.mails).size === readers, `${new Set(provider.mails).size} readers got their mail.`],
    [provider.mails.length === readers, `${provider.mails.length - new Set(provider.mails).size} mails went out twice.`],
    [
      count('run_recovered') > 0,
      `${count('run_recovered')} times a run was taken over; ${repeated} step bodies that were cut short began again.`,
    ],
  ]
  heading('Shown and checked')
  print()
  for (const [holds, text] of claims) claim(holds ? 'done' : 'wrong', holds ? text : `NOT TRUE: ${text}`)
  print()
  if (claims.every(([holds]) => holds))
    print(` ${paint(['green', 'bold'], 'Three of four machines failed. Nothing was lost and nothing was done twice.')}`)
  else process.exitCode = 1
  print()
}

async function startOwnPostgres(): Promise<string> {
  const { startPostgres } = await import('../../test/servers/postgres.ts')
  return (await startPostgres()).url
}

async function dropSchema(): Promise<void> {
  const client = new pg.Client({ connectionString: database })
  await client.connect()
  await client.query(`SET client_min_messages = warning; DROP SCHEMA IF EXISTS ${schema} CASCADE`)
  await client.end()
}
