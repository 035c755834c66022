import { createHash, randomBytes } from 'node:crypto'
import type { Hint } from '../../store/store.ts'
import { type Connections, prepareStatement } from './connections.ts'
import type { PgOwnClientLike } from './driver.ts'

/** How long the first notification to this process itself may take. Behind a pooler it never comes, and only polling is left. */
const echoMs = 3_000
/** What one notification may hold is 8,000 bytes; of a flood of names the rest is dropped, as any hint may be. */
const maxBytes = 7_500
const maxNotifications = 4

/**
 * Tells subscribers what changed: this process's writes at once and by name, those of others by LISTEN.
 *
 * Others are told what they may have to act on: a run that became claimable, mail, chunks of a stream, a deleted thread. Steps are not announced;
 * a subscriber in another process polls for them. Announcements are collected while one is in flight and sent on a separate connection, after
 * the commit and outside of it: NOTIFY takes a lock of the whole server, which inside a commit would be held over its flush.
 */
export class Watch {
  readonly #connections: Connections
  readonly #channel: string
  readonly #self = randomBytes(6).toString('hex')
  readonly #notify = prepareStatement('SELECT pg_notify($1, payload) FROM unnest($2::text[]) payload')
  readonly #listeners = new Set<(hint: Hint) => void>()
  #outbox = new Map<string, Hint>()
  #isSending = false
  #listening: PgOwnClientLike | null = null
  #state: 'off' | 'on' | 'given up' | 'closed' = 'off'
  #failures = 0
  #timer: NodeJS.Timeout | undefined

  constructor(connections: Connections, schema: string) {
    this.#connections = connections
    this.#channel = `holdfast_${createHash('sha256').update(schema).digest('hex').slice(0, 16)}`
  }

