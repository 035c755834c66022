import { HoldfastError } from '../model/errors.ts'

/** The body of a step's transaction within its time limit; later it is rejected with `timeout`, and the caller rolls back. */
export async function withTimeout<Answer>(
  body: () => Promise<Answer>,
  { timeoutMs, runId }: { readonly timeoutMs: number; readonly runId: string },
): Promise<Answer> {
  let timer: NodeJS.Timeout | undefined
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const message = `The transaction of run ${runId} took longer than ${timeoutMs} ms and was rolled back. Keep slow work outside of it.`
      reject(new HoldfastError('timeout', message, { details: { runId, timeoutMs } }))
    }, timeoutMs)
  })
  try {
    return await Promise.race([body(), timeout])
  } finally {
    clearTimeout(timer)
  }
}
