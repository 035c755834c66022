import type { Call, Calls } from '../calls/calls.ts'
import { around, fallbackPath, innermost, isInside, pathOf } from './scope-paths.ts'
import { type CallHistory, type CallKey, type CallKind, parseCallKey, type Tape } from './tape.ts'

/**
 * Whether something stands between two positions that the function has not come by in this execution: a result, a value or an update. What
 * belongs to sections that are not entered again does not count.
 */
export function hasUnaskedBetween(tape: Tape, calls: Calls, from: number, to: number): boolean {
  const isBetween = (seq: number) => seq > from && seq < to
  const ended = endedScopes(tape)
  const isUnasked = (key: CallKey) => isAhead(calls, key) && around(pathOf(key), ended).next().done === true
  for (const { key, seq, isShowing } of tape.outcomes) if (isBetween(seq) && isShowing !== true && isUnasked(key)) return true
  for (const [key, seq] of tape.valuesAt) if (isBetween(seq) && isUnasked(key)) return true
  for (const [key, { seq }] of tape.updates) if (isBetween(seq) && isUnasked(updateCall(key))) return true
  return false
}

/**
 * Whether the function made an update or a value in the scope of a step that it began, after that and before it got any result: it made it
 * inside. A replay has to come by it before anybody else sees the state or makes the next value.
 */
export function hasUnaskedRightAfter(tape: Tape, calls: Calls, { path, history }: Call): boolean {
  const from = history?.begunAt ?? Number.POSITIVE_INFINITY
  const scopes = recordedScopes(tape)
  const areaOf = (of: string) => innermost(of, scopes)
  const area = areaOf(path)
  const next = tape.outcomes.find(({ key, seq, isShowing }) => seq > from && isShowing !== true && areaOf(pathOf(key)) === area)
  const scope = path.slice(0, Math.max(0, path.lastIndexOf('/')))
  const isMeant = (key: CallKey, seq: number) => {
    const of = pathOf(key)
    return (
      seq > from && seq < (next?.seq ?? Number.POSITIVE_INFINITY) && (scope === '' || isInside(of, scope)) && areaOf(of) === area
    )
  }
  for (const [key, seq] of tape.valuesAt) if (isMeant(key, seq) && isAhead(calls, key)) return true
  for (const [key, { seq }] of tape.updates) if (isMeant(updateCall(key), seq) && isAhead(calls, updateCall(key))) return true
  return false
}

/** The function has not made so many calls of this name yet. */
function isAhead(calls: Calls, key: CallKey): boolean {
  const { path, count } = parseCallKey(key)
  return calls.countOf(key.slice(0, key.indexOf(':')) as CallKind, path) < count
}

/** An update is known by its scope, and counted as a call in it. */
function updateCall(key: string): CallKey {
  const scope = key.slice(0, key.lastIndexOf('#'))
  return `value:${scope === '' ? '' : `${scope}/`}update${key.slice(key.lastIndexOf('#'))}`
}

function endedScopes(tape: Tape): ReadonlyMap<string, true> {
  return recordedScopes(tape, ({ outcome }) => outcome !== undefined)
}

function recordedScopes(tape: Tape, isMeant: (history: CallHistory) => boolean = () => true): ReadonlyMap<string, true> {
  const scopes = new Map<string, true>()
  for (const history of tape.calls.values())
    if (history.scope !== undefined && isMeant(history)) scopes.set(history.scope, true).set(fallbackPath(history.scope), true)
  return scopes
}
