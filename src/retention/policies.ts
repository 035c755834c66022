import { checkMs } from '../model/duration.ts'
import { HoldfastError } from '../model/errors.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'

/** What may be deleted. What no policy names is kept. */
export interface RetentionOptions {
  /**
   * Runs that have a thread to themselves, with that thread: those in which nothing has happened for `maxAgeMs`, 24 h or more. With `keepLast` the latest
   * runs of each workflow and owner stay, 1 to 1,000.
   */
  readonly runs?: { readonly maxAgeMs: number; readonly keepLast?: number }
  /** Threads of several runs, and those that were only edited, with all that belongs to them: those in which nothing has happened for `maxAgeMs`, 24 h or more. */
  readonly threads?: { readonly maxAgeMs: number }
  /** Deliveries of notifications: those that ended `maxAgeMs` ago, 24 h or more. */
  readonly notifications?: { readonly maxAgeMs: number }
  /** Chunks of streams: those of runs that ended `maxAgeMs` ago. */
  readonly streams?: { readonly maxAgeMs: number }
  /** Threads with a labelled checkpoint stay. Default true. */
  readonly keepTagged?: boolean
  /** How often a worker deletes what it may, in ms. Default an hour. */
  readonly everyMs?: number
}

/** A run id that is started again is the same run for so long, an operation key the same effect. */
export const leastAgeMs = 24 * 3_600_000

const optionNames: OptionNames<RetentionOptions> = {
  runs: true,
  threads: true,
  notifications: true,
  streams: true,
  keepTagged: true,
  everyMs: true,
}

/** Refuses with `invalid_input` what is no policy. */
export function checkRetention(given: RetentionOptions | undefined): void {
  if (given === undefined) return
  refuseUnknownOptions('retention of open', given, optionNames)
  checkMs('retention.everyMs', given.everyMs, 1_000)
  if (given.keepTagged !== undefined && typeof given.keepTagged !== 'boolean')
    throw new HoldfastError(
      'invalid_input',
      `retention.keepTagged is ${JSON.stringify(given.keepTagged)}; it must be true or false.`,
    )
  for (const name of ['runs', 'threads', 'notifications', 'streams'] as const) {
    const policy = given[name] as { readonly maxAgeMs?: number; readonly keepLast?: number } | undefined
    if (policy === undefined) continue
    refuseUnknownOptions(`retention.${name}`, policy, { maxAgeMs: true, ...(name === 'runs' && { keepLast: true }) })
    if (policy.maxAgeMs === undefined)
      throw new HoldfastError(
        'invalid_input',
        `retention.${name} needs maxAgeMs: after how long something may be deleted, in ms.`,
      )
    checkMs(`retention.${name}.maxAgeMs`, policy.maxAgeMs, name === 'streams' ? 0 : leastAgeMs)
    const { keepLast } = policy
    if (keepLast === undefined || (Number.isInteger(keepLast) && keepLast >= 1 && keepLast <= 1_000)) continue
    throw new HoldfastError(
      'invalid_input',
      `retention.runs.keepLast is ${JSON.stringify(keepLast)}; it must be a whole number from 1 to 1,000.`,
    )
  }
}
