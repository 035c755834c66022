import type { CallHost } from '../execution/call-host.ts'
import { callKey } from '../replay/call-key.ts'

/** The recorded value of a call that returns at once, or a new one. It is written with the next commit: until something durable depends on it, it may differ after a crash. */
export function recordedValue<T>({ admission, journal, run }: CallHost, name: string, make: () => T): T {
  if (admission.comesToNothing(name)) return make()
  const call = admission.enter('value', name, true)
  const key = callKey('value', call.path, call.count)
  if (run.tape.values.has(key)) return run.tape.values.get(key) as T
  const value = make()
  if (!admission.hasEnded && !call.within?.isOver) journal.defer(journal.event('value_recorded', call, { data: { value } }))
  return value
}
