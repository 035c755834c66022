import type { Codec } from '../model/codec.ts'
import { type Fact, type KeptFact, toFact } from '../model/fact.ts'
import { expiresAtOf, type KeyedRecord, type RecordChange } from '../model/record.ts'
import type { Due } from '../store/change.ts'
import type { Store } from '../store/store.ts'
import { doAct, type FactAct, type FactBook, type FactOutcome } from './fact-acts.ts'
import { factCollection, factKey, factQuery, idOfKey, putFact, readKept } from './fact-records.ts'

export interface FactReading {
  readonly store: Store
  readonly codec: Codec
  readonly owner: string
  readonly subject: string
}

/** A fact as it is after acts that are not written yet. */
export interface PendingFact {
  readonly fact: Fact
  readonly kept: KeptFact
}

interface Pending {
  readonly kept: KeptFact
  readonly expires: Due
}

/** What the log says about an act (`memory_written`). */
export interface LoggedAct {
  readonly subject: string
  readonly act: FactAct['act']
  /** What it changed. */
  readonly facts: readonly string[]
  /** As in the histories of these facts. */
  readonly at: number
  readonly why?: string
  readonly by?: string
}

/**
 * Acts on the facts of one subject, until they are written: each sees what those before it did. Where another writer was first, all of them are done
 * again over what is there then.
 */
export class SubjectFacts {
  readonly #reading: FactReading
  readonly #acts: { readonly act: FactAct; readonly now: number }[] = []
  readonly #logged: LoggedAct[] = []
  /** As they are in the store. */
  readonly #found = new Map<string, KeyedRecord | null>()
  #pending = new Map<string, Pending>()
  #last: Promise<unknown> = Promise.resolve()

  constructor(reading: FactReading) {
    this.#reading = reading
  }

  /** Nothing is to be written. */
  get isEmpty(): boolean {
    return this.#pending.size === 0
  }

  get logged(): readonly LoggedAct[] {
    return this.#logged
  }

  /** Resolves when the acts so far were done or refused. */
  get settled(): Promise<unknown> {
    return this.#last
  }

  /** One after the other. What is refused is not kept. */
  do(asked: FactAct | (() => Promise<FactAct>), now: number): Promise<FactOutcome | null> {
    const done = this.#last.then(async () => {
      const act = typeof asked === 'function' ? await asked() : asked
      const before = new Map(this.#pending)
      const changed = new Set<string>()
      try {
        const outcome = await doAct(this.#bookAt(now, changed), act)
        if (changed.size > 0) this.#note(act, now, [...changed])
        return outcome
      } catch (error) {
        this.#pending = before
        throw error
      }
    })
    this.#last = done.catch(() => {})
    return done
  }

  #note(act: FactAct, at: number, facts: readonly string[]): void {
    const { why, by } = act
    this.#acts.push({ act, now: at })
    const { subject } = this.#reading
    this.#logged.push({ subject, act: act.act, facts, at, ...(why !== undefined && { why }), ...(by !== undefined && { by }) })
  }

  /** As they will be once they are written. */
  pendingFacts(now: number): PendingFact[] {
    return [...this.#pending].map(([id, { kept, expires }]) => ({ kept, fact: toFact(id, kept, expiresAtOf(expires, now)) }))
  }

  async records(): Promise<RecordChange[]> {
    const { codec, subject } = this.#reading
    const writes = [...this.#pending].map(async ([id, { kept, expires }]) => {
      return putFact(codec, { subject, id, kept, expires, over: await this.#load(id) })
    })
    return Promise.all(writes)
  }

  /** Whether it writes this record. */
  writes({ collection, key }: Pick<KeyedRecord, 'collection' | 'key'>): boolean {
    const { subject } = this.#reading
    return collection === factCollection && [...this.#pending.keys()].some((id) => factKey(subject, id) === key)
  }

  /** Does all of it again, over a record as it is now. Null: one is gone, and all are read again. */
  async again(record: KeyedRecord | null): Promise<void> {
    if (record === null) this.#found.clear()
    else this.#found.set(idOfKey(this.#reading.subject, record.key), record)
    this.#pending = new Map()
    // What can't be done any more, since what it is about is gone, comes to nothing.
    for (const { act, now } of this.#acts) await doAct(this.#bookAt(now, new Set()), act).catch(() => null)
  }

  #bookAt(now: number, changed: Set<string>): FactBook {
    const { codec, subject } = this.#reading
    return {
      subject,
      now,
      find: async (id) => {
        const pending = this.#pending.get(id)
        if (pending !== undefined) return pending.kept
        const record = await this.#load(id)
        return record === null ? null : (readKept(codec, subject, record)?.kept ?? null)
      },
      expiryOf: (id) => this.#expiryOf(id),
      keep: (id, kept, expires) => {
        changed.add(id)
        this.#pending.set(id, { kept, expires: expires ?? this.#expiryOf(id) })
      },
    }
  }

  /** When it would expire without a change. */
  #expiryOf(id: string): Due {
    const pending = this.#pending.get(id)
    if (pending !== undefined) return pending.expires
    const expiresAt = this.#found.get(id)?.expiresAt ?? null
    return expiresAt === null ? 'never' : { at: expiresAt }
  }

  async #load(id: string): Promise<KeyedRecord | null> {
    const known = this.#found.get(id)
    if (known !== undefined) return known
    const { store, owner, subject } = this.#reading
    const [record = null] = await store.readRecords(factQuery(owner, subject, [id]))
    this.#found.set(id, record)
    return record
  }
}
