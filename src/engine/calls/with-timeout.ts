import { HoldfastError } from '../../model/errors.ts'

/** A limit on how long a body may take: its signal is aborted, and `run` rejects with `timeout`, whatever the body does. */
export function withTimeout(timeoutMs: number, what: string, outer: AbortSignal): TimeLimit {
  const abort = new AbortController()
  const follow = () => abort.abort(outer.reason)
  if (outer.aborted) follow()
  else outer.addEventListener('abort', follow, { once: true })

  return {
    signal: abort.signal,
    async run<T>(body: () => Promise<T>): Promise<T> {
      let timer: NodeJS.Timeout | undefined
      const over = new Promise<never>((_, reject) => {
        timer = setTimeout(
          () => {
            const error = new HoldfastError('timeout', `${what} took longer than ${timeoutMs} ms.`, { retryable: true })
            abort.abort(error)
            reject(error)
          },
          Math.min(timeoutMs, 2_147_483_647),
        )
        // The code that aborts it decides how long the body is still waited for; a process that closes does not wait for the limit.
        abort.signal.addEventListener('abort', () => timer?.unref(), { once: true })
      })
      try {
        return await Promise.race([body(), over])
      } finally {
        clearTimeout(timer)
        outer.removeEventListener('abort', follow)
      }
    },
  }
}

export interface TimeLimit {
  readonly signal: AbortSignal
  run<T>(body: () => Promise<T>): Promise<T>
}
