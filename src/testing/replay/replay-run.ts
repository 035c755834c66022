import { isDeepStrictEqual } from 'node:util'
import { type AnyWorkflow, type HoldfastError, open, type RunDetails } from '../../index.ts'
import { createCodec } from '../../model/codec.ts'
import { isTerminal, type Run } from '../../model/run.ts'
import { isOvertime } from '../../model/run-end.ts'
import { reviveError } from '../../model/stored-error.ts'
import type { WholeThread } from '../../store/thread-image.ts'
import { createMemoryStore } from '../../stores/memory/memory-store.ts'
import { ExploredProcess } from '../explore/explored-process.ts'
import { interceptCalls } from '../intercept-calls.ts'
import { cutForReplay } from './cut-for-replay.ts'

/** A run that new code can't continue, or not as it was. */
export interface ReplayProblem {
  readonly runId: string
  readonly threadId: string
  readonly workflow: string
  readonly version: number
  /**
   * `diverges`: the function no longer takes the way that the log says. `fails`: it throws what is not on record, or the state can't be migrated.
   * `missing`: there is no such workflow or version. `unclear`: it did not come to the end of its log in time.
   */
  readonly problem: 'diverges' | 'fails' | 'missing' | 'unclear'
  readonly message: string
  /** What is next in the log there, and what the function asked for instead. */
  readonly recorded?: readonly string[]
  readonly asked?: readonly string[]
}

export interface ReplayOptions {
  /** The new code. */
  readonly workflows: readonly AnyWorkflow[]
  readonly mismatchMs: number
  /** How long one run may take, in ms. */
  readonly limitMs: number
}

/** How a replay went, as far as it was followed. */
type Verdict =
  /** Everything recorded was asked for; what comes next is new: a body, or a write of this name. */
  | { readonly kind: 'live'; readonly next: string }
  /** It was written how the run ended, or why it paused. */
  | { readonly kind: 'stopped' }
  | { readonly kind: 'late' }

/**
 * Replays a run on a copy of its thread, up to the end of its log, and stops it there. No body, effect, check or undo is called; what the function
 * does between its calls is done. Null where the run continues as it is, or ends as it did.
 */
export async function replayRun(whole: WholeThread, run: Run, options: ReplayOptions): Promise<ReplayProblem | null> {
  const { id: runId, threadId, workflow, version, owner } = run
  const about = { runId, threadId, workflow, version }
  const known = options.workflows.find((one) => one.name === workflow && one.version === version)
  if (known === undefined) {
    const message = `There is no workflow "${workflow}" of version ${version}: keep it until its runs have ended.`
    return { ...about, problem: 'missing', message }
  }
  const { copy, at } = cutForReplay(whole, run)
  const store = createMemoryStore({ clockOffsetMs: () => at - Date.now() })
  await store.restoreThread(copy)
  const hf = (await open(store, { worker: false, logger: false })).as(owner)
  try {
    const { state } = known.options
    const failed = state === undefined ? undefined : (await hf.checkMigration(state)).failed[0]
    if (failed !== undefined) return { ...about, problem: 'fails', message: failed.error.message }
    const follow = new Followed(store, run, options)
    const verdict = await follow.verdict()
    const info = await (await hf.runs.get(runId)).info()
    await follow.end()
    const problem = problemOf(whole, run, verdict, info)
    return problem === null ? null : { ...about, ...problem }
  } finally {
    await hf.close()
    await store.close()
  }
}

/** A process that executes the run until there is nothing left to replay. */
class Followed {
  readonly #process: Promise<ExploredProcess>
  readonly #limit: NodeJS.Timeout
  readonly #verdict: Promise<Verdict>

