import { copyArtifacts } from '../artifacts/thread-artifacts.ts'
import type { AnyPlan } from '../define/plan.ts'
import type { AnyWorkflow } from '../define/workflow.ts'
import { pathOf } from '../engine/replay/call-key.ts'
import { type CopiedRecord, copyTape, originOfCopy } from '../engine/replay/copy-tape.ts'
import type { ForkMark } from '../engine/replay/fork-mark.ts'
import { readTape } from '../engine/replay/read-tape.ts'
import { findReplaced, type PlanSteps, type Replacement } from '../engine/replay/replaced-calls.ts'
import { loadState, type StateAt } from '../engine/state/thread-state.ts'
import { copySession, type LoggedValue } from '../memory/rebuild-session.ts'
import { recordChecksum, sealChecksum } from '../model/checksum.ts'
import { kindOf } from '../model/container.ts'
import { HoldfastError } from '../model/errors.ts'
import type { EventType, LogRecord, NewEvent } from '../model/event.ts'
import { checkId, formatCheckpoint } from '../model/ids.ts'
import { newRunId } from '../model/new-run-id.ts'
import { applyPatches, diffUpdate, type Patch, type Recipe, replaceState } from '../model/patch.ts'
import type { Payload } from '../model/payload.ts'
import { type KeyedRecord, recordAfter } from '../model/record.ts'
import type { Run } from '../model/run.ts'
import type { StateDefinition } from '../model/state.ts'
import { backwards } from '../store/log-ranges.ts'
import type { Thread, ThreadKey } from '../store/store.ts'
import type { WholeThread } from '../store/thread-image.ts'
import { checkpointSeq } from './checkpoint-seq.ts'
import { readRun } from './control-run.ts'
import type { Core } from './core.ts'
import { editState } from './edit-state.ts'
import { newEvent } from './new-event.ts'

export interface ForkOptions {
  /** The id of the new thread. Default: a new one. */
  readonly threadId?: string
  /** Changes the state of the fork before it continues, as `thread.update` does. */
  // biome-ignore lint/suspicious/noExplicitAny: the type of a state is known to its definition only
  readonly edit?: (draft: any) => unknown
  /**
   * Other results for recorded calls, by path (`gather/fetch`) and, where there are several, count (`gather/fetch#2`). The copy of the run
   * ends with the first of them, without what that call did to the state; from there on the function runs.
   */
  readonly replace?: Readonly<Record<string, unknown>>
  /** Who forks it. */
  readonly by?: string
}

export interface Fork {
  readonly threadId: string
  readonly forkedFrom: string
  readonly runId: string | null
}

/**
 * A thread of its own that begins as another one was at a checkpoint: one write, and nothing of the other thread is changed or needed later.
 *
 *   1                thread_forked, with the state and the session that the fork begins with
 *   2                run_queued, if the checkpoint was inside a run: its input
 *   3 to n           a copy of its tape
 *   n + 1            run_paused, which says that all before it is a copy
 *   n + 2            state_updated, if there is an `edit`
 *   then             memory_written for what others than the run have written to the thread's session up to there
 */
export async function forkThread(core: Core, key: ThreadKey, checkpoint: string, options: ForkOptions): Promise<Fork> {
  const { store } = core
  checkReplace(options.replace)
  const seq = await checkpointSeq(core, key, checkpoint)
  const thread = (await store.readThread(key)) as Thread
  const forkedFrom = formatCheckpoint(key.threadId, seq)
  const copyId = newRunId()
  const target = { owner: key.owner, threadId: options.threadId === undefined ? copyId : checkId('thread id', options.threadId) }
  const whole = await unlessDeleted(core, thread, seq, async () => {
    const started = await lastOf(core, thread, { type: 'run_started', seq })
    const isReplacing = options.replace !== undefined && Object.keys(options.replace).length > 0
    const source = await sourceAt(core, thread, { seq, started, replace: isReplacing ? options.replace : undefined })
    const [{ at: fromAt } = { at: 0 }] = await store.readLog({ ...key, afterSeq: seq - 1, toSeq: seq, bare: true })
    const fork = new ForkWriter(core, target, { forkedFrom, fromAt, copyId, by: options.by })
    const base = source === null ? seq : source.tapeSeq - 1
    await fork.begin(await loadState(store, core.codec, thread, base))
    if (source !== null) await fork.copy(source)
    if (options.edit !== undefined) await fork.edit(await definitionOf(core, key.owner, started), options.edit)
    await fork.remember(key, { base, seq })
    await fork.keepArtifacts(key, seq)
    return fork.whole()
  })
  const { ok } = await store.restoreThread(whole)
  if (!ok) {
    throw new HoldfastError(
      'conflict',
      `Thread "${key.threadId}" was not forked: thread "${target.threadId}" exists, existed and was deleted, or has values of a session. Give another threadId, or none.`,
      { details: { threadId: target.threadId } },
    )
  }
  return { threadId: target.threadId, forkedFrom, runId: whole.runs.length === 0 ? null : copyId }
}

