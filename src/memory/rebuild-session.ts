import type { Codec } from '../model/codec.ts'
import type { KeyedRecord, RecordChange } from '../model/record.ts'
import type { Store, ThreadKey } from '../store/store.ts'
import { deleteValue, pageSize, queryAll, readValue, setValue } from './session.ts'

/** A write of session memory as the log has it (`memory_written`). */
export interface LoggedValue {
  readonly session: string
  readonly key: string
  readonly value?: unknown
  /** Absent: until it is deleted. */
  readonly ttlMs?: number
  readonly deleted?: true
}

/** What takes a session back, and what the log is told of it. */
export interface RebuiltSession {
  readonly records: readonly RecordChange[]
  readonly logged: readonly LoggedValue[]
}

interface Reading {
  readonly store: Store
  readonly codec: Codec
  /** The store's time. */
  readonly now: number
}

/**
 * Takes a thread's own session back to a position of its log. Values that were not written since stay as they are. One that was has what is
 * left of its time since it was written, or of the present value's if that is longer; if both are over, it stays gone.
 */
export async function rebuildSession(
  reading: Reading,
  thread: ThreadKey,
  { to, headSeq }: { readonly to: number; readonly headSeq: number },
): Promise<RebuiltSession> {
  const { codec } = reading
  const { threadId } = thread
  const written = (await writesOf(reading, thread, { toSeq: headSeq })).filter(({ logged }) => logged.session === threadId)
  const since = new Set(written.flatMap(({ seq, logged }) => (seq > to ? [logged.key] : [])))
  if (since.size === 0) return { records: [], logged: [] }
  const then = new Map(written.flatMap((write) => (write.seq <= to ? [[write.logged.key, write] as const] : [])))
  const present = await presentValues(reading, thread)
  const rebuilt = [...since].map((key) => {
    const write = then.get(key)
    const expires = write === undefined ? null : expiryOf(write, present.get(key), reading.now)
    if (write === undefined || write.logged.deleted === true || expires === null)
      return { change: deleteValue(threadId, key), logged: { session: threadId, key, deleted: true } as const }
    const { value, ttlMs } = write.logged
    const change = { ...setValue(codec, threadId, { key, value, ttlMs }), expires }
    return { change, logged: { session: threadId, key, value, ...(ttlMs !== undefined && { ttlMs }) } }
  })
  return { records: rebuilt.map(({ change }) => change), logged: rebuilt.map(({ logged }) => logged) }
}

/** The session of a fork, for another thread id. */
export interface CopiedSession {
  readonly records: readonly RecordChange[]
  /** What was there where the fork begins. */
  readonly base: readonly LoggedValue[]
  /** What others than the run have written since, up to where the copy of the run ends. */
  readonly since: readonly LoggedValue[]
}

/** The session of a thread as the log says that it was at `seq`. The fork's log begins at `base`, and has the writes of the run since. */
export async function copySession(
  reading: Reading,
  thread: ThreadKey,
  {
    base,
    seq,
    runId,
    threadId,
  }: { readonly base: number; readonly seq: number; readonly runId?: string; readonly threadId: string },
): Promise<CopiedSession> {
  const present = await presentValues(reading, thread)
  const logged = (await writesOf(reading, thread, { toSeq: seq })).filter((write) => write.logged.session === thread.threadId)
  const written = [...(await unloggedWrites(reading, thread, { seq, present, logged })), ...logged]
  if (written.length === 0) return { records: [], base: [], since: [] }
  const valuesAt = (writes: readonly Write[]) =>
    [...new Map(writes.map((write) => [write.logged.key, write])).values()].flatMap((write) => {
      const { key, value, ttlMs, deleted } = write.logged
      const expires = deleted === true ? null : expiryOf(write, present.get(key), reading.now)
      return expires === null ? [] : [{ write, change: { ...setValue(reading.codec, threadId, { key, value, ttlMs }), expires } }]
    })
  const copied = (write: Write): LoggedValue => ({ ...write.logged, session: threadId })
  return {
    records: valuesAt(written).map(({ change }) => change),
    base: valuesAt(written.filter((write) => write.seq <= base)).map(({ write }) => copied(write)),
    since: written.filter((write) => write.seq > base && write.runId !== runId).map(copied),
  }
}

interface Write {
  readonly seq: number
  readonly runId: string | null
  readonly at: number
  readonly logged: LoggedValue
}

/** Until its own time is over, or later that of the present value, whose use has prolonged it. Null: it is gone. */
function expiryOf({ at, logged: { ttlMs } }: Write, present: KeyedRecord | undefined, now: number) {
  if (ttlMs === undefined) return 'never' as const
  const until = Math.max(at + ttlMs, present?.expiresAt ?? 0)
  return until <= now ? null : { at: until }
}

/** Profiles are in the log, too: they have no session, and do not follow. A fork begins with values. */
async function writesOf(
  { store, codec }: Reading,
  { owner, threadId }: ThreadKey,
  range: { readonly afterSeq: number } | { readonly toSeq: number },
): Promise<Write[]> {
  const log = await store.readLog({ owner, threadId, ...range, types: ['memory_written', 'thread_forked'] })
  return log.flatMap(({ seq, runId, at, type, payload }) => {
    const data = payload === null ? {} : (codec.decode(payload) as LoggedValue | { readonly session?: readonly LoggedValue[] })
    const values = type === 'memory_written' ? [data as LoggedValue] : ((data.session ?? []) as readonly LoggedValue[])
    return values.map((logged) => ({ seq, runId, at, logged }))
  })
}

/** Values that were there and that no log has: a session may be older than its thread, and runs of other threads may write to it. */
async function unloggedWrites(
  reading: Reading,
  thread: ThreadKey,
  { seq, present, logged }: { readonly seq: number; readonly present: Present; readonly logged: readonly Write[] },
): Promise<Write[]> {
  const { owner, threadId } = thread
  const known = new Set(logged.map((write) => write.logged.key))
  if ([...present.keys()].every((key) => known.has(key))) return []
  for (const { logged: later } of await writesOf(reading, thread, { afterSeq: seq })) known.add(later.key)
  const [at] = await reading.store.readLog({ owner, threadId, afterSeq: seq - 1, toSeq: seq, bare: true })
  return [...present].flatMap(([key, record]) => {
    if (known.has(key) || at === undefined || record.updatedAt > at.at) return []
    const value = readValue(reading.codec, threadId, record)
    return [{ seq: 0, runId: null, at: record.updatedAt, logged: { session: threadId, ...value } }]
  })
}

type Present = ReadonlyMap<string, KeyedRecord>

async function presentValues({ store, codec }: Reading, { owner, threadId }: ThreadKey): Promise<Present> {
  const present = new Map<string, KeyedRecord>()
  for (let after: string | undefined; ; ) {
    const page = await store.readRecords(queryAll({ owner, sessionId: threadId }, after))
    for (const record of page) present.set(readValue(codec, threadId, record).key, record)
    after = page.at(-1)?.key
    if (page.length < pageSize || after === undefined) return present
  }
}
