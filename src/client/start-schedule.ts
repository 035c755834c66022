import type { Core } from '../control/core.ts'
import { newRun } from '../engine/writing/new-run.ts'
import type { RunOrigin } from '../engine/writing/run-origin.ts'
import { invariant } from '../model/errors.ts'
import { internalQueue } from '../model/internal.ts'
import { isTerminal, type Run } from '../model/run.ts'
import { changeSignal, type Schedule, type ScheduleChange, scheduleWorkflowName, shownSettings } from '../model/schedule.ts'
import type { NewRun } from '../store/change.ts'
import type { RunKey } from '../store/store.ts'
import { refusedStart, startChange } from './start-run.ts'

/** Begins a schedule. False if somebody else was faster. */
export async function createSchedule(core: Core, key: RunKey, schedule: Schedule): Promise<boolean> {
  const { owner, runId: id } = key
  const { run, isNew } = await create(
    core,
    schedule,
    {},
    {
      ...{ owner, id, workflow: scheduleWorkflowName, version: 1, queue: internalQueue, priority: 0 },
    },
  )
  // It was cancelled or failed: its place is made free.
  if (!isNew && isTerminal(run.status)) await core.store.deleteThread({ owner, threadId: run.threadId, at: await core.now() })
  return isNew
}

/** Tells a schedule's run of a change. False if there is none any more. */
export async function sendChange(core: Core, key: RunKey, change: ScheduleChange): Promise<boolean> {
  const payload = core.codec.encode({ value: change })
  const answer = await core.store.deliver({ ...key, kind: 'signal', name: changeSignal, payload })
  if (answer.ok) core.wakeWorker()
  return answer.ok
}

/** Starts a run of what the schedule is for, if it is not there. */
export async function startScheduled(
  core: Core,
  owner: string,
  schedule: Schedule,
  { id, at }: { readonly id: string; readonly at: number },
): Promise<{ readonly run: Run; readonly isNew: boolean }> {
  const { workflow, version, queue, priority, input, unchecked } = shownSettings(schedule)
  return create(
    core,
    input,
    { scheduledAt: at, ...(unchecked && { unchecked }) },
    { owner, id, workflow, version, queue, priority },
  )
}

async function create(
  core: Core,
  input: unknown,
  origin: RunOrigin,
  made: Pick<NewRun, 'owner' | 'id' | 'workflow' | 'version' | 'queue' | 'priority'>,
): Promise<{ readonly run: Run; readonly isNew: boolean }> {
  const run = newRun(core.codec, input, origin, {
    ...{ ...made, threadId: made.id, due: { inMs: 0 }, ifBusy: 'queue', at: await core.now() },
  })
  await core.committer.room()
  const answer = await core.committer.commit(startChange(run))
  if (!answer.ok) throw await refusedStart(core, answer.refusal, run)
  const created = answer.created[0]
  invariant(created !== undefined, `the store does not say what became of run "${run.id}"`)
  if (created.isNew) core.wakeWorker()
  return created
}
