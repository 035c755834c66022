import { HoldfastError } from '../model/errors.ts'
import { type RetryOptions, retryPolicy } from '../model/retry.ts'

/** Refuses invalid options of a section or of a plan's step, which `what` names. */
export function checkScopeOptions(
  what: string,
  options: {
    readonly retry?: RetryOptions
    readonly timeoutMs?: number
    readonly fallback?: unknown
    readonly onFailure?: unknown
    readonly undo?: unknown
  },
): void {
  const { retry, timeoutMs, fallback, onFailure, undo } = options
  const refuse = (why: string): never => {
    throw new HoldfastError('invalid_input', `${what}: ${why}`)
  }
  if (retry !== undefined) retryPolicy(retry)
  if (timeoutMs !== undefined && !(typeof timeoutMs === 'number' && timeoutMs > 0))
    refuse(`timeoutMs is ${String(timeoutMs)}; it must be more than 0.`)
  if (fallback !== undefined && typeof fallback !== 'function') refuse(`fallback must be a function, not ${typeof fallback}.`)
  if (undo !== undefined && typeof undo !== 'function' && typeof undo !== 'string')
    refuse(`undo must be a function or the name of one, not ${typeof undo}.`)
  if (onFailure !== undefined && onFailure !== 'fail' && onFailure !== 'skip' && onFailure !== 'pause')
    refuse(`onFailure is ${JSON.stringify(onFailure)}; it must be 'fail', 'skip' or 'pause'.`)
}
