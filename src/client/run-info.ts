import type { Core } from '../control/core.ts'
import { isIn, rolledBackStretches } from '../engine/replay/rolled-back.ts'
import { readOrigin } from '../engine/writing/run-origin.ts'
import type { EventType, LogRecord } from '../model/event.ts'
import { formatCheckpoint } from '../model/ids.ts'
import type { Payload } from '../model/payload.ts'
import { isTerminal, type PauseReason, type Run, type RunStatus, type WaitReason } from '../model/run.ts'
import { refuseWrongEnd, refuseWrongInput } from '../model/run-end.ts'
import { reviveError } from '../model/stored-error.ts'
import { addUsage, noUsage, type UsageTotal } from '../model/usage.ts'
import { stretchOf } from '../store/log-stretch.ts'
import type { LogQuery, LogStretch } from '../store/store.ts'

/** What is known of a run. Times are ms since 1970, by the store's clock. */
export interface RunInfo {
  readonly id: string
  readonly threadId: string
  /** The latest checkpoint of the run, `threadId@seq`. */
  readonly checkpoint?: string
  readonly owner: string
  readonly workflow: string
  readonly version: number
  readonly queue: string
  readonly status: RunStatus
  /** Why it waits or is paused. */
  readonly reason?: PauseReason | WaitReason
  /** When a pending or waiting run becomes due. Absent if it waits for something else than time. */
  readonly dueAt?: number
  /** The worker that executes it. */
  readonly holder?: string
  /** The run that started it with `ctx.call` and waits for it. */
  readonly parent?: string
  /** The checkpoint that its thread was forked from, in the middle of another run: up to there this one is a copy of it. */
  readonly forkedFrom?: string
  /** The step that runs, waits for its next attempt, or failed the run. */
  readonly currentStep?: string
  /** Steps and effects with a recorded result, in order, without those that were rolled back. */
  readonly completedSteps: readonly string[]
  /** Attempts of each step so far. */
  readonly stepAttempts: Readonly<Record<string, number>>
  /** The last progress that the run or its plan reported. 0 before any report, 1 when it has completed. */
  readonly progress: RunProgress
  /** What it has used, including its children. */
  readonly usage: UsageTotal
  /** Why it failed or paused by itself. `corrupt_record`: its log is damaged, and what would be read from it is missing here. */
  readonly error?: Error
  readonly createdAt: number
  readonly startedAt?: number
  readonly finishedAt?: number
}

/** What `run.info()` returns: also the run's input and output. */
export interface RunDetails<Output = unknown> extends RunInfo {
  /** After `ctx.continueAs`, the input given there. */
  readonly input?: unknown
  /** Once it has completed. */
  readonly output?: Output
}

/** The progress of a run. */
export interface RunProgress {
  /** From 0 to 1. */
  readonly fraction: number
  readonly note?: string
  /** The step or scope that reported it. */
  readonly step?: string
}

/** What a list shows of runs, with one read for all of them. Runs that were deleted in between are left out. */
export async function runInfos(core: Core, runs: readonly Run[]): Promise<RunInfo[]> {
  if (runs.length === 0) return []
  const stretches = await core.store.readLogs(runs.map((run) => queryOf(run, typesOfInfo)))
  const described = runs.map((run, index) => ({ run, ...describe(core, run, stretches[index] ?? { records: [] }) }))
  const isThere = await Promise.all(described.map(({ run, isDamaged }) => !isDamaged || isStillThere(core, run)))
  return described.filter((_, index) => isThere[index]).map(({ info }) => info)
}

/** Null if the run was deleted in between. */
export async function runDetails<Output>(core: Core, run: Run): Promise<RunDetails<Output> | null> {
  const [stretch = { records: [] }] = await core.store.readLogs([queryOf(run, [...typesOfInfo, 'run_completed'])])
  const { info, input, end, isDamaged } = describe(core, run, stretch)
  if (isDamaged && !(await isStillThere(core, run))) return null
  return {
    ...info,
    ...(input !== undefined && { input }),
    ...(run.status === 'completed' && end !== undefined && 'output' in end && { output: end.output as Output }),
  }
}

/** Whether the run still exists as it was read. A deleted one, without its log, would look damaged. */
async function isStillThere({ store }: Pick<Core, 'store'>, run: Run): Promise<boolean> {
  const now = await store.readRun({ owner: run.owner, runId: run.id })
  return now !== null && now.createdAt === run.createdAt && now.inputSeq >= run.inputSeq
}

/** Events whose data is shown. */
const typesOfInfo: readonly EventType[] = [
  ...(['run_queued', 'run_started', 'usage_recorded', 'child_completed', 'progress_reported'] as const),
  ...(['run_rolled_back', 'run_paused', 'run_failed'] as const),
]

/**
 * Up to the end of a run that has ended, and only the input of one that has not begun: other runs may have written much to the thread
 * since.
 */
function queryOf(run: Run, payloadsOf: readonly EventType[]): LogQuery {
  const { owner, threadId, id: runId, inputSeq, tapeSeq, endSeq } = run
  const toSeq = isTerminal(run.status) ? endSeq : run.status === 'pending' && tapeSeq === null ? inputSeq : null
  return { owner, threadId, runId, afterSeq: inputSeq - 1, ...(toSeq !== null && { toSeq }), payloadsOf }
}

interface EndData {
  readonly error?: Error
  readonly output?: unknown
}

interface Described {
  readonly info: RunInfo
  readonly isDamaged: boolean
  readonly input?: unknown
  readonly end?: EndData
}

