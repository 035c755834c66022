import { setTimeout as delay } from 'node:timers/promises'
import { type AnyWorkflow, type Holdfast, HoldfastError, open } from '../../index.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { Claim, Hint, Store } from '../../store/store.ts'
import { byStoreClock, none } from '../by-store-clock.ts'
import { type NamedWrite, nameWrite } from './name-write.ts'

/** What happens to a process at one of its writes or claims. */
export type InjectedFault =
  /** It is gone before the store hears of the write, or after the store has done it. */
  | { readonly kind: 'crash'; readonly when: 'before' | 'after' }
  /** The write is done, and its answer lost. */
  | { readonly kind: 'lostAnswer' }
  /** The process stalls, before the write or before its answer, until this resolves. */
  | { readonly kind: 'stall'; readonly when: 'before' | 'after'; readonly until: () => Promise<void> }

export interface ProcessHooks {
  /** A write is about to be sent, or a claim was answered with runs (`claim`). What is to happen there? */
  onWrite(write: NamedWrite): InjectedFault | undefined
  onClaim(): InjectedFault | undefined
  /** It is on record. */
  onWritten(changes: readonly Change[]): void
  /** The process is dead, and nothing that it sent is under way any more. */
  onDeath(): void
}

/** How long a claim lasts, by the clock of the case, which only moves when it is moved: a crash moves it no further than this. */
export const leaseMs = 1_000

/** How long a process that wakes up only continues with that write, in ms of real time. */
const wakingMs = 10

export interface ProcessTimes {
  readonly quietMs: number
  readonly mismatchMs: number
}

/**
 * A client with a worker that looks like a process of its own: once it is dead, nothing that it does reaches the store, and it hears nothing.
 * `dispose` refuses what it still waits for, which ends its timers.
 */
export class ExploredProcess {
  readonly #hooks: ProcessHooks
  readonly #runId: string
  readonly #unanswered: ((error: Error) => void)[] = []
  readonly #underWay = new Set<Promise<unknown>>()
  #state: 'alive' | 'dead' | 'disposed' = 'alive'
  /** While the process stalls, or makes its last write: other acts wait for it. */
  #halted: Promise<unknown> | undefined
  #hf: Holdfast | undefined

  private constructor(hooks: ProcessHooks, runId: string) {
    this.#hooks = hooks
    this.#runId = runId
  }

