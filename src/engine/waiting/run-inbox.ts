import { isTerminal, type RunStatus } from '../../model/run.ts'
import type { Change } from '../../store/change.ts'
import type { Message } from '../../store/store.ts'

/** A message that is kept until the function asks for it. */
export interface KeptMessage extends Message {
  /** When it was sent, where a rollback has put it back since. */
  readonly sentAt?: number
}

/** Says, by its name in ms, how long this run's function has to be quiet: it was at work when it was thought to be idle. */
export const atWorkKind = 'at_work'

/** Says, by its name `epoch/ms`, that the holder of that epoch lived on after its lease, and how long it had been silent. */
export const outlivedKind = 'outlived'

export function nameOutlived({ epoch, silentMs }: { readonly epoch: number; readonly silentMs: number }): string {
  return `${epoch}/${Math.ceil(silentMs)}`
}

export function readOutlived({ name }: Message): { readonly epoch: number; readonly silentMs: number } {
  const [epoch = 0, silentMs = 0] = (name ?? '').split('/').map(Number)
  return { epoch, silentMs }
}

/** The key of a message that something else has changed, a child or a question: the call that waits for it looks there. */
export function wakeUpKeyOf(kind: 'child' | 'answer', name: string): string {
  return `${kind}:${name}`
}

/** The key of calls that wait for more of the run's budget: it was raised, or a child gave back what was left. */
export const budgetKey = 'budget:'

/**
 * What others sent to a run that is executed here. A message stays in the store's inbox until a change has dealt with it, so
 * that a crash finds it again; what is known and left there counts as mail no more.
 */
export class RunInbox {
  #signals: KeptMessage[] = []
  /** Requests that were read, by id: their kinds. */
  #requests: Map<number, string> | undefined
  /** Messages that only wake a waiting call up, and that none has followed yet, by key. Made when the first one comes. */
  #wakeUps: Map<string, number[]> | undefined
  /** How many have come, by key: a call that looked before the last of them has to look again. */
  #wakeUpCounts: Map<string, number> | undefined
  /** Messages that the next change takes out of the inbox. */
  #done: number[] = []
  #seen = 0
  /** The longest quiet time that the run was found to need, for every holder to come: it stays in the inbox. */
  #atWork: { readonly id: number; readonly quietMs: number } | undefined
  /** Messages of holders that lived on after their leases, for every holder to come: it stays in the inbox until the run has ended. */
  #outlived: number[] = []

