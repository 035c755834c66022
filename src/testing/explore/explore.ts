import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type AnyWorkflow, HoldfastError, type RunDetails, type RunEvent } from '../../index.ts'
import { type OptionNames, refuseUnknownOptions } from '../../model/known-options.ts'
import type { Store } from '../../store/store.ts'
import { createMemoryStore } from '../../stores/memory/memory-store.ts'
import { refuseNoCount, refuseNoneOf, refuseNoRecord } from '../given-options.ts'
import { createRandom } from '../random.ts'
import type { Setup } from './case-setup.ts'
import { type ExploreFailure, ExploreReport } from './explore-report.ts'
import { type Ending, type Expected, endingOf, expectationOf, type Finding, judgeCase } from './judge-case.ts'
import { type Case, type Fault, type FaultPoint, type Observation, playCase } from './play-case.ts'
import { formatSeed, parseSeed } from './seed.ts'

/** How a case ended, for an invariant. */
export interface Explored<World> {
  readonly world: World
  /** Undefined unless the run has completed. */
  // biome-ignore lint/suspicious/noExplicitAny: the output of the workflow, as the test knows it
  readonly output: any
  /** The state of the run's thread. */
  // biome-ignore lint/suspicious/noExplicitAny: as above
  readonly state: any
  readonly run: RunDetails
  readonly events: readonly RunEvent[]
}

export interface ExploreOptions<World> {
  /** What the workflow acts on, fresh for every case: it outlives the crashes of one. Default none. */
  readonly world?: () => World | Promise<World>
  /** The workflow over that world. Asked for anew for every process, as a new process would make it. */
  readonly workflow: AnyWorkflow | ((world: World) => AnyWorkflow)
  /** Those of its children, which a process that takes over has to know: as in the options of `open`. */
  readonly workflows?: readonly AnyWorkflow[] | ((world: World) => readonly AnyWorkflow[])
  /** Its input; a function gets the world. */
  readonly input?: unknown
  /** What people answer, by the name or path of the question. */
  readonly answers?: Readonly<Record<string, unknown>>
  /** Signals that are sent once the run waits, by name. */
  readonly signals?: Readonly<Record<string, unknown>>
  /**
   * What a person decides about an effect with neither `check` nor `idempotent` whose outcome a fault has hidden: what is true (default), always
   * the same, or nothing, so that the case ends there.
   */
  readonly unsure?: 'truth' | 'happened' | 'not' | 'ask'
  /** Once the run waits for what nobody gives it, it is cancelled: what it did is undone. Default false. */
  readonly cancel?: boolean
  /** Throws if a case did not end as it must. Called for cases that end as the undisturbed one did. */
  readonly invariant?: (seen: Explored<World>) => unknown
  /** What has to be the same as after the undisturbed run, besides output and state: a part of the world, as a rule. */
  readonly compare?: (seen: Pick<Explored<World>, 'world' | 'output' | 'state'>) => unknown
  /** Faults in one case: 1 (default) plays every point; 2 adds sampled pairs. */
  readonly crashes?: 1 | 2
  /**
   * What happens there: the process is gone (`crash`); its write is done, and the answer lost (`lostAnswer`); it stalls before the write
   * until another process has ended the run (`zombie`), or before the answer (`slowCommit`). Default: the first three. After `slowCommit` at its
   * intent an effect is sent late, by a process that can't know better: only a provider that deduplicates by key can handle that.
   */
  readonly faults?: readonly Fault[]
  /** How many pairs are sampled. Default 50. */
  readonly pairs?: number
  /** Of the samples. Default 1. */
  readonly seed?: number
  /** The seed of one case of a report: only that one is played. */
  readonly only?: string
  /** In how many orders bodies end that run at the same time, with and without a crash. Default 0. */
  readonly orders?: number
  /** A new one for every case: in memory (default), a file, or what a function makes that gets the clock of the case. */
  readonly store?: 'memory:' | 'sqlite:' | ((options: { readonly clockOffsetMs: () => number }) => Store | Promise<Store>)
  /** Cases that are played in parallel. Default 4. */
  readonly concurrency?: number
  /** A folder for the threads of cases that went wrong. Default: they are only in the report. */
  readonly bundles?: string
  /** As in the options of a worker. Default 10. */
  readonly quietMs?: number
  /** As in the options of a worker. Default 100. */
  readonly mismatchMs?: number
  /** How long nothing may happen in a case before it counts as stuck, in ms of real time. Default 10,000. */
  readonly stuckMs?: number
}

