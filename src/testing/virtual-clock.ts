import { type Holdfast, HoldfastError, type OpenOptions, open } from '../index.ts'
import { createMemoryStore } from '../stores/memory/memory-store.ts'
import { byStoreClock } from './by-store-clock.ts'
import { surveyRuns } from './survey-runs.ts'

/** A clock that a test moves, and clients that live by it. Between two moves it goes as real clocks do. */
export interface VirtualClock {
  /** Opens a client, with a worker unless told otherwise, on the one store in memory that all clients of this clock share. */
  open(options?: OpenOptions): Promise<Holdfast>
  /**
   * Moves time on, from one moment at which something is due to the next: timers fire, time-outs and retries come, schedules tick. Resolves
   * when everything that this set off has been done and the workers are idle again.
   */
  advance(ms: number): Promise<void>
  /** Resolves when nothing is executed or due: every run has ended, is paused, or waits for time to pass or for somebody. */
  idle(): Promise<void>
  /** Ms since 1970. */
  now(): number
  /** Closes the clients and their store. */
  close(): Promise<void>
}

/** How long `idle` waits for a run that is executed, in ms of real time. */
const longestMs = 30_000

/** Between two looks at the runs, in ms. */
const lookAgainMs = 5

/** Creates a clock and a store in memory that goes by it. Bodies of steps take the real time that they take. */
export function createVirtualClock(startAt?: number): VirtualClock {
  if (startAt !== undefined) refuseNoTime('startAt of createVirtualClock', startAt)
  let offsetMs = (startAt ?? Date.now()) - Date.now()
  const now = () => Date.now() + offsetMs
  const store = createMemoryStore({ clockOffsetMs: () => offsetMs })
  const clients: Holdfast[] = []

  async function idle(): Promise<void> {
    const since = performance.now()
    for (;;) {
      const lookedAt = performance.now()
      const { isBusy, unfinished } = await surveyRuns(store)
      if (!isBusy) return
      if (performance.now() - since > longestMs) {
        const running = unfinished.filter(({ status }) => status === 'running' || status === 'pending').map(({ id }) => `"${id}"`)
        throw new HoldfastError(
          'timeout',
          `Not idle after ${longestMs / 1_000} s: ${running.join(', ')} is executed, or no worker takes it.`,
        )
      }
      // With thousands of runs a look takes its time, in which nothing is executed.
      const tookMs = performance.now() - lookedAt
      await new Promise((resolve) => setTimeout(resolve, Math.max(lookAgainMs, 2 * tookMs)))
    }
  }

  return {
    open: async (options = {}) => {
      const { worker = {} } = options
      const hf = await open(store, { ...options, worker: worker === false ? false : { ...byStoreClock, quietMs: 10, ...worker } })
      clients.push(hf)
      return hf
    },
    advance: async (ms) => {
      refuseNoTime('ms of clock.advance', ms)
      // In addition to the real time that this takes: what one timer sets off begins a little later, and so does the next timer.
      for (let leftMs = ms; ; ) {
        await idle()
        const { nextDueAt = Number.POSITIVE_INFINITY } = await surveyRuns(store)
        const nextMs = Math.max(0, nextDueAt - now())
        const moveMs = Math.min(nextMs, leftMs)
        offsetMs += moveMs
        leftMs -= moveMs
        if (nextMs > moveMs) break
      }
      await idle()
    },
    idle,
    now,
    close: async () => {
      for (const hf of clients) await hf.close()
      await store.close()
    },
  }
}

function refuseNoTime(what: string, ms: unknown): void {
  if (Number.isFinite(ms) && (ms as number) >= 0) return
  const given = typeof ms === 'string' ? JSON.stringify(ms) : String(ms)
  throw new HoldfastError('invalid_input', `${what} is ${given}; it must be a number of milliseconds from 0.`)
}
