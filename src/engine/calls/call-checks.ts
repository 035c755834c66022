import type { StepOptions } from '../../define/context.ts'
import { HoldfastError } from '../../model/errors.ts'
import { type KnownOptions, refuseUnknownOptions } from '../../model/known-options.ts'
import type { Call } from './calls.ts'

/** A call that is on the tape was accepted before, by whatever rules there were. */
export function checkOptions(call: Call, what: string, given: unknown, known: KnownOptions): void {
  if (call.history === undefined) refuseUnknownOptions(what, given, known)
}

export function checkStepOptions(
  call: Call,
  what: string,
  given: Pick<StepOptions<never>, 'onFailure' | 'kind'>,
  known: KnownOptions,
): void {
  if (call.history !== undefined) return
  refuseUnknownOptions(what, given, known)
  const { onFailure, kind } = given
  const refuse = (name: string, value: unknown, must: string): never => {
    throw new HoldfastError('invalid_input', `${name} of ${what} is ${JSON.stringify(value)}; it must be ${must}.`)
  }
  if (onFailure !== undefined && onFailure !== 'fail' && onFailure !== 'skip' && onFailure !== 'pause')
    refuse('onFailure', onFailure, "'fail', 'skip' or 'pause'")
  if (kind !== undefined && kind !== 'model' && kind !== 'tool') refuse('kind', kind, "'model' or 'tool'")
}

export function requireFunction(given: unknown, what: string, name: string): void {
  if (typeof given !== 'function')
    throw new HoldfastError('invalid_input', `${what} "${name}" needs a function, not ${typeof given}.`)
}

export function checkReserved(amount: number | { readonly cost?: number; readonly tokens?: number }): void {
  const { cost = 0, tokens = 0 } = typeof amount === 'number' ? { cost: amount } : (amount ?? {})
  if (cost >= 0 && tokens >= 0 && Number.isFinite(cost + tokens)) return
  throw new HoldfastError(
    'invalid_input',
    `ctx.reserve takes a cost, or { cost, tokens }, from 0; not ${JSON.stringify(amount)}.`,
  )
}
