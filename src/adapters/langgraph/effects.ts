import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { isGraphBubbleUp } from '@langchain/langgraph'
import {
  type EffectCheck,
  HoldfastError,
  type KeyedRecord,
  type RecordChange,
  type Records,
  type Resolution,
} from '../../index.ts'
import type { Head, Heads } from './heads.ts'
import { effectKey, senderKey, threadField } from './keys.ts'
import { type Packed, pack, unpack } from './pack.ts'
import { unsureInterrupt } from './unsure-effect.ts'

/** How an effect of a node is carried out, and what is done when its outcome is unknown. */
export interface OnceOptions<T> {
  /** Unique per owner: one key is one effect. Default: derived from thread, task, name and count. */
  readonly key?: string
  /** Carries it out. Throw `NotHappened` if it certainly did not happen. */
  readonly run: (key: string, effect: { readonly signal: AbortSignal | undefined }) => Promise<T> | T
  /** Finds out whether it happened, when a crash or an error left the outcome unknown. */
  readonly check?: (key: string) => Promise<EffectCheck<T>> | EffectCheck<T>
  /** The service deduplicates by key: with an unknown outcome, it is sent again under the same key. */
  readonly idempotent?: boolean
}

/** An effect that a task asks for. */
export interface AskedEffect<T> {
  readonly name: string
  readonly key: string
  /** The key was derived: nothing but its task ever asks for it. */
  readonly isOwn: boolean
  /** The checkpoint that its task began from. */
  readonly checkpointId: string
  /** A hash of what it was called with, where that is compared. */
  readonly input?: string
  readonly options: Pick<OnceOptions<T>, 'run' | 'check' | 'idempotent'>
  readonly signal: AbortSignal | undefined
}

/** What the record of an effect contains. */
interface Kept {
  readonly k: string
  readonly n: string
  /** The checkpoint. */
  readonly c: string
  readonly own?: true
  readonly i?: string
  readonly s: 'intended' | 'unsure' | 'completed'
  /** Who sends it, or has sent it. */
  readonly h: string
  readonly r?: Packed
  /** How it was found out that it happened, where not by its sender. */
  readonly via?: 'check' | 'resolve'
  readonly by?: string
}

interface Found {
  readonly kept: Kept
  readonly version: number
  readonly thread: KeyedRecord['fields']
}

const collection = 'effects'
/** How long an effect is remembered after its thread or checkpoint was deleted. */
const keptAfterDeletionMs = 24 * 3_600_000
const [firstLookMs, longestLookMs] = [20, 500]
/** Pauses before a result is written again that could not be. */
const pausesMs = [100, 300, 1_000, 3_000]

/**
 * Effects of nodes. The intent is durable before `run`, the result after it, both under one key. Who sends it renews a record that expires.
 *
 *   E1  `run` is never entered before its intent is durable.
 *   E2  One process sends at a time. Others wait for its result while it is heard of.
 *   E3  An effect whose outcome is hidden (its sender is gone, or `run` threw) is looked up (`check`), sent again under the same key
 *       (`idempotent`), or left to a person. It is never repeated blindly.
 *   E4  A sender that was taken for dead keeps its result if nobody has decided since; else what was decided counts.
 */
export class Effects {
  readonly #records: Records
  readonly #heads: Heads
  readonly #leaseMs: number

  constructor(records: Records, heads: Heads, leaseMs: number) {
    this.#records = records
    this.#heads = heads
    this.#leaseMs = leaseMs
  }