/** Of so many failures the thread is kept. */
const mostBundles = 20

const usualFaults: readonly Fault[] = ['crash', 'lostAnswer', 'zombie']
const allFaults: readonly Fault[] = [...usualFaults, 'slowCommit']

/**
 * Plays a run of a workflow once undisturbed, then once for every point at which its process can fail: before and after each of its writes,
 * so also between an effect and its record, between a result and the next step, and in an undo; and after each claim. Another process takes over
 * each time. Every case must end as the undisturbed one did, with the same output and state; no recorded step may be executed again; an effect
 * acts as it declares. `invariant` and `compare` say what must hold besides. Throws nothing for what it finds: look at `failures`.
 */
export async function explore<World = undefined>(options: ExploreOptions<World>): Promise<ExploreReport> {
  refuseUnknownOptions('explore', options ?? null, optionNames)
  checkOptions(options as ExploreOptions<unknown>)
  const startedAt = performance.now()
  const setup = setupOf(options as ExploreOptions<unknown>)
  const judge = new Judge(options as ExploreOptions<unknown>)
  const first = await playCase(setup, { faultPoints: [] }, (seen) => judge.learn(seen))
  await playCase(setup, { faultPoints: [] }, (seen) => judge.learn(seen), 1_900_000_123_456)
  const cases = options.only === undefined ? casesOf(first, options as ExploreOptions<unknown>) : [parseSeed(options.only)]
  const played: { seed: string; point: string }[] = [{ seed: '', point: 'undisturbed' }]
  await inParallel(cases, options.concurrency ?? 4, async (one) => {
    const point = await playCase(setup, one, (seen) => judge.judge(seen, one))
    // A point that this case did not come by: what else it wrote was written in another order.
    if (point !== undefined) played.push({ seed: formatSeed(one), point })
  })
  if (options.only !== undefined && options.only !== '' && played.length === 1)
    throw new HoldfastError(
      'invalid_input',
      `The run does not come by ${JSON.stringify(options.only)}: nothing was tried there. Take a seed from a report on this workflow.`,
    )
  return new ExploreReport({
    workflow: first.workflow,
    cases: played,
    failures: judge.failures,
    ending: first.ending,
    ...(first.error !== undefined && { error: first.error }),
    ignored: [...judge.ignored],
    durationMs: Math.round(performance.now() - startedAt),
  })
}

const optionNames: OptionNames<ExploreOptions<unknown>> = {
  world: true,
  workflow: true,
  workflows: true,
  input: true,
  answers: true,
  signals: true,
  unsure: true,
  cancel: true,
  invariant: true,
  compare: true,
  crashes: true,
  faults: true,
  pairs: true,
  orders: true,
  seed: true,
  only: true,
  store: true,
  concurrency: true,
  bundles: true,
  quietMs: true,
  mismatchMs: true,
  stuckMs: true,
}

function checkOptions({ faults, crashes, unsure, store, answers, signals, ...counts }: ExploreOptions<unknown>): void {
  refuseNoneOf('crashes of explore', crashes, [1, 2])
  refuseNoneOf('unsure of explore', unsure, ['truth', 'happened', 'not', 'ask'])
  if (typeof store !== 'function') refuseNoneOf('store of explore', store, ['memory:', 'sqlite:'])
  for (const fault of faults ?? []) refuseNoneOf('One of the faults of explore', fault, allFaults)
  refuseNoRecord('answers of explore', answers)
  refuseNoRecord('signals of explore', signals)
  for (const name of ['pairs', 'orders', 'seed'] as const) refuseNoCount(`${name} of explore`, counts[name], 0)
  for (const name of ['concurrency', 'stuckMs'] as const) refuseNoCount(`${name} of explore`, counts[name], 1)
}

