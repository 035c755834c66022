import { randomBytes } from 'node:crypto'
import type { HoldfastError } from '../../model/errors.ts'
import { closedError, goneError, troubleOf, unknownError, unreachableError } from './errors.ts'
import { lifeKey } from './keys.ts'
import type { Link, LinkSource, Reply } from './link.ts'
import type { Script } from './scripts/script.ts'
import { openSlotScript, recallScript } from './scripts/slots.ts'
import { checkSettings, type Durability } from './settings.ts'

export type { Reply } from './link.ts'

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
 * The way to one namespace: carries scripts out, and keeps writes from being lost or doubled when connections break.
 *
 *   K1  A write goes out under a number of its own, and its answer is kept by the server under that number. Sent again, it is
 *       answered and not done again. So a connection that breaks is no failure: the write is sent again over the next one.
 *   K2  Numbers of a slot rise, and a slot has one write under way. A copy that was stuck in a dead connection and arrives late
 *       is refused, whatever was decided meanwhile.
 *   K3  `store_unavailable` and `storage_full` mean that no copy of the write was carried out. Once a copy was sent and not
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
  #life = ''
  #underWay = 0
  #isClosed = false
  #whenIdle: (() => void) | null = null
  readonly #closing = new AbortController()

  private constructor(source: LinkSource, { namespace, durability, patience }: ConnectionOptions) {
    this.namespace = namespace
    this.#source = source
    this.#key = lifeKey(namespace)
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

  /** The life of the namespace, from the first migrate on. */
  get life(): string {
    return this.#life
  }

  set life(life: string) {
    if (this.#life !== '' && this.#life !== life) throw goneError(this.namespace, life)
    this.#life = life
  }

  /** Carries out a script that changes nothing, or the same when it is sent twice. */
  async repeat(script: Script, ...args: readonly (string | Buffer)[]): Promise<Reply> {
    return this.#count(() => this.#carryOut({ script, args: [this.#life, ...args], isRepeatable: true }))
  }

  /** The same for what is of no use later: it is given up after `withinMs`, and with it a connection that does not answer. */
  async repeatWithin(withinMs: number, script: Script, ...args: readonly (string | Buffer)[]): Promise<Reply> {
    return this.#count(() => this.#carryOut({ script, args: [this.#life, ...args], isRepeatable: true, withinMs }))
  }

  /** Carries out a script that must be done once (K1). `canRecall`: what the server keeps is the answer itself. */
  async once(script: Script, offsetMs: number, args: readonly (string | Buffer)[], { canRecall = true } = {}): Promise<Reply> {
    return this.#count(async () => {
      for (;;) {
        const slot = this.#freeSlots.pop() ?? (await this.#openSlot())
        slot.number += 1
        const number = String(slot.number).padStart(16, '0')
        const all = [this.#life, String(offsetMs), slot.name, number, ...args]
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
    await this.#carryOut({ script: openSlotScript, args: [this.#life, name], isRepeatable: true })
    return { name, number: 0 }
  }

  /** Begins the life of the namespace, before any life is known. */
  async begin(script: Script, life: string): Promise<string> {
    return String(await this.#count(() => this.#carryOut({ script, args: [life], isRepeatable: true })))
  }

  /** Tells subscribers, if that is possible right now. Answers how many heard it. */
  async publish(channel: string, message: string): Promise<number> {
    if (this.#isClosed || this.#link?.isReady !== true) return 0
    return (await this.#link.send(['PUBLISH', channel, message])) as number
  }

  listen(...args: Parameters<LinkSource['listen']>): () => void {
    return this.#source.listen(...args)
  }

  /** Waits for what is under way, then ends what was opened here. */
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
    /** Why a copy of a write stayed without an answer: from then on it may have been carried out (K3). */
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

  /** What a write was answered whose answer was lost, when it cannot be sent again because the server takes no writes now. */
  async #recall(link: Link, [slot, number]: readonly [string, string]): Promise<Reply | undefined> {
    try {
      const call = { script: recallScript, args: [this.#life, '0', slot, number], isRepeatable: true }
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

  /** One attempt for all who wait. The settings are looked at each time: another server may have taken the place of the first. */
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
  /** After this it is of no use. */
  readonly withinMs?: number
}

interface Exchange {
  /** Whether the server is taken to know the script. */
  readonly isLoaded: boolean
  /** When the call began, by performance.now(). */
  readonly startedAt: number
}

/** The server does not know the slot of a write any more, and has not carried it out (K5). */
class SlotForgotten extends Error {}

function isGone(error: HoldfastError): boolean {
  return error.details['found'] !== undefined
}

function toConnectError(cause: unknown, namespace: string): HoldfastError {
  const trouble = troubleOf(cause, namespace)
  return 'error' in trouble ? trouble.error : unreachableError(cause)
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
