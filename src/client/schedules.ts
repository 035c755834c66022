import { randomUUID } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import type { Core } from '../control/core.ts'
import type { AnyWorkflow, GivenTo, InputProperty } from '../define/workflow.ts'
import { refuseStartInFunction } from '../engine/calls/calls.ts'
import { refuseOtherVersion } from '../engine/calls/other-version.ts'
import { reportMissing } from '../engine/calls/report-missing.ts'
import { fingerprint } from '../model/codec.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { isInternal } from '../model/internal.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'
import { isMoment, momentAdvice } from '../model/moment.ts'
import {
  checkScheduleName,
  type IfMissed,
  missedPolicies,
  type Schedule,
  type ScheduleChange,
  type ScheduleSettings,
  scheduleRunId,
  shownSettings,
  tickRunId,
} from '../model/schedule.ts'
import { validate } from '../model/schema.ts'
import { checkTiming, nextTick, ticksBetween } from '../model/timing.ts'
import type { RunKey } from '../store/store.ts'
import { listSchedules, readSchedule } from './read-schedule.ts'
import { RunHandle } from './run-handle.ts'
import { createSchedule, sendChange, startScheduled } from './start-schedule.ts'

/** What a schedule starts, and when: `cron` or `everyMs`. */
export type ScheduleOptions<W extends AnyWorkflow | string = AnyWorkflow | string> = ScheduleSetting<W> &
  InputProperty<GivenTo<W>>

interface ScheduleSetting<W> {
  /** A cron pattern of 5 fields, or 6 with seconds first, or `@daily` and the like. */
  readonly cron?: string
  /** The time zone of the pattern, by its IANA name. Default `UTC`. */
  readonly timeZone?: string
  /** Ms between ticks, from 1,000. Counted from 1970: 3,600,000 ticks on the hour. */
  readonly everyMs?: number
  /** The workflow, or its name if this process does not have it. Runs get the version that it has when the schedule is set. */
  readonly workflow: W
  /** For a name: the workflow's version. Default: the highest registered in this process, else 1. */
  readonly version?: number
  /** Default: the workflow's queue. */
  readonly queue?: string
  readonly priority?: number
  /**
   * What happens to ticks that passed while no worker was running: one run for the latest of them (default), one for each, or none. With
   * `skip`, a tick counts as missed when it is more than a minute late.
   */
  readonly ifMissed?: IfMissed
}

const scheduleOptionNames: OptionNames<ScheduleOptions> = {
  cron: true,
  timeZone: true,
  everyMs: true,
  workflow: true,
  version: true,
  input: true,
  queue: true,
  priority: true,
  ifMissed: true,
}

/** A schedule as it is now. */
export interface ScheduleInfo {
  readonly name: string
  readonly settings: ScheduleOptions<string> &
    Required<Pick<ScheduleOptions<string>, 'version' | 'queue' | 'priority' | 'ifMissed'>>
  readonly isPaused: boolean
  /** The next tick, in ms since 1970; absent while it is paused. */
  readonly next?: number
  /** The last tick that a run was started for. */
  readonly last?: { readonly tick: number; readonly runId: string }
}

/** The most ticks that one `backfill` starts, and the most times that one `next` returns. */
const maxTicks = 100_000
const maxTimes = 1_000
const batchSize = 100

/** The schedules of one owner. */
export class Schedules {
  readonly #core: Core
  readonly #owner: string

  constructor(core: Core, owner: string) {
    this.#core = core
    this.#owner = owner
  }

  /** Creates a schedule, or changes its settings from the next tick on. The same settings change nothing. */
  async set<W extends AnyWorkflow | string>(name: string, options: ScheduleOptions<W>): Promise<void> {
    refuseUnknownOptions('hf.schedules.set', options, scheduleOptionNames)
    const core = this.#core
    const key = this.#key(name)
    const settings = await this.#settings(options as ScheduleOptions)
    if (core.hasWorker) reportMissing(core, { ...settings, needs: `Schedule "${name}" starts` })
    for (let tries = 0; tries < 50; tries++) {
      const known = await readSchedule(core, key)
      if (known === null) {
        const schedule: Schedule = { name, settings, isPaused: false, after: await core.now() }
        if (await createSchedule(core, key, schedule)) return
      } else if (fingerprint(shownSettings(known)) === fingerprint(settings)) return
      else if (await sendChange(core, key, { kind: 'set', settings, at: await core.now() })) return
    }
    throw new HoldfastError('conflict', `Schedule "${name}" keeps changing; try again.`, { retryable: true })
  }

