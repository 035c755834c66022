import { codeOf, HoldfastError } from './errors.ts'
import { type OptionNames, refuseUnknownOptions } from './known-options.ts'

export interface RetryOptions {
  /** How often a step is tried in all, the first time included. Default 3. */
  readonly attempts?: number
  /** Delay before the second attempt, in ms. Default 1,000. */
  readonly minMs?: number
  /** Longest delay, in ms. Default 60,000. */
  readonly maxMs?: number
  /** What the delay is multiplied by from attempt to attempt. Default 2. */
  readonly factor?: number
  /** Full jitter: a random delay between 0 and the computed one. Default true. */
  readonly jitter?: boolean
  /** Says whether this error is worth another attempt. Default: all but the errors that can't change. */
  readonly retryIf?: (error: unknown) => boolean
}

export type RetryPolicy = Required<RetryOptions>

const retryOptionNames: OptionNames<RetryOptions> = {
  attempts: true,
  minMs: true,
  maxMs: true,
  factor: true,
  jitter: true,
  retryIf: true,
}

const defaults: RetryPolicy = { attempts: 3, minMs: 1_000, maxMs: 60_000, factor: 2, jitter: true, retryIf: () => true }

const neverRetried: ReadonlySet<string> = new Set([
  'value_not_storable',
  'value_too_large',
  'invalid_input',
  'invalid_id',
  'nondeterminism',
  'nested_call',
  'access_denied',
  'input_mismatch',
  'run_cancelled',
  'worker_died',
])

/** Fills in what was left out, the nearest first: the step's options, then the workflow's. */
export function retryPolicy(...layers: readonly (RetryOptions | undefined)[]): RetryPolicy {
  const policy = { ...defaults }
  for (const layer of layers.toReversed()) {
    refuseUnknownOptions('retry', layer, retryOptionNames)
    for (const [name, value] of Object.entries(layer ?? {})) {
      if (value !== undefined) Object.assign(policy, { [name]: value })
    }
  }
  if (!Number.isInteger(policy.attempts) || policy.attempts < 1) {
    throw new HoldfastError('invalid_input', `retry.attempts is ${policy.attempts}; it must be a whole number of at least 1`)
  }
  for (const name of ['minMs', 'maxMs', 'factor'] as const) {
    if (!(typeof policy[name] === 'number' && policy[name] >= 0))
      throw new HoldfastError('invalid_input', `retry.${name} is ${policy[name]}; it must be a number from 0`)
  }
  return policy
}

/** The policy when a workflow and a step say nothing of their own. */
export const defaultRetryPolicy: RetryPolicy = Object.freeze(defaults)

/**
 * How long to wait before the next attempt, or null when there is none.
 * `failures` counts the recorded failures since the step was (re)opened, this one included; `random` is in [0, 1).
 */
export function retryDelayMs(policy: RetryPolicy, failures: number, error: unknown, random: number): number | null {
  if (failures >= policy.attempts) return null
  const code = codeOf(error)
  if (code !== undefined && neverRetried.has(code)) return null
  if (!policy.retryIf(error)) return null
  const full = Math.min(policy.maxMs, policy.minMs * policy.factor ** (failures - 1))
  return Math.round(policy.jitter ? full * random : full)
}
