import { randomBytes } from 'node:crypto'
import { HoldfastError, type KeyedRecord, type RecordChange, type Records } from '../../index.ts'
import { endKey, headKey, headsOf, livesKey, nameOfPlace, type Place } from './keys.ts'
import { Recent } from './recent.ts'

/** The head of a thread and namespace: its latest checkpoint, and where everything else of it is. */
export interface Head extends Place {
  readonly prefix: string
  /** How many times the thread had been deleted when this began. */
  readonly life: number
  /** The latest checkpoint; undefined where there is none yet. */
  readonly id: string | undefined
  /** Of its record: 0 where there is none. */
  readonly version: number
}

interface HeadPayload {
  readonly t: string
  readonly n: string
  readonly p: string
  readonly l: number
  readonly id: string
}

const collection = 'heads'

export class Heads {
  readonly #records: Records
  /** As this process saw them last: a guess that saves a read, and never more than that. */
  readonly #last = new Recent<Head>(1_000)

  constructor(records: Records) {
    this.#records = records
  }

  /** The head as it is. Where the thread has none, a new one with a prefix of its own. */
  async read(place: Place): Promise<Head> {
    const [key, lives] = [headKey(place), livesKey(place.threadId)]
    const found = await this.#records.read({ collection, where: { keys: [key, lives] }, limit: 2 })
    const record = found.find((one) => one.key === key)
    const ended = found.find((one) => one.key === lives)
    const life = ended === undefined ? 0 : (this.#records.decode(ended.payload) as { readonly life: number }).life
    const head = record === undefined ? undefined : this.decode(record)
    if (head !== undefined && head.life === life) return this.note(head)
    return this.note({ ...place, prefix: newPrefix(), life, id: undefined, version: head?.version ?? 0 })
  }

  /** The head that is probably still right: whoever writes with it is refused if it isn't. */
  async guess(place: Place): Promise<Head> {
    return this.#last.get(nameOfPlace(place)) ?? this.read(place)
  }

  note(head: Head): Head {
    this.#last.set(nameOfPlace(head), head)
    return head
  }

  forget(place: Place): void {
    this.#last.delete(nameOfPlace(place))
  }

  decode(record: KeyedRecord): Head {
    const { t, n, p, l, id } = this.#records.decode(record.payload) as HeadPayload
    return { threadId: t, ns: n, prefix: p, life: l, id, version: record.version }
  }

  /** Heads of a thread, or of all: each namespace that has checkpoints. */
  async all(threadId?: string): Promise<Head[]> {
    const heads: Head[] = []
    const range = headsOf(threadId)
    for (let { afterKey } = range; ; ) {
      const page = await this.#records.read({ collection, ...range, afterKey, limit: 500 })
      heads.push(...page.map((record) => this.decode(record)))
      if (page.length < 500) return this.#alive(heads)
      afterKey = page.at(-1)?.key as string
    }
  }

  /** Without those of threads that are being deleted. */
  async #alive(heads: readonly Head[]): Promise<Head[]> {
    const keys = [...new Set(heads.map(({ threadId }) => livesKey(threadId)))]
    const lives = new Map<string, number>()
    for (let at = 0; at < keys.length; at += 500) {
      const page = await this.#records.read({ collection, where: { keys: keys.slice(at, at + 500) }, limit: 500 })
      for (const { key, payload } of page) lives.set(key, (this.#records.decode(payload) as { life: number }).life)
    }
    return heads.filter(({ threadId, life }) => (lives.get(livesKey(threadId)) ?? 0) === life)
  }

  /** Moves the head to a checkpoint, if it is where it was. */
  move(head: Head, id: string): RecordChange {
    const payload: HeadPayload = { t: head.threadId, n: head.ns, p: head.prefix, l: head.life, id }
    return {
      ...{ kind: 'put', collection, key: headKey(head), parent: null, threadId: null, fields: [] },
      ...{ payload: this.#records.encode(payload), expires: 'never', ifVersion: head.version },
    }
  }

  /** Refuses the whole change where this life of the thread is over: a deletion of what is there then, and is not there now. */
  stillAlive({ threadId, life }: Pick<Head, 'threadId' | 'life'>): RecordChange {
    return { kind: 'delete', collection, key: endKey(threadId, life), ifVersion: 0 }
  }

  /** The error for a change that was refused by `stillAlive`. Who comes next looks whether the thread has begun anew. */
  deleted(place: Place): HoldfastError {
    this.forget(place)
    return threadDeleted(place)
  }

  /** Whether a change was refused by `stillAlive`. */
  isEnd(record: KeyedRecord | null): boolean {
    return record?.collection === collection && record.key.startsWith('e')
  }
}

function threadDeleted({ threadId }: Place): HoldfastError {
  return new HoldfastError(
    'thread_deleted',
    `Thread ${JSON.stringify(threadId)} was deleted while this run was under way; nothing was written. Start anew: a new run begins with an empty thread.`,
    { details: { threadId } },
  )
}

/** 9 bytes: no two are ever the same. */
function newPrefix(): string {
  return randomBytes(9).toString('base64url')
}
