import { noThread } from '../control/checkpoint-seq.ts'
import type { Core } from '../control/core.ts'
import { readFork, sourceOf } from '../control/fork-thread.ts'
import { readTape } from '../engine/replay/read-tape.ts'
import { loadState } from '../engine/state/thread-state.ts'
import { HoldfastError } from '../model/errors.ts'
import type { EventType, LogRecord } from '../model/event.ts'
import { checkId, formatCheckpoint, parseCheckpoint } from '../model/ids.ts'
import type { Patch } from '../model/patch.ts'
import { isTerminal, type Run } from '../model/run.ts'
import { backwards, forwards } from '../store/log-ranges.ts'
import type { Thread } from '../store/store.ts'
import type { ChangeQuery, EventQuery, History, HistoryCheckpoint, HistoryEvent, HistoryOrigin } from './history.ts'
import { returns } from './steps-in-force.ts'

type Reading = Pick<Core, 'store' | 'codec'>

/** The log of a thread as a history: of all its runs, or of one. Ids are `threadId@seq`; each checkpoint has one before it. */
export class LogHistory implements History {
  readonly #core: Reading
  readonly #run: Run | null
  readonly thread: Thread

  constructor(core: Reading, thread: Thread, run: Run | null = null) {
    this.#core = core
    this.thread = thread
    this.#run = run
  }

  get name(): string {
    return this.#run === null ? `thread "${this.thread.threadId}"` : `run "${this.#run.id}"`
  }

  get runId(): string | null {
    return this.#run?.id ?? null
  }

