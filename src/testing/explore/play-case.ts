import { setTimeout as delay } from 'node:timers/promises'
import { type AnyWorkflow, type Holdfast, open, type RunDetails, type RunEvent, type ThreadBundle } from '../../index.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Change } from '../../store/change.ts'
import type { Store } from '../../store/store.ts'
import { type InterceptedCall, interceptCalls } from '../intercept-calls.ts'
import { createTestClock, type TestClock } from '../test-clock.ts'
import { CaseDriver } from './case-driver.ts'
import { runId, type Setup } from './case-setup.ts'
import { EndOrder } from './end-order.ts'
import { ExploredProcess, type InjectedFault, leaseMs } from './explored-process.ts'
import { isTelling, type NamedWrite, nameEvent } from './name-write.ts'

/** What can happen to the process that executes a run. */
export type Fault = 'crash' | 'lostAnswer' | 'zombie' | 'slowCommit'

/** Where in a case something happens to the process that executes it. */
export interface FaultPoint {
  readonly fault: Fault
  /** Before a write, after it, or after a claim. */
  readonly when: 'before' | 'after' | 'claim'
  /** The write by its name, and which of that name; or the n-th of its process, whatever it is. */
  readonly write: { readonly name: string; readonly nth: number } | { readonly nth: number }
}

/** One way in which a run can go. */
export interface Case {
  readonly faultPoints: readonly FaultPoint[]
  /** Decides in which order bodies end that run at the same time. Absent: as they do. */
  readonly order?: number
}

/** A function of the user's that was called. */
export interface ObservedCall extends InterceptedCall {
  /** Which process of the case called it, from 1. */
  readonly process: number
  /** Its result was on record when it was called. */
  readonly isRecorded: boolean
  /** How it ended, once it has. */
  end?: { readonly value: unknown } | { readonly error: unknown }
}

export interface Observation {
  readonly world: unknown
  readonly run: RunDetails
  readonly events: readonly RunEvent[]
  readonly state: unknown
  readonly calls: readonly ObservedCall[]
  /** Where faults were injected, in the words of the log, in order. */
  readonly points: readonly string[]
  /** What was on record then. */
  readonly onRecord: string
  /** Writes of the first process, and how many claims it made. */
  readonly writes: readonly NamedWrite[]
  readonly claims: number
  /** Why the case was given up: nothing happened any more, or it did not end. */
  readonly hang?: string
  /** Effects that a person was asked about and did not decide. */
  readonly undecided: readonly string[]
  readonly exportBundle: () => Promise<ThreadBundle>
}

/** Plays one case: faults are injected at their points, another process takes over, people answer, time passes, until nothing is left to do. */
export async function playCase<Result>(
  setup: Setup,
  played: Case,
  judge: (seen: Observation) => Promise<Result>,
  startAt?: number,
): Promise<Result> {
  const clock = createTestClock(startAt)
  const { store, close } = await setup.createStore({ clockOffsetMs: clock.clockOffsetMs })
  const player = new CasePlayer(setup, played, { store, clock, world: await setup.world() })
  try {
    await player.open()
    return await judge(await player.play())
  } finally {
    await player.close()
    await close()
  }
}

class CasePlayer {
  readonly #setup: Setup
  readonly #faultPoints: FaultPoint[]
  readonly #order: EndOrder | undefined
  readonly #store: Store
  readonly #clock: TestClock
  readonly #world: unknown
  readonly #processes: ExploredProcess[] = []
  readonly #calls: ObservedCall[] = []
  readonly #points: string[] = []
  readonly #writes: NamedWrite[] = []
  readonly #record: string[] = []
  /** Steps and effects of the run by path and count: the last that the log says of them. */
  readonly #standing = new Map<string, string>()
  #onRecord = ''
  #claims = 0
  /** The process that executes now: its number, and what it has done so far. One that stalled is no longer it. */
  #current = 0
  #count = { writes: 0, claims: 0, names: new Map<string, number>() }
  #wake: (() => void) | undefined
  #starting: Promise<void> | undefined
  #bodies = 0
  #hf!: Holdfast
  #driver!: CaseDriver
  #workflow!: AnyWorkflow

