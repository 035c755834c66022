import type { RunEvent } from 'holdfast'
import type { Forked, Note } from './journal.ts'
import type { View, Violation } from './oracle.ts'
import { idOfPath } from './program.ts'
import { isResult, recordedCalls, resultsOf } from './recorded-calls.ts'
import { type ObservedRun, rootId } from './run-case.ts'
import { digest } from './values.ts'

/**
 * A fork is a copy: it has all that was on record there, nothing of it runs before it is resumed, what was copied never runs again and is
 * never undone, a result that was replaced is what the function sees, and what was open begins anew. A rewind executes nothing.
 */
export function judgeCopies(view: View): Violation[] {
  const ofCopies = [...view.forks].flatMap((fork) => {
    const copy = view.seen.runs.find(({ info }) => info.id === fork.run)
    if (copy === undefined) return []
    return [
      ...ranEarly(view, fork.run),
      ...notCopied(copy, fork),
      ...ranAgain(view, copy, fork),
      ...givenOther(view, copy, fork),
      ...undone(copy),
      ...unreplaced(view, copy, fork),
      ...taken(copy),
    ]
  })
  return [...ofCopies, ...view.seen.runs.flatMap(withoutOrigin), ...ranAfterRewind(view)]
}

/** Where the copy ends and what the run did itself begins. */
export function endOfCopy({ events }: Pick<ObservedRun, 'events'>): number {
  return events.findLast(isMark)?.seq ?? 0
}

function isMark({ type, data }: RunEvent): boolean {
  return type === 'run_paused' && data?.['fork'] !== undefined
}

function withoutOrigin({ info, events }: ObservedRun): Violation[] {
  const mark = events.findLast(isMark)?.data?.['fork'] as { readonly from?: string } | undefined
  if (mark?.from === info.forkedFrom) return []
  return [{ rule: 'fork_origin', what: `run "${info.id}" is from ${mark?.from}, and says that it is from ${info.forkedFrom}` }]
}

function ranEarly(view: View, run: string): Violation[] {
  for (const note of view.journal.notes) {
    if (note.of === 'resumed' && note.run === run) return []
    if (note.of === 'forked' || !('run' in note) || note.run !== run) continue
    return [{ rule: 'fork_executed', what: `copy "${run}" was executed before it was resumed: ${note.of}` }]
  }
  return []
}

/** What was on record in the original, up to where the copy ends, is in the copy, and nothing else. */
function notCopied({ info, events }: ObservedRun, { held, replaced }: Forked): Violation[] {
  const end = endOfCopy({ events })
  const has = new Map(resultsOf(events.filter(({ seq }) => seq <= end)).map(({ value }) => [value.n, JSON.stringify(value)]))
  const must = new Map(held.map(({ value }) => [value.n, JSON.stringify(value)]))
  const differs = new Set(
    [...must.keys(), ...has.keys()].filter((n) => n !== replaced?.at && n !== 'undefined' && has.get(n) !== must.get(n)),
  )
  return [...differs].map((n) => ({
    rule: 'copy_differs',
    what: `copy "${info.id}" has ${has.get(n) ?? 'nothing'} for ${n}, where the original had ${must.get(n) ?? 'nothing'}`,
  }))
}

/** The first rollback of the copy takes back what was copied as well, without undoing it: what is left then. */
function keptUntil({ events }: ObservedRun): number {
  const end = endOfCopy({ events })
  const to = events.flatMap(({ type, seq, data }) => (type === 'run_rolled_back' && seq > end ? [Number(data?.['to'])] : []))
  return Math.min(...to, Number.POSITIVE_INFINITY)
}

function ranAgain(view: View, copy: ObservedRun, { replaced }: Forked): Violation[] {
  const { events, info } = copy
  const end = endOfCopy(copy)
  const kept = keptUntil(copy)
  const copied = new Map(
    resultsOf(events.filter(({ seq }) => seq <= end)).flatMap(({ seq, step, value }) => (seq <= kept ? [[value.n, step]] : [])),
  )
  if (replaced !== undefined && kept >= end) copied.set(replaced.at, 'replaced')
  const again = new Set<string>()
  for (const note of view.journal.notes) {
    if (note.of !== 'body' && note.of !== 'sent' && note.of !== 'entered' && note.of !== 'fallback') continue
    if (note.run === info.id && copied.has(note.at)) again.add(note.at)
  }
  return [...again].map((at) => ({
    rule: 'copy_ran',
    what: `"${copied.get(at)}" (${at}) of copy "${info.id}" was copied, and ran`,
  }))
}

