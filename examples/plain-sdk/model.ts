import { createHash } from 'node:crypto'
import type { Context, RetryOptions, StepHandle } from 'holdfast'

// #region model
/** A call of a model as a step, for the SDK of any provider. */
export function model<Request, Answer>(
  ctx: Context,
  name: string,
  request: Request,
  call: (request: Request, step: StepHandle) => Promise<Answer>,
  retry: RetryOptions = {},
): Promise<Answer> {
  const body = async (step: StepHandle) => {
    const answer = await call(request, step)
    step.usage(usageOf(answer))
    // As it was sent: SDKs add methods and getters, which can't be recorded.
    return JSON.parse(JSON.stringify(answer)) as Answer
  }
  return ctx.step(name, body, { kind: 'model', input: fingerprint(request), retry: { retryIf: isWorthRetrying, ...retry } })
}

/** Providers call them by one of two names. */
function usageOf(answer: unknown) {
  const { usage } = answer as { usage?: Record<string, number> }
  const count = (...names: string[]) => names.map((name) => usage?.[name]).find((value) => value !== undefined) ?? 0
  return { inputTokens: count('input_tokens', 'prompt_tokens'), outputTokens: count('output_tokens', 'completion_tokens') }
}

/** What tells calls apart on a replay. The request itself would be stored again in every record, with all that was said before. */
function fingerprint(request: unknown) {
  return { request: createHash('sha256').update(JSON.stringify(request)).digest('base64url') }
}

/** After what the network or the provider did, and not after what was asked for. */
function isWorthRetrying(error: unknown): boolean {
  const { status } = error as { status?: number }
  return status === undefined || status === 408 || status === 409 || status === 429 || status >= 500
}
// #endregion
