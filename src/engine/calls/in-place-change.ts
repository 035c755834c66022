import { HoldfastError } from '../../model/errors.ts'
import type { CallHost } from '../execution/call-host.ts'

/** What V8 says of an assignment to a frozen object, and what it names: a key that is there, or one that would be new. */
const refusals =
  /^Cannot (?:(?:assign to read only|delete) property '([\s\S]*)' of |add property ([\s\S]*), object is not extensible)/

/** How much of a state is looked through. */
const mostObjects = 10_000

/**
 * The error of a function that changed its state in place, which says what to do instead. A frozen object throws a TypeError of the
 * language's own, which does not say whose object it was: any other error, and one that does not fit the state, is returned as it is.
 */
export function explainInPlaceChange(host: CallHost, step: string | null, error: unknown): unknown {
  try {
    return explained(host, step, error)
  } catch {
    // User code throws anything, also what throws when it is looked at.
    return error
  }
}

function explained(host: CallHost, step: string | null, error: unknown): unknown {
  if (!(error instanceof TypeError)) return error
  const [, there, added] = refusals.exec(error.message) ?? []
  if (there === undefined && added === undefined) return error
  const fits = (value: object) => {
    if (there !== undefined) return Object.hasOwn(value, there)
    return Array.isArray(value) ? value.length === Number(added) : !Object.hasOwn(value, String(added))
  }
  if (!someObject(stateOf(host), fits)) return error
  const { runId } = host.run
  return new HoldfastError(
    'invalid_input',
    `${step === null ? 'Run' : `"${step}" of run`} "${runId}" changed something in place that is read-only: ${error.message}. ` +
      'The state is: use ctx.update((draft) => …) instead, or step.update in a step. structuredClone(ctx.state) is a copy to change.',
    { cause: error, details: { runId, ...(step !== null && { step }) } },
  )
}

function stateOf({ state }: CallHost): unknown {
  try {
    return state.view.state
  } catch {
    return undefined
  }
}

function someObject(root: unknown, fits: (value: object) => boolean): boolean {
  const left: unknown[] = [root]
  for (let seen = 0; left.length > 0 && seen < mostObjects; seen++) {
    const value = left.pop()
    if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) continue
    if (Object.isFrozen(value) && fits(value)) return true
    for (const one of value instanceof Map ? value.values() : Object.values(value)) if (typeof one === 'object') left.push(one)
  }
  return false
}
