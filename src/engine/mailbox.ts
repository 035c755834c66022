import { isTerminal, type RunStatus } from '../model/run.ts'
import type { Change } from '../store/change.ts'
import type { Message } from '../store/store.ts'

/** A message that is kept until the function asks for it. */
export type Letter = Message

/** Word that something else has changed, a child or a question: who waits for it looks there, so the message itself is done with. */
const nudges: ReadonlySet<string> = new Set(['child', 'answer'])

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

/**
 * What others sent to a run that is executed here. A message stays in the store's inbox until a change has dealt with it, so
 * that a crash finds it again; what is known and left there counts as mail no more.
 */
export class Mailbox {
  #letters: Letter[] = []
  /** Requests that were read, by id: their kinds. */
  readonly #requests = new Map<number, string>()
  /** Messages that the next change takes out of the inbox. */
  #done: number[] = []
  #seen = 0
  /** The longest quiet time that the run was found to need, for every holder to come: it stays in the inbox. */
  #atWork: { readonly id: number; readonly quietMs: number } | undefined
  /** Word of holders that lived on after their leases, for every holder to come: it stays in the inbox until the run has ended. */
  #outlived: number[] = []
  /** How many nudges have come: who looked before the last of them has to look again. */
  nudgeCount = 0

  /** Takes in what is in the inbox. Returns the requests that were not there before. */
  takeIn(messages: readonly Message[]): readonly Message[] {
    // Ids rise in the order of arrival.
    const added = messages.filter(({ id }) => id > this.#seen)
    this.#seen = added.at(-1)?.id ?? this.#seen
    const requests: Message[] = []
    for (const message of added) {
      if (nudges.has(message.kind)) {
        this.nudgeCount++
        this.#done.push(message.id)
      } else if (message.kind === 'signal') this.#letters.push(message)
      else if (message.kind === outlivedKind) this.#outlived.push(message.id)
      else if (message.kind === atWorkKind) this.#keepLongest({ id: message.id, quietMs: Number(message.name) })
      else {
        this.#requests.set(message.id, message.kind)
        requests.push(message)
      }
    }
    return requests
  }

  /** How long the run was found to need to be quiet; 0 where nothing is known. */
  get quietMs(): number {
    return this.#atWork?.quietMs ?? 0
  }

  /** The oldest signal of a name. The change that records it has to name it in `reads`. */
  takeSignal(name: string): Letter | undefined {
    const letter = this.#letters.find((one) => one.name === name)
    if (letter !== undefined) this.#letters = this.#letters.filter((one) => one !== letter)
    return letter
  }

  /** All signals of some names. The change that deals with them has to name them in `reads`. */
  takeSignals(names: ReadonlySet<string | null>): readonly Letter[] {
    const taken = this.#letters.filter(({ name }) => names.has(name))
    this.#letters = this.#letters.filter(({ name }) => !names.has(name))
    return taken
  }

  /** Nothing is left to do about pauses that were read: the next change takes them out of the inbox. */
  forgetPauses(): void {
    for (const [id, kind] of this.#requests) if (kind === 'pause' || kind === 'resume') this.#settle(id)
  }

  /** Requests of a kind that were carried out, or are on record: the next change takes them out of the inbox. */
  forget(kind: string): void {
    for (const [id, of] of this.#requests) if (of === kind) this.#settle(id)
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
      for (const id of [...this.#requests.keys()]) this.#settle(id)
    if (status !== undefined && isTerminal(status)) {
      this.#done.push(...this.#outlived)
      this.#outlived = []
    }
    const readMessages = [...this.#done, ...reads]
    this.#done = []
    return { ...(readMessages.length > 0 && { readMessages }), ...(this.#isAnyLeft && { mailSeen: this.#seen }) }
  }

  get #isAnyLeft(): boolean {
    return this.#letters.length > 0 || this.#requests.size > 0 || this.#atWork !== undefined || this.#outlived.length > 0
  }

  #keepLongest(found: { readonly id: number; readonly quietMs: number }): void {
    const known = this.#atWork
    const isLonger = known === undefined || found.quietMs > known.quietMs
    this.#atWork = isLonger ? found : known
    if (known !== undefined) this.#done.push(isLonger ? known.id : found.id)
  }

  #settle(id: number): void {
    this.#requests.delete(id)
    this.#done.push(id)
  }
}
