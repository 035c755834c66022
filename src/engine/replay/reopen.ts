import type { LogRecord } from '../../model/event.ts'
import { type CallKey, type CallKind, keyOfRecord, kindOf, pathOf, scopeOfUpdate } from './call-key.ts'
import { around, fallbackPath, innermost, isInScopeOrFallback, isInside } from './scope-paths.ts'
import type { CallHistory } from './tape.ts'
import type { TapeBuilder } from './tape-builder.ts'

/**
 * What another attempt does again, of a run or of a section. A call that is reopened has no outcome any more, and its patch is
 * dropped (T3, T4). What succeeded is kept.
 */

/** The call will be made again. For a section, so will everything that failed it. */
export function reopen(tape: TapeBuilder, key: CallKey): void {
  const history = tape.calls.get(key)
  if (history === undefined) return
  tape.drop(history.outcome?.patch)
  if (history.isCopied === true) takeOwnName(history)
  if (kindOf(key) === 'signal' && history.outcome?.isFailure === false) history.refused = history.outcome
  delete history.outcome
  delete history.next
  delete history.retryAt
  // A wait that begins again has its whole time.
  delete history.fireAt
  history.reopenedFailures = history.failures
  history.wasReopened = true
  history.deaths = 0
  tape.outcomes.delete(key)
  if (history.scope !== undefined) {
    reopenInside(tape, history.scope, history.failed ?? [])
    // The fallback ran because the function had failed, which is now called again.
    reopenUpdates(tape, fallbackPath(history.scope), 0)
  }
  delete history.failed
}

/** Another attempt of a section: what failed it is tried again, and what was updated after that is updated again. */
export function reopenInside(tape: TapeBuilder, scope: string, failed: readonly CallKey[]): void {
  const areas = areasOf(tape, failed)
  const isOfIt = (path: string) => isInScopeOrFallback(path, scope)
  const since = Math.min(...failed.map((key) => failedAt(tape, key)))
  makeSleepsOptional(tape, since, isOfIt)
  // If the section itself threw or took too long, nothing inside says where it failed; nor does a failure of its fallback after that.
  const isUnknown = failed.every((key) => isInside(pathOf(key), fallbackPath(scope)))
  reopenWithdrawn(tape, isUnknown ? 0 : since, isOfIt)
  for (const key of failed) reopen(tape, key)
  for (const [area, from] of areas)
    if (area === scope || (isInside(area, scope) && isEntered(tape, area))) reopenUpdates(tape, area, from)
  restartSections(tape, (section) => isInside(section, scope))
}

/**
 * Another attempt of the run: these failures are reopened. What was recorded after them may be there because of them: its results are
 * kept for calls that ask for them, but none has to; updates that the same function made after them run again.
 */
export function reopenFailures(tape: TapeBuilder, keys: readonly CallKey[]): void {
  const from = Math.min(...keys.map((key) => failedAt(tape, key)))
  const areas = areasOf(tape, keys)
  for (const key of keys) reopen(tape, key)
  makeSleepsOptional(tape, from, () => true)
  reopenWithdrawn(tape, from, () => true)
  makeOptional(tape, from)
  for (const [area, since] of areas) if (isEntered(tape, area)) reopenUpdates(tape, area, since)
  restartSections(tape, () => true)
}

/**
 * A failure that was recorded after the attempt of the section around it had ended: the function never saw it. It is tried again with
 * the section.
 */
export function noteLateFailure(tape: TapeBuilder, kind: CallKind, record: LogRecord): void {
  const key = keyOfRecord(kind, record)
  const over = [...around(record.step ?? '', tape.scopes)].filter(({ isRunning, next }) => !isRunning || next === 'fallback')
  if (over.some(isBetweenAttempts)) reopen(tape, key)
  else for (const scope of over) scope.failed = [...(scope.failed ?? []), key]
}

/**
 * The steps inside a section that was undone: what they did was taken back with it, so they run again. Effects and children inside that
 * were not undone themselves are kept, as after a rollback.
 */