function checkReplace(replace: unknown): void {
  if (replace === undefined || kindOf(replace) === 'object' || kindOf(replace) === 'null-object') return
  const what = replace === null ? 'null' : Array.isArray(replace) ? 'an array' : `of type ${typeof replace}`
  throw new HoldfastError('invalid_input', `replace is ${what}; it must be an object: { 'name of a call': its result }.`)
}

/** What thread_forked says, the first record of a fork. */
export interface ForkData {
  /** The checkpoint that it was forked from. */
  readonly from: string
  /** The position there whose state it begins with. */
  readonly base: number
  /** When that checkpoint was made: another thread that has its id now is told from it. */
  readonly fromAt: number
  readonly by?: string
  /** The calls that have other results here. */
  readonly replaced?: readonly string[]
  /** Inside a run: up to where the log is a copy, and where the stretches of it are from: first position, first position there, length. */
  readonly copied?: { readonly upTo: number; readonly stretches: readonly (readonly [number, number, number])[] }
  /** The session that it begins with. */
  readonly session?: readonly LoggedValue[]
}

/** Null if the thread is no fork. */
export async function readFork({ store, codec }: Pick<Core, 'store' | 'codec'>, thread: Thread): Promise<ForkData | null> {
  const { owner, threadId, baseSeq } = thread
  const [first] = await store.readLog({ owner, threadId, afterSeq: baseSeq, toSeq: baseSeq + 1 })
  return first?.type !== 'thread_forked' || first.payload === null ? null : (codec.decode(first.payload) as ForkData)
}

/** Where the origin of a fork has the state that the fork has at a position. */
export function sourceOf({ base, copied }: ForkData, position: number): number {
  const stretch = copied?.stretches.findLast(([first]) => first <= position)
  if (stretch === undefined) return base
  const [first, source, length] = stretch
  return source + Math.min(position - first, length - 1)
}

/** The run in which a checkpoint is, and its tape up to there. */
interface Source {
  readonly run: Run
  readonly tapeSeq: number
  readonly input: LogRecord
  readonly records: readonly LogRecord[]
  readonly labels: ReadonlyMap<number, string>
  readonly replacements: readonly Replacement[]
}

const ends: readonly EventType[] = ['run_completed', 'run_failed', 'run_cancelled']
const turns: readonly EventType[] = [...ends, 'run_retried', 'run_resumed', 'run_rolled_back']

/**
 * Runs of a thread execute one after another: only the last one that was begun can have been executing. With `replace` it may have ended, as
 * the copy ends before that.
 */
async function sourceAt(
  core: Core,
  thread: Thread,
  { seq, started, replace }: { seq: number; started: LogRecord | null; replace: ForkOptions['replace'] },
): Promise<Source | null> {
  const { store, codec } = core
  const { owner, threadId } = thread
  const where = formatCheckpoint(threadId, seq)
  if (started === null || started.runId === null) {
    if (replace === undefined) return null
    throw new HoldfastError('invalid_input', `replace needs a run that was begun: at ${where} thread "${threadId}" had none.`)
  }
  const { runId, seq: tapeSeq } = started
  const tape = { owner, threadId, runId, afterSeq: tapeSeq - 1, toSeq: seq }
  const last = (await store.readLog({ ...tape, types: turns, bare: true })).at(-1)
  if (replace === undefined && last !== undefined && ends.includes(last.type)) return null
  const [run, all] = await Promise.all([
    readRun(core, { owner, runId }),
    // Of all, so that edits by hand come with their data.
    store.readLog({ owner, threadId, afterSeq: tapeSeq - 1, toSeq: seq }),
  ])
  const labelled = await labelsOf(core, thread, all)
  const records = all.filter((record) => record.runId === runId || record.patch !== null)
  const about = { where: `run "${runId}" up to ${where}`, planSteps: planStepsOf(core, run) }
  const replacements = replace === undefined ? [] : findReplaced(readTape(records, codec, runId), replace, about)
  // Only the first tape has its input in run_queued.
  const input =
    started.count > 1 ? started : ((await lastOf(core, thread, { type: 'run_queued', runId, seq: tapeSeq })) as LogRecord)
  return { run, tapeSeq, records, replacements, input, labels: labelled }
}

