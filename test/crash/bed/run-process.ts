import { HoldfastError, type Notification, open, type RunHandle } from 'holdfast'
import type { NewEvent } from '../../../src/model/event.ts'
import type { Change, Committed } from '../../../src/store/change.ts'
import { type StoreAct, wrapStore } from '../../../src/testing/faulty-store.ts'
import { createRandom } from '../../../src/testing/random.ts'
import { actAsOthers, ignoreAnswered } from '../workflows/act-as-others.ts'
import { transcript } from '../workflows/notifies-others.ts'
import { workflowsOf } from '../workflows/workflows.ts'
import { type Fault, isFaultAt } from './fault.ts'
import { Journal, readJournal } from './journal.ts'
import { ProviderClient } from './provider.ts'
import { openStoreAt, type StoreAddress } from './store-address.ts'
import { TestServices } from './test-services.ts'

/** What one process of a scenario is to do. */
export interface ProcessRun {
  readonly number: number
  readonly store: StoreAddress
  /** Added to the store's time, so that the leases of earlier processes have expired without waiting. */
  readonly clockOffsetMs?: number
  readonly journal: string
  readonly port: number
  readonly account: string
  readonly fault: Fault | null
  /** What happens at the fault: a signal, an event loop that is blocked for so many ms, or an error of the store. */
  readonly failure: 'SIGKILL' | 'SIGSTOP' | number | 'outcome_unknown' | 'store_unavailable'
  /** In addition: each call of the store fails with this probability, half of the time after it was carried out. */
  readonly randomFailures?: { readonly probability: number; readonly seed: number }
  readonly leaseMs: number
  readonly runs: readonly {
    readonly workflow: string
    readonly id: string
    readonly threadId: string
    readonly input?: unknown
  }[]
  /** Works until it is told to close, instead of until its runs have ended. */
  readonly isWorker?: boolean
  /** The workflows that it has. Default all. */
  readonly workflows?: readonly string[]
  /** Resolves unsure effects with what the provider says. Default true. */
  readonly resolvesUnsure?: boolean
  readonly closeGraceMs?: number
  readonly concurrency?: number
}

/** What a process that completed says. */
export interface Report {
  /** How often each method of the store was called. */
  readonly acts: Record<string, number>
  readonly outputs: Record<string, unknown>
  readonly states: Record<string, unknown>
  /** The streams of the runs that have one, without chunks that are void. */
  readonly streams: Record<string, unknown>
  readonly tookMs: number
}

/**
 * Opens the store, wraps it, starts the runs (or finds them started) and waits for their outputs; or works until it is told to close.
 * Injects the fault at its place.
 */