function setupOf(options: ExploreOptions<unknown>): Setup {
  const { world, workflow, workflows = [], input, answers = {}, signals = {}, unsure = 'truth', cancel = false } = options
  const { store, quietMs = 10, mismatchMs = 100, stuckMs = 10_000 } = options
  if (typeof workflow !== 'function') asWorkflow(workflow)
  return {
    world: world ?? (() => undefined),
    workflow: (made) => asWorkflow(typeof workflow === 'function' ? workflow(made) : workflow),
    workflows: typeof workflows === 'function' ? workflows : () => workflows,
    input: typeof input === 'function' ? (input as () => unknown) : () => input,
    ...{ answers, signals, unsure, cancels: cancel, stuckMs, times: { quietMs, mismatchMs } },
    createStore: async (clock) => {
      if (store === 'sqlite:') return createFile(clock)
      const made = typeof store === 'function' ? await store(clock) : createMemoryStore(clock)
      return { store: made, close: () => made.close() }
    },
  }
}

function asWorkflow(given: AnyWorkflow): AnyWorkflow {
  if (typeof given?.fn === 'function') return given
  throw new HoldfastError(
    'invalid_input',
    'explore needs { workflow }: what workflow() or plan() returned, or a function that returns it.',
  )
}

async function createFile(clock: { readonly clockOffsetMs: () => number }): ReturnType<Setup['createStore']> {
  const { openSqliteStore } = await import('../../stores/sqlite/sqlite-store.ts')
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-explore-'))
  const store = await openSqliteStore({ ...clock, file: join(folder, 'explored.db'), durability: 'relaxed' })
  const close = async () => {
    await store.close()
    await rm(folder, { recursive: true, force: true })
  }
  return { store, close }
}

/** What the undisturbed run shows: where faults can be injected. */
interface Scouted {
  readonly workflow: string
  readonly ending: string
  readonly error: string | undefined
  readonly writes: Observation['writes']
  readonly claims: number
}

/** Every point at which one thing can happen; then pairs and orders, if there are to be any. */
function casesOf(scouted: Scouted, options: ExploreOptions<unknown>): Case[] {
  const { crashes = 1, pairs = 50, orders = 0, seed = 1 } = options
  const random = createRandom(seed)
  const singles = pointsOf(scouted, options)
  // After a stall two processes are alive. Pairs are of one process after another.
  const firsts = singles.filter(({ fault }) => fault === 'crash' || fault === 'lostAnswer')
  const sampled = Array.from({ length: crashes === 1 || firsts.length === 0 ? 0 : pairs }, (): Case => {
    const when = random.pick(['before', 'after'] as const)
    const second: FaultPoint = { fault: 'crash', when, write: { nth: random.integer(1, scouted.writes.length) } }
    return { faultPoints: [random.pick(firsts), second] }
  })
  const ordered = Array.from({ length: orders }, (_, nth): Case => {
    const order = random.integer(1, 1_000_000)
    return { order, faultPoints: nth % 2 === 0 || firsts.length === 0 ? [] : [random.pick(firsts)] }
  })
  return [...singles.map((faultPoint) => ({ faultPoints: [faultPoint] })), ...sampled, ...ordered]
}