/** Empty for a workflow that is no plan. */
function planStepsOf({ registry }: Core, { workflow, version }: Run): PlanSteps {
  const known = registry.get(workflow, version) as (AnyWorkflow & { readonly stages?: AnyPlan['stages'] }) | undefined
  return known === undefined ? undefined : new Set((known.stages ?? []).flat().map(({ name }) => name))
}

/** The state definition of the run that was begun last up to there, if this process has it. */
async function definitionOf(core: Core, owner: string, started: LogRecord | null): Promise<StateDefinition<unknown> | undefined> {
  const run = started?.runId == null ? null : await core.store.readRun({ owner, runId: started.runId })
  return run === null ? undefined : core.registry.get(run.workflow, run.version)?.options.state
}

/** The last event of a type up to a position, of one run or of any. Found near it as a rule: nothing is read from the beginning of a long log. */
async function lastOf(
  { store }: Core,
  { owner, threadId, baseSeq }: Thread,
  { type, runId, seq }: { readonly type: EventType; readonly runId?: string; readonly seq: number },
): Promise<LogRecord | null> {
  const query = { owner, threadId, types: [type], payloadsOf: [type], ...(runId !== undefined && { runId }) }
  for (const range of backwards(baseSeq, seq, 100)) {
    const found = (await store.readLog({ ...query, ...range })).at(-1)
    if (found !== undefined) return found
  }
  return null
}

/** The labels of a stretch of the log. What comes after it is not asked for: it may be damaged. */
async function labelsOf(
  { store }: Core,
  { owner, threadId }: Thread,
  records: readonly LogRecord[],
): Promise<Map<number, string>> {
  const labels = new Map<number, string>()
  const checkpoints = records.filter(({ isCheckpoint }) => isCheckpoint)
  for (let from = 0; from < checkpoints.length; from += 1_000) {
    const page = checkpoints.slice(from, from + 1_000)
    const afterSeq = (page[0]?.seq ?? 1) - 1
    for (const { seq, label } of await store.listCheckpoints({ owner, threadId, afterSeq, limit: page.length }))
      if (label !== null) labels.set(seq, label)
  }
  return labels
}

/** A thread that is deleted while its log is read gives less than there was, or an error about what is missing. */
async function unlessDeleted<T>({ store }: Core, thread: Thread, seq: number, read: () => Promise<T>): Promise<T> {
  const { owner, threadId, incarnation, baseSeq } = thread
  const [outcome] = await Promise.allSettled([read()])
  const now = await store.readThread({ owner, threadId })
  if (now?.deletedAt !== null || now.incarnation !== incarnation || seq <= baseSeq)
    throw new HoldfastError('thread_deleted', `Thread "${threadId}" was deleted while it was forked. Nothing was written.`, {
      details: { threadId },
    })
  if (outcome.status === 'rejected') throw outcome.reason
  return outcome.value
}

/** Where a fork is from, and what it is called. */
interface Made {
  readonly forkedFrom: string
  readonly fromAt: number
  readonly copyId: string
  readonly by: string | undefined
}

/** Writes the fork, in memory: the store gets it as a whole. */
class ForkWriter {
  readonly #core: Core
  readonly #key: ThreadKey
  readonly #made: Made
  readonly #log: LogRecord[] = []
  readonly #labels = new Map<number, string>()
  #state: StateAt | undefined
  #version = 0
  #run: Run | undefined
  #copied: ForkData['copied']
  #replaced: readonly string[] = []
  #now = 0
  readonly #records: KeyedRecord[] = []
  #session: readonly LoggedValue[] = []
  #copiedRun: { readonly runId?: string } = {}
  /** Where the log that is copied was cut: what a replaced call wrote and what came after it stay behind. */
  #cutAt: number | undefined

  constructor(core: Core, key: ThreadKey, made: Made) {
    this.#core = core
    this.#key = key
    this.#made = made
  }

