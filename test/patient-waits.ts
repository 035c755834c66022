import { vi } from 'vitest'
import { patience } from './patience.ts'

// Loaded before each test file. Vitest gives up a wait after a second unless it is told otherwise, and asks every 50 ms; on a busy
// machine a second is nothing, and on a quiet one 50 ms are long.

interface WaitOptions {
  readonly timeout?: number
  readonly interval?: number
}

const patiently = (options: number | WaitOptions = {}): WaitOptions => {
  const { timeout = 30_000, interval = 10 } = typeof options === 'number' ? { timeout: options } : options
  return { interval, timeout: patience(timeout) }
}

const { waitFor, waitUntil } = vi
vi.waitFor = (callback, options) => waitFor(callback, patiently(options))
vi.waitUntil = (callback, options) => waitUntil(callback, patiently(options))
