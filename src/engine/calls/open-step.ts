import type { OpenStep } from '../../define/context.ts'
import { tagSource } from '../../define/failure-source.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { NewEvent } from '../../model/event.ts'
import type { CallHost } from '../execution/call-host.ts'
import type { Outcome } from '../replay/tape.ts'
import type { Call } from './calls.ts'
import { failureEvent } from './failure-policy.ts'
import { resultOf } from './recorded-result.ts'
import { deathOf, isOwnDeath, refuseDeadly } from './step-deaths.ts'

/** `ctx.begin`: a step that the function begins, and ends itself. What is called in between is recorded for itself. */
export function beginStep<T>(host: CallHost, call: Call): Promise<OpenStep<T>> {
  const onTape = call.history?.outcome
  // Not awaited here: on a replay the function continues as early, to the microtask, as it did then.
  if (onTape === undefined) return beginNew(host, call)
  return onTape.isFailure ? beginFailed(host, call, onTape) : beginCompleted(host, call)
}

async function beginNew<T>(host: CallHost, call: Call): Promise<OpenStep<T>> {
  const { admission, journal, activity } = host
  // It began before, and what the function asks for next may be on the tape: it is not kept waiting, as it was not the first time.
  const hasBegun = call.history !== undefined
  const isUnderWay = call.history?.isRunning === true && deathOf(host, call) === null
  const isOpenAtOnce = isUnderWay || admission.isOpen
  if (!isOpenAtOnce) {
    await admission.begun(call)
    const isInside = hasBegun && !admission.isLive && admission.recordsInside(call)
    if (!isInside) await (hasBegun ? admission.passInto(call) : admission.pass(call))
  }
  // Where it encloses what is on the tape the function has to come to that, and it is not failed as a whole.
  if (admission.isLive && deathOf(host, call) !== null) await refuseDeadly(host, call)
  const attempt = (call.history?.failures ?? 0) + 1
  const started = performance.now()
  const isFirst = journal.mustRecordStarts && admission.isLive
  journal.defer(journal.event('step_started', call, { attempt, ...(isFirst && { data: { isFirst } }) }))
  activity.beginOpen(call)
  if (isFirst) await journal.commit([], {})
  else if (journal.mustRecordStarts) journal.commit([], {}).catch(() => {})
  if (isOpenAtOnce && !isFirst) await admission.begun(call)
  return open(host, call, attempt, started)
}

/** On the tape it failed. */
async function beginFailed<T>(host: CallHost, call: Call, onTape: Outcome): Promise<OpenStep<T>> {
  const { admission } = host
  // It was not begun that time, and must not be now.
  if (isOwnDeath(host, call, onTape)) return resultOf(host, call, await admission.recorded(call, { showsState: false }))
  await admission.begun(call)
  if (admission.recordsInside(call)) return failAgain(host, call, admission.recordedFailureAhead(call))
  const { outcome, isThrown } = await admission.recordedFailure(call)
  // Thrown where the function threw it, once `fail` had returned.
  if (isThrown) return resultOf(host, call, outcome)
  return failAgain(host, call, outcome)
}

/** On the tape it has its result. */
async function beginCompleted<T>(host: CallHost, call: Call): Promise<OpenStep<T>> {
  const { admission } = host
  const outcome = admission.recordedAtOnce(call)
  const recorded = resultOf<T>(host, call, outcome)
  let isComplete = false
  const complete = async (): Promise<T> => {
    if (isComplete) await refuse(host, call)
    isComplete = true
    await admission.turnOf(outcome)
    return recorded
  }
  await admission.begun(call)
  return { recorded, complete, fail: () => refuse(host, call) }
}

function open<T>(host: CallHost, call: Call, attempt: number, started: number): OpenStep<T> {
  const { admission, journal, activity } = host
  let isOpen = true
  const close = async (event: NewEvent): Promise<void> => {
    if (!isOpen) await refuse(host, call)
    isOpen = false
    try {
      if (!admission.isLive) await admission.untilLive(call)
      // A replay hands it out where it began: what it shows of the state is what was shown before.
      await journal.commitResult([event], { showsState: false })
    } finally {
      activity.endOpen(call)
    }
  }
  const elapsed = () => Math.round(performance.now() - started)
  return {
    complete: async (value) => {
      const data = value === undefined ? {} : { data: { result: value } }
      await close(journal.event('step_completed', call, { attempt, durationMs: elapsed(), ...data }))
      return value
    },
    fail: async (error) => {
      await close(failureEvent(host, call, { error, final: true, next: 'throw' }, attempt, elapsed()))
      // Thrown on by the function, it is this failure that failed the run.
      if (error instanceof Error) tagSource(error, [call.key])
    },
  }
}

/** A begun step that failed, with calls between its halves: the function comes to them again, and then to its failure. */
function failAgain<T>(host: CallHost, call: Call, outcome: Outcome): OpenStep<T> {
  const { admission, activity } = host
  activity.beginOpen(call)
  let isOpen = true
  const close = async (): Promise<void> => {
    if (!isOpen) await refuse(host, call)
    isOpen = false
    try {
      await admission.turnOf(outcome)
    } finally {
      activity.endOpen(call)
    }
  }
  return {
    complete: async () => {
      await close()
      return resultOf<T>(host, call, outcome)
    },
    fail: async (error) => {
      await close()
      if (error instanceof Error) tagSource(error, [call.key])
    },
  }
}

async function refuse({ run }: CallHost, call: Call): Promise<never> {
  throw new HoldfastError('conflict', `Step "${call.path}" of run "${run.runId}" is recorded already.`)
}
