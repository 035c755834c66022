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
 * Takes a thread's own session back to a position of its log. Values that were not written since stay as they are. One that was keeps the
 * expiry of the present one; where there is none, it has what is left of its time since it was written, and stays gone if that is over.
 */
export async function rebuildSession(
  reading: Reading,
  thread: ThreadKey,
  { to, headSeq }: { readonly to: number; readonly headSeq: number },
): Promise<RebuiltSession> {
  const { codec } = reading
  const { threadId } = thread
  const written = (await writesOf(reading, thread, headSeq)).filter(({ logged }) => logged.session === threadId)
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
  const written = (await writesOf(reading, thread, seq)).filter(({ logged }) => logged.session === thread.threadId)
  if (written.length === 0) return { records: [], base: [], since: [] }
  const present = await presentValues(reading, thread)
  const valuesAt = (writes: readonly Write[]) =>
    [...new Map(writes.map((write) => [write.logged.key, write])).values()].flatMap((write) => {
      const { key, value, ttlMs, deleted } = write.logged
      const expires = deleted === true ? null : expiryOf(write, present.get(key), reading.now)
      return expires === null ? [] : [{ write, change: { ...setValue(reading.codec, threadId, { key, value, ttlMs }), expires } }]
    })
  const copied = ({ logged }: Write): LoggedValue => ({ ...logged, session: threadId })
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

/** Null: it is gone. */
function expiryOf({ at, logged: { ttlMs } }: Write, present: KeyedRecord | undefined, now: number) {
  if (present !== undefined) return present.expiresAt === null ? ('never' as const) : { at: present.expiresAt }
  if (ttlMs === undefined) return 'never' as const
  return at + ttlMs <= now ? null : { at: at + ttlMs }
}

/** Profiles are in the log, too: they have no session, and do not follow. A fork begins with values. */
async function writesOf({ store, codec }: Reading, { owner, threadId }: ThreadKey, toSeq: number): Promise<Write[]> {
  const log = await store.readLog({ owner, threadId, toSeq, types: ['memory_written', 'thread_forked'] })
  return log.flatMap(({ seq, runId, at, type, payload }) => {
    const data = payload === null ? {} : (codec.decode(payload) as LoggedValue | { readonly session?: readonly LoggedValue[] })
    const values = type === 'memory_written' ? [data as LoggedValue] : ((data.session ?? []) as readonly LoggedValue[])
    return values.map((logged) => ({ seq, runId, at, logged }))
  })
}

async function presentValues({ store, codec }: Reading, { owner, threadId }: ThreadKey): Promise<Map<string, KeyedRecord>> {
  const present = new Map<string, KeyedRecord>()
  for (let after: string | undefined; ; ) {
    const page = await store.readRecords(queryAll({ owner, sessionId: threadId }, after))
    for (const record of page) present.set(readValue(codec, threadId, record).key, record)
    after = page.at(-1)?.key
    if (page.length < pageSize || after === undefined) return present
  }
}
