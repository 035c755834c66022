/** Waits before another try. */
export function backOff(tries: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.min(1_000, 20 * 2 ** tries)))
}