  /** Takes in what is in the inbox. Answers with the requests that were not there before, and with what else has come. */
  takeIn(messages: readonly KeptMessage[]): Arrived {
    // Ids rise in the order of arrival.
    const added = messages.filter(({ id }) => id > this.#seen)
    this.#seen = added.at(-1)?.id ?? this.#seen
    const requests: Message[] = []
    const signals = new Set<string>()
    const wakeUps = new Set<string>()
    for (const message of added) {
      const name = message.name ?? ''
      if (message.kind === 'child' || message.kind === 'answer') {
        wakeUps.add(this.#noteWakeUp(wakeUpKeyOf(message.kind, name), message.id))
      } else if (message.kind === 'signal') {
        this.#file(message)
        signals.add(name)
      } else if (message.kind === outlivedKind) this.#outlived.push(message.id)
      else if (message.kind === atWorkKind) this.#keepLongest({ id: message.id, quietMs: Number(name) })
      else {
        this.#requests ??= new Map()
        this.#requests.set(message.id, message.kind)
        requests.push(message)
      }
    }
    return { requests, signals, wakeUps }
  }

  /** How long the run was found to need to be quiet; 0 where nothing is known. */
  get quietMs(): number {
    return this.#atWork?.quietMs ?? 0
  }

  /** The oldest signal of these names. */
  firstSignal(names: readonly string[]): KeptMessage | undefined {
    return this.#signals.find(({ name }) => names.includes(name ?? ''))
  }

  /** The change that records the signal has to name it in `reads`. */
  takeSignal(signal: KeptMessage): void {
    this.#signals = this.#signals.filter((one) => one !== signal)
  }

  /** How many wakeUps of a key have come. */
  wakeUpCount(key: string): number {
    return this.#wakeUpCounts?.get(key) ?? 0
  }

  /** A call looks. What records what was found names these messages in `reads`; where there was nothing, they are done with. */
  takeWakeUps(key: string): readonly number[] {
    const ids = this.#wakeUps?.get(key) ?? []
    this.#wakeUps?.delete(key)
    return ids
  }

  /** A call has looked, and the next holder is to look, too: they stay in the inbox. */
  keepWakeUps(key: string, ids: readonly number[]): void {
    if (ids.length === 0) return
    this.#wakeUps ??= new Map()
    this.#wakeUps.set(key, [...ids, ...(this.#wakeUps.get(key) ?? [])])
  }

  settle(ids: readonly number[]): void {
    this.#done.push(...ids)
  }

  /** No call waits for what they tell of. */
  forgetWakeUps(isAwaited: (key: string) => boolean): void {
    for (const key of this.#wakeUps?.keys() ?? []) if (!isAwaited(key)) this.settle(this.takeWakeUps(key))
  }

  /** Nothing is left to do about pauses that were read: the next change takes them out of the inbox. */
  forgetPauses(): void {
    for (const [id, kind] of this.#requests ?? []) if (kind === 'pause' || kind === 'resume') this.#settleRequest(id)
  }

  /** Requests of a kind that were carried out, or are on record: the next change takes them out of the inbox. */
  forget(kind: string): void {
    for (const [id, of] of this.#requests ?? []) if (of === kind) this.#settleRequest(id)
  }

  /** A request that asks for nothing any more. */
  forgetRequest(id: number): void {
    this.#settleRequest(id)
  }

  /** Nothing is known of that a change would have to mention. */
  get isEmpty(): boolean {
    return !this.#isAnyLeft && this.#done.length === 0
  }

  /** What a change says about the inbox: which messages it has dealt with, and up to which they are known. */
  forChange(status: RunStatus | undefined, reads: readonly number[] = []): Pick<Change, 'readMessages' | 'mailSeen'> {
    // Only what stops the run has dealt with a request: a crash before it must find the request again. One that a pause can't
    // fulfil outlives it.
    if (status === 'paused') this.forgetPauses()
    else if (status !== undefined && status !== 'pending' && status !== 'waiting')
      for (const id of [...(this.#requests?.keys() ?? [])]) this.#settleRequest(id)
    if (status !== undefined && isTerminal(status)) {
      this.#done.push(...this.#outlived)
      this.#outlived = []
    }
    const readMessages = [...this.#done, ...reads]
    this.#done = []
    return { ...(readMessages.length > 0 && { readMessages }), ...(this.#isAnyLeft && { mailSeen: this.#seen }) }
  }

  get #isAnyLeft(): boolean {
    return (
      this.#signals.length > 0 ||
      (this.#requests !== undefined && this.#requests.size > 0) ||
      this.#atWork !== undefined ||
      this.#outlived.length > 0 ||
      (this.#wakeUps !== undefined && this.#wakeUps.size > 0)
    )
  }

  /** In the order in which they were sent: one that was put back was taken before those that have come since. */
  #file(signal: KeptMessage): void {
    const { sentAt } = signal
    const isLater = (one: KeptMessage) =>
      one.sentAt === undefined ? one.at >= (sentAt as number) : one.sentAt > (sentAt as number)
    const index = sentAt === undefined ? -1 : this.#signals.findIndex(isLater)
    if (index === -1) this.#signals.push(signal)
    else this.#signals.splice(index, 0, signal)
  }

  #noteWakeUp(key: string, id: number): string {
    this.#wakeUps ??= new Map()
    this.#wakeUpCounts ??= new Map()
    this.#wakeUps.set(key, [...(this.#wakeUps.get(key) ?? []), id])
    this.#wakeUpCounts.set(key, this.wakeUpCount(key) + 1)
    return key
  }

  #keepLongest(found: { readonly id: number; readonly quietMs: number }): void {
    const known = this.#atWork
    const isLonger = known === undefined || found.quietMs > known.quietMs
    this.#atWork = isLonger ? found : known
    if (known !== undefined) this.#done.push(isLonger ? known.id : found.id)
  }

  #settleRequest(id: number): void {
    this.#requests?.delete(id)
    this.#done.push(id)
  }
}

export interface Arrived {
  readonly requests: readonly Message[]
  /** Names of signals. */
  readonly signals: ReadonlySet<string>
  /** Keys of wakeUps. */
  readonly wakeUps: ReadonlySet<string>
}
