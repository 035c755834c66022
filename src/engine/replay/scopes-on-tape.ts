import { stepDeathLimit } from '../../model/run.ts'
import { pathOf } from './call-key.ts'
import { around, fallbackPath } from './scope-paths.ts'
import type { CallHistory, Outcome, Tape } from './tape.ts'

/**
 * The outcomes that a replay hands out, given the recorded scopes of a tape. In a scope that is not entered again no call asks for any. In
 * one that is tried again, what earlier attempts recorded is optional.
 */
export function readScopes(tape: Tape): readonly Outcome[] {
  if (tape.calls.size === 0) return tape.outcomes
  const areas = new Map<string, Area>()
  for (const history of tape.calls.values()) {
    if (history.scope === undefined) continue
    areas.set(history.scope, bodyArea(history))
    areas.set(fallbackPath(history.scope), fallbackArea(history))
  }
  if (areas.size === 0) return tape.outcomes
  const kindOfOutcome = (path: string, seq: number): 'required' | 'optional' | 'unasked' => {
    let found: 'required' | 'optional' = 'required'
    for (const area of around(path, areas)) {
      if (!area.isEntered) return 'unasked'
      if (seq < area.since) found = 'optional'
    }
    return found
  }
  const outcomes: Outcome[] = []
  for (const outcome of tape.outcomes) {
    const found = kindOfOutcome(pathOf(outcome.key), outcome.seq)
    if (found !== 'unasked') outcomes.push(found === 'required' ? outcome : { ...outcome, isOptional: true })
  }
  return outcomes
}

/** The calls that a scope's function made, or its fallback. */
interface Area {
  /** The function may be called, in this execution, with what is recorded. */
  readonly isEntered: boolean
  /** Start of the current attempt: what was recorded before belongs to earlier ones. */
  readonly since: number
}

function bodyArea(scope: CallHistory): Area {
  const isEntered = scope.outcome === undefined && scope.next === undefined && !isDeadly(scope)
  return { isEntered, since: attemptSince(scope) }
}

function fallbackArea(scope: CallHistory): Area {
  if (scope.next !== 'fallback') {
    // If the scope fails once more, its fallback finds what it did the last time.
    return { isEntered: scope.outcome === undefined && scope.next === undefined, since: Number.POSITIVE_INFINITY }
  }
  return { isEntered: scope.outcome === undefined && !isDeadly(scope), since: attemptSince(scope) }
}

function attemptSince(scope: CallHistory): number {
  return scope.isRunning && scope.started !== undefined ? scope.started.seq : Number.POSITIVE_INFINITY
}

function isDeadly(scope: CallHistory): boolean {
  return scope.deaths >= stepDeathLimit
}
