import { randomBytes } from 'node:crypto'
import type { HoldfastError } from '../../model/errors.ts'
import { closedError, goneError, notLetInError, troubleOf, unknownError, unreachableError } from './errors.ts'
import { namespaceKey } from './keys.ts'
import type { Link, LinkSource, Reply } from './link.ts'
import type { Script } from './scripts/script.ts'
import { openSlotScript, recallScript } from './scripts/slots.ts'
import { checkSettings, type Durability } from './settings.ts'

export interface ConnectionOptions {
  readonly namespace: string
  readonly durability: 'full' | 'relaxed'
  readonly patience: Patience
}

/** How long to wait for what, in ms. */
export interface Patience {
  /** For a server that cannot be reached or is not ready, before a call is refused. */
  readonly readyMs: number
  /** For an answer, before the connection is given up. */
  readonly answerMs: number
  /** For the answer to a write that was sent and not answered, over all attempts, before its outcome is unknown. */
  readonly outcomeMs: number
}

/**
 * The way to one namespace: runs scripts, and keeps writes from being lost or done twice when connections break.
 *
 *   K1  Every write has a number, and the server keeps its answer under that number. A write that is sent again gets that answer and
 *       is not done again. So a broken connection is no failure: the write is sent again over the next one.
 *   K2  The numbers in a slot increase, and a slot has at most one write under way. A copy that was stuck in a dead connection and
 *       arrives late is refused, whatever was decided meanwhile.
 *   K3  `store_unavailable` and `storage_full` mean that no copy of the write was done. Once a copy was sent and not
 *       answered, only its answer or `outcome_unknown` can follow.
 *   K4  Every script checks that the namespace is the one that was opened.
 *   K5  A slot is opened before its first write, and the server forgets one that was not used for ten minutes, by its own clock. A write
 *       into a slot that it does not know is refused: however clocks jump and however late a copy arrives, it is not done twice.
 */
export class Connection {
  readonly namespace: string
  readonly #source: LinkSource
  readonly #key: string
  readonly #asked: 'full' | 'relaxed'
  readonly #patience: Patience
  readonly #sender = randomBytes(9).toString('base64url')
  readonly #freeSlots: Slot[] = []
  #slotCount = 0
  #link: Link | null = null
  #connecting: Promise<Link> | null = null
  #durability: Durability | null = null
  #namespaceId = ''
  #underWay = 0
  #isClosed = false
  #whenIdle: (() => void) | null = null
  readonly #closing = new AbortController()

  private constructor(source: LinkSource, { namespace, durability, patience }: ConnectionOptions) {
    this.namespace = namespace
    this.#source = source
    this.#key = namespaceKey(namespace)
    this.#asked = durability
    this.#patience = patience
  }