  /** The result of an effect: the recorded one, or what `run` returns. `head` is that of its thread; `onErased` hears that it is gone with its effects. */
  async carryOut<T>(asked: AskedEffect<T>, head: Head, onErased: (error: HoldfastError) => void): Promise<T> {
    const { name, key, options, signal } = asked
    this.#refuseWhereIntentsGetLost(asked)
    for (let waitMs = firstLookMs, isKnown = false; ; isKnown = true) {
      signal?.throwIfAborted()
      const found = await this.#read(key)
      // A person decided that it did not happen, or its owner was forgotten.
      if (found === undefined && isKnown) await this.#requireThread(head, onErased)
      if (found !== undefined) requireSame(asked, found.kept)
      if (found?.kept.s === 'completed') return unpack(found.kept.r) as T
      if (found !== undefined && (await this.#isUnderWay(found))) {
        await sleep(waitMs)
        waitMs = Math.min(longestLookMs, waitMs * 1.5)
      } else if (found !== undefined && options.check === undefined && options.idempotent !== true) {
        if (await this.#doubt(found)) throw unsureInterrupt(name, key)
      } else {
        const sending = await this.#begin(asked, found, head)
        const done = sending && (await this.#settle(asked, sending, found !== undefined))
        if (done !== undefined) return done.value
      }
    }
  }

  /** A person decides about an effect whose outcome is unknown. */
  async resolve(key: string, { happened, result, by }: Resolution): Promise<void> {
    if (typeof key !== 'string' || typeof happened !== 'boolean') {
      throw new HoldfastError(
        'invalid_input',
        'resolve takes the key of an effect and { happened: true or false }; nothing was decided.',
      )
    }
    const found = await this.#read(key)
    if (found === undefined) {
      throw new HoldfastError('invalid_input', `There is no effect with key ${JSON.stringify(key)}; nothing was decided.`, {
        details: { key },
      })
    }
    if (found.kept.s === 'completed') throw decided(key)
    if (found.kept.s === 'intended' && (await this.#isUnderWay(found))) {
      throw new HoldfastError(
        'conflict',
        `Effect ${JSON.stringify(key)} is being sent right now; nothing was decided. Wait for its result.`,
        {
          retryable: true,
          details: { key },
        },
      )
    }
    const { r: _, ...kept } = found.kept
    const change = happened
      ? this.#put(found, { ...kept, s: 'completed', r: pack(result), via: 'resolve', ...(by !== undefined && { by }) })
      : this.#delete(found)
    if (!(await this.#records.write([change])).ok) throw decided(key)
  }

  /** Whether nobody knows if it happened, and a person has to decide. */
  async isUnsure(key: string): Promise<boolean> {
    return (await this.#read(key))?.kept.s === 'unsure'
  }

  /** Effects of a thread, or of checkpoints that were deleted, are remembered for another day: but not those that may still be asked for. */
  async forget(threadId: string, isDeleted: (checkpointId: string) => boolean = () => true): Promise<void> {
    for (let afterKey: string | undefined; ; ) {
      const where = { field: threadField(threadId) }
      const page = await this.#records.read({ collection, where, limit: 500, ...(afterKey !== undefined && { afterKey }) })
      const gone = page.filter((record) => {
        const { s, c, own } = this.#kept(record)
        return record.expiresAt === null && isDeleted(c) && (s === 'completed' || own === true)
      })
      const touches = gone.map(
        ({ key, version }): RecordChange => ({
          ...{ kind: 'touch', collection, key, expires: { inMs: keptAfterDeletionMs }, ofVersion: version },
        }),
      )
      if (touches.length > 0) await this.#records.write(touches)
      if (page.length < 500) return
      afterKey = page.at(-1)?.key
    }
  }

  async #requireThread(head: Head, onErased: (error: HoldfastError) => void): Promise<void> {
    if ((await this.#heads.read(head)).prefix === head.prefix) return
    const error = this.#heads.deleted(head)
    onErased(error)
    throw error
  }

  /** Writes the intent. Undefined where another process was first. */
  async #begin<T>(
    { name, key, isOwn, checkpointId, input }: AskedEffect<T>,
    found: Found | undefined,
    head: Head,
  ): Promise<Found | undefined> {
    const kept: Kept = {
      ...{ k: key, n: name, c: checkpointId, ...(isOwn && { own: true }), ...(input !== undefined && { i: input }) },
      ...{ s: 'intended', h: randomBytes(9).toString('base64url') },
    }
    const before = { kept, version: found?.version ?? 0, thread: [threadField(head.threadId)] }
    const sender: RecordChange = {
      ...{ kind: 'put', collection, key: senderKey(kept.h), parent: null, threadId: null, fields: [] },
      ...{ payload: this.#records.encode(null), expires: { inMs: this.#leaseMs } },
    }
    const answer = await this.#records.write([this.#put(before, kept), sender, this.#heads.stillAlive(head)], { mustSync: true })
    if (answer.ok) return { ...before, version: before.version + 1 }
    if (this.#heads.isEnd(answer.record)) throw this.#heads.deleted(head)
    return undefined
  }

  /** Finds out whether it happened, or sends it. Undefined where something else was decided meanwhile. */
  async #settle<T>(asked: AskedEffect<T>, sending: Found, isHidden: boolean): Promise<{ readonly value: T } | undefined> {
    const { key, options } = asked
    const renewal = setInterval(() => this.#renew(sending), this.#leaseMs / 3)
    try {
      if (isHidden && options.check !== undefined) {
        const { happened, result } = await options.check(key)
        if (happened) return await this.#complete(sending, result as T, 'check')
      }
      return await this.#complete(sending, await this.#send(asked, sending))
    } finally {
      clearInterval(renewal)
      // Whoever comes next need not wait for this process.
      await this.#records.write([{ kind: 'delete', collection, key: senderKey(sending.kept.h) }]).catch(() => {})
    }
  }

  async #send<T>({ name, key, options, signal }: AskedEffect<T>, sending: Found): Promise<T> {
    try {
      return await options.run(key, { signal })
    } catch (error) {
      // A tool that asks a person has not acted yet.
      if (isNotHappened(error) || isGraphBubbleUp(error)) {
        await this.#records.write([this.#delete(sending)])
        throw error
      }
      if (options.check !== undefined || options.idempotent === true) throw error
      await this.#doubt(sending)
      throw unsureInterrupt(name, key, error)
    }
  }

  async #complete<T>(sending: Found, value: T, via?: 'check'): Promise<{ readonly value: T } | undefined> {
    const kept: Kept = { ...sending.kept, s: 'completed', r: pack(value), ...(via !== undefined && { via }) }
    for (let found = sending, attempt = 0; ; attempt++) {
      try {
        if ((await this.#records.write([this.#put(found, kept)])).ok) return { value }
        const now = await this.#read(kept.k)
        // Decided by a person, or taken over. What another process only doubted is certain now.
        if (now === undefined || now.kept.h !== kept.h || now.kept.s === 'completed') return undefined
        found = now
      } catch (error) {
        const { retryable } = error as { readonly retryable?: unknown }
        const pauseMs = pausesMs[attempt]
        if (retryable !== true || pauseMs === undefined) throw error
        await sleep(pauseMs)
      }
    }
  }

  /** Says that a person has to decide. False where it is no longer as it was found. */
  async #doubt(found: Found): Promise<boolean> {
    if (found.kept.s === 'unsure') return true
    return (await this.#records.write([this.#put(found, { ...found.kept, s: 'unsure' })], { mustSync: true })).ok
  }

  async #read(key: string): Promise<Found | undefined> {
    const [record] = await this.#records.read({ collection, where: { keys: [effectKey(key)] }, limit: 1 })
    return record && { kept: this.#kept(record), version: record.version, thread: record.fields }
  }

  async #isUnderWay({ kept: { s, h } }: Found): Promise<boolean> {
    if (s !== 'intended') return false
    return (await this.#records.read({ collection, where: { keys: [senderKey(h)] }, limit: 1 })).length > 0
  }

  #renew({ kept: { h } }: Found): void {
    const touch: RecordChange = { kind: 'touch', collection, key: senderKey(h), expires: { inMs: this.#leaseMs } }
    // Where that fails for as long as a lease, others take this process for dead (E4).
    this.#records.write([touch]).catch(() => {})
  }

  #put({ version, thread }: Found, kept: Kept): RecordChange {
    return {
      ...{ kind: 'put', collection, key: effectKey(kept.k), parent: null, threadId: null, fields: thread },
      ...{ payload: this.#records.encode(kept), expires: 'never', ifVersion: version },
    }
  }

  #delete({ kept, version }: Found): RecordChange {
    return { kind: 'delete', collection, key: effectKey(kept.k), ifVersion: version }
  }

  #kept({ payload }: KeyedRecord): Kept {
    return this.#records.decode(payload) as Kept
  }

  #refuseWhereIntentsGetLost<T>({ name, options }: AskedEffect<T>): void {
    if (this.#records.keepsIntents || options.check !== undefined || options.idempotent === true) return
    throw new HoldfastError(
      'durability_too_weak',
      `Effect ${JSON.stringify(name)} has neither check nor idempotent, and this store may lose its intent with the machine. ` +
        'Give it one of them, or open a store that flushes every write (Redis: appendonly yes, appendfsync always).',
    )
  }
}

function requireSame<T>({ name, key, input }: AskedEffect<T>, kept: Kept): void {
  if (kept.n === name && kept.i === input) return
  const what = kept.n === name ? 'was called with another input' : `belongs to effect ${JSON.stringify(kept.n)}`
  throw new HoldfastError(
    'input_mismatch',
    `Effect ${JSON.stringify(name)}: key ${JSON.stringify(key)} ${what}; nothing was sent. Give each effect a key of its own. ` +
      'What a node calls must follow from its state: call the model in a node before it.',
    { details: { key, effect: kept.n } },
  )
}

function decided(key: string): HoldfastError {
  return new HoldfastError('already_answered', `Effect ${JSON.stringify(key)} is decided already; nothing was changed.`, {
    details: { key },
  })
}

/** Also one from another copy of this package. */
function isNotHappened(error: unknown): boolean {
  return (error as { readonly code?: unknown } | null)?.code === 'not_happened'
}
