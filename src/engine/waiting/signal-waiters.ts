import type { KeptMessage, RunInbox } from './run-inbox.ts'

/** A call that waits for signals. */
export interface SignalWaiter {
  readonly names: readonly string[]
  /** The section that it was made in has its outcome: what it takes would be lost. */
  readonly isOver: boolean
  /** A signal may be there for it. */
  wake(): void
}

/**
 * Who waits for which signal. A signal goes to the latest call of its name that waits: the earlier ones are, as a rule, the losers of races that
 * are not listened to any more. A call that is withdrawn takes nothing.
 */
export class SignalWaiters {
  readonly #inbox: RunInbox
  readonly #byName = new Map<string, SignalWaiter[]>()

  constructor(inbox: RunInbox) {
    this.#inbox = inbox
  }

  add(waiter: SignalWaiter): void {
    for (const name of waiter.names) {
      const others = this.#byName.get(name)
      if (others === undefined) this.#byName.set(name, [waiter])
      else others.push(waiter)
    }
  }

  /** It takes no signal any more: those that are there are for others. */
  remove(waiter: SignalWaiter): void {
    for (const name of waiter.names) {
      const left = (this.#byName.get(name) ?? []).filter((one) => one !== waiter)
      if (left.length === 0) this.#byName.delete(name)
      else this.#byName.set(name, left)
    }
    this.wakeFor(waiter.names.filter((name) => this.#inbox.firstSignal([name]) !== undefined))
  }

  /** The oldest signal that is for this call. The change that records it has to name it in `reads`. */
  take(waiter: SignalWaiter): KeptMessage | undefined {
    // Its section may have ended since it was woken: the signal is for another call, which was not woken.
    if (waiter.isOver) this.remove(waiter)
    const message = this.#inbox.firstSignal(waiter.names.filter((name) => this.#latest(name) === waiter))
    if (message === undefined) return undefined
    this.#inbox.takeSignal(message)
    this.remove(waiter)
    return message
  }

  /** Signals of these names are there. */
  wakeFor(names: Iterable<string>): void {
    for (const name of names) this.#latest(name)?.wake()
  }

  #latest(name: string): SignalWaiter | undefined {
    return this.#byName.get(name)?.findLast(({ isOver }) => !isOver)
  }
}