  subscribe(listener: (hint: Hint) => void): () => void {
    // Wrapped, so that one function subscribed twice is two subscriptions.
    const subscription = (hint: Hint) => listener(hint)
    this.#listeners.add(subscription)
    if (this.#state === 'off') void this.#listen()
    return () => this.#listeners.delete(subscription)
  }

  /** This process has subscribers. */
  get isHeard(): boolean {
    return this.#listeners.size > 0
  }

  /** After a write: tells the subscribers in this process, and announces to others what they may have to act on. */
  tell(hints: readonly Hint[]): void {
    for (const hint of hints) {
      this.#tellHere(hint)
      if (!isForOthers(hint) || this.#state === 'closed') continue
      const key = JSON.stringify([hint.owner, hint.runId ?? hint.threadId])
      this.#outbox.set(key, { ...this.#outbox.get(key), ...hint })
    }
    if (this.#outbox.size > 0 && !this.#isSending) void this.#send()
  }

  /** What announces hints to all processes, this one included, as a statement for the user's transaction. */
  announcementOf(hints: readonly Hint[]): { text: string; values: unknown[] } | null {
    const forAll = hints.filter(isForOthers)
    if (forAll.length === 0) return null
    return { text: this.#notify.text, values: [this.#channel, this.#pack(forAll, 'tx')] }
  }

  async close(): Promise<void> {
    this.#state = 'closed'
    clearTimeout(this.#timer)
    this.#listeners.clear()
    const listening = this.#listening
    this.#listening = null
    await listening?.end().catch(() => {})
  }

  #tellHere(hint: Hint): void {
    for (const listener of [...this.#listeners]) {
      try {
        listener(hint)
      } catch {
        // A hint may be lost; a listener that throws must not make a written change look refused.
      }
    }
  }

  async #send(): Promise<void> {
    this.#isSending = true
    // With what else this turn of the event loop brings.
    await new Promise((resolve) => setImmediate(resolve))
    while (this.#outbox.size > 0 && this.#state !== 'closed') {
      const payloads = this.#pack([...this.#outbox.values()])
      this.#outbox = new Map()
      try {
        if (this.#listening === null) await this.#connections.send(this.#notify, [this.#channel, payloads])
        else await this.#listening.query({ text: this.#notify.text, values: [this.#channel, payloads] })
      } catch {
        // Lost, as any hint may be: polling continues.
      }
    }
    this.#isSending = false
  }

  /** Hints as texts that fit into notifications, each led by the id of its sender. */
  #pack(hints: readonly Hint[], sender = this.#self): string[] {
    const payloads: string[] = []
    let payload = sender
    for (const hint of hints) {
      const { owner, threadId, runId } = hint
      const packed = ` ${encodeURIComponent(JSON.stringify([owner, threadId ?? 0, runId ?? 0, flagsOf(hint)]))}`
      if (payload.length + packed.length > maxBytes) {
        payloads.push(payload)
        if (payloads.length === maxNotifications) return payloads
        payload = sender
      }
      payload += packed
    }
    return [...payloads, payload]
  }

  async #listen(): Promise<void> {
    this.#state = 'on'
    let client: PgOwnClientLike | null = null
    try {
      client = await this.#connections.openApart()
      if (client === null) {
        this.#state = 'given up'
        return
      }
      const hasEcho = await this.#hearEcho(client)
      if (this.#isClosed() || !hasEcho) {
        this.#state = this.#isClosed() ? 'closed' : 'given up'
        await client.end().catch(() => {})
        return
      }
      client.on('end', () => this.#listenAgain())
      this.#listening = client
      this.#failures = 0
      // Something may have happened while this process was not listening.
      this.#tellHere({ isClaimable: true })
    } catch {
      await client?.end().catch(() => {})
      this.#listenAgain()
    }
  }

  #isClosed(): boolean {
    return this.#state === 'closed'
  }

  async #hearEcho(client: PgOwnClientLike): Promise<boolean> {
    const { promise: heard, resolve: hear, reject } = Promise.withResolvers<boolean>()
    // A connection that breaks meanwhile says nothing about what is in between.
    client.on('end', () => reject(new Error('The connection ended.')))
    heard.catch(() => {})
    client.on('notification', ({ payload = '' }: { payload?: string }) => {
      if (payload === `${this.#self} ?`) hear(true)
      else this.#heed(payload)
    })
    await client.query(`LISTEN ${this.#channel}`)
    // By another connection: behind a pooler the notification of this one may come back with its answer, and no later one ever does.
    await this.#connections.send(this.#notify, [this.#channel, [`${this.#self} ?`]])
    const timer = setTimeout(() => hear(false), echoMs)
    try {
      return await heard
    } finally {
      clearTimeout(timer)
    }
  }

  #heed(payload: string): void {
    const [sender, ...packed] = payload.split(' ')
    if (sender === this.#self) return
    for (const text of packed) {
      try {
        const [owner, threadId, runId, flags] = JSON.parse(decodeURIComponent(text)) as [string, string | 0, string | 0, number]
        this.#tellHere({
          owner,
          ...(threadId === 0 ? {} : { threadId }),
          ...(runId === 0 ? {} : { runId }),
          ...(flags & 1 ? { isClaimable: true } : {}),
          ...(flags & 2 ? { hasMail: true } : {}),
          ...(flags & 4 ? { hasChunks: true } : {}),
        })
      } catch {
        // The echo of another, or a later version's.
      }
    }
  }

  #listenAgain(): void {
    this.#listening = null
    if (this.#state !== 'on') return
    this.#failures += 1
    this.#timer = setTimeout(() => void this.#listen(), Math.min(30_000, 250 * 2 ** this.#failures)).unref()
  }
}

function isForOthers(hint: Hint): boolean {
  return flagsOf(hint) > 0
}

function flagsOf({ isClaimable, hasMail, hasChunks }: Hint): number {
  return (isClaimable === true ? 1 : 0) + (hasMail === true ? 2 : 0) + (hasChunks === true ? 4 : 0)
}
