import { readRun } from '../control/control-run.ts'
import type { Core } from '../control/core.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId, checkStepName } from '../model/ids.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'
import type { RunKey } from '../store/store.ts'

export interface SignalOptions {
  /**
   * Of several signals to a run with the same id only the first is delivered, whatever their names and values. Use it when the sender may
   * retry.
   */
  readonly id?: string
}

const signalOptionNames: OptionNames<SignalOptions> = { id: true }

/** Sends a signal to a run. It is kept until the run waits for it. */
export async function signalRun(
  core: Core,
  key: RunKey,
  name: string,
  value: unknown,
  options: SignalOptions = {},
): Promise<void> {
  checkStepName(name)
  refuseUnknownOptions('hf.signal', options, signalOptionNames)
  const dedupeId = options.id === undefined ? undefined : checkId('signal id', options.id)
  const payload = value === undefined ? null : core.codec.encode({ value })
  await core.waiters.watchesBegun(key)
  const answer = await core.store.deliver({
    ...{ ...key, kind: 'signal', name, payload },
    ...(dedupeId !== undefined && { dedupeId }),
  })
  if (answer.ok) return core.wakeWorker()
  // Throws `run_not_found` if the run does not exist.
  const run = await readRun(core, key)
  throw new HoldfastError('conflict', `Run "${run.id}" is ${run.status}: signal "${name}" was not sent.`, {
    details: { runId: run.id, status: run.status },
  })
}
