import type { Note } from './journal.ts'
import type { View, Violation } from './oracle.ts'
import { type ObservedRun, rootId } from './run-case.ts'

/**
 * A recorded result is never made again: no body runs, no section is entered, and the function is given the same, however often it is called.
 * Without faults each attempt runs once.
 */
export function judgeBodies(view: View): Violation[] {
  const violations = new Map<string, Violation>()
  const say = (rule: string, at: string, what: string) => violations.set(`${rule} ${at}`, { rule, what })
  const given = new Map<string, { readonly index: number; readonly value: string }>()
  const attempts = new Map<string, number>()
  const keys = new Map<string, string>()
  const { notes } = view.journal
  const allowance = new Allowance(view)
  for (const [index, note] of notes.entries()) {
    // Two lives of a thread have runs of one id, and the first may still be under way when the second begins.
    if (note.of === 'act' && note.act.kind === 'delete') break
    if (note.of !== 'body' && note.of !== 'given' && note.of !== 'entered') continue
    const { run, at } = note
    const place = `${run} ${at}`
    const node = view.nodeAt(at)?.node
    const before = given.get(place) ?? (at.includes('[') ? given.get(`${run} ${at.slice(0, at.indexOf('['))}`) : undefined)
    const isKept =
      before !== undefined &&
      !isForgotten(view, run, before.index, index) &&
      !isVolatile(view, at) &&
      !allowance.take(note.of, run, at, 'undone')
    if (note.of === 'given') {
      if (isKept && before?.value !== note.value && !isWaitedAnew(view, run, at, before.index, index))
        say('other_value', place, `the function of run "${run}" was given another outcome of ${node?.kind} ${at} than before`)
      given.set(place, { index, value: note.value })
    } else if (note.of === 'entered') {
      if (isKept) say('entered_again', place, `section ${at} of run "${run}" was entered again after its result`)
    } else {
      if (isKept) say('ran_again', place, `the body of ${node?.kind} ${at} of run "${run}" ran again after its result`)
      const attempt = `${place} ${note.attempt}`
      // A run that failed leaves what was under way without a record.
      const isRepeated = attempts.has(attempt) && !isForgotten(view, run, attempts.get(attempt) as number, index, true)
      const isNew = node?.kind === 'effect' || node?.kind === 'transaction'
      if (isRepeated && view.isCalm && !isNew && !allowance.take('attempt', run, `${at} ${note.attempt}`, 'any'))
        say('attempt_twice', attempt, `attempt ${note.attempt} of ${node?.kind} ${at} of run "${run}" ran twice without a fault`)
      attempts.set(attempt, index)
      if (node?.kind === 'step' || node?.kind === 'map') {
        const owner = keys.get(note.key)
        if (owner !== undefined && owner !== place) say('key_shared', place, `${at} has the key of ${owner}: ${note.key}`)
        keys.set(note.key, place)
      }
    }
  }
  return [...violations.values()]
}

/** A child is retried by its parent, which no act tells: each time, what was undone is done once more, and so is what was under way. */
class Allowance {
  readonly #view: View
  readonly #taken = new Map<string, number>()

  constructor(view: View) {
    this.#view = view
  }

  take(what: string, run: string, at: string, of: 'undone' | 'any'): boolean {
    if (run === rootId) return false
    const seen = this.#view.seen.runs.find(({ info }) => info.id === run)
    const retries = seen?.events.filter(({ type }) => type === 'run_retried').length ?? 0
    if (retries === 0 || (of === 'undone' && seen?.program.undoOnFailure !== true)) return false
    const key = `${what} ${run} ${at}`
    const taken = (this.#taken.get(key) ?? 0) + 1
    this.#taken.set(key, taken)
    // A fault lets a body run several times before it has a result.
    return taken <= retries || !this.#view.isCalm
  }
}

/** Between the two somebody took the run back, or it undid itself, or began a new life. */
function isForgotten(view: View, run: string, from: number, to: number, byRetry = false): boolean {
  const { notes } = view.journal
  const seen = view.seen.runs.find(({ info }) => info.id === run)
  const program = seen?.program
  const open = new Set<number>()
  for (let index = 0; index <= to; index++) {
    const note = notes[index]
    if (note?.of !== 'act') continue
    const { kind } = note.act
    const isRetry = kind === 'retry' && (byRetry || (program?.undoOnFailure ?? true))
    const isBack = kind === 'rollback' || ((kind === 'fork' || kind === 'replace') && typeof note.act.fate === 'object')
    const forgets = kind === 'delete' || ((isRetry || isBack) && isAbout(view, note, seen))
    if (!forgets) continue
    if (note.stage === 'begins') {
      open.add(note.nth)
      if (index > from) return true
    } else {
      if (index > from) return true
      // What was ordered is carried out all the same, later; where an undo stopped it, by run.resume().
      const isStillOrdered =
        note.code === 'outcome_unknown' || note.code === 'timeout' || note.detail?.includes('is paused (undo)') === true
      if (!isStillOrdered) open.delete(note.nth)
    }
  }
  return open.size > 0
}

/** Whether what was done to a run may concern this one: a copy has nothing of what becomes of the original, and the other way round. */
function isAbout(view: View, { nth, act }: Extract<Note, { of: 'act' }>, seen: ObservedRun | undefined): boolean {
  if (seen === undefined) return true
  const { id, parent } = seen.info
  if (act.kind === 'fork' || act.kind === 'replace') {
    const copy = view.forks.find((fork) => fork.nth === nth)?.run
    return copy === undefined ? view.isOfCopy(seen) : copy === id || copy === parent
  }
  const run = 'run' in act ? act.run : undefined
  return run === undefined ? !view.isOfCopy(seen) : run === id || run === parent
}

/** A result that is not on record when it is handed out may be made again after a fault. */
function isVolatile(view: View, at: string): boolean {
  const found = view.nodeAt(at)
  const isUnrecorded = found?.node.kind === 'step' && found.node.checkpoint === false
  return isUnrecorded && !view.isCalm
}

/** A time-out that the function caught, and began nothing because of, is reopened with the attempt that failed (docs/guides/retries.md). */
function isWaitedAnew(view: View, run: string, at: string, from: number, to: number): boolean {
  const found = view.nodeAt(at)
  if ((found?.node.kind !== 'signal' && found?.node.kind !== 'ask') || found.node.timeoutMs === undefined) return false
  const { above } = found
  const { notes } = view.journal
  // The section's function may have thrown before a branch of it was given the time-out: it is of the same attempt.
  const hasFailed = above.some(({ id }) => {
    const isOfIt = (note: Note, of: 'entered' | 'left') =>
      note.of === of && note.run === run && Number.parseInt(note.at, 10) === id
    const since = notes.slice(0, from).findLastIndex((note) => isOfIt(note, 'entered'))
    return since >= 0 && notes.slice(since, to).some((note) => isOfIt(note, 'left'))
  })
  const events = view.seen.runs.find(({ info }) => info.id === run)?.events ?? []
  return hasFailed || events.some(({ type }) => type === 'run_retried')
}
