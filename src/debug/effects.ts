import type { Core } from '../control/core.ts'
import { HoldfastError } from '../model/errors.ts'
import type { EventType, LogRecord } from '../model/event.ts'
import { checkId, formatCheckpoint } from '../model/ids.ts'
import type { Operation, OperationStatus } from '../model/operation.ts'
import { reviveError } from '../model/stored-error.ts'
import { checkCount } from './timeline.ts'

/** One effect in the ledger: what was to be done, under which key, what became of it, and what is known of it. */
export interface LedgerEntry {
  readonly key: string
  readonly name: string
  readonly status: OperationStatus
  readonly runId: string
  readonly threadId: string
  /** When it was intended last, and when it was closed: ms since 1970, by the store's clock. */
  readonly intendedAt: number
  readonly closedAt: number | null
  /** What it returned, once it has happened. */
  readonly result?: unknown
  /** Who decided about it. */
  readonly resolvedBy?: string
  /** What a worker reported after it had lost the run, for the person who decides. */
  readonly evidence?: unknown
  /** Why it is not known whether it happened. */
  readonly doubt?: string
  /** What the log of its thread says about it, oldest first. Empty once the thread is deleted. */
  readonly events: readonly LedgerEvent[]
  /** Runs that met the same key and got the recorded result instead of sending again: of the threads that were read. */
  readonly metBy: readonly { readonly runId: string; readonly checkpoint: string; readonly at: number }[]
}

export interface LedgerEvent {
  readonly event: EventType
  readonly checkpoint: string
  readonly at: number
  readonly runId: string
  readonly step: string
  readonly attempt: number
  /** `check`: a look-up found that it had happened. `resolve`: a person had decided so. */
  readonly via?: string
  readonly by?: string
  readonly error?: Error
}

/** Which effects are listed: one, those of a thread or a run, or all of this owner. */
export interface EffectFilter {
  readonly key?: string
  readonly threadId?: string
  readonly runId?: string
  readonly name?: string
  readonly status?: OperationStatus
  /**
   * About so many a page, 1 to 1,000, default 100. Without key, thread and run a page ends with a thread, so it may have more; it looks at 500
   * threads at most, so it may have fewer, or none, and still a cursor.
   */
  readonly limit?: number
  /** Where the last page ended. */
  readonly cursor?: string | undefined
}

export interface EffectPage {
  readonly items: readonly LedgerEntry[]
  readonly cursor?: string
}

const statuses: readonly OperationStatus[] = ['intended', 'completed', 'failed', 'unsure', 'undone']

/** A page of the ledger. A thread costs its rows and the records of its effects. */
export async function listEffects(core: Core, owner: string, filter: EffectFilter): Promise<EffectPage> {
  const { key, threadId, runId, status, cursor } = filter
  const limit = checkCount('limit', filter.limit, 1_000) ?? 100
  if (status !== undefined && !statuses.includes(status))
    throw new HoldfastError(
      'invalid_input',
      `There is no status ${JSON.stringify(status)} of an effect. It is one of ${statuses.join(', ')}.`,
    )
  const isMeant = (entry: LedgerEntry) =>
    (key === undefined || entry.key === key) &&
    (status === undefined || entry.status === status) &&
    (filter.name === undefined || entry.name === filter.name) &&
    (runId === undefined || entry.runId === runId || entry.metBy.some((met) => met.runId === runId))
  if (threadId !== undefined || runId !== undefined || key !== undefined) {
    const thread = threadId === undefined ? await threadOf(core, owner, filter) : checkId('thread id', threadId)
    const entries = thread === null ? [] : (await readLedger(core, owner, thread)).filter(isMeant)
    return pageOf(entries, limit, cursor)
  }
  return status === 'unsure' ? listUnsure(core, owner, limit, isMeant, cursor) : listAll(core, owner, limit, isMeant, cursor)
}

async function threadOf(core: Core, owner: string, { key, runId }: EffectFilter): Promise<string | null> {
  if (runId === undefined)
    return (await core.store.readOperation({ owner, key: checkId('operation key', key) }))?.threadId ?? null
  const run = await core.store.readRun({ owner, runId: checkId('run id', runId) })
  if (run === null) throw new HoldfastError('run_not_found', `There is no run "${runId}".`, { details: { runId } })
  return run.threadId
}

/** By time of intent; the cursor is how many were shown: entries are added behind them. */
function pageOf(entries: readonly LedgerEntry[], limit: number, cursor: string | undefined): EffectPage {
  if (cursor !== undefined && !/^\d{1,15}$/.test(cursor)) throw notACursor(cursor)
  const from = Number(cursor ?? 0)
  const end = from + limit
  return { items: entries.slice(from, end), ...(end < entries.length && { cursor: String(end) }) }
}

