import { codeOf } from '../../model/errors.ts'
import type { CallHost } from '../execution/call-host.ts'
import type { Wait } from '../waiting/waits.ts'
import { isOutage } from '../writing/committer.ts'
import type { Call } from './calls.ts'

/** Asks the store, or another run through it. A store out of reach is waited for: it is no failure of the call. */
export async function askPatiently<Answer>(
  host: CallHost,
  call: Call,
  ask: () => Promise<Answer>,
  again: { readonly inMs: number; readonly reason: Wait['reason'] },
): Promise<Answer> {
  for (;;) {
    const asking = ask().then(
      (answer) => ({ answer }),
      (error: unknown) => {
        // What may have been done is looked at and, where it was not, done again.
        if (!isOutage(error) && codeOf(error) !== 'outcome_unknown') throw error
        return null
      },
    )
    const answered = await host.activity.working(asking)
    if (answered !== null) return answered.answer
    await host.suspension.park({ dueAt: host.clock.now() + again.inMs, reason: again.reason })
    if (!host.admission.isOpen) await host.admission.pass(call)
  }
}
