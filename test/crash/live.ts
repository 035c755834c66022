import { HoldfastError, type Notification, open, type RunHandle } from 'holdfast'
import type { Change } from '../../src/store/change.ts'
import { type StoreAct, wrapStore } from '../../src/testing/faulty-store.ts'
import { createRandom } from '../../src/testing/random.ts'
import { ignoreAnswered, serveEnvoy } from './envoy-others.ts'
import { type Fault, isFaultAt } from './fault.ts'
import { Journal, readJournal } from './journal.ts'
import { ProviderClient } from './provider.ts'
import { openStoreAt, type StoreAddress } from './store-address.ts'
import { speech, workflowsOf } from './workflows.ts'
import { World } from './world.ts'

/** One life of a process in a scene. */
export interface Life {
  readonly number: number
  readonly store: StoreAddress
  /** Added to the store's time: how a later life finds the leases of an earlier one run out without waiting for it. */
  readonly clockOffsetMs?: number
  readonly journal: string
  readonly port: number
  readonly account: string
  readonly fault: Fault | null
  /** What happens at the fault: a signal, that many ms in which the event loop is blocked, or the store says so. */
  readonly strike: 'SIGKILL' | 'SIGSTOP' | number | 'outcome_unknown' | 'store_unavailable'
  /** Besides the fault: each act of the store fails with this probability, half of the time after it was done. */
  readonly chance?: { readonly ofFailure: number; readonly seed: number }
  readonly leaseMs: number
  readonly runs: readonly {
    readonly workflow: string
    readonly id: string
    readonly threadId: string
    readonly input?: unknown
  }[]
  /** Works until it is told to close, instead of until its runs are over. */
  readonly isWorker?: boolean
  /** The workflows that it has; all, unless told otherwise. */
  readonly workflows?: readonly string[]
  /** Decides about unsure effects as the provider says. Default true. */
  readonly decides?: boolean
  readonly closeGraceMs?: number
  readonly concurrency?: number
}

/** What a life that came to its end says. */
export interface Report {
  /** How often each act of the store was called. */
  readonly acts: Record<string, number>
  readonly outputs: Record<string, unknown>
  readonly states: Record<string, unknown>
  /** What there is to hear of each herald, without what is void. */
  readonly heard: Record<string, unknown>
  readonly tookMs: number
}

/**
 * Lives: opens the store, wraps it, starts the runs (or finds them started) and waits for their outputs; or works until
 * it is told to close. Strikes where it was told to.
 */
