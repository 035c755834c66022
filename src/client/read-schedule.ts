import type { Core } from '../control/core.ts'
import { HoldfastError } from '../model/errors.ts'
import type { LogRecord } from '../model/event.ts'
import { isTerminal, type Run, runStatuses } from '../model/run.ts'
import { changeSchedule, changeSignal, type Schedule, type ScheduleChange, scheduleWorkflowName } from '../model/schedule.ts'
import type { RunKey } from '../store/store.ts'

const pageSize = 200

/** A schedule with all requested changes, including those that its run has not read yet. Null if it does not exist. */
export async function readSchedule(core: Core, key: RunKey): Promise<Schedule | null> {
  // Read before the log: a change that moves there in between is seen twice, which is harmless, instead of never.
  const messages = await core.store.readInbox(key)
  const run = await core.store.readRun(key)
  if (run === null) return null
  if (run.workflow !== scheduleWorkflowName)
    throw new HoldfastError('conflict', `A schedule's run would be called "${run.id}", which is the id of a run of yours.`, {
      details: { runId: run.id },
    })
  if (isTerminal(run.status)) return null
  const records = await core.store.readLog({
    ...{ owner: run.owner, threadId: run.threadId, runId: run.id, afterSeq: run.inputSeq - 1 },
    types: ['run_queued', 'run_started', 'signal_received', 'child_started'],
  })
  const recorded = records.reduce<Schedule | null>((schedule, record) => follow(core, schedule, record), null)
  if (recorded === null) return null
  return messages
    .filter(({ kind, name, payload }) => kind === 'signal' && name === changeSignal && payload !== null)
    .map(({ payload }) => (core.codec.decode(payload!) as { value: ScheduleChange }).value)
    .reduce(changeSchedule, recorded)
}

/** What one record of its run says about the schedule. */
function follow(core: Core, schedule: Schedule | null, { type, step, payload }: LogRecord): Schedule | null {
  if (payload === null) return schedule
  const data = core.codec.decode(payload) as { input?: Schedule; result?: ScheduleChange; runId?: string }
  if (data.input !== undefined) return data.input
  if (schedule === null) return null
  if (type === 'signal_received' && step === changeSignal && data.result !== undefined)
    return changeSchedule(schedule, data.result)
  if (type !== 'child_started' || data.runId === undefined) return schedule
  return { ...schedule, lastTick: Date.parse(data.runId.slice(data.runId.lastIndexOf('@') + 1)) }
}

/** All schedules of an owner. */
export async function listSchedules(core: Core, owner: string): Promise<Schedule[]> {
  const found: Schedule[] = []
  let cursor: string | undefined
  do {
    const page: { items: readonly Run[]; cursor?: string } = await core.store.listRuns({
      ...{ owner, workflow: scheduleWorkflowName, limit: pageSize },
      statuses: runStatuses.filter((status) => !isTerminal(status)),
      ...(cursor !== undefined && { cursor }),
    })
    const schedules = await Promise.all(page.items.map(({ id }) => readSchedule(core, { owner, runId: id })))
    found.push(...schedules.filter((schedule) => schedule !== null))
    cursor = page.cursor
  } while (cursor !== undefined)
  return found
}
