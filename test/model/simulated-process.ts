import { setTimeout as delay } from 'node:timers/promises'
import type { Holdfast, Store } from 'holdfast'
import type { Fault } from './acts.ts'
import { quietMs } from './grounds.ts'
import type { ForeignAwait, Process } from './interpret.ts'
import { holdfast, wrapStore } from './target.ts'

/** How long a lease lasts by the store's clock: nobody loses one by accident when a case moves the clock to fire timers. */
export const leaseMs = 3_600_000

export interface SimulatedProcessOptions {
  readonly nth: number
  readonly store: Store
  readonly owner: string
  readonly hasWorker: boolean
  readonly workflows: (process: Process) => Parameters<typeof holdfast.open>[1]
  /** Asked at each write, with its number: what goes wrong there. */
  readonly faultAt: () => Fault | undefined
  /** A fault strikes. */
  readonly onFault: (fault: Fault, process: SimulatedProcess) => Promise<void>
  /** A write of this process is done, and its reply on the way. */
  readonly onWritten: (act: string) => Promise<void> | undefined
}

/**
 * A client that looks like a process: when it dies, nothing that it does reaches the store or the world any more. What it waits for is not
 * answered until it is buried.
 */
export class SimulatedProcess implements Process {
  readonly nth: number
  isDead = false
  readonly awaits = new Set<ForeignAwait>()
  readonly died: Promise<void>
  #tellDeath = () => {}
  #isBuried = false
  readonly #unanswered: ((error: Error) => void)[] = []
  /** What the store was asked for and has not answered: claims and writes. */
  #underWay = 0
  #hf: Holdfast | undefined

  static async start(options: SimulatedProcessOptions): Promise<SimulatedProcess> {
    const process = new SimulatedProcess(options.nth)
    const store = process.#wrap(options)
    const hf = await holdfast.open(store, {
      ...options.workflows(process),
      logger: silent,
      worker: options.hasWorker ? ({ pollMs: 10, leaseMs, closeGraceMs: 0, quietMs } as never) : false,
    })
    process.#hf = hf
    process.hf = hf.as(options.owner)
    return process
  }

  /** Bound to the case's owner. */
  hf!: Holdfast

  private constructor(nth: number) {
    this.nth = nth
    this.died = new Promise((resolve) => {
      this.#tellDeath = resolve
    })
  }

  die(): void {
    this.isDead = true
    this.#tellDeath()
  }

  /** The runs whose functions await something of their own, or did so when the write was made that now fails. */
  get awaiting(): string[] {
    const isLately = ({ endedAt }: ForeignAwait) => endedAt === undefined || performance.now() - endedAt < 50
    return [...new Set([...this.awaits].filter(isLately).map(({ run }) => run))]
  }

  /** The store has done what was asked of it before the death: from now on no lease that the process has is granted or extended. */
  async untilStill(): Promise<void> {
    // What had been let through by then reaches the store in this turn.
    await delay(1)
    for (let tries = 0; tries < 1_000 && this.#underWay > 0; tries++) await delay(1)
  }

  /** Whoever waits for an answer gets none: the client can be closed. */
  async bury(): Promise<void> {
    this.die()
    this.#isBuried = true
    for (const reject of this.#unanswered) reject(gone())
    await this.#hf?.close().catch(() => {})
  }

  async close(): Promise<void> {
    if (this.isDead) await this.bury()
    else await this.#hf?.close()
  }

  #wrap({ store, faultAt, onFault, onWritten }: SimulatedProcessOptions): Store {
    let struck: Fault | undefined
    return wrapStore(this.#counting(store), {
      before: async (act) => {
        if (this.isDead) await this.#silence()
        if (act !== 'commit' && act !== 'transact') return
        const fault = faultAt()
        if (fault === undefined) return
        if (fault.kind === 'crash' && fault.when === 'before') {
          await onFault(fault, this)
          await this.#silence()
        } else if (fault.kind === 'outage') {
          await onFault(fault, this)
          throw new holdfast.HoldfastError('store_unavailable', 'The store is away.', { retryable: true })
        } else if (fault.kind === 'lost_lease') await onFault(fault, this)
        else struck = fault
      },
      after: async (act) => {
        if (this.isDead) await this.#silence()
        if (act === 'commit' || act === 'transact' || act === 'deliver' || act === 'deleteThread') await onWritten(act)
        if (act !== 'commit' && act !== 'transact') return
        const fault = struck
        struck = undefined
        if (fault?.kind === 'crash') {
          await onFault(fault, this)
          await this.#silence()
        } else if (fault?.kind === 'lost_reply') {
          await onFault(fault, this)
          throw new holdfast.HoldfastError('outcome_unknown', 'The answer got lost.')
        }
      },
    })
  }

  #counting(store: Store): Store {
    const counted = async <T>(answer: Promise<T>): Promise<T> => {
      this.#underWay++
      return answer.finally(() => this.#underWay--)
    }
    const { transact } = store
    return {
      ...wrapStore(store, {}),
      claim: (request) => counted(store.claim(request)),
      renew: (request) => counted(store.renew(request)),
      commit: (changes) => counted(store.commit(changes)),
      ...(transact !== undefined && { transact: (guarded, body) => counted(transact.call(store, guarded, body)) }),
    }
  }

  #silence(): Promise<never> {
    return new Promise((_, reject) => {
      if (this.#isBuried) reject(gone())
      else this.#unanswered.push(reject)
    })
  }
}

function gone(): Error {
  return new holdfast.HoldfastError('closed', 'This process is dead.')
}

export const silent = { debug() {}, info() {}, warn() {}, error() {} }

export async function soon(promise: Promise<unknown>, ms: number): Promise<void> {
  await Promise.race([promise, delay(ms)])
}
