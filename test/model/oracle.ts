import type { Act } from './acts.ts'
import type { Case } from './case.ts'
import { quietMs } from './grounds.ts'
import type { Forked } from './journal.ts'
import { judgeBodies } from './judge-bodies.ts'
import { judgeCopies } from './judge-copies.ts'
import { judgeEffects } from './judge-effects.ts'
import { judgeFacts } from './judge-facts.ts'
import { judgeNotifications } from './judge-notifications.ts'
import { judgeReads } from './judge-reads.ts'
import { judgeState } from './judge-state.ts'
import { judgeUndos } from './judge-undos.ts'
import { matchOutput } from './match-output.ts'
import { possibleErrors } from './possible-errors.ts'
import { type Node, nodesOf, type PlacedNode, type Program, walk, withChildren } from './program.ts'
import { type Observation, type ObservedRun, rootId } from './run-case.ts'
import { errorName } from './values.ts'

/**
 * The contract, as docs/guides and the design have it: what may be seen of a case. It knows programs, the journal, and what the public API
 * shows; nothing of the engine.
 */
export interface Violation {
  /** Which sentence of the contract is broken, in one word. */
  readonly rule: string
  readonly what: string
}

export function judge(given: Case, seen: Observation): Violation[] {
  const view = new View(given, seen)
  const violations = seen.seen
    .map((sentence): Violation => {
      const colon = sentence.indexOf(':')
      return { rule: sentence.slice(0, colon), what: sentence.slice(colon + 2) }
    })
    .filter(({ rule, what }) => !(rule === 'stuck' && view.forgotten.some(({ info }) => what.startsWith(`run "${info.id}" `))))
    .filter(({ rule }) => !(rule === 'endless' && view.forgotten.length > 0))
  const isCut =
    view.forgotten.length > 0 ||
    violations.some(({ rule }) => ['stuck', 'endless', 'mismatch', 'poisoned', 'act_hangs'].includes(rule))
  for (const run of seen.runs) {
    if (!isCut) violations.push(...judgeEnd(view, run))
    violations.push(...judgeUndos(view, run), ...judgeState(view, run), ...judgeReads(view, run), ...judgeFacts(view, run))
  }
  violations.push(...judgeBodies(view), ...judgeEffects(view), ...judgeCopies(view), ...judgeActs(view))
  if (!isCut) violations.push(...judgeLeftovers(view), ...judgeNotifications(view))
  return violations
}

/** A case as it went. */
export class View {
  readonly given: Case
  readonly seen: Observation
  readonly nodes: ReadonlyMap<number, PlacedNode>

  constructor(given: Case, seen: Observation) {
    this.given = given
    this.seen = seen
    this.nodes = nodesOf(given.program)
  }

  get journal() {
    return this.seen.journal
  }

  /** Nothing happened to the processes. */
  get isCalm(): boolean {
    return this.journal.count(({ of }) => of === 'fault') === 0
  }

  /**
   * What was running at so many deaths of its process may fail, or be skipped, with `worker_died`. One that lives on without its lease counts
   * until it has said so, which may be too late.
   */
  mayBeDeadly({ events, info }: ObservedRun): boolean {
    const counted: readonly string[] = ['crash', 'kill', 'lost_lease']
    const deaths = this.journal.count((note) => note.of === 'fault' && counted.includes(note.fault.kind))
    const isDeadly = (error: unknown) => (error as { code?: unknown } | undefined)?.code === 'worker_died'
    return deaths >= deathLimit && (isDeadly(info.error) || events.some(({ error }) => isDeadly(error)))
  }

