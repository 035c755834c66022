import { type ErrorCode, HoldfastError } from '../../index.ts'

const statusOfCode: Partial<Record<ErrorCode, number>> = {
  invalid_input: 400,
  invalid_id: 400,
  input_mismatch: 409,
  value_not_storable: 400,
  value_too_large: 413,
  access_denied: 403,
  run_not_found: 404,
  thread_deleted: 404,
  conflict: 409,
  already_answered: 409,
  queue_full: 429,
  store_unavailable: 503,
  closed: 503,
}

/** An error as a response. What is no error of Holdfast may hold what is none of the page's business. */
export function refusalOf(error: unknown): Response {
  if (!(error instanceof HoldfastError)) return refusal(500, 'run_failed', 'The request failed.')
  const status = statusOfCode[error.code] ?? 500
  return refusal(status, error.code, status === 500 ? 'The request failed.' : error.message)
}

export function refusal(status: number, code: ErrorCode, message: string): Response {
  return Response.json({ error: { code, message } }, { status })
}