async function listUnsure(
  core: Core,
  owner: string,
  limit: number,
  isMeant: (entry: LedgerEntry) => boolean,
  from: string | undefined,
): Promise<EffectPage> {
  const { items, cursor } = await core.store.listUnsure({ owner, limit, ...(from !== undefined && { cursor: from }) })
  const found: LedgerEntry[] = []
  const keys = new Set(items.filter(({ kind }) => kind === 'effect').map(({ key }) => key))
  for (const threadId of new Set(items.map((one) => one.threadId)))
    for (const entry of await readLedger(core, owner, threadId)) if (keys.has(entry.key) && isMeant(entry)) found.push(entry)
  return { items: found.sort((a, b) => a.intendedAt - b.intendedAt), ...(cursor !== undefined && { cursor }) }
}

async function listAll(
  core: Core,
  owner: string,
  limit: number,
  isMeant: (entry: LedgerEntry) => boolean,
  from: string | undefined,
): Promise<EffectPage> {
  const items: LedgerEntry[] = []
  let cursor = from
  for (let threads = 1; ; threads++) {
    const page = await core.store.listThreads({ owner, limit: 1, ...(cursor !== undefined && { cursor }) })
    for (const { threadId } of page.items) items.push(...(await readLedger(core, owner, threadId)).filter(isMeant))
    cursor = page.cursor
    if (cursor === undefined) return { items }
    if (items.length >= limit || threads === mostThreads) return { items, cursor }
  }
}

/** So many threads are looked at for a page. */
const mostThreads = 500

const types = [
  'effect_intended',
  'effect_completed',
  'effect_failed',
  'effect_skipped',
  'effect_unsure',
  'effect_resolved',
  'step_undone',
] as const

/** The effects of a thread, and those of others that it met, by time of intent. */
async function readLedger(core: Core, owner: string, threadId: string): Promise<LedgerEntry[]> {
  const image = await core.store.readThreadImage({ owner, threadId })
  if (image === null) return []
  const records = image.thread.deletedAt === null ? await core.store.readLog({ owner, threadId, types }) : []
  const said = sortByKey(core, records)
  const own = new Map(image.operations.filter(({ kind }) => kind === 'effect').map((one) => [one.key, one]))
  for (const key of said.keys()) {
    if (own.has(key)) continue
    const operation = await core.store.readOperation({ owner, key })
    if (operation !== null) own.set(key, operation)
  }
  const seqOf = (key: string) => said.get(key)?.[0]?.record.seq ?? 0
  return [...own.values()]
    .sort((a, b) => a.intendedAt - b.intendedAt || seqOf(a.key) - seqOf(b.key))
    .map((operation) => entryOf(core, operation, threadId, said.get(operation.key) ?? []))
}

interface EffectData {
  readonly key?: string
  readonly message?: string
  readonly via?: string
  readonly by?: string
  readonly error?: Error
  readonly of?: number
}

interface Said {
  readonly record: LogRecord
  readonly data: EffectData
}

/** What a log says, by the key of the effect. A failure names no key: it is that of the last intent of its call. */
function sortByKey({ codec }: Core, records: readonly LogRecord[]): Map<string, Said[]> {
  const said = new Map<string, Said[]>()
  const keyOfCall = new Map<string, string>()
  const keyAt = new Map<number, string>()
  for (const record of records) {
    const data = (record.payload === null ? {} : codec.decode(record.payload)) as EffectData
    const call = `${record.runId} ${record.step}#${record.count}`
    const key = data.key ?? (record.type === 'step_undone' ? keyAt.get(data.of ?? 0) : keyOfCall.get(call))
    if (key === undefined) continue
    keyOfCall.set(call, key)
    keyAt.set(record.seq, key)
    said.set(key, [...(said.get(key) ?? []), { record, data }])
  }
  return said
}

function entryOf({ codec }: Core, operation: Operation, threadId: string, said: readonly Said[]): LedgerEntry {
  const { key, name, status, runId, intendedAt, closedAt, result, resolvedBy, evidence } = operation
  const doubt = said.findLast(({ record }) => record.type === 'effect_unsure')?.data.message
  const met = said.filter(({ record }) => record.type === 'effect_skipped')
  return {
    ...{ key, name, status, runId, threadId: operation.threadId, intendedAt, closedAt },
    ...(result !== null && status !== 'undone' && { result: codec.decode(result) }),
    ...(resolvedBy !== null && { resolvedBy }),
    ...(evidence !== null && { evidence: codec.decode(evidence) }),
    ...(doubt !== undefined && { doubt }),
    events: said.map((one) => eventOf(threadId, one)),
    metBy: met.map(({ record }) => ({
      ...{ runId: record.runId as string, checkpoint: formatCheckpoint(threadId, record.seq), at: record.at },
    })),
  }
}

function eventOf(threadId: string, { record, data }: Said): LedgerEvent {
  const { type, seq, at, runId, step, attempt } = record
  return {
    ...{ event: type, checkpoint: formatCheckpoint(threadId, seq), at, runId: runId as string, step: step ?? '', attempt },
    ...(data.via !== undefined && { via: data.via }),
    // Of a result that was met again, it is the run that had sent it.
    ...(data.by !== undefined && { by: data.by }),
    ...(data.error !== undefined && { error: reviveError(data.error) }),
  }
}

function notACursor(cursor: string): HoldfastError {
  return new HoldfastError(
    'invalid_input',
    `${JSON.stringify(cursor)} is not a cursor. Pass the one that came with the last page.`,
  )
}
