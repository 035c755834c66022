import { HoldfastError } from '../model/errors.ts'
import type { Run, RunStatus } from '../model/run.ts'
import { isSameValue } from '../model/state-diff.ts'
import { addUsage, noUsage, type UsageTotal } from '../model/usage.ts'
import { allEvents } from './all-events.ts'
import type { LogHistory } from './log-history.ts'
import { type ReplayedKind, type ReplayedStep, replayHistory } from './replay.ts'

/** What a run did under one name: its last outcome, and what all attempts took. */
export interface RunCall {
  readonly checkpoint: string
  readonly attempt: number
  readonly input?: unknown
  readonly output?: unknown
  readonly error?: Error
  /** Of the attempt that is recorded last. */
  readonly durationMs: number | null
  readonly tokens: number
  readonly cost: number
}

/** One call in two runs. */
export interface RunDiffRow {
  readonly kind: ReplayedKind
  readonly name: string
  /** Which call of that name, from 1. */
  readonly call: number
  /** Null: that run did not make this call. */
  readonly a: RunCall | null
  readonly b: RunCall | null
  /** In what the two differ; empty where they agree. Times and costs are only shown. */
  readonly differs: readonly ('missing' | 'input' | 'output' | 'error')[]
}

export interface RunSide {
  readonly runId: string
  readonly workflow: string
  readonly version: number
  readonly status: RunStatus
  readonly input?: unknown
  readonly output?: unknown
  readonly error?: Error
  /** From its start to its end; null while it has not ended. */
  readonly durationMs: number | null
  readonly tokens: number
  readonly cost: number
}

/** Two runs side by side. */
export interface RunDiff {
  readonly a: RunSide
  readonly b: RunSide
  /** In the order of the first run; what only the second did comes after what it did before that. */
  readonly rows: readonly RunDiffRow[]
  /** The first row in which they differ. Recorded values (`ctx.now()`, `ctx.uuid()`, …) and waits do not count by themselves. */
  readonly firstDivergence: RunDiffRow | null
}

interface Side {
  readonly side: RunSide
  readonly calls: ReadonlyMap<string, RunCall & { readonly kind: ReplayedKind; readonly name: string; readonly call: number }>
}

/** Reads both runs as a whole. What was rolled back is left out. */
export async function diffRuns(a: { run: Run; history: LogHistory }, b: { run: Run; history: LogHistory }): Promise<RunDiff> {
  const [first, second] = await Promise.all([readSide(a.run, a.history), readSide(b.run, b.history)])
  const rows = orderOf([...first.calls.keys()], [...second.calls.keys()]).map((key) => rowOf(key, first, second))
  const firstDivergence = rows.find(
    ({ kind, differs }) => differs.length > 0 && (!loose.has(kind) || differs.includes('missing')),
  )
  return { a: first.side, b: second.side, rows, firstDivergence: firstDivergence ?? null }
}

/** Kinds whose results differ from run to run. */
const loose: ReadonlySet<ReplayedKind> = new Set<ReplayedKind>(['value', 'timer'])

/** Kinds whose input may contain the id of the run: the key of an effect, the id of a child. */
const namesRun: ReadonlySet<ReplayedKind> = new Set<ReplayedKind>(['effect', 'child', 'timer'])

async function readSide(run: Run, history: LogHistory): Promise<Side> {
  const usage = await readUsage(history)
  const calls = new Map<string, RunCall & { kind: ReplayedKind; name: string; call: number }>()
  let [input, output, error] = [undefined as unknown, undefined as unknown, undefined as Error | undefined]
  for await (const step of replayHistory(history, {})) {
    if (step.runId !== run.id) continue
    if (step.kind === 'run') {
      input = step.input ?? input
      output = step.output
      error = step.error
    }
    if (step.isForgotten || step.name === null || !isCall(step)) continue
    const { kind, name, call } = step
    calls.set(keyOf(step), { kind, name, call, ...callOf(step, usage.calls.get(`${name}#${call}`) ?? noUsage) })
  }
  const isOver = run.startedAt !== null && run.finishedAt !== null
  const side: RunSide = {
    ...{ runId: run.id, workflow: run.workflow, version: run.version, status: run.status },
    ...(input !== undefined && { input }),
    ...(output !== undefined && { output }),
    ...(error !== undefined && { error }),
    durationMs: isOver ? (run.finishedAt as number) - (run.startedAt as number) : null,
    ...{ tokens: usage.total.tokens, cost: usage.total.cost },
  }
  return { side, calls }
}

function isCall({ kind, event }: ReplayedStep): boolean {
  return kind !== 'update' && kind !== 'edit' && event !== 'step_undone'
}

/** Model and tool calls are steps: one that was declared as such in one run only is still the same call. */
function keyOf({ kind, name, call }: Pick<ReplayedStep, 'kind' | 'name' | 'call'>): string {
  return `${kind === 'model' || kind === 'tool' ? 'step' : kind}:${name}#${call}`
}

function callOf(step: ReplayedStep, { tokens, cost }: UsageTotal): RunCall {
  const { checkpoint, attempt, input, output, error, durationMs } = step
  return {
    ...{ checkpoint, attempt, durationMs, tokens, cost },
    ...(input !== undefined && { input }),
    ...(output !== undefined && { output }),
    ...(error !== undefined && { error }),
  }
}

async function readUsage(history: LogHistory): Promise<{ total: UsageTotal; calls: Map<string, UsageTotal> }> {
  const calls = new Map<string, UsageTotal>()
  let total = noUsage
  for await (const { type, step, count, data } of allEvents(history, { types: ['usage_recorded', 'child_completed'] })) {
    const used = (type === 'usage_recorded' ? data : (data['usage'] ?? {})) as Partial<UsageTotal>
    total = addUsage(total, used)
    if (step !== null) calls.set(`${step}#${count}`, addUsage(calls.get(`${step}#${count}`) ?? noUsage, used))
  }
  return { total, calls }
}

/** All keys: those of the first in its order, and each that only the second has, after the one that it came after there. */
function orderOf(first: readonly string[], second: readonly string[]): string[] {
  const known = new Set(first)
  const following = new Map<string | null, string[]>()
  let last: string | null = null
  for (const key of second) {
    if (known.has(key)) last = key
    else following.set(last, [...(following.get(last) ?? []), key])
  }
  return [...(following.get(null) ?? []), ...first.flatMap((key) => [key, ...(following.get(key) ?? [])])]
}

function rowOf(key: string, first: Side, second: Side): RunDiffRow {
  const [a, b] = [first.calls.get(key) ?? null, second.calls.get(key) ?? null]
  const { kind, name, call } = (a ?? b) as NonNullable<typeof a>
  const show = (one: typeof a): RunCall | null => {
    if (one === null) return null
    const { kind: _kind, name: _name, call: _call, ...shown } = one
    return shown
  }
  return { kind, name, call, a: show(a), b: show(b), differs: differencesOf(kind, a, b) }
}

function differencesOf(kind: ReplayedKind, a: RunCall | null, b: RunCall | null): RunDiffRow['differs'] {
  if (a === null || b === null) return ['missing']
  const differs: RunDiffRow['differs'][number][] = []
  if (!namesRun.has(kind) && !isSameValue(a.input, b.input)) differs.push('input')
  if (!isSameValue(a.output, b.output)) differs.push('output')
  if (describeError(a.error) !== describeError(b.error)) differs.push('error')
  return differs
}

/** Without its stack, which differs from machine to machine. */
function describeError(error: Error | undefined): string {
  if (error === undefined) return ''
  const code = error instanceof HoldfastError ? error.code : ''
  return `${error.name} ${code} ${error.message}`
}
