import { checkId } from './ids.ts'
import { latestTick, nextTick, type Timing, ticksBetween } from './timing.ts'

/** The workflow that a schedule is a run of. */
export const scheduleWorkflowName = 'holdfast.schedule'
/** The signal that changes one. */
export const changeSignal = 'change'
/** Ticks started in one go, and how long to wait before the next such batch. */
export const batchSize = 100
const batchPauseMs = 1_000
/** A tick that is not started by then was missed. */
const missedAfterMs = 60_000

/** What happens to ticks at which nobody was there to start a run. */
export const missedPolicies = ['latest', 'all', 'skip'] as const
export type IfMissed = (typeof missedPolicies)[number]

/** What a tick starts, and when there is one. */
export interface ScheduleSettings {
  readonly timing: Timing
  readonly workflow: string
  readonly version: number
  readonly input?: unknown
  readonly queue: string
  readonly priority: number
  readonly ifMissed: IfMissed
  /** Whoever set it did not have the workflow: its runs check the input. */
  readonly unchecked?: true
}

/** A schedule: the input of each tape of its run. */
export interface Schedule {
  readonly name: string
  readonly settings: ScheduleSettings
  readonly isPaused: boolean
  /** Ticks up to this time are dealt with. */
  readonly after: number
  /** The last tick that a run was started for. */
  readonly lastTick?: number
  /** A batch of missed ticks was started: not before this time the next. */
  readonly notBefore?: number
  /** Settings with another timing, that take over at `at`, once what was missed before is dealt with. */
  readonly next?: { readonly settings: ScheduleSettings; readonly at: number }
}

/** A change of a schedule, as a signal brings it. `at`: when it was asked for, by the store's clock. */
export type ScheduleChange =
  | { readonly kind: 'set'; readonly at: number; readonly settings: ScheduleSettings }
  | { readonly kind: 'pause'; readonly at: number }
  | { readonly kind: 'resume'; readonly at: number }

/** Fixed, so that however many processes set a schedule there is one. */
export function scheduleRunId(name: string): string {
  return `${scheduleWorkflowName}:${name}`
}

/** The run of a tick: one tick is one run, whoever starts it. */
export function tickRunId(name: string, tick: number): string {
  return `${name}@${new Date(tick).toISOString()}`
}

/** Returns the value if a schedule can have it as its name. */
export function checkScheduleName(value: unknown): string {
  const name = checkId('schedule name', value)
  // Its runs are called after it.
  checkId(`run id of schedule "${name.slice(0, 64)}"`, scheduleRunId(name))
  checkId(`run id of schedule "${name.slice(0, 64)}"`, tickRunId(name, 0))
  return name
}

/** The schedule after a change. A change says all that it is about, so that a reader may meet it twice. */
export function changeSchedule(schedule: Schedule, change: ScheduleChange): Schedule {
  const { next, notBefore: _, ...rest } = schedule
  switch (change.kind) {
    case 'set':
      if (schedule.isPaused) return { ...rest, settings: change.settings }
      // What it missed until now it missed under the old timing.
      return isSameTiming(schedule.settings.timing, change.settings.timing) && next === undefined
        ? { ...schedule, settings: change.settings }
        : { ...schedule, next: { settings: change.settings, at: change.at } }
    case 'pause':
      return { ...rest, settings: shownSettings(schedule), isPaused: true }
    case 'resume':
      // What comes due while it is paused is not missed: nobody wanted it.
      return schedule.isPaused ? { ...rest, isPaused: false, after: change.at } : schedule
  }
}

/** The settings as they were last set. */
export function shownSettings({ settings, next }: Schedule): ScheduleSettings {
  return next?.settings ?? settings
}

/** When the schedule has something to do next, in ms; null: not by itself. */
export function wakeTime(schedule: Schedule): number | null {
  if (schedule.isPaused) return null
  const tick = nextTick(schedule.settings.timing, schedule.after)
  const due = schedule.next === undefined ? tick : Math.min(tick ?? schedule.next.at, schedule.next.at)
  return due === null ? null : Math.max(due, schedule.notBefore ?? 0)
}

/** Ticks that are to be started now, at most a batch, and what becomes of the schedule once they are. */
export function takeDueTicks(schedule: Schedule, now: number): { readonly ticks: readonly number[]; readonly changed: Schedule } {
  const { notBefore: _, next, ...rest } = schedule
  const until = Math.min(now, next?.at ?? now)
  const ticks = startable(schedule, until, now)
  const lastTick = ticks.at(-1)
  const dealtWith = { ...rest, ...(lastTick !== undefined && { lastTick }) }
  // A full batch: there may be more.
  if (ticks.length === batchSize) {
    const paced = { ...dealtWith, after: lastTick as number, notBefore: now + batchPauseMs }
    return { ticks, changed: { ...paced, ...(next !== undefined && { next }) } }
  }
  if (next === undefined) return { ticks, changed: { ...dealtWith, after: Math.max(schedule.after, until) } }
  return { ticks, changed: { ...dealtWith, settings: next.settings, after: Math.max(schedule.after, next.at) } }
}

function startable({ settings, after }: Schedule, until: number, now: number): readonly number[] {
  const { timing, ifMissed } = settings
  if (ifMissed === 'all') return ticksBetween(timing, after, until, batchSize)
  const latest = latestTick(timing, until)
  if (latest === null || latest <= after) return []
  return ifMissed === 'latest' || now - latest < missedAfterMs ? [latest] : []
}

function isSameTiming(a: Timing, b: Timing): boolean {
  return a.cron === b.cron && a.timeZone === b.timeZone && a.everyMs === b.everyMs
}