  async checkpoints({ after, limit }: { after?: string; limit: number }): Promise<readonly HistoryCheckpoint[]> {
    const found: HistoryCheckpoint[] = []
    const { lastSeq } = this.#range
    let seq = this.#after(after)
    let parent = after ?? null
    while (found.length < limit && seq < lastSeq) {
      const rows = await this.#core.store.listCheckpoints({
        ...this.#key,
        afterSeq: seq,
        limit: this.#run === null ? limit : pageSize,
      })
      for (const row of rows) {
        if (row.seq > lastSeq || found.length === limit) return found
        const { at, runId, step, label, bytes } = row
        const id = this.idAt(row.seq)
        if (this.#run === null || runId === this.#run.id) found.push({ id, parent, at, runId, step, label, bytes })
        parent = id
      }
      const last = rows.at(-1)
      if (last === undefined) break
      seq = last.seq
    }
    return found
  }

  async find(checkpoint: string): Promise<string> {
    return this.idAt(await this.#position(checkpoint))
  }

  async stateAt(id: string | null): Promise<unknown> {
    const seq = id === null ? this.#range.firstSeq - 1 : this.positionOf(id)
    return (await loadState(this.#core.store, this.#core.codec, this.thread, seq)).value
  }

  async stateBefore(id: string): Promise<unknown> {
    return (await loadState(this.#core.store, this.#core.codec, this.thread, this.positionOf(id) - 1)).value
  }

  idAt(position: number): string {
    return formatCheckpoint(this.thread.threadId, position)
  }

  positionOf(id: string): number {
    const { threadId, seq } = parseCheckpoint(id)
    if (threadId !== this.thread.threadId) throw unknownCheckpoint(this.thread, id)
    return seq
  }

  whole(): History {
    return this.#run === null ? this : new LogHistory(this.#core, this.thread)
  }

  async event(id: string): Promise<HistoryEvent> {
    const record = await this.#record(id)
    return this.#toEvent(record)
  }

  async voidedBy(id: string): Promise<readonly number[]> {
    const { runId, seq: toSeq } = await this.#record(id)
    if (runId === null) return []
    const { store, codec } = this.#core
    const afterSeq = (await this.#lastStart(runId, toSeq)) - 1
    const records = await store.readLog({ ...this.#key, runId, withEdits: true, afterSeq, toSeq })
    const { patches } = readTape(records, codec, runId)
    return patches.flatMap(({ seq, droppedAt }) => (droppedAt !== undefined && droppedAt < toSeq ? [seq] : []))
  }

  async #lastStart(runId: string, toSeq: number): Promise<number> {
    for (const range of backwards(this.thread.baseSeq, toSeq, pageSize)) {
      const starts = await this.#core.store.readLog({ ...this.#key, ...range, runId, types: ['run_started'], bare: true })
      const last = starts.at(-1)
      if (last !== undefined) return last.seq
    }
    return this.thread.baseSeq + 1
  }

  async origin(): Promise<HistoryOrigin | null> {
    const { owner, baseSeq } = this.thread
    const fork = await readFork(this.#core, this.thread)
    if (fork === null) return null
    const { threadId, seq } = parseCheckpoint(fork.from)
    const parent = await this.#core.store.readThread({ owner, threadId })
    if (parent === null || parent.deletedAt !== null || seq <= parent.baseSeq || seq > parent.headSeq) return null
    const [at] = await this.#core.store.readLog({ owner, threadId, afterSeq: seq - 1, toSeq: seq, bare: true })
    if (at?.at !== fork.fromAt) return null
    return {
      ...{ history: new LogHistory(this.#core, parent), event: await this.event(this.idAt(baseSeq + 1)) },
      upTo: fork.copied?.upTo ?? baseSeq + 1,
      positionOf: (position) => sourceOf(fork, position),
    }
  }

  async #record(id: string): Promise<LogRecord> {
    const seq = this.positionOf(id)
    const [record] = await this.#core.store.readLog({ ...this.#key, afterSeq: seq - 1, toSeq: seq })
    if (record === undefined) throw unknownCheckpoint(this.thread, id)
    return record
  }

  async events({ after, to, types, dataOf, withPatches, withEdits, limit }: EventQuery): Promise<readonly HistoryEvent[]> {
    const toSeq = Math.min(this.#range.lastSeq, to === undefined ? Number.POSITIVE_INFINITY : this.positionOf(to))
    const query = {
      ...this.#key,
      ...(this.#run !== null && { runId: this.#run.id, ...(withEdits === true && { withEdits }) }),
      ...(types !== undefined && { types }),
      ...(dataOf !== undefined && { payloadsOf: dataOf }),
      ...(withPatches === true && { withPatches }),
    }
    for (const stretch of forwards(this.#after(after), toSeq, limit)) {
      const records = await this.#core.store.readLog({ ...query, ...stretch })
      if (records.length > 0) return records.map((record) => this.#toEvent(record))
    }
    return []
  }

  async changes({ after, to, limit, newestFirst, withReturns }: ChangeQuery): Promise<readonly HistoryEvent[]> {
    const first = after === undefined ? this.thread.baseSeq : this.positionOf(after)
    // Stores of earlier versions did not note the last one.
    const lastPatch = this.thread.patchSeq || this.thread.headSeq
    const toSeq = Math.min(this.positionOf(to), withReturns === true ? this.thread.headSeq : lastPatch)
    const query = { ...this.#key, ...(withReturns === true ? { payloadsOf: returns, withPatches: true } : { patchesOnly: true }) }
    for (const stretch of newestFirst === true ? backwards(first, toSeq, limit) : forwards(first, toSeq, limit)) {
      const records = await this.#core.store.readLog({ ...query, ...stretch })
      const asked = records.filter(({ type, patch }) => patch !== null || goesBack(type))
      const events = asked.map((record) => this.#toEvent(record))
      if (events.length > 0) return newestFirst === true ? events.reverse() : events
    }
    return []
  }

  get #key() {
    return { owner: this.thread.owner, threadId: this.thread.threadId }
  }

  /** The positions that are looked at: of a run that has ended, from its input to its end. */
  get #range(): { readonly firstSeq: number; readonly lastSeq: number } {
    const { baseSeq, headSeq } = this.thread
    const run = this.#run
    if (run === null) return { firstSeq: baseSeq + 1, lastSeq: headSeq }
    // A later tape of a run has its input further on: all of its tapes are looked at.
    const firstSeq = run.inputSeq !== run.tapeSeq ? run.inputSeq : baseSeq + 1
    return { firstSeq, lastSeq: isTerminal(run.status) && run.endSeq !== null ? run.endSeq : headSeq }
  }

  #after(after: string | undefined): number {
    const first = this.#range.firstSeq - 1
    return after === undefined ? first : Math.max(first, this.positionOf(after))
  }

  async #position(checkpoint: string): Promise<number> {
    const { threadId, baseSeq, headSeq } = this.thread
    if (typeof checkpoint !== 'string') parseCheckpoint(checkpoint)
    const isOwn = checkpoint.startsWith(`${threadId}@`) && /^[1-9]\d*$/.test(checkpoint.slice(threadId.length + 1))
    const [labelled] = isOwn ? [] : await this.#core.store.listCheckpoints({ ...this.#key, label: checkpoint, limit: 1 })
    if (labelled !== undefined) return labelled.seq
    const { threadId: own, seq } = parseCheckpoint(checkpoint)
    if (own !== threadId || seq > headSeq || seq <= baseSeq) throw unknownCheckpoint(this.thread, checkpoint)
    return seq
  }

  #toEvent(record: LogRecord): HistoryEvent {
    const { seq, at, type, runId, step, count, attempt, durationMs, isCheckpoint, payload, patch } = record
    const data = payload === null ? noData : (this.#core.codec.decode(payload) as Record<string, unknown>)
    return {
      ...{ id: this.idAt(seq), position: seq, at, type, runId, step, count, attempt, durationMs, isCheckpoint, data },
      patch: patch === null ? null : (this.#core.codec.decode(patch) as Patch),
      backTo: goesBack(type) && typeof data['to'] === 'number' ? data['to'] : null,
    }
  }
}

function goesBack(type: EventType): boolean {
  return (returns as readonly EventType[]).includes(type)
}

const noData: Readonly<Record<string, unknown>> = Object.freeze({})
const pageSize = 1_000

/**
 * The history of a thread, by its id, or of one of its runs. An id that is both is the thread's. `run_not_found` where it is neither,
 * for this owner; `thread_deleted` where it was one.
 */
export async function openHistory(core: Reading, owner: string, id: string | History): Promise<History> {
  if (typeof id === 'object' && id !== null) return checkHistory(id)
  const thread = await core.store.readThread({ owner, threadId: checkId('thread or run id', id) })
  const run = thread === null || thread.deletedAt !== null ? await core.store.readRun({ owner, runId: id }) : null
  if (run !== null) return openRun(core, run)
  if (thread?.deletedAt != null) throw threadDeleted(id)
  if (thread === null) {
    throw new HoldfastError('run_not_found', `There is no thread and no run "${id}".`, { details: { id } })
  }
  return new LogHistory(core, thread)
}

function checkHistory(history: History): History {
  const missing = historyMethods.filter((name) => typeof history[name] !== 'function')
  if (missing.length === 0) return history
  const names = missing.map((name) => `${name}()`).join(', ')
  throw new HoldfastError('invalid_input', `That is neither an id nor a History: it has no ${names}.`)
}

const historyMethods = [
  ...(['checkpoints', 'find', 'stateAt', 'stateBefore', 'idAt', 'positionOf'] as const),
  ...(['event', 'whole', 'origin', 'voidedBy', 'events', 'changes'] as const),
]

/** The history of one run. */
export async function openRun(core: Reading, run: Run): Promise<LogHistory> {
  return new LogHistory(core, await readThread(core, run.owner, run.threadId), run)
}

/** The history that a checkpoint is part of, and its id there. A label alone does not say of which thread. */
export async function openAt(
  core: Reading,
  owner: string,
  checkpoint: string,
  within: string | History | undefined,
): Promise<{ readonly history: History; readonly id: string }> {
  const history =
    within === undefined
      ? new LogHistory(core, await readThread(core, owner, parseCheckpoint(checkpoint).threadId))
      : await openHistory(core, owner, within)
  return { history, id: await history.find(checkpoint) }
}

async function readThread(core: Reading, owner: string, threadId: string): Promise<Thread> {
  const thread = await core.store.readThread({ owner, threadId })
  if (thread?.deletedAt != null) throw threadDeleted(threadId)
  if (thread !== null) return thread
  throw noThread(threadId)
}

function unknownCheckpoint({ threadId, baseSeq, headSeq }: Thread, checkpoint: string): HoldfastError {
  const [first, last] = [formatCheckpoint(threadId, baseSeq + 1), formatCheckpoint(threadId, headSeq)]
  return new HoldfastError(
    'invalid_id',
    `Thread "${threadId}" has no checkpoint "${checkpoint}": it goes from ${first} to ${last}.`,
    { details: { threadId, checkpoint } },
  )
}

function threadDeleted(threadId: string): HoldfastError {
  return new HoldfastError('thread_deleted', `Thread "${threadId}" was deleted, and its history with it.`, {
    details: { threadId },
  })
}
