import { type RetryPolicy, retryDelayMs } from '../../model/retry.ts'

/** When the next attempt comes, if there is one. A `retryIf` that throws is a failure itself: its error, and no further attempt. */
export function nextAttempt(policy: RetryPolicy, failures: number, error: unknown): { error: unknown; delayMs: number | null } {
  try {
    return { error, delayMs: retryDelayMs(policy, failures, error, Math.random()) }
  } catch (thrown) {
    return { error: thrown, delayMs: null }
  }
}