  /**
   * What a function awaits of its own for longer than the quiet time is lost with its process: the guide says to use a step for it. Such runs
   * wait, and so do those that wait for them.
   */
  get forgotten(): readonly ObservedRun[] {
    const lost = this.journal.notes.flatMap((note) => (note.of === 'fault' && note.fault.kind !== 'outage' ? [note] : []))
    if (lost.length === 0) return []
    // On a busy machine what takes a millisecond may take longer than the quiet time as well.
    const awaited = new Set(lost.flatMap(({ awaiting = [] }) => awaiting))
    const waiting = this.seen.runs.filter(({ info }) => info.status === 'waiting')
    const isForgotten = waiting.some(({ info }) => awaited.has(info.id))
    const waitsForThem = (program: Program) => isForgotten && [...walk(program)].some(({ node }) => node.kind === 'call')
    // A process that was really killed does not tell what its functions awaited.
    const leastMs = lost.some(({ fault }) => fault.kind === 'kill') ? 0 : quietMs / 2
    const isLong = ({ node }: { readonly node: Node }) => node.kind === 'foreign' && node.ms >= leastMs
    const canBe = (program: Program) => [...withChildren(program)].some((each) => [...walk(each)].some(isLong))
    return waiting.filter(({ info, program }) => awaited.has(info.id) || waitsForThem(program) || canBe(program))
  }

  /** Somebody gave a child up. */
  get isGivenUp(): boolean {
    return this.journal.notes.some(({ of }) => of === 'given_up')
  }

  had(isMeant: (act: Act) => boolean): boolean {
    return this.journal.notes.some((note) => note.of === 'act' && isMeant(note.act))
  }

  /** The copies of runs that were made. */
  get forks(): readonly (Forked & { readonly run: string })[] {
    return this.journal.notes.flatMap((note) => (note.of === 'forked' && note.run !== null ? [{ ...note, run: note.run }] : []))
  }

  /** Of a copy, and of what it started. */
  isOfCopy({ info }: ObservedRun): boolean {
    return info.forkedFrom !== undefined || this.forks.some(({ run }) => run === info.parent)
  }

  get isDeleted(): boolean {
    return this.had(({ kind }) => kind === 'delete')
  }

  get isRolledBack(): boolean {
    return this.had((act) => act.kind === 'rollback' || (isFork(act) && typeof act.fate === 'object'))
  }

  /** Failed, undone, retried: kept results bring their patches, and what was undone comes after them. */
  isRedone(program: Program): boolean {
    if (!program.undoOnFailure) return false
    // A child is retried by its parent, which no act tells.
    const isRetried = ({ program: own, events }: ObservedRun) =>
      own === program && events.some(({ type }) => type === 'run_retried')
    return this.had(({ kind }) => kind === 'retry') || this.seen.runs.some(isRetried)
  }

  /** The node of a note: `12`, `12.0.1` in loops, `12[3]` in maps. */
  nodeAt(at: string) {
    return this.nodes.get(Number(/^\d+/.exec(at)?.[0]))
  }

  /** It may be left behind under way: its branch may lose, or what is around it may end without it. */
  canBeLeft(id: number): boolean {
    const above = this.nodes.get(id)?.above ?? []
    return above.some(
      ({ kind }) => kind === 'race' || kind === 'any' || kind === 'all' || kind === 'section' || kind === 'settled',
    )
  }
}

function isFork(act: Act): act is Extract<Act, { kind: 'fork' | 'replace' }> {
  return act.kind === 'fork' || act.kind === 'replace'
}

/** A copy, or one of its children, may have been cancelled. */
function cancelsCopy(act: Act): boolean {
  return isFork(act) && act.fate === 'cancel'
}

/** What forks and rewinds were refused with. */
function judgeActs(view: View): Violation[] {
  if (view.isDeleted) return []
  return view.journal.notes.flatMap((note): Violation[] => {
    if (note.of !== 'act' || note.stage !== 'ends' || note.code === undefined) return []
    if (!isFork(note.act) && note.act.kind !== 'rewind') return []
    // Of a copy that ends before it is cancelled or rolled back; of a run that is just undoing what it did.
    const isMade = view.journal.notes.some((other) => other.of === 'forked' && other.nth === note.nth)
    const isUndoing = note.code === 'conflict' && note.detail?.includes('was being undone') === true
    const isBusy = (note.code === 'conflict' || note.code === 'timeout') && (isMade || note.act.kind === 'rewind')
    if (isBusy || isUndoing || (!view.isCalm && (note.code === 'outcome_unknown' || note.code === 'store_unavailable'))) return []
    return [{ rule: `${note.act.kind}_refused`, what: `${note.act.kind}: ${note.code} ${note.detail}` }]
  })
}

