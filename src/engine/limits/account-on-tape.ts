import type { Budget } from '../../model/usage.ts'
import type { CallKey } from '../replay/call-key.ts'
import { pathOf } from '../replay/call-key.ts'
import type { Tape } from '../replay/tape.ts'

/** What the calls on a tape say about the run's account. */
export interface AccountOnTape {
  /** Steps, effects and children that were begun. */
  readonly steps: number
  /** How often each step was called with each input. */
  readonly repeats: Map<string, number> | undefined
  /** What children that have not ended were given. */
  readonly grants: Map<CallKey, Budget> | undefined
}

const nothing: AccountOnTape = { steps: 0, repeats: undefined, grants: undefined }

export function readAccount({ calls }: Tape): AccountOnTape {
  if (calls.size === 0) return nothing
  let repeats: Map<string, number> | undefined
  let grants: Map<CallKey, Budget> | undefined
  let steps = 0
  calls.forEach(({ inputFingerprint, begun, outcome }, key) => {
    const isStep = key.startsWith('step:')
    if (isStep || key.startsWith('effect:') || key.startsWith('child:')) steps++
    if (isStep && inputFingerprint !== undefined) {
      const repeat = repeatKey(pathOf(key), inputFingerprint)
      repeats ??= new Map()
      repeats.set(repeat, (repeats.get(repeat) ?? 0) + 1)
    }
    if (begun === undefined || outcome !== undefined) return
    const { budget } = begun.data as { budget?: Budget }
    if (budget === undefined) return
    grants ??= new Map()
    grants.set(key, budget)
  })
  return { steps, repeats, grants }
}

/** A step with one input. */
export function repeatKey(path: string, inputFingerprint: string): string {
  return `${path} ${inputFingerprint}`
}
