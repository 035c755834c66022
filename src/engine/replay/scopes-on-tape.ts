import { stepDeathLimit } from '../../model/run.ts'
import { around, fallbackPath, pathOf } from './scope-paths.ts'
import type { CallHistory, Outcome, Tape } from './tape.ts'

/**
 * What a replay has to ask for, given the recorded scopes of a tape. In a scope that is not entered again nobody asks for anything. In
 * one that is tried again, what earlier attempts recorded is there for whoever asks for it, and not missed when nobody does.
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
  const looseness = (path: string, seq: number): 'strict' | 'loose' | 'unasked' => {
    let found: 'strict' | 'loose' = 'strict'
    for (const area of around(path, areas)) {
      if (!area.isEntered) return 'unasked'
      if (seq < area.since) found = 'loose'
    }
    return found
  }
  const outcomes: Outcome[] = []
  for (const outcome of tape.outcomes) {
    const found = looseness(pathOf(outcome.key), outcome.seq)
    if (found !== 'unasked') outcomes.push(found === 'strict' ? outcome : { ...outcome, isLoose: true })
  }
  return outcomes
}

/** Where calls stand that a scope's function or its fallback made. */
interface Area {
  /** The function may be called, in this execution, with what is recorded. */
  readonly isEntered: boolean
  /** What was recorded before this position belongs to earlier attempts. */
  readonly since: number
}

function bodyArea(scope: CallHistory): Area {
  const isEntered = scope.outcome === undefined && scope.next === undefined && !isDeadly(scope)
  return { isEntered, since: attemptSince(scope) }
}

function fallbackArea(scope: CallHistory): Area {
  if (scope.next !== 'fallback') {
    // Should the scope fail once more, its fallback finds what it did the last time.
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
