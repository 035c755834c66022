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

/** Creates a schedule. False if it was created in between. */
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
  // It was cancelled or failed: delete it, to make room for the new one.
  if (!isNew && isTerminal(run.status)) await core.store.deleteThread({ owner, threadId: run.threadId, at: await core.now() })
  return isNew
}

/** Sends a change to a schedule's run. False if it no longer exists. */
export async function sendChange(core: Core, key: RunKey, change: ScheduleChange): Promise<boolean> {
  const payload = core.codec.encode({ value: change })
  const answer = await core.store.deliver({ ...key, kind: 'signal', name: changeSignal, payload })
  if (answer.ok) core.wakeWorker()
  return answer.ok
}

/** Starts the run of a tick, unless it exists. */
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
  invariant(created !== undefined, `the store did not return the outcome of starting run "${run.id}"`)
  if (created.isNew) core.wakeWorker()
  return created
}