  static async open(source: LinkSource, options: ConnectionOptions): Promise<Connection> {
    const connection = new Connection(source, options)
    connection.#link = await connection.#connect().catch((cause: unknown) => {
      throw toConnectError(cause, options.namespace)
    })
    return connection
  }

  get durability(): Durability {
    return this.#durability ?? 'none'
  }

  /** Names this process among the writers of the namespace. */
  get sender(): string {
    return this.#sender
  }

  /** The value of the namespace's `life`, known from the first migrate on. */
  get namespaceId(): string {
    return this.#namespaceId
  }

  set namespaceId(id: string) {
    if (this.#namespaceId !== '' && this.#namespaceId !== id) throw goneError(this.namespace, id)
    this.#namespaceId = id
  }

  /** Runs a script that changes nothing, or that may be sent twice. */
  async repeat(script: Script, ...args: readonly (string | Buffer)[]): Promise<Reply> {
    return this.#count(() => this.#carryOut({ script, args: [this.#namespaceId, ...args], isRepeatable: true }))
  }

  /** The same for a script that is of no use later: after `withinMs` it is abandoned, and so is a connection that does not answer. */
  async repeatWithin(withinMs: number, script: Script, ...args: readonly (string | Buffer)[]): Promise<Reply> {
    return this.#count(() => this.#carryOut({ script, args: [this.#namespaceId, ...args], isRepeatable: true, withinMs }))
  }

  /** Runs a script that must be done once (K1). `canRecall`: what the server keeps is the answer itself. */
  async once(script: Script, offsetMs: number, args: readonly (string | Buffer)[], { canRecall = true } = {}): Promise<Reply> {
    return this.#count(async () => {
      for (;;) {
        const slot = this.#freeSlots.pop() ?? (await this.#openSlot())
        slot.number += 1
        const number = String(slot.number).padStart(16, '0')
        const all = [this.#namespaceId, String(offsetMs), slot.name, number, ...args]
        const call = { script, args: all, isRepeatable: false, ...(canRecall && { recall: [slot.name, number] as const }) }
        try {
          const answer = await this.#carryOut(call)
          this.#freeSlots.push(slot)
          return answer
        } catch (error) {
          // Nothing was done, and the next one is new to the server.
          if (error instanceof SlotForgotten) continue
          this.#freeSlots.push(slot)
          throw error
        }
      }
    })
  }

  async #openSlot(): Promise<Slot> {
    const name = `${this.#sender}:${this.#slotCount++}`
    await this.#carryOut({ script: openSlotScript, args: [this.#namespaceId, name], isRepeatable: true })
    return { name, number: 0 }
  }

  /** Opens the namespace, before its id is known. Returns the id it has. */
  async begin(script: Script, id: string): Promise<string> {
    return String(await this.#count(() => this.#carryOut({ script, args: [id], isRepeatable: true })))
  }

  /** Notifies subscribers, if that is possible right now. Returns how many there are. */
  async publish(channel: string, message: string): Promise<number> {
    if (this.#isClosed || this.#link?.isReady !== true) return 0
    return (await this.#link.send(['PUBLISH', channel, message])) as number
  }

  listen(...args: Parameters<LinkSource['listen']>): () => void {
    return this.#source.listen(...args)
  }

  /** Waits for calls under way, then closes what was opened here. */
  async close(): Promise<void> {
    if (!this.#isClosed) {
      this.#isClosed = true
      this.#closing.abort()
      if (this.#underWay > 0) {
        const idle = new Promise<void>((resolve) => {
          this.#whenIdle = resolve
        })
        await withinTime(idle, this.#patience.readyMs).catch(() => {})
      }
    }
    this.#link?.drop()
    this.#link = null
  }

  refuseClosed(): void {
    if (this.#isClosed) throw closedError()
  }

  async #count(act: () => Promise<Reply>): Promise<Reply> {
    this.refuseClosed()
    this.#underWay += 1
    try {
      return await act()
    } finally {
      this.#underWay -= 1
      if (this.#underWay === 0) this.#whenIdle?.()
    }
  }

  async #carryOut(call: Call): Promise<Reply> {
    const startedAt = performance.now()
    let isLoaded = true
    /** Why a copy of a write got no answer: from then on it may have been done (K3). */
    let lostBy: unknown
    for (let failures = 0; ; ) {
      const isInDoubt = lostBy !== undefined
      const patienceMs = isInDoubt ? this.#patience.outcomeMs : this.#patience.readyMs
      const endsAt = startedAt + Math.min(patienceMs, call.withinMs ?? Number.POSITIVE_INFINITY)
      const giveUp = (error: HoldfastError) => (isInDoubt ? unknownError(lostBy) : error)
      let link: Link
      try {
        link = await this.#ready(endsAt)
      } catch (error) {
        throw giveUp(error as HoldfastError)
      }
      try {
        return await this.#exchange(link, call, { isLoaded, startedAt })
      } catch (cause) {
        const trouble = troubleOf(cause, this.namespace)
        if (trouble.kind === 'unloaded') {
          isLoaded = false
          continue
        }
        if (trouble.kind === 'forgotten') throw isInDoubt ? unknownError(lostBy) : new SlotForgotten()
        if (trouble.kind === 'lost') {
          link.drop()
          if (!call.isRepeatable) lostBy = trouble.cause ?? new Error('lost')
          // Also when every new connection breaks in its turn.
          const lastsUntil = call.isRepeatable ? endsAt : startedAt + this.#patience.outcomeMs
          if (performance.now() >= lastsUntil) throw call.isRepeatable ? unreachableError(trouble.cause) : unknownError(lostBy)
        } else {
          const answer = isInDoubt && call.recall !== undefined ? await this.#recall(link, call.recall) : undefined
          if (answer !== undefined) return answer
          if (trouble.kind === 'passing' && trouble.isElsewhere === true) link.drop()
          const isOver = isInDoubt ? isGone(trouble.error) : trouble.kind === 'final'
          if (isOver) throw trouble.error
          if (performance.now() >= endsAt) throw giveUp(trouble.error)
        }
        await this.#pause(failures++)
      }
    }
  }

  /** A script that the server does not know is sent whole: that also reaches the right node of a cluster. */
  #exchange(link: Link, { script, args, withinMs }: Call, { isLoaded, startedAt }: Exchange): Promise<Reply> {
    const head = isLoaded ? ['EVALSHA', script.sha] : ['EVAL', script.text]
    const leftMs = withinMs === undefined ? Number.POSITIVE_INFINITY : startedAt + withinMs - performance.now()
    const answerMs = Math.max(1, Math.min(this.#patience.answerMs, leftMs))
    return withinTime(link.send([...head, '1', this.#key, ...args]), Math.ceil(answerMs))
  }

  /** The lost answer of a write that cannot be sent again because the server refuses writes now. */
  async #recall(link: Link, [slot, number]: readonly [string, string]): Promise<Reply | undefined> {
    try {
      const call = { script: recallScript, args: [this.#namespaceId, '0', slot, number], isRepeatable: true }
      const reply = (await this.#exchange(link, call, { isLoaded: false, startedAt: 0 })) as readonly Reply[]
      return reply[0]
    } catch {
      return undefined
    }
  }

  async #ready(endsAt: number): Promise<Link> {
    for (let failures = 0; ; failures++) {
      if (this.#link?.isReady === true) return this.#link
      if (this.#isClosed) throw closedError()
      try {
        this.#link = await this.#connect()
        if (this.#isClosed) this.#link.drop()
      } catch (cause) {
        const error = toConnectError(cause, this.namespace)
        if (!error.retryable || performance.now() >= endsAt) throw error
        await this.#pause(failures)
      }
    }
  }

  /** One attempt for all waiting calls. The settings are checked each time: another server may have replaced the first. */
  #connect(): Promise<Link> {
    this.#connecting ??= (async () => {
      const link = await this.#source.connect()
      try {
        const atLeast = this.#durability ?? (this.#asked === 'full' ? 'full' : 'none')
        const found = await withinTime(checkSettings(link, atLeast), this.#patience.answerMs)
        this.#durability ??= found
        return link
      } catch (error) {
        link.drop()
        throw error
      }
    })().finally(() => {
      this.#connecting = null
    })
    return this.#connecting
  }

  async #pause(failures: number): Promise<void> {
    if (this.#isClosed) return
    const ms = Math.min(500, 5 * 2 ** failures) * (0.5 + Math.random() / 2)
    await new Promise<void>((resolve) => {
      const timer = setTimeout(done, ms)
      const { signal } = this.#closing
      signal.addEventListener('abort', done, { once: true })
      function done(): void {
        clearTimeout(timer)
        signal.removeEventListener('abort', done)
        resolve()
      }
    })
  }
}

interface Slot {
  readonly name: string
  /** Of its latest write. */
  number: number
}

interface Call {
  readonly script: Script
  readonly args: readonly (string | Buffer)[]
  readonly isRepeatable: boolean
  readonly recall?: readonly [slot: string, number: string]
  /** After this the answer is of no use. */
  readonly withinMs?: number
}

interface Exchange {
  /** Whether the server is taken to know the script. */
  readonly isLoaded: boolean
  /** When the call began, by performance.now(). */
  readonly startedAt: number
}

/** The server no longer knows the slot of a write, and has not done the write (K5). */
class SlotForgotten extends Error {}

function isGone(error: HoldfastError): boolean {
  return error.details['found'] !== undefined
}

function toConnectError(cause: unknown, namespace: string): HoldfastError {
  const trouble = troubleOf(cause, namespace)
  if (!('error' in trouble)) return unreachableError(cause)
  // Nothing of a call was sent yet, so nothing is unknown.
  return trouble.error.code === 'outcome_unknown' ? notLetInError(cause) : trouble.error
}

function withinTime<T>(promise: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms)
    promise.then(
      (value) => {
        clearTimeout(timer)
        resolve(value)
      },
      (error: unknown) => {
        clearTimeout(timer)
        reject(error)
      },
    )
  })
}