/** The function of a copy is given what was recorded in the original, and what stands in place of it. */
function givenOther(view: View, copy: ObservedRun, fork: Forked): Violation[] {
  const { info } = copy
  if (keptUntil(copy) < endOfCopy(copy)) return []
  const { notes } = view.journal
  const expected = new Map(fork.held.map(({ value }) => [value.n, digest('', JSON.stringify(value))]))
  const forkedAt = notes.findIndex((note) => note.of === 'forked' && note.run === fork.run)
  for (const step of fork.waited) {
    const found = view.nodes.get(idOfPath(step))
    const isOnly = fork.waited.filter((other) => other === step).length === 1
    // One that has a limit may be tried again with what is around it.
    if (found === undefined || !isOnly || 'timeoutMs' in found.node || found.above.some(({ kind }) => kind === 'loop')) continue
    const at = `${found.node.id}`
    const isGiven = (note: Note) => note.of === 'given' && note.run === fork.from && note.at === at
    const given = new Set(notes.slice(0, forkedAt).flatMap((note) => (isGiven(note) && 'value' in note ? [note.value] : [])))
    // After a rollback it may have been given something else: which of both is on record up to there, notes don't tell.
    if (given.size === 1) expected.set(at, [...given][0] as string)
  }
  if (fork.replaced?.given !== undefined) expected.set(fork.replaced.at, fork.replaced.given)
  const others = notes.flatMap((note) => {
    if (note.of !== 'given' || note.run !== info.id) return []
    const value = expected.get(note.at)
    return value === undefined || value === note.value ? [] : [note.at]
  })
  return [...new Set(others)].map((at) => ({
    rule: at === fork.replaced?.at ? 'replace_unseen' : 'copy_value',
    what: `the function of copy "${info.id}" was given something else for ${at} than is on record`,
  }))
}

function undone(copy: ObservedRun): Violation[] {
  const end = endOfCopy(copy)
  return copy.events.flatMap(({ type, seq, step, data }) =>
    type === 'step_undone' && seq > end && Number(data?.['of']) <= end
      ? [{ rule: 'copy_undone', what: `"${step}" of copy "${copy.info.id}" was copied, and undone` }]
      : [],
  )
}

/** The function of a copy that has completed came by what stands in place of the call, unless it may do without it. */
function unreplaced(view: View, copy: ObservedRun, { nth, replaced }: Forked): Violation[] {
  const { info, output, events } = copy
  if (replaced === undefined || info.status !== 'completed' || keptUntil(copy) < Number.POSITIVE_INFINITY) return []
  const end = endOfCopy(copy)
  const isNew = ({ data }: RunEvent) => JSON.stringify(data?.['result'] ?? null).includes(`"by":${nth}`)
  if (replaced.given !== undefined && !events.some((event) => event.seq <= end && isNew(event)))
    return [{ rule: 'replace_lost', what: `${replaced.at} of copy "${info.id}" has no other result` }]
  const found = view.nodeAt(replaced.at)
  const isFree =
    found === undefined || view.canBeLeft(found.node.id) || found.above.some(({ kind }) => kind === 'try' || kind === 'loop')
  const isOfEarlierTape = events.some(({ type, seq }) => type === 'run_started' && seq > end)
  if (isFree || isOfEarlierTape) return []
  if (JSON.stringify(output).includes(`"by":${nth}`)) return []
  return [
    { rule: 'replace_unseen', what: `${replaced.at} of copy "${info.id}" has another result, which is not in what it returned` },
  ]
}

/** Children and messages of the original are none of the copy's: it begins children of its own, and has an inbox of its own. */
function taken({ info, events }: ObservedRun): Violation[] {
  const end = endOfCopy({ events })
  const own = events.filter(({ seq }) => seq > end)
  const begun = new Set(own.flatMap(({ type, data }) => (type === 'child_started' ? [data?.['runId']] : [])))
  return own.flatMap(({ type, step, data }) => {
    if (type === 'child_completed' && !begun.has(data?.['runId']))
      return [
        { rule: 'child_of_original', what: `copy "${info.id}" took the end of "${data?.['runId']}", which it had not started` },
      ]
    // Acts send numbers, and only to the run that was started. A rollback of the copy lets it wait again for what was on its tape.
    const isOnTape = events.some((one) => one.seq <= end && one.type === type && one.data?.['sentAt'] === data?.['sentAt'])
    if (type === 'signal_received' && typeof data?.['result'] === 'number' && !isOnTape)
      return [{ rule: 'signal_of_original', what: `copy "${info.id}" took signal "${step}", which was sent to the original` }]
    return []
  })
}

/** Runs that had ended before a rewind are not executed any more. */
function ranAfterRewind(view: View): Violation[] {
  if (view.isDeleted) return []
  const { notes } = view.journal
  const rewoundAt = notes.findIndex(({ of }) => of === 'rewound')
  const ran = notes.find(
    (note, index) =>
      rewoundAt >= 0 &&
      index > rewoundAt &&
      (note.of === 'call' || note.of === 'entered' || note.of === 'undo') &&
      note.run === rootId,
  )
  return ran === undefined
    ? []
    : [{ rule: 'rewind_executed', what: `the run was executed after its thread was rewound: ${ran.of}` }]
}

/** The sections that a copy has not begun itself, and in which the original had done something: they are not undone as a whole. */
export function sharedSections(events: readonly RunEvent[]): Set<unknown> {
  const end = endOfCopy({ events })
  if (end === 0) return new Set()
  // A rollback of the copy may go back to before them.
  const isOfCopy = ({ type, seq }: RunEvent) => seq <= end || type === 'run_rolled_back'
  const { calls, begun } = recordedCalls(events.filter(isOfCopy))
  const isInside = (step: string, scope: string) => step.startsWith(`${scope}/`) || step.startsWith(`${scope}[fallback]/`)
  const done = calls.filter((call) => isResult(call) || call.type === 'step_completed' || call.type === 'child_completed')
  return new Set(begun.flatMap(({ scope }) => (done.some(({ step }) => isInside(step, scope)) ? [scope] : [])))
}
