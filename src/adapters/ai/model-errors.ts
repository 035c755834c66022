import {
  AISDKError,
  APICallError,
  EmptyResponseBodyError,
  InvalidResponseDataError,
  JSONParseError,
  TypeValidationError,
} from 'ai'

/** Whether another attempt of a model call may help: after what the network or the provider did, and not after what was asked for. */
export function isWorthRetrying(error: unknown): boolean {
  if (APICallError.isInstance(error)) return error.isRetryable
  if (!AISDKError.isInstance(error)) return true
  return [EmptyResponseBodyError, InvalidResponseDataError, JSONParseError, TypeValidationError].some((kind) =>
    kind.isInstance(error),
  )
}

/** What a provider sent as an error in its stream, as an Error. */
export function streamError(error: unknown): Error {
  return error instanceof Error ? error : new Error(`The provider reported an error: ${messageOf(error)}`)
}

/**
 * The error of a call that has no attempts left, the same live and on replay: recognizable by the SDK's `isInstance`, which a stored error
 * no longer is, and not to be retried by the SDK on top of the step's attempts.
 */
export function exhausted(error: unknown): unknown {
  if (!(error instanceof Error) || !error.name.startsWith('AI_')) return error
  for (const marker of ['vercel.ai.error', `vercel.ai.error.${error.name}`]) {
    if (!(Symbol.for(marker) in error)) Object.defineProperty(error, Symbol.for(marker), { value: true })
  }
  if ('isRetryable' in error) Object.defineProperty(error, 'isRetryable', { value: false, enumerable: true, configurable: true })
  return error
}

/** Of anything that was thrown or sent as an error. */
export function messageOf(error: unknown): string {
  if (error instanceof Error) return error.message
  if (typeof error === 'string') return error
  try {
    return JSON.stringify(error) ?? String(error)
  } catch {
    // A cycle, or a bigint.
    return String(error)
  }
}
