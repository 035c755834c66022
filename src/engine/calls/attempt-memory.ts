import type {
  Memory,
  Profile,
  ProfileMergeOptions,
  SessionMemory,
  SessionSetOptions,
  SessionValue,
  SubjectMemory,
} from '../../define/memory.ts'
import { historyOptionNames, mergeOptionNames, setOptionNames } from '../../define/memory-options.ts'
import {
  type ChangeOrigin,
  checkPatch,
  checkSubject,
  historyQuery,
  isProfileOf,
  type Merge,
  mergeAll,
  mergedRecords,
  profileQuery,
  readChange,
  readProfile,
} from '../../memory/profile.ts'
import {
  checkSession,
  checkSessionKey,
  checkTtl,
  deleteValue,
  pageSize,
  queryAll,
  queryFor,
  readValue,
  refresh,
  setValue,
} from '../../memory/session.ts'
import type { Codec } from '../../model/codec.ts'
import type { EventType, NewEvent } from '../../model/event.ts'
import { pairKey } from '../../model/ids.ts'
import { refuseUnknownOptions } from '../../model/known-options.ts'
import { type KeyedRecord, placeOfRecord, type RecordChange } from '../../model/record.ts'
import type { CallHost } from '../execution/call-host.ts'
import { reportLateWrite } from '../execution/end-errors.ts'
import type { RecordWrites } from '../writing/record-writes.ts'
import { AttemptFacts } from './attempt-facts.ts'
import type { Call } from './calls.ts'

/**
 * The memory of one attempt of a step: what it writes is kept here, seen by its own reads, and committed with its result. A merge of a profile is
 * computed when it is written, and again if another writer was first; the body does not run for that again.
 */
export class AttemptMemory implements Memory, RecordWrites {
  readonly #host: CallHost
  readonly #call: Call
  readonly #attempt: number
  readonly #body: { readonly isOver: boolean }
  /** By place: the last write of each value. */
  readonly #writes = new Map<string, { readonly change: RecordChange; readonly logged?: LoggedWrite }>()
  readonly #subjects = new Map<string, SubjectWrites>()
  /** Made when facts are first asked for. */
  #facts: AttemptFacts | undefined

  constructor(host: CallHost, call: Call, attempt: number, body: { readonly isOver: boolean }) {
    this.#host = host
    this.#call = call
    this.#attempt = attempt
    this.#body = body
  }

  get session(): SessionMemory {
    return this.#sessionOf(this.#host.run.claim.run.threadId)
  }