export function stepsInside(tape: TapeBuilder, key: CallKey): CallKey[] {
  const scope = tape.calls.get(key)?.scope
  if (scope === undefined) return []
  return [...tape.outcomes.keys()].filter((inner) => kindOf(inner) === 'step' && isInScopeOrFallback(pathOf(inner), scope))
}

/** What the call did was taken back without a rollback: when it is made again, it uses another name. */
export function forgetName(tape: TapeBuilder, key: CallKey): void {
  const history = tape.calls.get(key)
  if (history === undefined || (kindOf(key) === 'child' && history.begun === undefined)) return
  delete history.begun
  delete history.key
  delete history.decided
  history.isDueAnew = true
  tape.begunAnew.set(key, (tape.begunAnew.get(key) ?? 0) + 1)
}

/** A call that another run has made, and that this one makes again: what that one began is not this one's. */
export function takeOwnName(history: CallHistory): void {
  delete history.isCopied
  delete history.begun
  delete history.key
  delete history.effect
  delete history.decided
  delete history.resolution
  delete history.childEndSeq
}

/** Position of the failure; for a section, of the first failure inside that failed it. */
function failedAt(tape: TapeBuilder, key: CallKey): number {
  const history = tape.calls.get(key)
  const inside = (history?.failed ?? []).map((one) => failedAt(tape, one))
  return Math.min(history?.outcome?.seq ?? Number.POSITIVE_INFINITY, ...inside)
}

/** The sections whose functions received these failures (empty: the function of the run), each with the position of its first. */
function areasOf(tape: TapeBuilder, keys: readonly CallKey[]): ReadonlyMap<string, number> {
  const areas = new Map<string, number>()
  for (const key of keys) {
    const area = innermost(pathOf(key), tape.sites)
    const seq = tape.calls.get(key)?.outcome?.seq ?? Number.POSITIVE_INFINITY
    areas.set(area, Math.min(areas.get(area) ?? seq, seq))
  }
  return areas
}

/** A section that keeps its outcome is not entered: nothing in it runs again. */
function isEntered(tape: TapeBuilder, area: string): boolean {
  return [...around(`${area}/`, tape.sites)].every(({ outcome }) => outcome === undefined)
}

/** Updates that one function made itself, after a position: sections inside it keep theirs. */
function reopenUpdates(tape: TapeBuilder, area: string, from: number): void {
  for (const [key, update] of tape.updates) {
    // The key of an update has its scope; the slash makes that a path inside it.
    if (update.seq <= from || innermost(`${scopeOfUpdate(key)}/`, tape.sites) !== area) continue
    tape.drop(update.patch)
    tape.updates.delete(key)
  }
}

/** Results after a position no longer have to be asked for. */
function makeOptional(tape: TapeBuilder, from: number): void {
  for (const outcome of tape.outcomes.values()) {
    if (outcome.seq > from) tape.replaceOutcome({ ...outcome, isOptional: true })
  }
}

function makeSleepsOptional(tape: TapeBuilder, from: number, isMeant: (path: string) => boolean): void {
  for (const [key, history] of tape.calls) {
    if (kindOf(key) === 'timer' && (history.setSeq ?? 0) > from && isMeant(pathOf(key))) history.isOptional = true
  }
}

/** A wait that the function withdrew after the failure may have been withdrawn because of it: it waits again, and may be withdrawn again. */
function reopenWithdrawn(tape: TapeBuilder, from: number, isMeant: (path: string) => boolean): void {
  for (const [key, { seq, isWithdrawn }] of tape.outcomes) {
    if (isWithdrawn === true && seq > from && isMeant(pathOf(key))) reopen(tape, key)
  }
}

/** A section that is running, and started from a state with a patch that is dropped now, starts again once that is made again. */
function restartSections(tape: TapeBuilder, isMeant: (section: string) => boolean): void {
  for (const history of tape.calls.values()) {
    const { scope, isRunning, started } = history
    if (!isRunning || scope === undefined || started === undefined || !isMeant(scope)) continue
    if (tape.patches.slice(0, started.patchCount).some(({ droppedAt }) => droppedAt === tape.here)) history.isRunning = false
  }
}

function isBetweenAttempts(scope: CallHistory): boolean {
  return !scope.isRunning && scope.outcome === undefined && scope.next === undefined
}