export async function live(life: Life, toldToClose?: Promise<undefined>): Promise<Report> {
  const startedAt = performance.now()
  const journal = new Journal(life.journal, life.number)
  const provider = new ProviderClient({ port: life.port, account: life.account, life: life.number })
  const { number, fault, store: address, clockOffsetMs = 0 } = life
  const world = new World({ journal, provider, life: number, orders: address.orders, fault, strike })
  const workflows = Object.values(workflowsOf(world)).filter(({ name }) => life.workflows?.includes(name) ?? true)
  const acts: Record<string, number> = {}
  let isOver = false
  let isStruck = false

  // A worker may be started while its server is away: as a supervisor would, it tries again.
  const inner = await patiently(() => openStoreAt(address, () => clockOffsetMs))
  const random = createRandom(life.chance?.seed ?? 0)
  const store = wrapStore(inner, {
    before: (act, nth, args) => {
      acts[act] = nth
      failByChance('store_unavailable', act)
      if (isFaultAt(fault, { act, nth, args, when: 'before' })) strike()
    },
    after: (act, nth, args) => {
      failByChance(
        isWrite(act) ? 'outcome_unknown' : 'store_unavailable',
        act,
        act === 'commit' ? resultsIn(args[0] as Change[]) : [],
      )
      if (isFaultAt(fault, { act, nth, args, when: 'after' })) strike(act === 'commit' ? resultsIn(args[0] as Change[]) : [])
    },
  })
  const { leaseMs, closeGraceMs = 5_000, concurrency = 100 } = life
  const hasHerald = life.runs.some(({ workflow }) => workflow === 'herald')
  const hf = await patiently(() =>
    open(store, {
      logger: false,
      workflows,
      worker: { leaseMs, closeGraceMs, concurrency, pollMs: 50, quietMs: 20 },
      ...(hasHerald && { notify: tell }),
    }),
  )

  // One after another: the runs of a thread go in the order in which they were started.
  const handles: RunHandle[] = []
  for (const { workflow, id, threadId, input } of life.runs)
    handles.push(await patiently(() => hf.start(workflow, input, { id, threadId })))
  const ends = toldToClose ?? Promise.all(handles.map((handle) => patiently(() => handle.result())))
  ends
    .catch(() => {})
    .finally(() => {
      isOver = true
    })
  const envoys = life.runs.filter(({ workflow }) => workflow === 'envoy' || workflow === 'herald')
  // Those who wait for others have no effects.
  const hasDecisions = life.decides !== false && (life.isWorker === true || envoys.length < life.runs.length)
  const [results] = await Promise.all([
    ends,
    hasDecisions ? decideUnsureEffects() : undefined,
    ...envoys.map(({ id }) => serve(id)),
  ])

  if (hasHerald) await untilTold()

  const outputs = Object.fromEntries((results ?? []).map((output, index) => [life.runs[index]?.id, output]))
  const states: Record<string, unknown> = {}
  if (results !== undefined)
    for (const { threadId } of life.runs) states[threadId] = await patiently(() => hf.thread(threadId).state())
  const heard: Record<string, unknown> = {}
  for (const { id, workflow } of life.runs) if (workflow === 'herald') heard[id] = await patiently(() => listenTo(id))
  await hf.close()
  await inner.close()
  journal.close()
  return { acts, outputs, states, heard, tookMs: Math.round(performance.now() - startedAt) }

  /** Ends, stops or blocks this process, or fails the call, now; once. */
  function strike(written: readonly string[] = []): void {
    if (isStruck) return
    isStruck = true
    journal.write({ kind: 'struck', written })
    if (typeof life.strike === 'number') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, life.strike)
    else if (life.strike === 'SIGKILL' || life.strike === 'SIGSTOP') process.kill(process.pid, life.strike)
    else throw new HoldfastError(life.strike, 'The store was told to fail here.')
  }

  function failByChance(code: 'store_unavailable' | 'outcome_unknown', act: string, written: readonly string[] = []): void {
    if (life.chance === undefined || act === 'migrate' || isOver || !random.chance(life.chance.ofFailure / 2)) return
    journal.write({ kind: 'struck', written })
    throw new HoldfastError(code, `The store was told to fail at ${act}.`)
  }

  /** The provider hears of the runs. */
  async function tell(message: Notification): Promise<void> {
    await world.send({ name: 'tell', key: message.id, body: message, dedupes: true })
  }

  async function listenTo(id: string): Promise<unknown[]> {
    const heard: unknown[] = []
    for await (const { chunk, isAborted } of (await hf.runs.get(id)).stream(speech.name)) if (!isAborted) heard.push(chunk)
    return heard
  }

  async function untilTold(): Promise<void> {
    const workflow = 'holdfast.notify/default'
    const open = () => hf.runs.list({ workflow, status: ['pending', 'running', 'waiting'] })
    while ((await patiently(open)).items.length > 0) await new Promise((resolve) => setTimeout(resolve, 5))
  }

  /** Those whom an envoy waits for. */
  async function serve(id: string): Promise<void> {
    const names = new Set(readJournal(life.journal).flatMap((note) => (note.kind === 'given' ? note.name : [])))
    const given = {
      has: (name: string) => names.has(name),
      note: (name: string) => {
        journal.write({ kind: 'given', name })
        names.add(name)
      },
    }
    while (!isOver) {
      await patiently(() => serveEnvoy(hf, id, given))
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }

  /** The person behind `hf.resolve`: asks the provider, and says what it says. */
  async function decideUnsureEffects(): Promise<void> {
    while (!isOver) {
      const { items } = await patiently(() => hf.runs.list({ status: 'waiting' }))
      for (const { id } of items.filter(({ reason }) => reason === 'person')) {
        const events = await patiently(async () => (await hf.runs.get(id)).events())
        const key = events.findLast(({ type }) => type === 'effect_unsure')?.data?.['key'] as string | undefined
        if (key === undefined) continue
        const { happened, receipt } = await provider.look(key)
        journal.write({ kind: 'resolved', key, happened })
        await patiently(() => hf.resolve(key, { happened, by: 'provider', ...(happened && { result: { receipt } }) })).catch(
          ignoreAnswered,
        )
      }
      await new Promise((resolve) => setTimeout(resolve, 30))
    }
  }
}

/** Only of a write can the outcome be unknown. */
function isWrite(act: StoreAct): boolean {
  return ['commit', 'transact', 'claim', 'renew', 'deliver'].includes(act)
}

function resultsIn(changes: readonly Change[]): string[] {
  const results = ['step_completed', 'step_failed', 'effect_completed', 'effect_failed']
  return changes.flatMap(({ events }) =>
    events.flatMap(({ type, step }) => (step !== null && results.includes(type) ? step : [])),
  )
}

/** As an application would: what may have been done is asked for again, under the same id. */
export async function patiently<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
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
