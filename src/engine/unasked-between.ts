import type { Calls } from './calls.ts'
import { around, fallbackPath } from './scope-paths.ts'
import { type CallKey, type CallKind, parseCallKey, type Tape } from './tape.ts'

/**
 * Whether something stands between two positions that the function has not come by in this execution: a result, a value or an update. What
 * belongs to sections that are not entered again does not count.
 */
export function hasUnaskedBetween(tape: Tape, calls: Calls, from: number, to: number): boolean {
  const isBetween = (seq: number) => seq > from && seq < to
  const ended = endedScopes(tape)
  const isUnasked = (key: CallKey) => {
    const { path, count } = parseCallKey(key)
    const kind = key.slice(0, key.indexOf(':')) as CallKind
    return calls.countOf(kind, path) < count && around(path, ended).next().done === true
  }
  for (const { key, seq, isShowing } of tape.outcomes) if (isBetween(seq) && isShowing !== true && isUnasked(key)) return true
  for (const [key, seq] of tape.valuesAt) if (isBetween(seq) && isUnasked(key)) return true
  for (const [key, { seq }] of tape.updates) if (isBetween(seq) && isUnasked(updateCall(key))) return true
  return false
}

/** An update is known by its scope, and counted as a call in it. */
function updateCall(key: string): CallKey {
  const scope = key.slice(0, key.lastIndexOf('#'))
  return `value:${scope === '' ? '' : `${scope}/`}update${key.slice(key.lastIndexOf('#'))}`
}

function endedScopes(tape: Tape): ReadonlyMap<string, true> {
  const ended = new Map<string, true>()
  for (const { scope, outcome } of tape.calls.values())
    if (scope !== undefined && outcome !== undefined) ended.set(scope, true).set(fallbackPath(scope), true)
  return ended
}
