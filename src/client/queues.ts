import type { Core } from '../control/core.ts'
import { checkMs } from '../model/duration.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { internalQueue } from '../model/internal.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'
import { checkSettings, defaultSettings, noCounts, type Queue, type QueueCounts, type QueueSettings } from '../model/queue.ts'

export interface DrainOptions {
  /** When to give up, in ms. Default: never. */
  readonly timeoutMs?: number
  /** Called whenever the counts have changed. */
  readonly onProgress?: (counts: QueueCounts) => void
}

const drainOptionNames: OptionNames<DrainOptions> = { timeoutMs: true, onProgress: true }

/** The shortest and the longest time between two looks at a queue that is being drained. */
const [firstLookMs, slowestLookMs] = [10, 250]

/** The queues of the store. Settings apply to all owners and all processes. */
export class Queues {
  readonly #core: Core

  constructor(core: Core) {
    this.#core = core
  }

  /** Changes settings. Those that are not given stay as they are; null removes a limit. */
  async set(name: string, settings: Partial<QueueSettings>): Promise<void> {
    if (name === internalQueue)
      throw new HoldfastError(
        'invalid_input',
        `Queue "${name}" is for Holdfast's own runs and has no settings. Nothing was changed.`,
      )
    const change = { ...settings, name: checkId('queue name', name) }
    checkSettings(change)
    await this.#core.store.setQueue(change)
    this.#core.wakeWorker()
  }

  /** No run of the queue is claimed from now on. Running ones continue. */
  async pause(name: string): Promise<void> {
    await this.set(name, { isPaused: true })
  }

  /** Runs of the queue are claimed again. */
  async resume(name: string): Promise<void> {
    await this.set(name, { isPaused: false })
  }

  /** Settings and counts. A queue that was never set or used has default settings and zero counts. */
  async get(name: string): Promise<Queue> {
    const [queue] = await this.#core.store.listQueues({ name: checkId('queue name', name) })
    return queue ?? { name, ...defaultSettings, counts: noCounts }
  }

  /** Its unfinished runs by status, over all owners. */
  async count(name: string): Promise<QueueCounts> {
    return (await this.get(name)).counts
  }

  /** Every queue with settings or unfinished runs, sorted by name, except Holdfast's internal one. Counts are over all owners. */
  async list(): Promise<readonly Queue[]> {
    return (await this.#core.store.listQueues({})).filter(({ name }) => name !== internalQueue)
  }

  /**
   * Waits until none of its runs is running, or pending and due. Does not wait for delayed, waiting and paused ones. A `timeout` says what
   * is left. New runs can still be started.
   */
  async drain(name: string, options: DrainOptions = {}): Promise<void> {
    refuseUnknownOptions('hf.queues.drain', options, drainOptionNames)
    const { timeoutMs = Number.POSITIVE_INFINITY, onProgress } = options
    checkMs('timeoutMs of drain()', timeoutMs)
    const deadline = performance.now() + timeoutMs
    let seen = ''
    for (let lookMs = firstLookMs; ; lookMs = Math.min(slowestLookMs, lookMs * 2)) {
      const { counts, isPaused } = await this.get(name)
      if (JSON.stringify(counts) !== seen) {
        seen = JSON.stringify(counts)
        onProgress?.(counts)
        lookMs = firstLookMs
      }
      if (counts.pending === 0 && counts.running === 0) return
      const leftMs = deadline - performance.now()
      if (leftMs <= 0) throw notDrained(name, { timeoutMs, counts, isPaused })
      await new Promise((resolve) => setTimeout(resolve, Math.min(lookMs, leftMs)))
    }
  }
}

function notDrained(
  name: string,
  { timeoutMs, counts, isPaused }: { timeoutMs: number; counts: QueueCounts; isPaused: boolean },
): HoldfastError {
  return new HoldfastError(
    'timeout',
    `Queue "${name}" was not drained within ${timeoutMs} ms: ${counts.pending} pending and ${counts.running} running runs are left. ` +
      (isPaused ? 'It is paused: resume it first.' : 'Wait longer, or see that a worker takes this queue.'),
    { retryable: true, details: { queue: name, counts, isPaused } },
  )
}
