import { spawn } from 'node:child_process'
import { once } from 'node:events'

/** Where `vitest.config.ts` leaves what it has measured, for tests and for the processes that they start. */
export const slownessVariable = 'HOLDFAST_TEST_SLOWNESS'

/** How many times slower this machine is than a quiet one; at least 1. */
const slowness = Math.max(1, Number(process.env[slownessVariable] ?? 1))

/**
 * A limit for something that takes far less on a quiet machine: it only ends what hangs. What a promise of ours says about time is
 * checked by torture and by the benchmarks, where nothing else is at work.
 */
export function patience(ms: number): number {
  return Math.round(ms * slowness)
}

/** What a process that computes a little takes on two quiet cores with another of its kind beside it. */
const quietMs = 300

/** Measured before any test, with as many processes as the tests keep busy. */
export async function measureSlowness(): Promise<number> {
  const known = process.env[slownessVariable]
  if (known !== undefined) return Number(known)
  const startedAt = performance.now()
  const program = 'let sum = 0; for (let n = 0; n < 4e7; n++) sum = (sum + n * 7) | 0'
  const start = () => once(spawn(process.execPath, ['-e', program], { stdio: 'ignore', env: {} }), 'exit')
  await Promise.all([start(), start()])
  return Math.max(1, Math.round((10 * (performance.now() - startedAt)) / quietMs) / 10)
}