/** What was running at so many deaths fails. */
const deathLimit = 3

/** How a run may end, and what with. */
function judgeEnd(view: View, run: ObservedRun): Violation[] {
  const { info, program, output, error } = run
  const isRoot = info.id === rootId
  switch (info.status) {
    case 'completed': {
      if (view.mayBeDeadly(run)) return []
      const hasOldEffects = view.isRolledBack || view.isDeleted
      const { isGivenUp } = view
      const isRetried = view.had(({ kind }) => kind === 'retry')
      const problem = matchOutput(program, output, {
        hasOldEffects,
        isRetried,
        isGivenUp,
        hasCopies: view.forks.length > 0,
        isCopy: info.forkedFrom !== undefined,
        mayHoldCancel: info.forkedFrom !== undefined && view.had(({ kind }) => kind === 'cancel'),
        isRedone: (each) => view.isRedone(each),
      })
      return problem === undefined ? [] : [{ rule: 'output', what: `run "${info.id}" returned what it can't: ${problem}` }]
    }
    case 'failed': {
      const cause = (error as { cause?: unknown })?.cause ?? info.error ?? error
      const name = errorName(cause)
      if ((name !== undefined && possibleErrors(program).has(name)) || view.mayBeDeadly(run)) return []
      const { code, message } = (cause ?? {}) as { code?: string; message?: string }
      if (code === 'run_cancelled' && (view.isGivenUp || isTakenBackAfterCancel(view, run))) return []
      return [{ rule: 'failure', what: `run "${info.id}" failed with what nothing in it throws: ${code ?? ''} ${message}` }]
    }
    case 'cancelled': {
      const isMeant =
        view.had(({ kind }) => kind === 'cancel') ||
        (view.isOfCopy(run) && view.had(cancelsCopy)) ||
        (!isRoot && (view.isRolledBack || view.isDeleted || view.isGivenUp || view.given.program.undoOnFailure))
      return isMeant ? [] : [{ rule: 'cancelled', what: `run "${info.id}" is cancelled and nobody cancelled it` }]
    }
    default:
      return [{ rule: 'unfinished', what: `run "${info.id}" is ${info.status} in the end` }]
  }
}

/**
 * A cancel that got stuck has ended the children by then. A rollback to after the start of one does not bring it back: its call throws
 * `run_cancelled` (docs/guides/waiting-and-control.md).
 */
function isTakenBackAfterCancel(view: View, { events }: ObservedRun): boolean {
  const isCancelled = (id: unknown) => view.seen.runs.some(({ info }) => info.id === id && info.status === 'cancelled')
  const begun = events.filter(({ type, data }) => type === 'child_started' && isCancelled(data?.['runId']))
  const goneBackTo = events.flatMap(({ type, seq, data }) =>
    type === 'run_rolled_back' ? [{ seq, to: Number(data?.['to']) }] : [],
  )
  const isKept = (seq: number) => goneBackTo.some((rollback) => rollback.seq > seq && rollback.to >= seq)
  return view.had(({ kind }) => kind === 'cancel') && begun.some(({ seq }) => isKept(seq))
}

/** Nothing is left over when all has ended. */
function judgeLeftovers(view: View): Violation[] {
  return view.seen.inbox.flatMap((item): Violation[] => {
    if (item.kind === 'question')
      return [{ rule: 'question_left', what: `question "${item.name}" of ended run "${item.runId}" is in the inbox` }]
    if (item.kind === 'run') return [{ rule: 'run_left', what: `run "${item.runId}" is in the inbox, paused as ${item.reason}` }]
    const run = view.seen.runs.find(({ info }) => info.id === item.runId)
    const id = Number(/\d+/.exec(item.name)?.[0])
    const isLeft = run?.info.status !== 'completed' || view.canBeLeft(id) || view.isDeleted
    return isLeft ? [] : [{ rule: 'effect_left', what: `effect "${item.name}" of completed run "${item.runId}" is in the inbox` }]
  })
}