  constructor(store: ReturnType<typeof createMemoryStore>, run: Run, { workflows, mismatchMs, limitMs }: ReplayOptions) {
    const { promise, resolve } = Promise.withResolvers<Verdict>()
    this.#verdict = promise
    this.#limit = setTimeout(() => resolve({ kind: 'late' }), limitMs)
    const wrap = interceptCalls((call, proceed) => {
      if (call.kind === 'section' || call.isScope === true) return proceed()
      resolve({ kind: 'live', next: `${call.kind} ${call.path} #${call.count}` })
      return new Promise(() => {})
    })
    this.#process = ExploredProcess.start(store, {
      runId: run.id,
      workflows: () => workflows.map(wrap),
      times: { quietMs: 10, mismatchMs },
      hooks: {
        onWrite: ({ name, isFlush }) => {
          if (isFlush || stops.has(name)) return undefined
          resolve({ kind: 'live', next: name })
          return { kind: 'crash', when: 'before' }
        },
        onClaim: () => undefined,
        onWritten: (changes) => {
          if (changes.some(({ events }) => events.some(({ type }) => stops.has(type)))) resolve({ kind: 'stopped' })
        },
        onDeath: () => {},
      },
    })
  }

  verdict(): Promise<Verdict> {
    return Promise.race([this.#verdict, this.#process.then(() => this.#verdict)])
  }

  async end(): Promise<void> {
    clearTimeout(this.#limit)
    const process = await this.#process
    process.kill()
    await process.dispose()
  }
}

const stops: ReadonlySet<string> = new Set(['run_paused', 'run_failed', 'run_completed'])

type Problem = Pick<ReplayProblem, 'problem' | 'message' | 'recorded' | 'asked'>

function problemOf(whole: WholeThread, run: Run, verdict: Verdict, info: RunDetails): Problem | null {
  // Where its time limit ended it, the function did not.
  const isOver = isTerminal(run.status) && !isOvertime(endOf(whole, run).error, run.id)
  if (verdict.kind === 'late')
    return {
      problem: 'unclear',
      message: 'The function did not ask for everything in its log in time: does it await something of its own?',
    }
  if (verdict.kind === 'live')
    return isOver
      ? diverged(`It had ${run.status} here; the function asked for ${verdict.next}.`, [`run_${run.status}`], [verdict.next])
      : null
  const { error } = info
  if (info.status === 'paused') {
    const { recorded, asked } = ((error as HoldfastError | undefined)?.details ?? {}) as { recorded?: string[]; asked?: string[] }
    if (info.reason === 'mismatch') return diverged(error?.message ?? '', recorded, asked)
    return info.reason === 'poisoned' ? { problem: 'fails', message: error?.message ?? 'It could not be loaded.' } : null
  }
  const end = isOver ? endOf(whole, run) : undefined
  if (info.status === 'failed')
    return isOnRecord(whole, run, error) ? null : { problem: 'fails', message: error?.message ?? 'The function throws.' }
  if (run.status === 'failed' && isOver)
    return diverged('It had failed here; the function returns.', ['run_failed'], ['run_completed'])
  return end === undefined || isDeepStrictEqual(end.output, info.output) ? null : diverged('Its output is another one.')
}

function diverged(message: string, recorded?: readonly string[], asked?: readonly string[]): Problem {
  return { problem: 'diverges', message, ...(recorded !== undefined && { recorded }), ...(asked !== undefined && { asked }) }
}

const codec = createCodec()

interface RecordData {
  readonly output?: unknown
  readonly error?: Error
}

function endOf({ log }: WholeThread, { endSeq }: Run): RecordData {
  const payload = log.find(({ seq }) => seq === endSeq)?.payload ?? null
  return payload === null ? {} : (codec.decode(payload) as RecordData)
}

/** Whether the run was about to fail anyway: with an error that its log has. */
function isOnRecord({ log }: WholeThread, run: Run, error: Error | undefined): boolean {
  return log.some(({ runId, type, payload }) => {
    if (runId !== run.id || payload === null || !type.endsWith('_failed')) return false
    const recorded = (codec.decode(payload) as RecordData).error
    return recorded !== undefined && reviveError(recorded).message === error?.message
  })
}
