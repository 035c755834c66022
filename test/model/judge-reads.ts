import type { Looked, Note } from './journal.ts'
import type { View, Violation } from './oracle.ts'
import { awaitsUnrecorded, idOfPath, type Node, partsOf } from './program.ts'
import type { ObservedRun } from './run-case.ts'
import { type ModelState, wordOf } from './values.ts'

/**
 * Whoever looks at the state sees what it is entitled to.
 *
 *   1  What its own branch has changed before is there, and nothing twice.
 *   2  The function sees the same at the same place whenever it is called again, unless a section has failed meanwhile: another attempt
 *      begins with what the one before has kept.
 *   3  Another attempt of a section finds the changes of all results that are kept.
 *   4  Where nothing was taken back and no process died, what was seen is how the final state began.
 */
export function judgeReads(view: View, run: ObservedRun): Violation[] {
  const { info } = run
  const violations: Violation[] = []
  const say = (rule: string, note: Looked, what: string) =>
    violations.push({ rule, what: `${note.by} ${note.at} of run "${info.id}" ${what}: ${note.list.join(' ')}` })
  // Two lives of a thread have runs of one id.
  if (view.isDeleted) return []
  const { notes } = view.journal
  const list = (run.state as Partial<ModelState> | undefined)?.list ?? []
  const isFlat = isNeverTakenBack(view, run) && view.isCalm && info.status === 'completed'
  // A function that awaits something of its own may be left behind by its run: what it then updates is lost, and so is what it does next.
  const nodes = [...run.program.tapes, ...(run.program.stages ?? []).flatMap((stage) => stage.map(({ body }) => body))]
  const mayBeLeft = nodes.some(awaitsAnything)
  const before = new Map<string, { readonly note: Looked; readonly index: number }>()
  for (const [index, note] of notes.entries()) {
    if (note.of !== 'looked' || note.run !== info.id) continue
    const lost = note.own.filter((word) => !note.list.includes(word))
    if (lost.length > 0 && !mayBeLeft && !hasReturned(notes, info.id, index))
      say('read_lost', note, `did not see ${lost.join(' ')}, which its branch had done`)
    if (new Set(note.list).size < note.list.length) say('read_twice', note, 'saw a change twice')
    if (isFlat && note.list.some((word, place) => list[place] !== word))
      say('read_other', note, `saw what the state never was (${list.join(' ')})`)
    if (note.by === 'body' || isLeftBehind(view, note, index)) continue
    const place = `${note.at} ${note.by}`
    const earlier = before.get(place)
    before.set(place, { note, index })
    if (earlier === undefined || isSame(earlier.note.list, note.list)) {
      // Seen by the attempt before as well, or the first time.
    } else if (
      !mayBeLeft &&
      // Another attempt after too many deaths sees what is kept, as after any failure.
      !view.mayBeDeadly(run) &&
      mustBeSame(view, run, note) &&
      hasBegunOnRecord(view, note, earlier.index, index) &&
      !hasFailedBetween(notes, info.id, earlier.index, index)
    )
      say('read_changed', note, `saw ${earlier.note.list.join(' ')} before`)
    if (note.by !== 'section' || !isNeverTakenBackByHand(view, run) || !view.isCalm || info.status !== 'completed') continue
    for (const word of keptBefore(view, run, note.at, index))
      if (list.includes(word) && !note.list.includes(word)) say('kept_unseen', note, `began without ${word}, which is kept`)
  }
  return violations
}

function isSame(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((word, index) => other[index] === word)
}

/** Nobody took the run back, and nothing that it did was undone. */
function isNeverTakenBackByHand(view: View, { program, events }: ObservedRun): boolean {
  return !view.isRolledBack && !(program.undoOnFailure && events.some(({ type }) => type === 'run_retried'))
}

