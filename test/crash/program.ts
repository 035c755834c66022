// A process under test: node --conditions=holdfast-source test/crash/program.ts LIFE, where LIFE is JSON.
//
// It opens the store, wraps it, starts the runs (or finds them started), and waits for their outputs. It strikes itself
// with a signal where it was told to. What it says last, on its standard output, is its report.

import { open } from 'holdfast'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'
import { wrapStore } from '../../src/testing/faulty-store.ts'
import { type Fault, isFaultAt } from './fault.ts'
import { Journal } from './journal.ts'
import { ProviderClient } from './provider.ts'
import { workflowsOf } from './workflows.ts'
import { World } from './world.ts'

/** One life of a process in a scene. */
export interface Life {
  readonly number: number
  readonly file: string
  readonly journal: string
  readonly port: number
  readonly account: string
  readonly fault: Fault | null
  readonly signal: 'SIGKILL' | 'SIGSTOP'
  readonly leaseMs: number
  readonly runs: readonly { readonly workflow: string; readonly id: string; readonly threadId: string; readonly input?: unknown }[]
}

/** What a process that came to its end says. */
export interface Report {
  /** How often each act of the store was called. */
  readonly acts: Record<string, number>
  readonly outputs: Record<string, unknown>
  readonly states: Record<string, unknown>
  readonly tookMs: number
}

const life = JSON.parse(process.argv[2] as string) as Life
const startedAt = performance.now()
const journal = new Journal(life.journal, life.number)
const provider = new ProviderClient({ port: life.port, account: life.account, life: life.number })
const world = new World({ journal, provider, fault: life.fault, strike })
const workflows = workflowsOf(world)
const acts: Record<string, number> = {}

const inner = await openSqliteStore({ file: life.file, durability: 'full' })
const store = wrapStore(inner, {
  before: (act, nth, args) => {
    acts[act] = nth
    if (isFaultAt(life.fault, { act, nth, args, when: 'before' })) strike()
  },
  after: (act, nth, args) => {
    if (isFaultAt(life.fault, { act, nth, args, when: 'after' })) strike()
  },
})
const hf = await open(store, { workflows: Object.values(workflows), worker: { leaseMs: life.leaseMs, pollMs: 50 } })

const handles = await Promise.all(
  life.runs.map(({ workflow, id, threadId, input }) => hf.start(workflow, input, { id, threadId })),
)
const results = Promise.all(handles.map((handle) => handle.result()))
let isOver = false
results.finally(() => {
  isOver = true
}).catch(() => {})
await Promise.all([results, decideUnsureEffects()])

const outputs = Object.fromEntries((await results).map((output, index) => [life.runs[index]?.id, output]))
const states: Record<string, unknown> = {}
for (const { threadId } of life.runs) states[threadId] = await hf.thread(threadId).state()
await hf.close()
await inner.close()
const report: Report = { acts, outputs, states, tookMs: Math.round(performance.now() - startedAt) }
process.stdout.write(JSON.stringify(report))

/** Ends or stops this process, now. */
function strike(): void {
  process.kill(process.pid, life.signal)
}

/** The person behind `hf.resolve`: asks the provider, and says what it says. */
async function decideUnsureEffects(): Promise<void> {
  while (!isOver) {
    const { items } = await hf.runs.list({ status: 'waiting' })
    for (const { id } of items.filter(({ reason }) => reason === 'person')) {
      const events = await (await hf.runs.get(id)).events()
      const key = events.findLast(({ type }) => type === 'effect_unsure')?.data?.['key'] as string
      const { happened, receipt } = await provider.look(key)
      journal.write({ kind: 'resolved', key, happened })
      await hf.resolve(key, { happened, by: 'provider', ...(happened && { result: { receipt } }) })
    }
    await new Promise((resolve) => setTimeout(resolve, 15))
  }
}
