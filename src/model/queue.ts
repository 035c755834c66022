import { HoldfastError } from './errors.ts'
import { unknownName } from './known-options.ts'

/** What holds for a queue in every process of the store. Null: no limit. */
export interface QueueSettings {
  /** At most so many of its runs are running at a time, over all workers. */
  readonly concurrency: number | null
  /** At most `count` of its runs are started in any `perMs`, over all workers. */
  readonly rateLimit: RateLimit | null
  /** A start is refused with `queue_full` while so many of its runs are pending. */
  readonly maxQueued: number | null
  /** Nothing of it is claimed. What runs continues. */
  readonly isPaused: boolean
}

export interface RateLimit {
  readonly count: number
  readonly perMs: number
}

/**
 * Unfinished runs of a queue by status. `pending` are due; `delayed` are pending as well, and due later. Exact up to `countLimit`; a number
 * that is not smaller means: at least so many.
 */
export interface QueueCounts {
  readonly pending: number
  readonly delayed: number
  readonly running: number
  readonly waiting: number
  readonly paused: number
}

export interface Queue extends QueueSettings {
  readonly name: string
  readonly counts: QueueCounts
}

/** What to change of a queue. Absent fields stay as they are; null lifts a limit. */
export type QueueChange = { readonly name: string } & { readonly [Field in keyof QueueSettings]?: QueueSettings[Field] }

/** So many runs of a queue and status are counted, where a store has to count. */
export const countLimit = 10_000

export const defaultSettings: QueueSettings = { concurrency: null, rateLimit: null, maxQueued: null, isPaused: false }
export const noCounts: QueueCounts = { pending: 0, delayed: 0, running: 0, waiting: 0, paused: 0 }

export function changeSettings(before: QueueSettings, change: QueueChange): QueueSettings {
  const { concurrency = before.concurrency, rateLimit = before.rateLimit, maxQueued = before.maxQueued } = change
  return { concurrency, rateLimit, maxQueued, isPaused: change.isPaused ?? before.isPaused }
}

/** A queue with nothing but defaults is kept nowhere. */
export function isDefault({ concurrency, rateLimit, maxQueued, isPaused }: QueueSettings): boolean {
  return concurrency === null && rateLimit === null && maxQueued === null && !isPaused
}

/** Whether only so many of its runs may be running, or may be started in a stretch of time. */
export function isLimited(settings: Pick<QueueSettings, 'concurrency' | 'rateLimit'> | undefined): boolean {
  return settings !== undefined && (settings.concurrency !== null || settings.rateLimit !== null)
}

/** Refuses settings that make no sense with `invalid_input`. */
export function checkSettings({ name, concurrency, rateLimit, maxQueued, isPaused, ...rest }: QueueChange): void {
  const refuse = (what: string, must: string): never => {
    throw new HoldfastError('invalid_input', `${what} of queue "${name}" must be ${must}. Nothing was changed.`)
  }
  const isWhole = (value: unknown, least: number) => Number.isSafeInteger(value) && (value as number) >= least
  const isAbsent = (value: unknown) => value === undefined || value === null
  if (!isAbsent(concurrency) && !isWhole(concurrency, 1))
    refuse(`concurrency ${String(concurrency)}`, 'a whole number from 1, or null; to stop the queue, pause it')
  if (!isAbsent(maxQueued) && !isWhole(maxQueued, 0)) refuse(`maxQueued ${String(maxQueued)}`, 'a whole number from 0, or null')
  if (!isAbsent(rateLimit) && !(isWhole(rateLimit?.count, 1) && isWhole(rateLimit?.perMs, 1)))
    refuse('rateLimit', '{ count, perMs }, both whole numbers from 1, or null')
  if (isPaused !== undefined && typeof isPaused !== 'boolean') refuse('isPaused', 'true or false')
  const [unknown] = Object.keys(rest)
  if (unknown !== undefined)
    throw unknownName(`Queue "${name}" has no setting "${unknown}"; nothing was changed.`, unknown, Object.keys(defaultSettings))
}