  /** The state that it begins with. What it was made from is added when all of it is there. */
  async begin(state: StateAt): Promise<void> {
    const { codec } = this.#core
    const { value, version } = state
    const event = await newEvent(this.#core, 'thread_forked', {})
    this.#now = event.at
    const patch = value === undefined ? null : codec.encode(replaceState(value))
    this.#add({ ...event, count: version, patch }, { isCheckpoint: true })
    this.#state = state
    this.#version = version
  }

  /** The run that it was forked in, up to there. */
  async copy({ run, records, input, labels, replacements }: Source): Promise<void> {
    const { codec } = this.#core
    const { forkedFrom: from, copyId, by } = this.#made
    const given = originOfCopy(codec.decode(input.payload ?? codec.encode({})) as Record<string, unknown>, from)
    const queued = await newEvent(this.#core, 'run_queued', {})
    this.#add({ ...queued, payload: codec.encode(given) }, { runId: copyId })
    const tapeSeq = this.#head + 1
    const {
      records: copied,
      optionalFrom,
      replacedSeq,
      cutAt,
    } = copyTape(records, {
      ...{ codec, runId: run.id, threadId: run.threadId, copyId, copyThreadId: this.#key.threadId, forkedFrom: from, by },
      ...{ firstSeq: tapeSeq, now: this.#now, replacements },
    })
    const merged = replacements.find(({ isMerged }) => isMerged)
    if (merged !== undefined && replacements.length > 1)
      throw new HoldfastError(
        'invalid_input',
        `replace names "${pathOf(merged.outcome.key)}", a step of a plan, and other calls. Replace it alone.`,
      )
    for (const { copyOf, source: _source, ...record } of copied) {
      const isMerged = merged !== undefined && record.seq === replacedSeq
      this.#log.push(isMerged ? { ...record, patch: this.#merging(merged) } : record)
      const label = labels.get(copyOf)
      if (label !== undefined && record.isCheckpoint) this.#labels.set(record.seq, label)
      if (record.type === 'state_migrated') this.#version = (codec.decode(record.payload as Payload) as { to: number }).to
    }
    const fork: ForkMark = { from, ...(optionalFrom !== undefined && { optionalFrom }) }
    const paused = await newEvent(this.#core, 'run_paused', { reason: 'asked', fork, ...(by !== undefined && { by }) })
    this.#add(paused, { runId: copyId, isCheckpoint: true })
    // What a replaced step of a plan brings is nowhere in the original.
    this.#copied = { upTo: merged === undefined ? this.#head : (replacedSeq as number) - 1, stretches: stretchesOf(copied) }
    this.#replaced = replacements.map(({ outcome }) => pathOf(outcome.key))
    this.#copiedRun = { runId: run.id }
    this.#cutAt = cutAt
    const isFirstTape = input.type === 'run_queued'
    this.#run = this.#rowOf(run, { inputSeq: isFirstTape ? tapeSeq - 1 : tapeSeq, tapeSeq })
  }

  async edit(definition: StateDefinition<unknown> | undefined, recipe: Recipe): Promise<void> {
    const head = { ...(this.#state as StateAt), value: this.#value, version: this.#version }
    const edit = await editState(this.#core, head, definition, { recipe, by: this.#made.by })
    if (edit === null) return
    this.#add(edit.event, { isCheckpoint: true })
    this.#version = edit.stateVersion ?? this.#version
  }

  /** The state after all that was added so far. */
  get #value(): unknown {
    const { codec } = this.#core
    const patches = this.#log.slice(1).flatMap(({ patch }) => (patch === null ? [] : [codec.decode(patch) as Patch]))
    const { value } = this.#state as StateAt
    return patches.length === 0 ? value : applyPatches(value, patches)
  }

  /** What a step of a plan returns is merged into the state. */
  #merging({ value, outcome }: Replacement): Payload | null {
    if (value === undefined || value === null) return null
    if (typeof value !== 'object' || Array.isArray(value))
      throw new HoldfastError(
        'invalid_input',
        `replace gives "${pathOf(outcome.key)}", a step of a plan, ${Array.isArray(value) ? 'an array' : `a ${typeof value}`}. Give an object: it is merged into the state.`,
      )
    const patch = diffUpdate(this.#value ?? {}, (draft: object) => ({ ...draft, ...value }))
    return patch === null ? null : this.#core.codec.encode(patch)
  }

  /** The session of the thread that it is made from, as it was there; where the copy of a run ends earlier, as it was then. */
  async remember(origin: ThreadKey, { base, seq }: { readonly base: number; readonly seq: number }): Promise<void> {
    const { store, codec } = this.#core
    const { owner, threadId } = this.#key
    const places = { base, seq: this.#cutAt ?? seq, ...this.#copiedRun, threadId }
    const { records, base: session, since } = await copySession({ store, codec, now: this.#now }, origin, places)
    this.#session = session
    for (const data of since) {
      const event = await newEvent(this.#core, 'memory_written', {})
      this.#add({ ...event, payload: codec.encode(data) }, { isCheckpoint: true })
    }
    for (const change of records) {
      const record = recordAfter(undefined, change, { owner, now: this.#now })
      if (record != null) this.#records.push(record)
    }
  }

  /** References of its own: what the other thread deletes later stays here. Their contents are used from now on. */
  async keepArtifacts(origin: ThreadKey, seq: number): Promise<void> {
    const { threadId, owner } = this.#key
    const target = { seq: this.#cutAt ?? seq, threadId }
    const { artifacts } = await copyArtifacts(this.#core, origin, target)
    if (artifacts.length === 0) return
    await this.#core.artifacts.contents.renew(owner, artifacts)
    // What was deleted before that may have lost its content; what is there after it keeps it until the fork is.
    const { records } = await copyArtifacts(this.#core, origin, target)
    for (const change of records) {
      const record = recordAfter(undefined, change, { owner, now: this.#now })
      if (record != null) this.#records.push(record)
    }
  }

  whole(): WholeThread {
    this.#log[0] = { ...(this.#log[0] as LogRecord), payload: this.#core.codec.encode(this.#data()) }
    const last = this.#log.findLast(({ patch }) => patch !== null)
    return {
      thread: {
        ...{ ...this.#key, headSeq: this.#head, writtenSeq: 0, stateVersion: this.#version, incarnation: 1, baseSeq: 0 },
        ...{ createdAt: this.#now, deletedAt: null, patchSeq: last?.seq ?? 0 },
        patchChecksum: last === undefined ? 0 : sealChecksum(recordChecksum(this.#key, last), last.seq),
      },
      ...{
        epochFloor: 0,
        operations: [],
        records: this.#records,
        snapshots: [],
        chunks: [],
        log: this.#log,
        checkpoints: this.#checkpoints(),
      },
      runs: this.#run === undefined ? [] : [{ run: this.#run, waitKey: null, inbox: [], deliveredIds: [], streams: [] }],
    }
  }

  #data(): ForkData {
    const { forkedFrom: from, fromAt, by } = this.#made
    const { seq: base } = this.#state as StateAt
    return {
      ...{ from, base, fromAt },
      ...(by !== undefined && { by }),
      ...(this.#session.length > 0 && { session: this.#session }),
      ...(this.#copied !== undefined && { copied: this.#copied }),
      ...(this.#replaced.length > 0 && { replaced: this.#replaced }),
    }
  }

  get #head(): number {
    return this.#log.length
  }

  #add(event: NewEvent, { runId = null, isCheckpoint = false }: { runId?: string | null; isCheckpoint?: boolean }): void {
    this.#log.push({ ...event, seq: this.#head + 1, runId, isCheckpoint })
  }

  #checkpoints(): WholeThread['checkpoints'] {
    const rows: { seq: number; label: string | null; bytes: number }[] = []
    let bytes = 0
    for (const { seq, payload, patch, isCheckpoint } of this.#log) {
      bytes += (payload?.length ?? 0) + (patch?.length ?? 0)
      if (!isCheckpoint) continue
      rows.push({ seq, label: this.#labels.get(seq) ?? null, bytes })
      bytes = 0
    }
    return rows
  }

  #rowOf(run: Run, place: { readonly inputSeq: number; readonly tapeSeq: number }): Run {
    return {
      ...{ ...run, ...place, id: this.#made.copyId, threadId: this.#key.threadId, status: 'paused', reason: 'asked' },
      ...{ epoch: 0, leaseId: null, leaseUntil: null, leaseHolder: null, dueAt: null, claimsWithoutProgress: 0 },
      ...{ currentStep: null, endSeq: this.#head, createdAt: this.#now, startedAt: this.#now, finishedAt: null },
    }
  }
}

/** Copied records one after another, by where they are from. */
function stretchesOf(copied: readonly CopiedRecord[]): [number, number, number][] {
  const stretches: [number, number, number][] = []
  for (const { seq, source } of copied) {
    const last = stretches.at(-1)
    if (last !== undefined && source === last[1] + last[2]) last[2]++
    else stretches.push([seq, source, 1])
  }
  return stretches
}
