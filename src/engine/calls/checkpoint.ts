import { checkId } from '../../model/ids.ts'
import type { CallHost } from '../execution/call-host.ts'
import type { Call } from './calls.ts'

/** `ctx.checkpoint`: everything before it is durable when it returns, and can be gone back to by its label. */
export async function recordCheckpoint({ admission, journal }: CallHost, call: Call, label: string | undefined): Promise<void> {
  if (label !== undefined) checkId('checkpoint label', label)
  if (call.history?.outcome !== undefined) return void (await admission.recorded(call))
  if (!admission.isOpen) await admission.pass(call)
  const event = journal.event('value_recorded', call, label === undefined ? {} : { data: { label } })
  await journal.commitResult([event], { isCheckpoint: true, ...(label !== undefined && { label }) })
}