function isNeverTakenBack(view: View, run: ObservedRun): boolean {
  const isReopened = run.events.some(({ type, step }) => {
    const isOfSection = view.nodeAt(/se(\d+)(\[|#|$)/.exec(step ?? '')?.[1] ?? '')?.node.kind === 'section'
    return type === 'run_retried' || (type === 'step_failed' && isOfSection)
  })
  return isNeverTakenBackByHand(view, run) && !isReopened
}

/** What a branch sees of others that do not wait for it depends on when it looks, and only results on record have an order. */
function mustBeSame(view: View, run: ObservedRun, { at }: Looked): boolean {
  const above = view.nodeAt(at)?.above ?? []
  const isBesideUnrecorded = above.some((node) => isParallel(node) && awaitsUnrecorded(node))
  const isVolatile =
    !view.isCalm && [...view.nodes.values()].some(({ node }) => node.kind === 'step' && node.checkpoint === false)
  const isEdited = view.had(({ kind }) => kind === 'edit')
  const isRetried = run.events.some(({ type }) => type === 'run_retried')
  return !isBesideUnrecorded && !isVolatile && !isEdited && !isRetried && !view.isRolledBack
}

/**
 * What was lost in a crash before anything of it was recorded begins anew: a section beside what others have done by then, the function of a run
 * with starts that are recorded first, which takes longer. A result shows that it was not lost.
 */
function hasBegunOnRecord(view: View, { run, at, by }: Looked, from: number, to: number): boolean {
  if (view.isCalm) return true
  const found = view.nodeAt(at)
  const section = by === 'section' ? found?.node : found?.above.findLast(({ kind }) => kind === 'section')
  const isInside = (inner: string) =>
    section === undefined || view.nodeAt(inner)?.above.some(({ id }) => id === section.id) === true
  return view.journal.notes.slice(from, to).some((note) => note.of === 'given' && note.run === run && isInside(note.at))
}

/** What a branch that lost a race updates once its function has returned may be lost with the run, and nobody sees it. */
function hasReturned(notes: readonly Note[], run: string, index: number): boolean {
  const last = notes.slice(0, index).findLast((note) => (note.of === 'call' || note.of === 'returned') && note.run === run)
  return last?.of === 'returned'
}

function awaitsAnything(node: Node): boolean {
  return awaitsUnrecorded(node) || partsOf(node).some(awaitsAnything)
}

function isParallel({ kind }: Node): boolean {
  return kind === 'all' || kind === 'race' || kind === 'any' || kind === 'settled'
}

/** The attempt of a section that it is in is over: what a branch of it that gets a result then sees decides nothing. */
function isLeftBehind(view: View, { run, at }: Looked, index: number): boolean {
  const sections = view.nodeAt(at)?.above.filter(({ kind }) => kind === 'section') ?? []
  return sections.some(({ id }) => {
    const isOfIt = (note: Note) =>
      (note.of === 'entered' || note.of === 'left') && note.run === run && view.nodeAt(note.at)?.node.id === id
    return view.journal.notes.slice(0, index).findLast(isOfIt)?.of === 'left'
  })
}

function hasFailedBetween(notes: readonly Note[], run: string, from: number, to: number): boolean {
  return notes.slice(from, to).some((note) => note.of === 'left' && note.run === run)
}

/** The changes by steps inside a section that had a result when another attempt of it began, and did not run again. */
function keptBefore(view: View, { info, events }: ObservedRun, section: string, index: number): string[] {
  const run = info.id
  const { notes } = view.journal
  // A function that awaited something of its own when its run was persisted throws for nobody: the next execution replays the same attempt.
  const id = view.nodeAt(section)?.node.id
  const isOfIt = (note: Note) => note.of === 'left' && note.run === run && note.isOwn && view.nodeAt(note.at)?.node.id === id
  const failures = events.filter(({ type, step }) => type === 'step_failed' && idOfPath(step ?? '') === id)
  if (notes.filter(isOfIt).length > failures.length) return []
  const given = new Set<string>()
  let hasFailed = false
  for (const [at, note] of notes.entries()) {
    // It is entered again by a replay of the same attempt as well: also after the run failed of something else meanwhile.
    if ((note.of === 'left' || note.of === 'entered') && note.run === run && note.at === section && at < index - 1)
      hasFailed = note.of === 'left' && note.isOwn
    if (note.of !== 'given' && note.of !== 'body') continue
    if (note.run !== run) continue
    if (note.of === 'given' && at < index) given.add(note.at)
    if (note.of === 'body' && at > index) given.delete(note.at)
  }
  if (!hasFailed) return []
  return [...given].flatMap((at) => {
    const found = view.nodeAt(at)
    const isInside = found?.above.some((node) => `${node.id}` === section)
    return found?.node.kind === 'step' && found.node.updates && isInside ? [wordOf(at)] : []
  })
}
