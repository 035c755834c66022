import type { Context } from '../define/context.ts'
import { makeWorkflow } from '../define/workflow.ts'
import { codeOf } from '../model/errors.ts'
import { internalQueue } from '../model/internal.ts'
import {
  changeSchedule,
  changeSignal,
  type Schedule,
  type ScheduleChange,
  scheduleWorkflowName,
  takeDueTicks,
  tickRunId,
  wakeTime,
} from '../model/schedule.ts'

/**
 * A schedule is a run that waits for its next tick, starts what is due, and continues with a new tape. So it needs no clock, leader or table
 * of its own, and survives what runs survive. There is one run per tick, however many processes there are: the schedule is one run, and the
 * ids of the runs that it starts contain their tick.
 */
export const scheduleWorkflow = makeWorkflow(
  { name: scheduleWorkflowName, queue: internalQueue },
  async (ctx: Context<unknown, Schedule>, schedule: Schedule): Promise<never> => {
    const change = await nextChange(ctx, wakeTime(schedule))
    if (change !== null) return ctx.continueAs(changeSchedule(schedule, change))
    const { ticks, changed } = takeDueTicks(schedule, ctx.now())
    // In one turn of the event loop, so that they share a commit.
    await Promise.all(ticks.map((tick) => startRun(ctx, schedule, tick)))
    return ctx.continueAs(changed)
  },
)

/** The next requested change; null when it is time to start something first. */
async function nextChange(ctx: Context, wakeAt: number | null): Promise<ScheduleChange | null> {
  const limit = wakeAt === null ? {} : { timeoutMs: Math.max(0, wakeAt - ctx.now()) }
  try {
    return await ctx.waitFor<ScheduleChange>(changeSignal, limit)
  } catch (error) {
    if (codeOf(error) === 'timeout') return null
    throw error
  }
}

async function startRun(ctx: Context, { name, settings }: Schedule, tick: number): Promise<void> {
  const { workflow, version, queue, priority, input, unchecked } = settings
  const options = { id: tickRunId(name, tick), detached: true, scheduledAt: tick, version, queue, priority, unchecked } as const
  try {
    await ctx.call(workflow, input, options)
  } catch (error) {
    // The tick has a run already, from a time when the schedule had other settings.
    if (codeOf(error) !== 'input_mismatch') throw error
  }
}
