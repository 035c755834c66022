import type { CallHost } from '../execution/call-host.ts'
import { never } from '../execution/never.ts'
import type { Call } from './calls.ts'

/** `ctx.continueAs`: the run starts its next tape with another input. Does not return. */
export async function continueAs(host: CallHost, call: Call, input: unknown): Promise<never> {
  const { admission, activity, stopping } = host
  const { name, options } = host.run.workflow
  const checked =
    options.input === undefined ? input : await activity.validate(options.input, input, `The input of workflow "${name}"`)
  if (!admission.isOpen) await admission.pass(call)
  await activity.endNamed()
  // It may have been told to stop meanwhile.
  if (!admission.isOpen) await admission.pass(call)
  await stopping.continueWith(checked)
  return never()
}