export async function runProcess(processRun: ProcessRun, toldToClose?: Promise<undefined>): Promise<Report> {
  const startedAt = performance.now()
  const { number: processNumber, fault, store: address, clockOffsetMs = 0 } = processRun
  const journal = new Journal(processRun.journal, processNumber)
  const provider = new ProviderClient({ port: processRun.port, account: processRun.account, processNumber })
  const services = new TestServices({ journal, provider, processNumber, orders: address.orders, fault, injectFault })
  const workflows = Object.values(workflowsOf(services)).filter(({ name }) => processRun.workflows?.includes(name) ?? true)
  const acts: Record<string, number> = {}
  let haveEnded = false
  let isInjected = false

  // A worker may be started while its server is down: it tries again, as a supervisor would.
  const inner = await withRetries(() => openStoreAt(address, () => clockOffsetMs))
  const random = createRandom(processRun.randomFailures?.seed ?? 0)
  const store = wrapStore(inner, {
    before: (act, nth, args) => {
      acts[act] = nth
      failAtRandom('store_unavailable', act)
      if (isFaultAt(fault, { act, nth, args, when: 'before' })) injectFault()
    },
    after: (act, nth, args, answer) => {
      // One that was refused, because another was faster with a profile, has written nothing.
      const isWritten = (_: Change, index: number) => (answer as readonly Committed[])[index]?.ok === true
      const written = act === 'commit' ? resultsIn((args[0] as Change[]).filter(isWritten)) : []
      failAtRandom(isWrite(act) ? 'outcome_unknown' : 'store_unavailable', act, written)
      if (isFaultAt(fault, { act, nth, args, when: 'after' })) injectFault(written)
    },
  })
  const { leaseMs, closeGraceMs = 5_000, concurrency = 100 } = processRun
  const hasNotifications = processRun.runs.some(({ workflow }) => workflow === 'notifiesOthers')
  const hf = await withRetries(() =>
    open(store, {
      logger: false,
      workflows,
      worker: { leaseMs, closeGraceMs, concurrency, pollMs: 50, quietMs: 20 },
      ...(hasNotifications && { notify }),
    }),
  )

  // One after another: the runs of a thread execute in the order in which they were started.
  const handles: RunHandle[] = []
  for (const { workflow, id, threadId, input } of processRun.runs)
    handles.push(await withRetries(() => hf.start(workflow, input, { id, threadId })))
  const ends = toldToClose ?? Promise.all(handles.map((handle) => withRetries(() => handle.result())))
  ends
    .catch(() => {})
    .finally(() => {
      haveEnded = true
    })
  const waiting = processRun.runs.filter(({ workflow }) => ['waitsForOthers', 'notifiesOthers', 'agent'].includes(workflow))
  // These have no effects that are unsure.
  const hasEffects = processRun.isWorker === true || waiting.length < processRun.runs.length
  const [results] = await Promise.all([
    ends,
    hasEffects && processRun.resolvesUnsure !== false ? resolveUnsureEffects() : undefined,
    ...waiting.map(({ id }) => keepActingAsOthers(id)),
  ])

  if (hasNotifications) await untilNotified()

  const outputs = Object.fromEntries((results ?? []).map((output, index) => [processRun.runs[index]?.id, output]))
  const states: Record<string, unknown> = {}
  if (results !== undefined)
    for (const { threadId } of processRun.runs) states[threadId] = await withRetries(() => hf.thread(threadId).state())
  const streams: Record<string, unknown> = {}
  for (const { id, workflow } of processRun.runs) {
    const name = streamOf[workflow]
    if (name !== undefined) streams[id] = await withRetries(() => readStream(id, name))
  }
  await hf.close()
  await inner.close()
  journal.close()
  return { acts, outputs, states, streams, tookMs: Math.round(performance.now() - startedAt) }

  /** Kills, stops or blocks this process, or fails the call, now; once. */
  function injectFault(written: readonly string[] = []): void {
    if (isInjected) return
    isInjected = true
    journal.write({ kind: 'fault', written })
    const { failure } = processRun
    if (typeof failure === 'number') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, failure)
    else if (failure === 'SIGKILL' || failure === 'SIGSTOP') process.kill(process.pid, failure)
    else throw new HoldfastError(failure, 'The store was told to fail here.')
  }

  function failAtRandom(code: 'store_unavailable' | 'outcome_unknown', act: string, written: readonly string[] = []): void {
    const { randomFailures } = processRun
    if (randomFailures === undefined || act === 'migrate' || haveEnded || !random.chance(randomFailures.probability / 2)) return
    journal.write({ kind: 'fault', written })
    throw new HoldfastError(code, `The store was told to fail at ${act}.`)
  }

  async function notify(message: Notification): Promise<void> {
    await services.send({ name: 'notify', key: message.id, body: message, dedupes: true })
  }

  async function readStream(id: string, name: string): Promise<unknown[]> {
    const chunks: unknown[] = []
    for await (const { chunk, isAborted } of (await hf.runs.get(id)).stream(name)) if (!isAborted) chunks.push(chunk)
    return chunks
  }

  async function untilNotified(): Promise<void> {
    const workflow = 'holdfast.notify/default'
    const open = () => hf.runs.list({ workflow, status: ['pending', 'running', 'waiting'] })
    while ((await withRetries(open)).items.length > 0) await new Promise((resolve) => setTimeout(resolve, 5))
  }

  async function keepActingAsOthers(id: string): Promise<void> {
    const names = new Set(readJournal(processRun.journal).flatMap((note) => (note.kind === 'sent' ? note.name : [])))
    const sent = {
      has: (name: string) => names.has(name),
      note: (name: string) => {
        journal.write({ kind: 'sent', name })
        names.add(name)
      },
    }
    while (!haveEnded) {
      await withRetries(() => actAsOthers(hf, id, sent))
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }

  /** The person behind `hf.resolve`: passes on what the provider says. */
  async function resolveUnsureEffects(): Promise<void> {
    while (!haveEnded) {
      const { items } = await withRetries(() => hf.runs.list({ status: 'waiting' }))
      for (const { id } of items.filter(({ reason }) => reason === 'person')) {
        const events = await withRetries(async () => (await hf.runs.get(id)).events())
        const key = events.findLast(({ type }) => type === 'effect_unsure')?.data?.['key'] as string | undefined
        if (key === undefined) continue
        const { happened, receipt } = await provider.look(key)
        journal.write({ kind: 'resolved', key, happened })
        await withRetries(() => hf.resolve(key, { happened, by: 'provider', ...(happened && { result: { receipt } }) })).catch(
          ignoreAnswered,
        )
      }
      await new Promise((resolve) => setTimeout(resolve, 30))
    }
  }
}

/** Of workflows that have a stream. */
const streamOf: Readonly<Record<string, string>> = { notifiesOthers: transcript.name, agent: 'ui' }

/** Only the outcome of a write can be unknown. */
function isWrite(act: StoreAct): boolean {
  return ['commit', 'transact', 'claim', 'renew', 'deliver'].includes(act)
}

function resultsIn(changes: readonly Change[]): string[] {
  const results = ['step_completed', 'step_failed', 'effect_completed', 'effect_failed']
  // After a crash an effect was looked up, and had not happened: the attempt begins again.
  const isAgain = ({ payload }: NewEvent) => typeof payload === 'string' && payload.includes('"counts":false')
  return changes.flatMap(({ events }) =>
    events.flatMap((event) => (event.step !== null && results.includes(event.type) && !isAgain(event) ? event.step : [])),
  )
}

/** As an application would: what may have been carried out is requested again, under the same id. */
export async function withRetries<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
  for (;;) {
    try {
      return await ask()
    } catch (error) {
      const { code } = error as { code?: unknown }
      if (code !== 'outcome_unknown' && code !== 'store_unavailable') throw error
    }
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