  static async start(store: Store, { workflows, runId, hooks, times }: ProcessOptions): Promise<ExploredProcess> {
    const process = new ExploredProcess(hooks, runId)
    process.#hf = await open(process.#wrap(store), {
      workflows: workflows(process),
      logger: false,
      worker: { ...times, leaseMs, ...byStoreClock, closeGraceMs: none },
    })
    return process
  }

  get isDead(): boolean {
    return this.#state !== 'alive'
  }

  /** What waits for an answer is refused, and its client closed. */
  async dispose(): Promise<void> {
    if (this.#state === 'alive') return this.#hf?.close()
    this.#state = 'disposed'
    for (const reject of this.#unanswered.splice(0)) reject(gone())
    await this.#hf?.close().catch(() => {})
  }

  kill(): void {
    if (this.#state !== 'alive') return
    this.#state = 'dead'
    void Promise.allSettled(this.#underWay).then(() => this.#hooks.onDeath())
  }

  #wrap(store: Store): Store {
    return new Proxy(store, {
      get: (target, name) => {
        const member: unknown = Reflect.get(target, name, target)
        if (typeof member !== 'function') return member
        if (name === 'commit') return (changes: readonly Change[]) => this.#commit(target, changes)
        if (name === 'claim') return (request: never) => this.#claim(() => target.claim(request))
        if (name === 'transact') return (request: never, body: never) => this.#transact(target, request, body)
        if (name === 'subscribe')
          return (listener: (hint: Hint) => void) =>
            target.subscribe?.((hint) => {
              if (this.#state === 'alive' && this.#halted === undefined) listener(hint)
            })
        return (...args: never[]) => this.#call(() => member.apply(target, args) as Promise<unknown>)
      },
    })
  }

  async #call<Answer>(send: () => Promise<Answer>): Promise<Answer> {
    await this.#untilMoving()
    return this.#send(send)
  }

  async #send<Answer>(send: () => Promise<Answer>): Promise<Answer> {
    if (this.isDead) return this.#neverAnswer()
    const sent = send()
    this.#track(sent)
    const outcome = await settled(sent)
    await this.#untilMoving()
    return this.isDead ? this.#neverAnswer() : outcome()
  }

  async #commit(store: Store, changes: readonly Change[]): Promise<readonly Committed[]> {
    await this.#untilMoving()
    if (this.isDead) return this.#neverAnswer()
    return this.#inject(this.#hooks.onWrite(nameWrite(changes, this.#runId)), () => this.#written(store.commit(changes), changes))
  }

  async #claim(send: () => Promise<readonly Claim[]>): Promise<readonly Claim[]> {
    const claims = await this.#call(send)
    const fault = claims.length === 0 ? undefined : this.#hooks.onClaim()
    if (fault === undefined) return claims
    this.kill()
    return this.#neverAnswer()
  }

  async #transact(store: Store, request: never, body: (tx: never) => Promise<Change>): Promise<Committed> {
    await this.#untilMoving()
    if (this.isDead) return this.#neverAnswer()
    let fault: InjectedFault | undefined
    const written: Change[] = []
    const run = async (tx: never): Promise<Change> => {
      const change = await body(tx)
      fault = this.#hooks.onWrite(nameWrite([change], this.#runId))
      // The database ends the transaction of a connection that is gone.
      if (fault !== undefined && 'when' in fault && fault.when === 'before') throw gone()
      written.push(change)
      return change
    }
    const sent = store.transact?.(request, run as never) as Promise<Committed>
    this.#track(sent)
    const outcome = await settled(this.#written(sent, written))
    if (fault?.kind === 'stall' && fault.when === 'before') {
      await this.#halt(fault.until(), true)
      return { ok: false, refusal: 'lease_lost' }
    }
    return this.#inject(fault === undefined ? undefined : { ...fault, ...('when' in fault && { when: 'after' }) }, async () =>
      outcome(),
    )
  }

  async #written<Answer>(sent: Promise<Answer>, changes: readonly Change[]): Promise<Answer> {
    const answer = await sent
    const answers = (Array.isArray(answer) ? answer : [answer]) as readonly Committed[]
    this.#hooks.onWritten(changes.filter((_, index) => answers[index]?.ok === true))
    return answer
  }

  async #inject<Answer>(fault: InjectedFault | undefined, send: () => Promise<Answer>): Promise<Answer> {
    if (fault === undefined) return this.#call(send)
    if (fault.kind === 'crash' && fault.when === 'before') {
      this.kill()
      return this.#neverAnswer()
    }
    if (fault.kind === 'stall' && fault.when === 'before') {
      await this.#halt(fault.until(), true)
      return this.#send(send)
    }
    const sent = send()
    this.#track(sent)
    // Others see what it wrote before it does, and its own worker would, too: from here on it sends and hears nothing.
    const outcome = await this.#halt(
      settled(sent).then(async (ended) => {
        if (fault.kind === 'crash') this.kill()
        if (fault.kind === 'stall') await fault.until()
        return ended
      }),
      fault.kind === 'stall',
    )
    if (fault.kind === 'crash') return this.#neverAnswer()
    if (fault.kind === 'stall') return outcome()
    throw new HoldfastError('outcome_unknown', 'The answer to this write was lost.')
  }

  /**
   * No other act is sent or answered until then. A process that wakes up continues with the write at which it stalled before a renewal can tell
   * it that its lease is lost: the worst order of the two.
   */
  async #halt<T>(until: Promise<T>, isWoken: boolean): Promise<T> {
    const halted = until.then(() => (isWoken ? delay(wakingMs) : undefined))
    this.#halted = halted
    void halted.then(() => {
      this.#halted = undefined
    })
    return until
  }

  async #untilMoving(): Promise<void> {
    while (this.#halted !== undefined) await this.#halted
  }

  #track(sent: Promise<unknown>): void {
    this.#underWay.add(sent)
    const end = () => this.#underWay.delete(sent)
    sent.then(end, end)
  }

  #neverAnswer(): Promise<never> {
    return new Promise((_, reject) => {
      if (this.#state === 'disposed') reject(gone())
      else this.#unanswered.push(reject)
    })
  }
}

export interface ProcessOptions {
  readonly workflows: (process: ExploredProcess) => readonly AnyWorkflow[]
  readonly runId: string
  readonly hooks: ProcessHooks
  readonly times: ProcessTimes
}

/** A promise that never rejects: what it resolves with answers or throws as the given one did. */
function settled<T>(promise: Promise<T>): Promise<() => T> {
  return promise.then(
    (answer) => () => answer,
    (error: unknown) => () => {
      throw error
    },
  )
}

function gone(): Error {
  return new HoldfastError('closed', 'This process is gone.')
}
