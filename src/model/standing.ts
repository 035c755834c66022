import { codeOf } from './errors.ts'
import type { PauseReason, Run, WaitReason } from './run.ts'
import { sentence } from './sentence.ts'

/** Where a run stands, in words, and what takes it further: the same in errors and in the log. */
export function standingOf({ status, reason }: Pick<Run, 'status' | 'reason'>): { readonly is: string; readonly help: string } {
  if (status === 'paused' && reason !== null) return { is: `paused (${reason})`, help: helpForPause[reason as PauseReason] }
  if (status === 'waiting' && reason !== null) return { is: `waiting (${reason})`, help: helpForWait[reason as WaitReason] }
  if (status === 'pending') return { is: 'pending', help: 'A worker with its workflow executes it when it is due.' }
  return {
    is: status,
    help: status === 'running' ? 'It is executing, or has just begun to wait; check again later.' : '',
  }
}

/** What helps a run that failed of this; empty where the error says it itself. */
export function helpForFailure(error: Error | undefined): string {
  if (error?.message.includes('run.retry()')) return ''
  const code = codeOf(error)
  const isChildOver = (code === 'run_cancelled' || code === 'thread_deleted') && 'runId' in detailsOf(error)
  if (isChildOver) return helpForChildThatIsOver
  const caller = callerOfChildThatIsOver(error)
  if (caller !== undefined)
    return `A retry finds that child as it is: roll run "${caller}", which called it, back to before the call with rollback(checkpoint) and resume() it, then retry() this run.`
  if (error?.name === 'TypeError' && /read only property|not extensible|Cannot delete property/.test(error.message))
    return 'If it changed ctx.state, which is read-only: use ctx.update((draft) => …) instead, then run.retry() continues it where it failed.'
  return mistakesInCode.has(code)
    ? 'Fix it, then run.retry() continues it where it failed.'
    : 'run.retry() continues it where it failed.'
}

/** The run further down that failed of a child that was cancelled or deleted. */
function callerOfChildThatIsOver(error: Error | undefined): string | undefined {
  let caller: unknown
  let one: unknown = error
  while (codeOf(one) === 'run_failed') {
    caller = (detailsOf(one) as { runId?: unknown }).runId
    one = (one as Error).cause
  }
  const isOver = codeOf(one) === 'run_cancelled' || codeOf(one) === 'thread_deleted'
  return isOver && typeof caller === 'string' ? caller : undefined
}

const helpForChildThatIsOver =
  'A retry finds that child as it is: to start another, roll the run back to before the call with run.rollback(checkpoint), then run.resume().'

const mistakesInCode: ReadonlySet<string | undefined> = new Set([
  'invalid_input',
  'invalid_id',
  'nested_call',
  'value_not_storable',
])

function detailsOf(error: unknown): object {
  return (error as { details?: object } | undefined)?.details ?? {}
}

export const helpForPause: Readonly<Record<PauseReason, string>> = {
  asked: 'run.resume() continues it.',
  retries: 'run.resume() gives its step fresh attempts; run.cancel() ends it.',
  budget: 'run.resume({ budget }) continues it with higher limits; run.cancel() ends it.',
  undo: 'run.resume() retries the undo; run.cancel({ undo: false }) ends it without undoing.',
  poisoned: 'Find out why, then run.resume() continues it with a new count; run.cancel() ends it.',
  mismatch:
    'Fix the code, then run.resume() continues it; run.rollback(checkpoint) rolls it back; run.cancel() ends it if its undos can be found, run.cancel({ undo: false }) without undoing.',
}

const helpForWait: Readonly<Record<WaitReason, string>> = {
  timer: 'It continues when its timer is due.',
  retry: 'It continues with its next attempt.',
  signal: 'hf.signal(runId, name, value) sends what it waits for.',
  person: 'hf.inbox() lists what it asks for; hf.answer or hf.resolve continues it.',
  child: 'It continues when its child has ended.',
  effect: 'It continues when the run that is carrying out the effect is done with it.',
}

/** What stopped or failed a run, and what takes it further, said once: most errors that pause a run say the latter themselves. */
export function whyAndHelp(error: Error | undefined, reason: string | null | undefined, help: string): string {
  const why = sentence(error?.message ?? 'no reason is recorded')
  const code = codeOf(error)
  const isSaid =
    error !== undefined &&
    (reason === 'budget' ||
      reason === 'undo' ||
      (reason === 'mismatch' && code === 'nondeterminism') ||
      (reason === 'poisoned' && code === 'worker_died'))
  return isSaid || help === '' ? why : `${why} ${help}`
}

export function helpForUnsureEffect(key: string): string {
  const resolve = `hf.resolve(${JSON.stringify(key)}`
  return `Find out whether it happened, then call ${resolve}, { happened: true, result: <what the effect returns> }), or ${resolve}, { happened: false }) to send it again.`
}