function pointsOf({ writes, claims }: Scouted, { faults = usualFaults }: ExploreOptions<unknown>): FaultPoint[] {
  const has = (fault: Fault) => faults.includes(fault)
  const singles: FaultPoint[] = []
  if (has('crash')) for (let nth = 1; nth <= claims; nth++) singles.push({ fault: 'crash', when: 'claim', write: { nth } })
  const names = new Map<string, number>()
  for (const { name, isFlush } of writes) {
    if (isFlush) continue
    const nth = (names.get(name) ?? 0) + 1
    names.set(name, nth)
    const write = { name, nth }
    if (has('crash')) singles.push({ fault: 'crash', when: 'before', write }, { fault: 'crash', when: 'after', write })
    if (has('lostAnswer')) singles.push({ fault: 'lostAnswer', when: 'after', write })
    if (has('zombie')) singles.push({ fault: 'zombie', when: 'before', write })
    if (has('slowCommit')) singles.push({ fault: 'slowCommit', when: 'after', write })
  }
  return singles
}

class Judge {
  readonly failures: ExploreFailure[] = []
  readonly #options: ExploreOptions<unknown>
  #first: Ending | undefined
  #expected: Expected | undefined

  constructor(options: ExploreOptions<unknown>) {
    this.#options = options
  }

  get ignored(): ReadonlySet<string> {
    return this.#expected?.ignored ?? new Set()
  }

  /** From the two undisturbed runs. */
  async learn(seen: Observation): Promise<Scouted> {
    const ending = await endingOf(seen, this.#options.compare as never)
    if (this.#first === undefined) {
      this.#first = ending
      const findings = [...(await this.#invariant(seen)), ...judgeCase(seen, ending, { ending, ignored: new Set() })]
      await this.#report(seen, findings, { faultPoints: [] })
    } else this.#expected = expectationOf(this.#first, ending)
    return { workflow: seen.run.workflow, ending: ending.status, error: ending.error, writes: seen.writes, claims: seen.claims }
  }

  /** Where the fault was; undefined where the case did not come by its point. */
  async judge(seen: Observation, played: Case): Promise<string | undefined> {
    if ((seen.points.length === 0 && played.faultPoints.length > 0) || this.#expected === undefined) return undefined
    const ending = await endingOf(seen, this.#options.compare as never)
    const findings = judgeCase(seen, ending, this.#expected)
    const isOver = ending.status === this.#expected.ending.status
    if (isOver) findings.push(...(await this.#invariant(seen)))
    return this.#report(seen, findings, played)
  }

  async #invariant(seen: Observation): Promise<Finding[]> {
    const { world, run, events, state } = seen
    try {
      await this.#options.invariant?.({ world, run, events, state, output: run.output })
      return []
    } catch (error) {
      return [{ check: 'invariant', message: error instanceof Error ? error.message : String(error) }]
    }
  }

  async #report(seen: Observation, findings: readonly Finding[], played: Case): Promise<string> {
    const order = played.order === undefined ? '' : `, bodies ending in order ${played.order}`
    const point = `${seen.points.length === 0 ? 'undisturbed' : seen.points.join('; then ')}${order}`
    if (findings.length === 0) return point
    const seed = formatSeed(played)
    const bundle = this.failures.length < mostBundles ? await seen.exportBundle() : undefined
    const failure: ExploreFailure = { point, onRecord: seen.onRecord, findings, seed, ...(bundle !== undefined && { bundle }) }
    const { bundles } = this.#options
    const file = bundle === undefined || bundles === undefined ? undefined : await writeBundle(bundles, seed, bundle)
    this.failures.push(file === undefined ? failure : { ...failure, file })
    return point
  }
}

async function writeBundle(folder: string, seed: string, bundle: unknown): Promise<string> {
  const file = join(folder, `${(seed === '' ? 'undisturbed' : seed).replaceAll(/[^\w.-]+/g, '-')}.json`)
  await mkdir(folder, { recursive: true })
  await writeFile(file, JSON.stringify(bundle))
  return file
}

async function inParallel<Item>(items: readonly Item[], lanes: number, act: (item: Item) => Promise<void>): Promise<void> {
  let next = 0
  const lane = async (): Promise<void> => {
    while (next < items.length) await act(items[next++] as Item)
  }
  await Promise.all(Array.from({ length: Math.max(1, Math.min(lanes, items.length)) }, lane))
}