  /** All schedules of this owner, sorted by name. */
  async list(): Promise<ScheduleInfo[]> {
    const schedules = await listSchedules(this.#core, this.#owner)
    const now = await this.#core.now()
    return schedules.map((schedule) => infoOf(schedule, now)).sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  /** A schedule. Throws `schedule_not_found`. */
  async get(name: string): Promise<ScheduleInfo> {
    return infoOf(await this.#read(name), await this.#core.now())
  }

  /** The next times at which it ticks, in ms since 1970, whether or not it is paused. Default 1, at most 1,000. */
  async next(name: string, options: { readonly count?: number } = {}): Promise<number[]> {
    refuseUnknownOptions('hf.schedules.next', options, { count: true })
    const { count = 1 } = options
    if (!Number.isInteger(count) || count < 1 || count > maxTimes)
      throw new HoldfastError('invalid_input', `count is ${String(count)}; it must be a whole number from 1 to ${maxTimes}.`)
    const { timing } = shownSettings(await this.#read(name))
    return ticksBetween(timing, await this.#core.now(), Number.POSITIVE_INFINITY, count)
  }

  /** Pauses the schedule. Ticks while it is paused do not count as missed and are never made up for. */
  async pause(name: string): Promise<void> {
    await this.#change(name, { kind: 'pause', at: await this.#core.now() })
  }

  /** Continues the schedule with the next tick from now. */
  async resume(name: string): Promise<void> {
    await this.#change(name, { kind: 'resume', at: await this.#core.now() })
  }

  /** Starts a run now, in addition to the ticks. Its `ctx.scheduledAt` is now. */
  async trigger(name: string): Promise<RunHandle> {
    refuseStartInFunction()
    const schedule = await this.#read(name)
    const at = await this.#core.now()
    const { run } = await startScheduled(this.#core, this.#owner, schedule, { id: `${name}/${randomUUID()}`, at })
    return new RunHandle(this.#core, run)
  }

  /**
   * Starts runs for the ticks from `from` up to but excluding `to` (ms since 1970; default now) that have none, with the current settings.
   * Each gets the id that its tick would have given it, so calling it again starts nothing twice.
   */
  async backfill(
    name: string,
    options: { readonly from: number; readonly to?: number },
  ): Promise<{ readonly started: number; readonly existing: number }> {
    refuseStartInFunction()
    refuseUnknownOptions('hf.schedules.backfill', options, { from: true, to: true })
    const schedule = await this.#read(name)
    const { from, until } = checkStretch(options, await this.#core.now())
    const ticks = await this.#ticks(schedule, from, until)
    let [started, existing] = [0, 0]
    for (let next = 0; next < ticks.length; next += batchSize) {
      const batch = await Promise.all(
        ticks
          .slice(next, next + batchSize)
          .map((at) => startScheduled(this.#core, this.#owner, schedule, { id: tickRunId(name, at), at })),
      )
      started += batch.filter(({ isNew }) => isNew).length
      existing += batch.filter(({ isNew }) => !isNew).length
    }
    return { started, existing }
  }

  /** Deletes a schedule. Runs that it started continue. Returns false if it did not exist. */
  async delete(name: string): Promise<boolean> {
    const key = this.#key(name)
    if ((await readSchedule(this.#core, key)) === null) return false
    return this.#core.store.deleteThread({ owner: key.owner, threadId: key.runId, at: await this.#core.now() })
  }

  /** All ticks of a stretch of time, or `invalid_input` if they are too many, before any run is started. */
  async #ticks(schedule: Schedule, from: number, until: number): Promise<number[]> {
    const { timing } = shownSettings(schedule)
    const ticks: number[] = []
    for (let after = from - 1; ; after = ticks.at(-1)!) {
      const some = ticksBetween(timing, after, until, batchSize)
      if (ticks.length + some.length > maxTicks) {
        const to = some[0]!
        throw new HoldfastError(
          'invalid_input',
          `Schedule "${schedule.name}" has more than ${maxTicks} ticks from ${new Date(from).toISOString()} on, which is too many for one call. ` +
            `Nothing was started. To start them all, call it with to: ${to} (${new Date(to).toISOString()}) first, then again with this as from.`,
          { details: { schedule: schedule.name, from, to } },
        )
      }
      ticks.push(...some)
      if (some.length < batchSize) return ticks
      // Computing the ticks of a cron pattern takes a while: let the event loop run in between.
      await setImmediate()
    }
  }

  async #read(name: string): Promise<Schedule> {
    const schedule = await readSchedule(this.#core, this.#key(name))
    if (schedule === null) throw this.#notFound(name)
    return schedule
  }

  async #change(name: string, change: ScheduleChange): Promise<void> {
    await this.#read(name)
    if (!(await sendChange(this.#core, this.#key(name), change))) throw this.#notFound(name)
  }

  #key(name: string): RunKey {
    return { owner: this.#owner, runId: scheduleRunId(checkScheduleName(name)) }
  }

  async #settings(given: ScheduleOptions): Promise<ScheduleSettings> {
    const { registry, codec } = this.#core
    const { workflow: workflowOrName, version, ifMissed = 'latest', priority } = given
    const timing = checkTiming(given, await this.#core.now())
    if (!missedPolicies.includes(ifMissed)) throw refused(`ifMissed is ${String(ifMissed)}`, "'latest', 'all' or 'skip'")
    if (priority !== undefined && !Number.isSafeInteger(priority))
      throw refused(`priority is ${String(priority)}`, 'a whole number')
    if (version !== undefined && !(Number.isSafeInteger(version) && version >= 1))
      throw refused(`version is ${String(version)}`, 'a whole number of at least 1')
    const name = checkId('workflow name', typeof workflowOrName === 'string' ? workflowOrName : workflowOrName?.name)
    if (isInternal(name)) throw refused(`the workflow is "${name}", which is Holdfast's own`, 'one of yours')
    let workflow: AnyWorkflow | undefined
    if (typeof workflowOrName !== 'string') {
      workflow = workflowOrName
      refuseOtherVersion(workflow, version, 'done')
      registry.add(workflow)
    } else workflow = version === undefined ? registry.latest(name) : registry.get(name, version)
    const { input: schema, queue, priority: usual } = workflow?.options ?? {}
    const input = schema === undefined ? given.input : await validate(schema, given.input, `The input of workflow "${name}"`)
    const settings: ScheduleSettings = {
      ...{ timing, workflow: name, version: workflow?.version ?? version ?? 1, ifMissed },
      ...(input !== undefined && { input }),
      ...(workflow === undefined && { unchecked: true }),
      queue: checkId('queue name', given.queue ?? queue ?? 'default'),
      priority: priority ?? usual ?? 0,
    }
    // Encoded once, as it will be recorded, so that what is compared is what is read back.
    return codec.decode(codec.encode(settings)) as ScheduleSettings
  }

  #notFound(name: string): HoldfastError {
    const whose = this.#owner === '' ? '' : ` of owner "${this.#owner}"`
    return new HoldfastError('schedule_not_found', `There is no schedule "${name}"${whose}. Set it with hf.schedules.set.`, {
      details: { schedule: name },
    })
  }
}

function infoOf(schedule: Schedule, now: number): ScheduleInfo {
  const { timing, unchecked: _, ...settings } = shownSettings(schedule)
  const { name, isPaused, lastTick } = schedule
  const next = isPaused ? null : nextTick(timing, now)
  return {
    ...{ name, settings: { ...timing, ...settings }, isPaused },
    ...(next !== null && { next }),
    ...(lastTick !== undefined && { last: { tick: lastTick, runId: tickRunId(name, lastTick) } }),
  }
}

function checkStretch({ from, to }: { readonly from: number; readonly to?: number }, now: number) {
  for (const [name, moment] of Object.entries({ from, ...(to !== undefined && { to }) }))
    if (!isMoment(moment)) throw refused(`${name} is ${String(moment)}`, momentAdvice(moment))
  if (to !== undefined && to < from) throw refused('to is before from', 'after it')
  if (to !== undefined && to > now)
    throw refused(`to is in the future, ${new Date(to).toISOString()}`, 'now or earlier: ticks to come start by themselves')
  return { from: Math.ceil(from), until: Math.ceil(to ?? now) - 1 }
}

function refused(what: string, must: string): HoldfastError {
  return new HoldfastError('invalid_input', `${what}; it must be ${must}. Nothing was done.`)
}
