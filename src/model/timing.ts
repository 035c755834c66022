import { Cron } from 'croner'
import { HoldfastError } from './errors.ts'

/** When a schedule ticks: by a cron pattern in a time zone, or every so often. */
export type Timing =
  | { readonly cron: string; readonly timeZone: string; readonly everyMs?: never }
  | { readonly everyMs: number; readonly cron?: never; readonly timeZone?: never }

/** The first tick after a time, in ms; null when there is none any more. */
export function nextTick(timing: Timing, after: number): number | null {
  // Counted from 1970, not from when it was set: whoever sets it again does not shift it.
  if (timing.everyMs !== undefined) return (Math.floor(after / timing.everyMs) + 1) * timing.everyMs
  return cronOf(timing).nextRun(new Date(after))?.getTime() ?? null
}

/** The last tick at or before a time; null when there is none. */
export function latestTick(timing: Timing, until: number): number | null {
  if (timing.everyMs !== undefined) return Math.floor(until / timing.everyMs) * timing.everyMs
  // Ticks are on whole seconds, and it looks for those before.
  const before = new Date((Math.floor(until / 1_000) + 1) * 1_000)
  return cronOf(timing).previousRuns(1, before)[0]?.getTime() ?? null
}

/** The first ticks after a time, at most `limit`, none later than `until`. */
export function ticksBetween(timing: Timing, after: number, until: number, limit: number): number[] {
  const ticks: number[] = []
  for (let tick = nextTick(timing, after); tick !== null && tick <= until && ticks.length < limit; tick = nextTick(timing, tick))
    ticks.push(tick)
  return ticks
}

/** Returns the timing if a schedule can have it. `now`: it must tick after that. Refused with `invalid_input`. */
export function checkTiming(given: { cron?: unknown; everyMs?: unknown; timeZone?: unknown }, now: number): Timing {
  const { cron, everyMs, timeZone } = given
  if ((cron === undefined) === (everyMs === undefined)) throw refused('needs either cron or everyMs')
  if (everyMs !== undefined) {
    if (timeZone !== undefined) throw refused('has everyMs and a timeZone; only cron has one')
    if (!Number.isSafeInteger(everyMs) || (everyMs as number) < 1_000 || (everyMs as number) > maxEveryMs)
      throw refused(`has an everyMs of ${String(everyMs)}; it must be a whole number of milliseconds from 1,000 to ${maxEveryMs}`)
    return { everyMs: everyMs as number }
  }
  if (typeof cron !== 'string') throw refused(`has a cron that is of type ${typeof cron}, not a string`)
  const timing = { cron: cron.trim(), timeZone: checkTimeZone(timeZone ?? 'UTC') }
  // The parser takes a date as a pattern that ticks once.
  if (/^\d{4}-/.test(timing.cron)) throw refused(`has a date as cron, "${cron}"; to start a run once use hf.start with runAt`)
  let first: number | null
  try {
    first = nextTick(timing, now)
  } catch (error) {
    const why = (error as Error).message.replace(/^CronPattern: /, '')
    throw refused(`has a cron that can't be read, "${cron}": ${why}`, error)
  }
  if (first === null) throw refused(`has a cron that never ticks, "${cron}"`)
  return timing
}

/** A hundred years. */
const maxEveryMs = 3_155_760_000_000

function checkTimeZone(given: unknown): string {
  try {
    if (typeof given !== 'string') throw new RangeError(`it is of type ${typeof given}`)
    new Intl.DateTimeFormat('en', { timeZone: given }).format()
    return given
  } catch (error) {
    throw refused(`has the time zone "${String(given)}", which is not known here; write one like Europe/Berlin or UTC`, error)
  }
}

function refused(why: string, cause?: unknown): HoldfastError {
  return new HoldfastError('invalid_input', `The schedule ${why}. Nothing was set.`, cause === undefined ? {} : { cause })
}

function cronOf({ cron, timeZone }: { readonly cron: string; readonly timeZone: string }): Cron {
  return new Cron(cron, { timezone: timeZone, paused: true })
}
