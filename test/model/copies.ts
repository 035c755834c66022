import { isDeepStrictEqual } from 'node:util'
import type { Holdfast, RunEvent, RunInfo } from 'holdfast'
import type { Act } from './acts.ts'
import type { Forked, Journal } from './journal.ts'
import { idOfPath, type PlacedNode } from './program.ts'
import { isResult, type RecordedCall, type RecordedCalls, recordedCalls, scopeOf } from './recorded-calls.ts'
import { type CallValue, digest, flatten, type ModelState, type SectionValue, type Trace, wordOf } from './values.ts'

type ForkAct = Extract<Act, { kind: 'fork' | 'replace' }>

export interface CopyOptions {
  readonly hf: Holdfast
  readonly journal: Journal
  readonly nth: number
  readonly rootId: string
  /** Workflows whose runs can be copied: others are the machine's own. */
  readonly isPlayed: (workflow: string) => boolean
  readonly nodes: ReadonlyMap<number, PlacedNode>
  /** Something is not as it must be. */
  readonly say: (sentence: string) => void
}

/** Forks a thread, looks whether the copy is one and the original as it was, and continues the copy. */
export async function forkAndContinue(act: ForkAct, options: CopyOptions): Promise<void> {
  const { hf, journal, nth, say } = options
  const info = await chosenRun(act.of, options)
  if (info === undefined) return
  const { id, threadId } = info
  const thread = hf.thread(threadId)
  const checkpoints = await thread.checkpoints()
  const at = checkpoints[Math.floor(act.at * checkpoints.length)]
  if (at === undefined) return
  const source = await hf.runs.get(id)
  const before = await source.events()
  const upTo = before.filter(({ seq }) => seq <= at.seq)
  const recorded = recordedCalls(upTo)
  const state = (await thread.stateAt(at.checkpoint)) as ModelState | undefined
  const call = act.kind === 'replace' ? chosenCall(act.call, recorded, state, options) : undefined
  if (act.kind === 'replace' && call === undefined) return
  const fork = await thread.fork(at.checkpoint, {
    by: 'dana',
    ...(call !== undefined && { replace: { [call.name]: call.other } }),
    ...(act.kind === 'fork' && act.edits && { edit: (draft: { edits?: string[] }) => addEdit(draft, `fork${nth}`) }),
  })
  const { runId } = fork
  journal.write({
    ...{ of: 'forked', nth, thread: fork.id, run: runId, from: id },
    // What was taken back after the place where it is cut is there.
    ...heldOn(call === undefined ? recorded : recordedCalls(upTo.filter(({ seq }) => seq < call.seq))),
    ...(call !== undefined && { replaced: { at: call.at, ...(call.given !== undefined && { given: call.given }) } }),
  })
  const about = `the fork "${fork.id}" of "${threadId}" at ${at.checkpoint}`
  const [forked] = await hf.debug.audit(fork.id)
  if (fork.forkedFrom !== at.checkpoint || forked?.decision !== 'forked' || forked.by !== 'dana')
    say(`fork_origin: ${about} says that it is from ${fork.forkedFrom}, and that ${forked?.by} has ${forked?.decision} it`)
  const own = (await fork.state()) as ModelState | undefined
  if (act.kind === 'fork') {
    // What a state does not have that was never written under a definition, the workflow of the run that was begun there says.
    const first = upTo.some(({ type }) => type === 'run_started') ? { list: [], edits: [] } : {}
    const expected = act.edits ? addEdit({ ...first, ...structuredClone(state) }, `fork${nth}`) : state
    if (!isDeepStrictEqual(own, expected))
      say(`fork_state: ${about} begins with ${JSON.stringify(own)} instead of ${JSON.stringify(expected)}`)
  }
  for (const word of call?.changes ?? [])
    if (own?.list?.includes(word)) say(`fork_patch: ${about} replaces ${call?.name}, and has its change ${word}`)
  const after = await source.events()
  // Somebody may have deleted the thread meanwhile, and have started the run again.
  if (after[0]?.at === before[0]?.at) {
    if (!isDeepStrictEqual(plain(after.slice(0, before.length)), plain(before)))
      say(`fork_wrote: ${about} changed the log of "${id}"`)
    if (!isDeepStrictEqual(await thread.stateAt(at.checkpoint), state))
      say(`fork_wrote: ${about} changed the state of "${threadId}"`)
  }
  const isInside = act.kind === 'replace' || isUnderWay(upTo)
  if ((runId !== null) !== isInside) say(`fork_run: ${about} has ${runId === null ? 'no' : 'a'} run`)
  if (runId === null) return
  const copy = await hf.runs.get(runId)
  const { status, reason, forkedFrom } = await copy.info()
  // Somebody may have found it in the inbox, and resumed it.
  const isResumed = journal.notes.some((note) => note.of === 'resumed' && note.run === runId)
  if (!isResumed && (status !== 'paused' || reason !== 'asked')) say(`fork_status: ${about} is ${status} (${reason})`)
  if (forkedFrom !== at.checkpoint) say(`fork_origin: the run of ${about} says that it is from ${forkedFrom}`)
  journal.write({ of: 'resumed', run: runId })
  await fork.resume()
  if (act.fate === 'cancel') await copy.cancel()
  else if (act.fate !== 'resume') {
    const own = await fork.checkpoints()
    const to = own[Math.floor(act.fate.rollback * own.length)]
    if (to !== undefined) await copy.rollback(to.checkpoint)
  }
}