  /** A function of its own, so that it can be destructured. */
  readonly of = (subject: string): SubjectMemory => {
    this.#facts ??= new AttemptFacts(this.#host, this.#call, this.#body)
    return { ...this.#facts.of(checkSubject(subject)), profile: this.#profileOf(subject) }
  }

  // ── what is written with the result ──────────────────────────────────────

  get isEmpty(): boolean {
    return this.#writes.size === 0 && !this.isContested && (this.#facts?.recalls.length ?? 0) === 0
  }

  get isContested(): boolean {
    return this.#facts?.isEmpty === false || [...this.#subjects.values()].some(({ merges }) => merges.length > 0)
  }

  /** Uses of values, and what was recalled, only: they need no commit of their own. */
  get canWait(): boolean {
    return !this.isContested && [...this.#writes.values()].every(({ logged }) => logged === undefined)
  }

  async prepare(): Promise<void> {
    for (const [subject, writes] of this.#subjects) {
      await writes.last
      writes.records = await this.#merged(subject, writes)
    }
    await this.#facts?.prepare()
  }

  get records(): readonly RecordChange[] {
    const merged = [...this.#subjects.values()].flatMap(({ records }) => records)
    return [...[...this.#writes.values()].map(({ change }) => change), ...merged, ...(this.#facts?.records ?? [])]
  }

  get events(): NewEvent[] {
    const written = [...this.#writes.values()].flatMap(({ logged }) => logged ?? [])
    const merged = [...this.#subjects].flatMap(([subject, { merges }]) =>
      merges.map(({ patch, origin }) => ({ subject, patch, ...why(origin) })),
    )
    const event = (type: EventType) => (data: object) =>
      this.#host.journal.event(type, this.#call, { attempt: this.#attempt, data: { ...data } })
    const recalled = this.#facts?.recalls ?? []
    return [
      ...recalled.map(event('memory_recalled')),
      ...[...written, ...merged, ...(this.#facts?.logged ?? [])].map(event('memory_written')),
    ]
  }

  async recordsAfter(found: KeyedRecord | null): Promise<readonly RecordChange[]> {
    for (const [subject, writes] of this.#subjects) {
      if (found !== null && !isProfileOf(subject, found)) continue
      writes.found = found === null ? this.#readProfile(subject) : Promise.resolve(found)
      writes.records = await this.#merged(subject, writes)
    }
    await this.#facts?.again(found)
    return this.records
  }

  answered(): void {
    this.#facts?.answered()
  }

  async #merged(subject: string, { found, merges }: SubjectWrites): Promise<RecordChange[]> {
    return merges.length === 0 ? [] : mergedRecords(this.#host.run.codec, subject, await found, merges)
  }

  // ── what a body calls ────────────────────────────────────────────────────

  #sessionOf(sessionId: string): SessionMemory {
    const { codec, owner } = this.#host.run
    const place = { owner, sessionId }
    return {
      get: async <T>(key: string) => (await this.#get(place, checkSessionKey(key))) as T | undefined,
      set: async (key, value, options: SessionSetOptions = {}) => {
        this.#refuseLate('session.set')
        refuseUnknownOptions('session.set', options, setOptionNames)
        const ttlMs = checkTtl(options.ttlMs)
        const change = setValue(codec, sessionId, { key: checkSessionKey(key), value, ttlMs })
        // It shares nothing with the caller.
        const kept = keptValue(codec, change)
        this.#writes.set(nameOf(change), {
          change,
          logged: { session: sessionId, key, value: kept, ...(ttlMs !== undefined && { ttlMs }) },
        })
      },
      delete: async (key) => {
        this.#refuseLate('session.delete')
        const change = deleteValue(sessionId, checkSessionKey(key))
        this.#writes.set(nameOf(change), { change, logged: { session: sessionId, key, deleted: true } })
      },
      list: () => this.#list(place),
      of: (other) => this.#sessionOf(checkSession(other)),
    }
  }

  async #get(place: { readonly owner: string; readonly sessionId: string }, key: string): Promise<unknown> {
    const { store, codec } = this.#host.run
    const own = this.#writes.get(nameOf(deleteValue(place.sessionId, key)))
    if (own !== undefined && own.change.kind !== 'touch') return keptValue(codec, own.change)
    const [record] = await store.readRecords(queryFor(place, key))
    if (record === undefined) return undefined
    const { value, ttlMs } = readValue(codec, place.sessionId, record)
    const touch = refresh(record, ttlMs, this.#host.clock.now())
    if (touch !== null && !this.#writes.has(nameOf(touch))) this.#writes.set(nameOf(touch), { change: touch })
    return value
  }

  async #list(place: { readonly owner: string; readonly sessionId: string }): Promise<SessionValue[]> {
    const { store, codec } = this.#host.run
    const values = new Map<string, SessionValue>()
    for (let after: string | undefined; ; ) {
      const page = await store.readRecords(queryAll(place, after))
      for (const record of page) {
        const { key, value } = readValue(codec, place.sessionId, record)
        values.set(key, { key, value, ...(record.expiresAt !== null && { expiresAt: record.expiresAt }) })
      }
      after = page.at(-1)?.key
      if (page.length < pageSize || after === undefined) break
    }
    const now = this.#host.clock.now()
    for (const { change, logged } of this.#writes.values()) {
      if (logged?.session !== place.sessionId) continue
      const { key, ttlMs } = logged
      if (logged.deleted === true) values.delete(key)
      else values.set(key, { key, value: keptValue(codec, change), ...(ttlMs !== undefined && { expiresAt: now + ttlMs }) })
    }
    return [...values.values()].sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)))
  }

  #profileOf(subject: string): Profile {
    const { codec, owner, store } = this.#host.run
    const read = async <T>() => {
      const writes = this.#writesOf(subject)
      await writes.last
      return (await this.#profileNow(subject, writes)) as T
    }
    return {
      get: read,
      merge: async <T>(patch: Readonly<Record<string, unknown>>, options: ProfileMergeOptions = {}): Promise<T> => {
        this.#refuseLate('profile.merge')
        refuseUnknownOptions('profile.merge', options, mergeOptionNames)
        const { why, by, schema } = options
        const { runId, claim } = this.#host.run
        const from = { runId, threadId: claim.run.threadId, step: this.#call.path }
        const origin = { ...(why !== undefined && { why }), ...(by !== undefined && { by }), ...from }
        // What the caller does to the patch afterwards changes nothing.
        const kept = codec.decode(codec.encode(checkPatch(subject, patch))) as Merge['patch']
        return this.#merge(subject, { patch: kept, schema, origin }) as Promise<T>
      },
      history: async (options = {}) => {
        refuseUnknownOptions('profile.history', options, historyOptionNames)
        const records = await store.readRecords(historyQuery(owner, subject, options))
        return records.map((record) => readChange(codec.decode(record.payload), record))
      },
    }
  }

  /** What a body writes after its end would be in no commit. */
  #refuseLate(method: string): void {
    if (this.#body.isOver) throw reportLateWrite(this.#host.run, this.#call.path, `step.memory.${method}`)
  }

  /** One after the other. What is rejected is not kept: the body hears of it, and may do something else. */
  #merge(subject: string, merge: Merge): Promise<unknown> {
    const writes = this.#writesOf(subject)
    const { last } = writes
    const accept = async () => {
      await last
      writes.merges.push(merge)
      try {
        return await this.#profileNow(subject, writes)
      } catch (error) {
        writes.merges.pop()
        throw error
      }
    }
    const merged = accept()
    writes.last = merged.then(
      () => {},
      () => {},
    )
    return merged
  }

  /** It shares nothing with the merges. */
  async #profileNow(subject: string, { found, merges }: SubjectWrites): Promise<unknown> {
    const { codec } = this.#host.run
    return codec.decode(codec.encode(await mergeAll(subject, readProfile(codec, await found), merges)))
  }

  #writesOf(subject: string): SubjectWrites {
    const known = this.#subjects.get(subject)
    if (known !== undefined) return known
    const writes: SubjectWrites = { found: this.#readProfile(subject), merges: [], last: undefined, records: [] }
    writes.found.catch(() => {})
    this.#subjects.set(subject, writes)
    return writes
  }

  async #readProfile(subject: string): Promise<KeyedRecord | null> {
    const { store, owner } = this.#host.run
    const [record] = await store.readRecords(profileQuery(owner, subject))
    return record ?? null
  }
}

interface SubjectWrites {
  found: Promise<KeyedRecord | null>
  readonly merges: Merge[]
  /** Resolves when all merges so far were accepted or refused. */
  last: Promise<void> | undefined
  records: readonly RecordChange[]
}

/** A write of session memory as the log has it. */
interface LoggedWrite {
  readonly session: string
  readonly key: string
  readonly value?: unknown
  readonly ttlMs?: number
  readonly deleted?: true
}

function why({ why: reason, by }: ChangeOrigin): object {
  return { ...(reason !== undefined && { why: reason }), ...(by !== undefined && { by }) }
}

/** As it will be read, and anew each time: what the caller does to it changes nothing. */
function keptValue(codec: Codec, change: RecordChange): unknown {
  return change.kind === 'put' ? (codec.decode(change.payload) as { value: unknown }).value : undefined
}

function nameOf(change: RecordChange): string {
  const { collection, key } = placeOfRecord(change)
  return pairKey(collection, key)
}
