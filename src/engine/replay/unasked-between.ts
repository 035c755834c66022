import { type CallKey, type CallKind, callKey, parseCallKey, pathOf, scopeOfUpdate, type UpdateKey } from './call-key.ts'
import { around, fallbackPath, innermost, isInside } from './scope-paths.ts'
import type { CallHistory, Tape } from './tape.ts'

/** How many calls of a kind the function has made under a path, in this execution. */
interface CallCounts {
  countOf(kind: CallKind, path: string): number
}

/**
 * Whether the log has something between two positions that the function has not asked for in this execution: a result, a value or an
 * update. What belongs to sections that are not entered again does not count.
 */
export function hasUnaskedBetween(tape: Tape, counts: CallCounts, from: number, to: number): boolean {
  const isBetween = (seq: number) => seq > from && seq < to
  const ended = recordedScopes(tape, ({ outcome }) => outcome !== undefined)
  const isUnasked = (key: CallKey) => isAhead(counts, key) && around(pathOf(key), ended).next().done === true
  for (const { key, seq, isShowing } of tape.outcomes) if (isBetween(seq) && isShowing !== true && isUnasked(key)) return true
  for (const [key, seq] of tape.valuesAt) if (isBetween(seq) && isUnasked(key)) return true
  for (const [key, { seq }] of tape.updates) if (isBetween(seq) && isUnasked(callOfUpdate(key))) return true
  return false
}

/**
 * Whether the function made an update or a value in the scope of a step that it began, after that and before it got any result: it made
 * it inside the step. On replay it has to be made before any other code sees the state or makes the next value.
 */
export function hasUnaskedRightAfter(
  tape: Tape,
  counts: CallCounts,
  { path, history }: { readonly path: string; readonly history: CallHistory | undefined },
): boolean {
  const from = history?.begunAt ?? Number.POSITIVE_INFINITY
  const scopes = recordedScopes(tape)
  const areaOf = (of: string) => innermost(of, scopes)
  const area = areaOf(path)
  const next = tape.outcomes.find(({ key, seq, isShowing }) => seq > from && isShowing !== true && areaOf(pathOf(key)) === area)
  const to = next?.seq ?? Number.POSITIVE_INFINITY
  const scope = path.slice(0, Math.max(0, path.lastIndexOf('/')))
  const isMeant = (key: CallKey, seq: number) => {
    if (seq <= from || seq >= to) return false
    const of = pathOf(key)
    return (scope === '' || isInside(of, scope)) && areaOf(of) === area && isAhead(counts, key)
  }
  for (const [key, seq] of tape.valuesAt) if (isMeant(key, seq)) return true
  for (const [key, { seq }] of tape.updates) if (isMeant(callOfUpdate(key), seq)) return true
  return false
}

/** The function has not made this many calls of this name yet. */
function isAhead(counts: CallCounts, key: CallKey): boolean {
  const { kind, path, count } = parseCallKey(key)
  return counts.countOf(kind, path) < count
}

/** An update is recorded under its scope, and counted as a call in it. */
function callOfUpdate(key: UpdateKey): CallKey {
  const scope = scopeOfUpdate(key)
  const count = Number(key.slice(scope.length + 1))
  return callKey('value', scope === '' ? 'update' : `${scope}/update`, count)
}

function recordedScopes(tape: Tape, isMeant: (history: CallHistory) => boolean = () => true): ReadonlyMap<string, true> {
  const scopes = new Map<string, true>()
  for (const history of tape.calls.values())
    if (history.scope !== undefined && isMeant(history)) scopes.set(history.scope, true).set(fallbackPath(history.scope), true)
  return scopes
}