async function chosenRun(of: number, { hf, rootId, isPlayed }: CopyOptions): Promise<RunInfo | undefined> {
  const { items } = await hf.runs.list()
  if (of < 0.5) return items.find(({ id }) => id === rootId)
  const others = items.filter(({ id, workflow }) => id !== rootId && isPlayed(workflow)).sort((a, b) => a.createdAt - b.createdAt)
  return others[Math.floor((of * 2 - 1) * others.length)] ?? items.find(({ id }) => id === rootId)
}

const ends = ['run_completed', 'run_failed', 'run_cancelled']
const turns = [...ends, 'run_started', 'run_retried', 'run_resumed', 'run_rolled_back']

/** Whether the run had begun there and not ended. */
function isUnderWay(events: readonly RunEvent[]): boolean {
  const last = events.findLast(({ type }) => turns.includes(type))
  return last !== undefined && events.some(({ type }) => type === 'run_started') && !ends.includes(last.type)
}

/** What a copy must have: all that is on record. */
function heldOn({ calls }: RecordedCalls): Pick<Forked, 'held' | 'waited'> {
  return {
    held: calls.filter(isResult).map(({ step, value }) => ({ step, value })),
    waited: calls.filter((call) => !isResult(call) && call.type !== 'step_failed').map(({ step }) => step),
  }
}

/** A call that can be given another result. */
interface Replaceable {
  readonly name: string
  /** The place of the call, as in notes. */
  readonly at: string
  /** Where the tape is cut. */
  readonly seq: number
  readonly other: object
  readonly given?: string
  /** What it had done to the state. */
  readonly changes?: readonly string[]
}

function chosenCall(
  fraction: number,
  recorded: RecordedCalls,
  state: ModelState | undefined,
  options: CopyOptions,
): Replaceable | undefined {
  const { calls, begun } = recorded
  const found = calls.flatMap((call): Replaceable[] => {
    const isOnly = calls.filter((other) => other.step === call.step).length === 1
    // What a person has decided is a result once the run has come by.
    if (call.type === 'effect_resolved') return []
    const made = isResult(call) ? ofResult(call, isOnly, options) : isOnly ? ofOther(call, state, options) : undefined
    if (made === undefined) return []
    // Of a section nothing is left.
    const seq = begun.find((section) => section.scope === scopeOf(begun, call))?.seq ?? call.seq
    return [{ ...made, seq }]
  })
  return found[Math.floor(fraction * found.length)]
}

type Made = Omit<Replaceable, 'seq'>

/** Its result says which call it is. */
function ofResult(
  call: RecordedCall & { readonly value: CallValue & { readonly trace?: Trace } },
  isOnly: boolean,
  { nth }: CopyOptions,
): Made | undefined {
  const { step, value } = call
  const { n, run, saw, trace } = value
  // Outside of a section the turn of a loop is the count of the call.
  const turn = step.includes(n) ? undefined : /^\d+\.(\d+)$/.exec(n)?.[1]
  if (turn === undefined ? !isOnly || n.includes('.') : step.includes('/')) return undefined
  const other = {
    // What came of a look at the state is no part of what the function has seen: another attempt may look again, and call another step.
    ...('looked' in value ? { n, looked: { how: 'replaced', by: nth } } : { n, how: 'replaced', by: nth }),
    ...(run !== undefined && { run }),
    ...(saw !== undefined && { saw }),
    ...(trace !== undefined && { trace: [] }),
  }
  const name = turn === undefined ? step : `${step}#${Number(turn) + 1}`
  return { ...{ name, at: n, other, given: digestOf(other) }, changes: [wordOf(n), ...flatten(trace ?? [])] }
}

/** An answer, a signal, a child, a step of a plan, or one that failed. */
function ofOther({ step, type }: RecordedCall, state: ModelState | undefined, { nodes, nth }: CopyOptions): Made | undefined {
  const found = nodes.get(idOfPath(step))
  if (found === undefined || found.above.some(({ kind }) => kind === 'loop')) return undefined
  const { node } = found
  const at = `${node.id}`
  const made = (other: object, value: object = { n: at, value: other }): Made => ({
    name: step,
    at,
    other,
    given: digestOf(value),
  })
  const instead = { n: at, how: 'replaced', by: nth }
  if (type === 'signal_received' && node.kind === 'signal' && node.name === `g${node.id}`) return made({ by: nth })
  if (type === 'question_answered' && node.kind === 'ask') return made({ ok: true, by: nth })
  if (type === 'child_completed' && node.kind === 'call' && !node.isDetached) return made({ how: 'replaced', by: nth })
  if (type === 'step_failed' && node.kind === 'step') return made(instead, instead)
  if (type !== 'step_completed' || node.kind !== 'section' || step.includes('/')) return undefined
  const before = (state as Record<string, SectionValue | undefined> | undefined)?.[`p${node.id}`]
  return { name: step, at, other: { [`p${node.id}`]: { ...instead, trace: [] } }, changes: flatten(before?.trace ?? []) }
}

function digestOf(value: object): string {
  return digest('', JSON.stringify(value))
}

function addEdit<Draft extends { edits?: string[] }>(draft: Draft, word: string): Draft {
  draft.edits ??= []
  draft.edits.push(word)
  return draft
}

function plain(events: readonly RunEvent[]): unknown {
  return events.map(({ seq, type, at, step, attempt }) => ({ seq, type, at, step, attempt }))
}