  constructor(setup: Setup, { faultPoints, order }: Case, around: { store: Store; clock: TestClock; world: unknown }) {
    this.#setup = setup
    this.#faultPoints = [...faultPoints]
    this.#order = order === undefined ? undefined : new EndOrder(order)
    this.#store = around.store
    this.#clock = around.clock
    this.#world = around.world
  }

  /** The client outside, which starts the run, answers for people and looks; nothing happens to it. */
  async open(): Promise<void> {
    this.#workflow = this.#setup.workflow(this.#world as never)
    this.#hf = await open(this.#store, { worker: false, logger: false })
    this.#driver = new CaseDriver({
      ...{ hf: this.#hf, store: this.#store, clock: this.#clock, setup: this.#setup },
      workflows: () => [this.#workflow as AnyWorkflow, ...this.#setup.workflows(this.#world as never)].map(({ name }) => name),
      starting: () => this.#starting,
      sentUnder: (key) =>
        this.#calls.find((call) => call.kind === 'effect' && call.key === key && 'value' in (call.end ?? {}))?.end,
    })
    this.#store.subscribe?.(() => this.#driver.changed())
  }

  async play(): Promise<Observation> {
    await this.#startProcess()
    const run = await this.#hf.start(this.#workflow, this.#setup.input(this.#world as never) as never, { id: runId })
    let hang = await this.#driver.drive()
    // A process that stalled continues now. What it has begun is awaited.
    if (this.#wake !== undefined) {
      this.#wake()
      await this.#driver.untilStill(() => this.#bodies > 0)
      hang = await this.#driver.drive()
    }
    return {
      world: this.#world,
      run: await run.info(),
      events: await run.events(),
      state: await this.#hf.thread(run.threadId).state(),
      ...{ calls: this.#calls, points: this.#points, onRecord: this.#onRecord, writes: this.#writes, claims: this.#claims },
      ...(hang !== undefined && { hang }),
      undecided: [...this.#driver.undecided],
      exportBundle: () => this.#hf.debug.export(runId),
    }
  }

  async close(): Promise<void> {
    this.#wake?.()
    await this.#starting
    for (const process of this.#processes) await process.dispose()
    await this.#hf?.close()
  }

  // ── the processes ────────────────────────────────────────────────────────

  async #startProcess(): Promise<void> {
    const nth = this.#processes.length + 1
    this.#current = nth
    this.#count = { writes: 0, claims: 0, names: new Map() }
    const process = await ExploredProcess.start(this.#store, {
      runId,
      times: this.#setup.times,
      workflows: (of) => {
        // Made anew, as a new process would: nothing that they keep in memory outlives the one before.
        const wrap = interceptCalls((call, proceed) => this.#carryOut(of, nth, call, proceed))
        const world = this.#world as never
        const main = nth === 1 ? this.#workflow : this.#setup.workflow(world)
        return [main, ...this.#setup.workflows(world)].map(wrap)
      },
      hooks: {
        onWrite: (write) => this.#onWrite(nth, write),
        onClaim: () => this.#onClaim(nth),
        onWritten: (changes) => this.#onWritten(changes),
        onDeath: () => this.#replace(),
      },
    })
    this.#processes.push(process)
  }

  /** The lease of the one that is gone runs out, and another process is started. */
  #replace(): void {
    this.#starting = (async () => {
      // What a dead process had sent to the world arrives there before that.
      for (let tries = 0; tries < 20 && this.#bodies > 0; tries++) await delay(5)
      this.#clock.advance(leaseMs + 1)
      await this.#startProcess()
      this.#starting = undefined
      this.#driver.changed()
    })()
  }

  /** Calls a function of the user's, unless its process is dead. */
  #carryOut(of: ExploredProcess, process: number, call: InterceptedCall, proceed: () => unknown): unknown {
    if (of.isDead) return new Promise(() => {})
    // A process that stalled can't know what another has recorded, and begins one more body at most.
    const isCurrent = process === this.#current
    const last = this.#standing.get(call.key.slice(runId.length + 1))
    const isRecorded = isCurrent && call.kind === 'step' && last === 'step_completed'
    const noted: ObservedCall = { ...call, process, isRecorded }
    this.#calls.push(noted)
    if (call.kind === 'section') return proceed()
    const end = (how: NonNullable<ObservedCall['end']>) => {
      noted.end = how
      this.#bodies--
      this.#driver.changed()
    }
    this.#bodies++
    let made: unknown
    try {
      made = proceed()
    } catch (error) {
      end({ error })
      throw error
    }
    if (this.#order !== undefined) made = this.#order.hold(Promise.resolve(made))
    if (made instanceof Promise)
      made.then(
        (value: unknown) => end({ value }),
        (error: unknown) => end({ error }),
      )
    else end({ value: made })
    return made
  }

  #onWrite(nth: number, write: NamedWrite): InjectedFault | undefined {
    if (nth === 1) this.#writes.push(write)
    if (nth !== this.#current) return undefined
    const count = this.#count
    count.writes++
    for (const name of write.names) count.names.set(name, (count.names.get(name) ?? 0) + 1)
    const [faultPoint] = this.#faultPoints
    if (faultPoint === undefined || faultPoint.when === 'claim' || !isAt(faultPoint, write, count)) return undefined
    this.#faultPoints.shift()
    return this.#inject(faultPoint, write)
  }

  #onClaim(nth: number): InjectedFault | undefined {
    if (nth === 1) this.#claims++
    if (nth !== this.#current) return undefined
    const [faultPoint] = this.#faultPoints
    if (++this.#count.claims !== faultPoint?.write.nth || faultPoint.when !== 'claim') return undefined
    this.#faultPoints.shift()
    const last = this.#record.at(-1)
    this.#note(`after the claim of the run${last === undefined ? '' : ` with ${last} on record`}, before it did anything`)
    return { kind: 'crash', when: 'after' }
  }

  #inject({ fault, when }: FaultPoint, { names }: NamedWrite): InjectedFault {
    const what = names.length > 3 ? `${names.slice(0, 3).join(', ')}, …` : names.join(', ')
    const last = this.#record.at(-1)
    const between = `${last === undefined ? '' : `after ${last}, `}before ${what}`
    const until = () => this.#stall()
    switch (fault) {
      case 'crash':
        this.#note(when === 'before' ? between : `after ${what}, before the process learned that it was written`)
        return { kind: 'crash', when: when === 'before' ? 'before' : 'after' }
      case 'lostAnswer':
        this.#note(`after ${what}, whose answer was lost`)
        return { kind: 'lostAnswer' }
      case 'zombie':
        this.#note(`${between}, where the process stalled and another took over`)
        return { kind: 'stall', when: 'before', until }
      case 'slowCommit':
        this.#note(`after ${what}, whose answer arrived after another process had taken over`)
        return { kind: 'stall', when: 'after', until }
    }
  }

  #note(point: string): void {
    this.#points.push(point)
    const standing = [...this.#standing].map(([call, last]) => `${call} (${last.replace(/^[a-z]+_/, '')})`)
    this.#onRecord = standing.length === 0 ? 'nothing' : `${standing.length > 4 ? '…, ' : ''}${standing.slice(-4).join(', ')}`
  }

  #stall(): Promise<void> {
    const woken = new Promise<void>((resolve) => {
      this.#wake = () => {
        this.#wake = undefined
        resolve()
      }
    })
    this.#replace()
    return woken
  }

  #onWritten(changes: readonly Change[]): void {
    for (const change of changes) {
      for (const event of change.events) {
        if (change.runId === runId) this.#stand(event)
        if (isTelling(event)) this.#record.push(`${nameEvent(event)}${change.runId === runId ? '' : ` of run "${change.runId}"`}`)
      }
    }
    this.#driver.changed()
  }

  #stand({ type, step, count }: NewEvent): void {
    if (step !== null && /^(step|effect|timer|question|child|signal)_/.test(type)) this.#standing.set(`${step}#${count}`, type)
  }
}

function isAt({ write }: FaultPoint, { names }: NamedWrite, count: { writes: number; names: Map<string, number> }): boolean {
  if (!('name' in write)) return write.nth === count.writes
  return names.includes(write.name) && count.names.get(write.name) === write.nth
}
