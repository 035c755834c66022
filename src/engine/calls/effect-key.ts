import type { EffectOptions } from '../../define/context.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { Operation } from '../../model/operation.ts'
import { restoreAdvice } from '../../model/restore-advice.ts'
import type { CallHost } from '../execution/call-host.ts'
import { never } from '../execution/never.ts'
import { askPatiently } from './ask-patiently.ts'
import type { Call } from './calls.ts'

/** How often a run in memory looks whether another run or a person has closed the operation it waits for. */
export const lookAgainMs = 500

const lookAgain = { inMs: lookAgainMs, reason: 'timer' } as const

/** After a rollback: the key under which the effect has happened, or may have, and was not undone. It is not sent again under another. */
export async function standingKey(host: CallHost, call: Call): Promise<string | undefined> {
  for (const key of host.calls.namesBefore(call)) {
    const operation = await readOperation(host, call, key)
    if (operation !== null && operation.status !== 'failed' && operation.status !== 'undone') return key
  }
  return undefined
}

/** Whether the effect is on record, begun or done, under another key than the function gives now. */
export function hasOtherKey({ calls }: CallHost, call: Call, key: string, options: Pick<EffectOptions<unknown>, 'key'>): boolean {
  const { history } = call
  const isFree = history?.outcome === undefined && (history?.effect === undefined || history.effect === 'not_happened')
  // What another run sent has the key that that one gave, which may be made of its id.
  if (isFree || history?.key === undefined || history.isCopied === true) return false
  if (options.key !== undefined) return key !== history.key
  // A default one is what is on record, unless that was given by the function.
  return !calls.isDefaultName(call, key)
}

export function pauseOnOtherKey(host: CallHost, call: Call, key: string): Promise<never> {
  const recorded = call.history?.key
  const { runId } = host.run
  const given = key === recorded ? 'none' : `"${key}"`
  host.stopping.mismatch(
    new HoldfastError(
      'nondeterminism',
      `Effect "${call.path}" (call ${call.count}) of run "${runId}" was recorded with key "${recorded}"; the function gives ${given} now. ` +
        `A key must be the same at every replay: make it of the input or of recorded results. ${restoreAdvice(host.run.workflow)}`,
      { details: { runId, step: call.path, recorded: [recorded], asked: [key === recorded ? null : key] } },
    ),
  )
  return never()
}

/** An intent that may be lost with the machine: an effect that has neither `check` nor `idempotent` could be sent twice. */
export function refuseWhereIntentsGetLost(
  { run: { store, runId } }: CallHost,
  call: Call,
  options: Pick<EffectOptions<unknown>, 'check' | 'idempotent'>,
): void {
  if (store.keepsIntents !== false || options.check !== undefined || options.idempotent === true) return
  throw new HoldfastError(
    'durability_too_weak',
    `Effect "${call.path}" of run "${runId}" has neither check nor idempotent, and this ${store.kind} store may lose its intent with the machine. ` +
      'Give it one of them, or open a store that flushes every write (Redis: appendonly yes, appendfsync always).',
    { details: { runId, step: call.path } },
  )
}

/** A store out of reach is waited for: it is no failure of the effect. */
export async function readOperation(host: CallHost, call: Call, key: string): Promise<Operation | null> {
  return askPatiently(host, call, () => host.run.store.readOperation({ owner: host.run.owner, key }), lookAgain)
}

/** The key belongs to an effect of another name. */
export function otherName({ run }: CallHost, call: Call, { key, name, runId }: Operation): HoldfastError {
  return new HoldfastError(
    'input_mismatch',
    `Operation key "${key}" belongs to effect "${name}" of run "${runId}"; effect "${call.path}" of run ` +
      `"${run.runId}" can't use it. Give each effect a different key.`,
    { details: { key, effect: name, runId } },
  )
}
