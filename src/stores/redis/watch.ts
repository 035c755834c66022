import type { Hint } from '../../store/store.ts'
import type { Connection } from './connection.ts'
import { channelOf } from './keys.ts'

/** How often other processes are notified of mere progress, and how often while none listens. */
const progressMs = 25
const quietMs = 1_000
/** More hints than this are sent as one without a name. */
const maxNames = 100

/**
 * Notifies subscribers of changes. Those of this process are notified of its own writes at once, without the server. Other processes are
 * notified through a channel: of what may be waited for (claimable, ended, messages) in the call that writes it, of mere progress soon after,
 * with few names. Any of this may be lost; polling underneath makes up for it.
 */
export class Watch {
  readonly #connection: Connection
  readonly #channel: string
  readonly #listeners = new Set<(hint: Hint) => void>()
  #stopListening: (() => void) | null = null
  #progress = new Map<string, Hint>()
  #progressTimer: NodeJS.Timeout | null = null
  #isHeard = true
  #isClosed = false

  constructor(connection: Connection) {
    this.#connection = connection
    this.#channel = channelOf(connection.namespace)
  }

  subscribe(listener: (hint: Hint) => void): () => void {
    // A wrapper, so that one function subscribed twice is two subscriptions.
    const subscription = (hint: Hint) => listener(hint)
    if (this.#isClosed) return () => {}
    this.#listeners.add(subscription)
    this.#stopListening ??= this.#connection.listen(this.#channel, {
      onMessage: (message) => this.#hear(message),
      onGap: () => this.#tell([{}]),
    })
    return () => {
      this.#listeners.delete(subscription)
      if (this.#listeners.size === 0) this.#stop()
    }
  }

  /** What is published in the call that writes: empty if no process can be waiting for it. */
  publicationOf(hints: readonly Hint[]): string {
    const urgent = hints.filter(({ isClaimable, hasMail }) => isClaimable === true || hasMail === true)
    if (urgent.length === 0) return ''
    const told = urgent.length > maxNames ? [{ isClaimable: true }] : urgent
    return `${this.#connection.sender} ${JSON.stringify(told)}`
  }

  /** After a write: notifies this process now, and others of progress in a moment. */
  tell(hints: readonly Hint[]): void {
    this.#tell(hints)
    for (const hint of hints) {
      if (hint.isClaimable === true || hint.hasMail === true || hint.runId === undefined) continue
      if (this.#progress.size <= maxNames) this.#progress.set(`${hint.owner} ${hint.runId}`, hint)
    }
    if (this.#progress.size === 0 || this.#progressTimer !== null || this.#isClosed) return
    this.#progressTimer = setTimeout(() => void this.#tellProgress(), this.#isHeard ? progressMs : quietMs).unref()
  }

  close(): void {
    this.#isClosed = true
    if (this.#progressTimer !== null) clearTimeout(this.#progressTimer)
    this.#listeners.clear()
    this.#stop()
  }

  #stop(): void {
    this.#stopListening?.()
    this.#stopListening = null
  }

  async #tellProgress(): Promise<void> {
    this.#progressTimer = null
    const hints = [...this.#progress.values()]
    this.#progress.clear()
    try {
      const message = `${this.#connection.sender} ${JSON.stringify(hints.length > maxNames ? [] : hints)}`
      const heardBy = await this.#connection.publish(this.#channel, message)
      this.#isHeard = heardBy > (this.#stopListening === null ? 0 : 1)
    } catch {
      // A hint may be lost.
    }
  }

  #hear(message: string): void {
    const space = message.indexOf(' ')
    if (message.slice(0, space) === this.#connection.sender) return
    try {
      this.#tell(JSON.parse(message.slice(space + 1)) as Hint[])
    } catch {
      // Not a message of ours.
    }
  }

  #tell(hints: readonly Hint[]): void {
    if (this.#listeners.size === 0) return
    for (const hint of hints) {
      for (const listener of [...this.#listeners]) {
        try {
          listener(hint)
        } catch {
          // A hint may be lost; a listener that throws must not make a written change look refused.
        }
      }
    }
  }
}
