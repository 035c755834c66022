import type { Core } from '../control/core.ts'
import type {
  Memory,
  ProfileMergeOptions,
  SessionMemory,
  SessionSetOptions,
  SessionValue,
  SubjectMemory,
} from '../define/memory.ts'
import { historyOptionNames, mergeOptionNames, setOptionNames } from '../define/memory-options.ts'
import { isOutage } from '../engine/writing/committer.ts'
import {
  checkPatch,
  checkSubject,
  historyQuery,
  mergedRecords,
  profileQuery,
  readChange,
  readProfile,
} from '../memory/profile.ts'
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
} from '../memory/session.ts'
import { codeOf, HoldfastError } from '../model/errors.ts'
import type { NewEvent } from '../model/event.ts'
import { refuseUnknownOptions } from '../model/known-options.ts'
import type { Payload } from '../model/payload.ts'
import type { KeyedRecord, RecordChange } from '../model/record.ts'
import type { Change, Committed } from '../store/change.ts'
import { clientFacts } from './facts.ts'

/** Memory from outside of runs. There is no thread whose session it could be: name one. */
export interface ClientMemory extends Omit<Memory, 'session'> {
  readonly session: Pick<SessionMemory, 'of'>
}

export function clientMemory(core: Core, owner: string): ClientMemory {
  return {
    session: { of: (sessionId) => sessionOf(core, owner, checkSession(sessionId)) },
    of: (subject) => subjectOf(core, owner, checkSubject(subject)),
  }
}

function sessionOf(core: Core, owner: string, sessionId: string): SessionMemory {
  const { store, codec } = core
  const place = { owner, sessionId }
  return {
    get: async <T>(key: string) => {
      const [record] = await store.readRecords(queryFor(place, checkSessionKey(key)))
      if (record === undefined) return undefined
      const { value, ttlMs } = readValue(codec, sessionId, record)
      const touch = refresh(record, ttlMs, await core.now())
      if (touch !== null) await touchIfPossible(core, owner, touch)
      return value as T
    },
    set: async (key, value, options: SessionSetOptions = {}) => {
      refuseUnknownOptions('session.set', options, setOptionNames)
      const ttlMs = checkTtl(options.ttlMs)
      const change = setValue(codec, sessionId, { key: checkSessionKey(key), value, ttlMs })
      const data = { session: sessionId, key, value, ...(ttlMs !== undefined && { ttlMs }) }
      await writeLogged(core, place, change, codec.encode(data))
    },
    delete: async (key) => {
      const change = deleteValue(sessionId, checkSessionKey(key))
      await writeLogged(core, place, change, codec.encode({ session: sessionId, key, deleted: true }))
    },
    list: async () => {
      const values: SessionValue[] = []
      for (let after: string | undefined; ; ) {
        const page = await store.readRecords(queryAll(place, after))
        for (const record of page) {
          const { key, value } = readValue(codec, sessionId, record)
          values.push({ key, value, ...(record.expiresAt !== null && { expiresAt: record.expiresAt }) })
        }
        after = page.at(-1)?.key
        if (page.length < pageSize || after === undefined) break
      }
      return values.sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)))
    },
    of: (other) => sessionOf(core, owner, checkSession(other)),
  }
}

/** A store that takes no writes, because it is full, can be read nevertheless: then the time of the value does not begin anew. */
async function touchIfPossible(core: Core, owner: string, touch: RecordChange): Promise<void> {
  try {
    await write(core, owner, [touch])
  } catch (error) {
    if (!isOutage(error) && codeOf(error) !== 'outcome_unknown') throw error
    core.log.warn('a session value was used, but its time could not be begun anew', { error })
  }
}

function subjectOf(core: Core, owner: string, subject: string): SubjectMemory {
  const { store, codec } = core
  const read = async () => (await store.readRecords(profileQuery(owner, subject)))[0] ?? null
  return {
    ...clientFacts(core, owner, subject),
    profile: {
      get: async <T>() => readProfile(codec, await read()) as T,
      merge: async <T>(patch: Readonly<Record<string, unknown>>, options: ProfileMergeOptions = {}) => {
        refuseUnknownOptions('profile.merge', options, mergeOptionNames)
        const { why, by, schema } = options
        const origin = { ...(why !== undefined && { why }), ...(by !== undefined && { by }) }
        // What the caller does to the patch afterwards changes nothing.
        const kept = codec.decode(codec.encode(checkPatch(subject, patch))) as typeof patch
        const merge = { patch: kept, schema, origin }
        for (let found: KeyedRecord | null = await read(); ; ) {
          const records = await mergedRecords(codec, subject, found, [merge])
          const answer = await commit(core, owner, records)
          if (answer.ok) return mergedProfile(core, records) as T
          found = answer.record ?? null
        }
      },
      history: async (options = {}) => {
        refuseUnknownOptions('profile.history', options, historyOptionNames)
        const records = await store.readRecords(historyQuery(owner, subject, options))
        return records.map((record) => readChange(codec.decode(record.payload), record))
      },
    },
  }
}

function mergedProfile({ codec }: Core, [profile]: readonly RecordChange[]): unknown {
  return profile?.kind === 'put' ? codec.decode(profile.payload) : {}
}

/** Answers where it was written, or refused because of a record. */
async function commit(
  core: Core,
  owner: string,
  records: readonly RecordChange[],
): Promise<{ ok: true } | { ok: false; record?: KeyedRecord | null }> {
  const answer = await write(core, owner, records)
  return answer.ok || answer.refusal !== 'record_changed' ? { ok: true } : answer
}

async function write(core: Core, owner: string, records: readonly RecordChange[], event?: LoggedEvent): Promise<Committed> {
  const { threadId = '', events = [] } = event ?? {}
  const isCheckpoint = events.length > 0
  const change: Change = { owner, threadId, runId: null, guard: { kind: 'none' }, events, records, isCheckpoint }
  const answer = await core.committer.commit(change)
  if (answer.ok || answer.refusal === 'record_changed' || answer.refusal === 'thread_deleted') return answer
  throw new HoldfastError('conflict', `Memory could not be written: ${answer.refusal}. Try again.`, { retryable: true })
}

interface LoggedEvent {
  readonly threadId: string
  readonly events: readonly NewEvent[]
}

/** Where the session is that of a thread which exists, its log says what was written. */
async function writeLogged(
  core: Core,
  { owner, sessionId }: { readonly owner: string; readonly sessionId: string },
  change: RecordChange,
  payload: Payload,
): Promise<void> {
  const thread = await core.store.readThread({ owner, threadId: sessionId })
  if (thread === null || thread.deletedAt !== null) return void (await write(core, owner, [change]))
  const event: NewEvent = {
    ...{ type: 'memory_written', step: null, count: 0, attempt: 0, at: await core.now(), durationMs: null, patch: null },
    payload,
  }
  const answer = await write(core, owner, [change], { threadId: sessionId, events: [event] })
  if (!answer.ok) await write(core, owner, [change])
}
