import type { Budget } from '../../model/usage.ts'
import type { Message } from '../../store/store.ts'
import type { BudgetGuard } from '../limits/budget-guard.ts'
import type { Order } from '../replay/tape.ts'
import { InboxReader } from '../waiting/inbox-reader.ts'
import type { QuietTime } from '../waiting/quiet-time.ts'
import { budgetKey, type KeptMessage, RunInbox } from '../waiting/run-inbox.ts'
import { SignalWaiters } from '../waiting/signal-waiters.ts'
import { putBackFrom } from '../waiting/taken-signals.ts'
import type { HeldRun } from './held-run.ts'
import type { Phase } from './phase.ts'
import type { RunJournal } from './run-journal.ts'

/** Reads what others send to a run while it is executed, and does what they ask: requests become stops and orders, the rest wakes calls up. */
export class InboxCommands {
  readonly #run: CommandedRun
  readonly messages = new RunInbox()
  #reader: InboxReader | undefined
  #signals: SignalWaiters | undefined

  constructor(run: CommandedRun) {
    this.#run = run
  }

  /** Calls that wait for signals. */
  get signals(): SignalWaiters {
    this.#signals ??= new SignalWaiters(this.messages)
    return this.#signals
  }

  /** Resolves when everything that is there by now was read. */
  check(): Promise<void> {
    return this.#reading.now()
  }

  /** Null where the inbox is not being read: what a write has told of is known. */
  get underWay(): Promise<void> | null {
    return this.#reader?.underWay ?? null
  }

  /** A result has to wait until the inbox was read. */
  get holdsResults(): boolean {
    return this.#reader?.holdsResults === true
  }

  beforeResult(hasMail: boolean): Promise<void> {
    return this.#reading.beforeResult(hasMail)
  }

  get #reading(): InboxReader {
    this.#reader ??= new InboxReader({ read: () => this.#read(), isOver: () => this.#run.phase.hasEnded })
    return this.#reader
  }

  async #read(): Promise<void> {
    const { run, quiet, suspension, phase } = this.#run
    try {
      const messages = await run.store.readInbox({ owner: run.owner, runId: run.runId })
      const { requests, signals, wakeUps } = this.messages.takeIn(this.#mayHoldPutBack ? this.#dated(messages) : messages)
      quiet.raise(this.messages.quietMs)
      // A run that was asked to stop stays as it is: a wait is a safe point.
      if (!phase.isStopping) {
        suspension.wakeFor(wakeUps)
        this.#signals?.wakeFor(signals)
      }
      this.#carryOut(requests)
    } catch (error) {
      run.log.warn('inbox could not be read', { runId: run.runId, error })
    }
  }

  #carryOut(requests: readonly Message[]): void {
    const { run, stopping, phase } = this.#run
    let pause: { readonly by: string | undefined } | null = null
    for (const request of requests) {
      const data = (request.payload === null ? {} : run.codec.decode(request.payload)) as RequestData
      const { by, to, since, undo } = data
      if (request.kind === 'cancel') stopping.order({ kind: 'cancel', by, ...(undo === false && { undo }) })
      else if (request.kind === 'rollback' && to !== undefined) {
        if (this.#wasRolledBack(to, since)) this.messages.forgetRequest(request.id)
        else stopping.order({ kind: 'rollback', to, by })
      } else if (request.kind === 'pause') pause = { by }
      else if (request.kind === 'resume') {
        pause = null
        this.#raiseBudget(data)
        phase.takeBackPause()
        this.messages.forgetPauses()
      }
    }
    if (pause !== null) stopping.requestPause(pause.by)
  }

  #raiseBudget({ budget, by }: RequestData): void {
    if (budget === undefined) return
    const { budget: guard, suspension, journal } = this.#run
    guard.account.raise(budget)
    // A child that ran out of what it was given may be given more.
    suspension.wakeFor([budgetKey])
    journal.defer(journal.event('budget_raised', null, { data: { budget, ...(by !== undefined && { by }) } }))
  }

  /** A rollback has put signals back, or may have before `continueAs`. */
  get #mayHoldPutBack(): boolean {
    const { tape } = this.#run.run
    return tape.rolledBack.length > 0 || tape.number > 1
  }

  #dated(messages: readonly Message[]): readonly KeptMessage[] {
    return messages.map((message) => {
      const sentAt = putBackFrom(this.#run.run.codec, message)
      return sentAt === undefined ? message : { ...message, sentAt }
    })
  }

  /** Two asked for the same, and it was done for both: the run was resumed since. */
  #wasRolledBack(to: number, since = Number.POSITIVE_INFINITY): boolean {
    return this.#run.run.tape.rolledBack.some((stretch) => stretch.from === to && stretch.to > since)
  }
}

/** What a request in the inbox may say. */
interface RequestData {
  readonly by?: string
  readonly to?: number
  /** Where the log ended when it was asked for. Absent: by a version before this one. */
  readonly since?: number
  readonly undo?: boolean
  readonly budget?: Budget
}

interface CommandedRun {
  readonly run: HeldRun
  readonly phase: Phase
  readonly journal: RunJournal
  readonly quiet: QuietTime
  readonly budget: BudgetGuard
  readonly suspension: { wakeFor(keys: Iterable<string>): void }
  readonly stopping: { requestPause(by?: string): void; order(order: Order): void }
}
