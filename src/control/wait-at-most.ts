/** Waits for the promise, the time or the signal, whichever comes first. */
export async function waitAtMost(promise: Promise<void>, ms: number, signal: AbortSignal | undefined): Promise<void> {
  if (ms === Number.POSITIVE_INFINITY && signal === undefined) return promise
  // A signal that aborted earlier fires no event.
  if (signal?.aborted === true) return
  let timer: NodeJS.Timeout | undefined
  let onAbort: (() => void) | undefined
  await Promise.race([
    promise,
    new Promise<void>((resolve) => {
      if (ms !== Number.POSITIVE_INFINITY) timer = setTimeout(resolve, Math.min(ms, 2_147_483_647))
      onAbort = resolve
      signal?.addEventListener('abort', onAbort, { once: true })
    }),
  ])
  clearTimeout(timer)
  if (onAbort !== undefined) signal?.removeEventListener('abort', onAbort)
}