function describe(core: Core, run: Run, stretch: LogStretch): Described {
  if ('damage' in stretch) return { info: describeDamaged(run, stretch.damage), isDamaged: true }
  const { records } = stretch
  const endRecord = run.endSeq === null ? undefined : records.findLast(({ seq }) => seq === run.endSeq)
  const checked = stretchOf(() => {
    refuseWrongInput(run, records[0])
    refuseWrongEnd(run, endRecord)
    return records
  })
  if ('damage' in checked) return { info: describeDamaged(run, checked.damage), isDamaged: true }
  const dataOf = <Data>({ payload }: LogRecord) => (payload === null ? {} : core.codec.decode(payload)) as Data
  const { input, origin } = readOrigin(core.codec, records[0]?.payload as Payload)
  const end = endRecord === undefined ? undefined : dataOf<EndData>(endRecord)
  const isStopped = run.status === 'failed' || run.status === 'paused'
  const { startedAt, steps, ...work } = readWork(run, records, dataOf)
  const checkpoint = records.findLast(({ isCheckpoint }) => isCheckpoint)
  const info: RunInfo = {
    ...head(run),
    ...(checkpoint !== undefined && { checkpoint: formatCheckpoint(run.threadId, checkpoint.seq) }),
    ...(origin.parent !== undefined && { parent: origin.parent }),
    ...(origin.forkedFrom !== undefined && { forkedFrom: origin.forkedFrom }),
    ...work,
    usage: readUsage(records, dataOf, steps),
    ...(isStopped && end?.error !== undefined && { error: reviveError(end.error) }),
    ...times(run, startedAt),
  }
  return { info, input, isDamaged: false, ...(end !== undefined && { end }) }
}

/** What the row of a run says. */
function head(run: Run) {
  const isWaiting = run.status === 'pending' || run.status === 'waiting'
  return {
    ...{ id: run.id, threadId: run.threadId, owner: run.owner, workflow: run.workflow, version: run.version, queue: run.queue },
    status: run.status,
    ...(run.reason !== null && (run.status === 'waiting' || run.status === 'paused') && { reason: run.reason }),
    ...(isWaiting && run.dueAt !== null && { dueAt: run.dueAt }),
    ...(run.status === 'running' && run.leaseHolder !== null && { holder: run.leaseHolder }),
  }
}

function times({ createdAt, finishedAt }: Run, startedAt: number | null) {
  return { createdAt, ...(startedAt !== null && { startedAt }), ...(finishedAt !== null && { finishedAt }) }
}

/** If the log is damaged, what is known without it is still shown. */
function describeDamaged(run: Run, damage: Error): RunInfo {
  return {
    ...head(run),
    ...{ completedSteps: [], stepAttempts: {}, progress: { fraction: 0 }, usage: noUsage },
    error: damage,
    ...times(run, run.startedAt),
  }
}

type DataOf = <Data>(record: LogRecord) => Data

/** The run's progress, from its log. `steps` counts the calls that were begun. */
function readWork(run: Run, records: readonly LogRecord[], dataOf: DataOf) {
  const takenBack = rolledBackStretches(records, run.id, dataOf)
  const completed: string[] = []
  const attempts: Record<string, number> = Object.create(null)
  const open = new Map<string, string>()
  const begun = new Set<string>()
  let report: LogRecord | undefined
  let { startedAt } = run
  for (const record of records) {
    const { type, seq, step, count, attempt, at } = record
    // The row gets it with the first result that is written. In a fork, records before the run was made are copies.
    if (type === 'run_started' && startedAt !== null) startedAt = Math.min(startedAt, Math.max(at, run.createdAt))
    if (type === 'progress_reported' && !isIn(takenBack, seq)) report = record
    if (step === null || !typesOfSteps.has(type)) continue
    const key = `${step}#${count}`
    begun.add(key)
    if (isIn(takenBack, seq)) continue
    if (attempt > 0) attempts[step] = Math.max(attempts[step] ?? 0, attempt)
    if (type === 'step_completed' || type === 'effect_completed' || type === 'effect_skipped') completed.push(step)
    if (type === 'step_completed' || type === 'step_skipped' || type === 'effect_completed' || type === 'effect_skipped')
      open.delete(key)
    else open.set(key, step)
  }
  const isOver = run.status === 'completed' || run.status === 'cancelled'
  const current = isOver ? undefined : [...open.values()].at(-1)
  return {
    ...(current !== undefined && { currentStep: current }),
    completedSteps: completed,
    stepAttempts: { ...attempts },
    progress: progressOf(run, report, dataOf),
    startedAt,
    steps: begun.size,
  }
}

const typesOfSteps: ReadonlySet<EventType> = new Set<EventType>([
  ...(['step_started', 'step_completed', 'step_failed', 'step_skipped'] as const),
  ...(['effect_intended', 'effect_completed', 'effect_skipped', 'effect_unsure', 'effect_failed'] as const),
])

function progressOf(run: Run, report: LogRecord | undefined, dataOf: DataOf): RunProgress {
  if (run.status === 'completed') return { fraction: 1 }
  if (report === undefined) return { fraction: 0 }
  const { fraction = 0, note } = dataOf<{ fraction?: number; note?: string }>(report)
  return { fraction, ...(note !== undefined && { note }), ...(report.step !== null && { step: report.step }) }
}

/** The usage that the run has recorded in its log. */
function readUsage(records: readonly LogRecord[], dataOf: DataOf, steps: number): UsageTotal {
  let total: UsageTotal = { ...noUsage, steps }
  for (const record of records) {
    if (record.type !== 'usage_recorded' && record.type !== 'child_completed' && record.type !== 'run_started') continue
    const data = dataOf<Partial<UsageTotal> & { usage?: Partial<UsageTotal> }>(record)
    total = addUsage(total, record.type === 'usage_recorded' ? data : (data.usage ?? {}))
  }
  return total
}
