import { HoldfastError } from '../model/errors.ts'
import { checkStepName } from '../model/ids.ts'
import type { RunKey } from '../store/store.ts'
import { readRun } from './control-run.ts'
import type { Core } from './core.ts'

/** Sends a signal to a run. It is kept until the run asks for it. */
export async function signalRun(core: Core, key: RunKey, name: string, value: unknown): Promise<void> {
  checkStepName(name)
  const payload = value === undefined ? null : core.codec.encode({ value })
  const answer = await core.store.deliver({ ...key, kind: 'signal', name, payload })
  if (answer.ok) return core.wakeWorker()
  // Says that there is no such run, where there is none.
  const run = await readRun(core, key)
  throw new HoldfastError('conflict', `Run "${run.id}" is ${run.status}: signal "${name}" would reach nobody and was not sent.`, {
    details: { runId: run.id, status: run.status },
  })
}
