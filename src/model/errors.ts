/** Every code an error of Holdfast can carry. Callers branch on the code, never on the class or the message. */
export const errorCodes = [
  'invalid_url',
  'unsupported_node',
  'missing_dependency',
  'durability_too_weak',
  'schema_too_new',
  'store_unavailable',
  'storage_full',
  'outcome_unknown',
  'lease_lost',
  'closed',
  'conflict',
  'input_mismatch',
  'invalid_id',
  'invalid_input',
  'nested_call',
  'value_not_storable',
  'value_too_large',
  'corrupt_record',
  'nondeterminism',
  'workflow_not_registered',
  'run_not_found',
  'schedule_not_found',
  'thread_deleted',
  'pruned',
  'run_failed',
  'run_cancelled',
  'timeout',
  'worker_died',
  'already_answered',
  'effect_unsure',
  'budget_exceeded',
  'queue_full',
  'access_denied',
  'artifact_not_found',
  'stream_failed',
] as const

export type ErrorCode = (typeof errorCodes)[number]

export interface HoldfastErrorOptions {
  readonly cause?: unknown
  /** Whether the same call may succeed later without a change by the caller. Default false. */
  readonly retryable?: boolean
  /** What the error is about: run ids, step names, paths. Plain data. */
  readonly details?: Readonly<Record<string, unknown>>
}

/** The one error class of Holdfast. `code` is stable; the message says what happened, to what, and what to do. */
export class HoldfastError extends Error {
  override readonly name = 'HoldfastError'
  readonly code: ErrorCode
  readonly retryable: boolean
  readonly details: Readonly<Record<string, unknown>>

  constructor(code: ErrorCode, message: string, options: HoldfastErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.retryable = options.retryable ?? false
    this.details = options.details ?? {}
  }
}

/** Thrown by an effect's `run` to say that nothing happened outside, so that an ordinary retry is safe. */
export class NotHappened extends Error {
  override readonly name = 'NotHappened'
  readonly code = 'not_happened'

  constructor(cause?: unknown) {
    super(
      cause instanceof Error ? cause.message : `The effect did not happen${cause === undefined ? '' : `: ${String(cause)}`}`,
      { cause },
    )
  }
}

/** True for a NotHappened, also one from another copy of this package. */
export function isNotHappened(error: unknown): boolean {
  return readCode(error) === 'not_happened' && (error as Error).name === 'NotHappened'
}

/** The code of a Holdfast error, also one from another copy of this package; undefined for other values. */
export function codeOf(error: unknown): ErrorCode | undefined {
  const code = readCode(error)
  return typeof code === 'string' && (errorCodes as readonly string[]).includes(code) ? (code as ErrorCode) : undefined
}

/** User code throws anything, also what throws when it is looked at. */
function readCode(error: unknown): unknown {
  try {
    return error instanceof Error ? (error as { code?: unknown }).code : undefined
  } catch {
    return undefined
  }
}

/** Stops on what cannot happen. A failure here is a bug of Holdfast, not of its user. */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(`Holdfast invariant broken: ${message}`)
}
