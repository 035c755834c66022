import type { Codec } from '../../model/codec.ts'
import type { Payload } from '../../model/payload.ts'
import type { Budget } from '../../model/usage.ts'

/** What a run is started with besides its input; it stands beside it in the payload of run_queued and of run_started. */
export interface RunOrigin {
  /** The run that started it and waits for it. */
  readonly parent?: string
  /** The run that started it and does not wait for it. */
  readonly startedBy?: string
  /** The checkpoint that its thread was forked from, inside the run of which it is a copy. */
  readonly forkedFrom?: string
  /** Its limits, where they are not those of its workflow. */
  readonly budget?: Budget
  /** The tick of the schedule that started it, in ms. */
  readonly scheduledAt?: number
  /** The process that started it did not have its workflow: the input is checked by the first worker that claims it. */
  readonly unchecked?: boolean
}

/** A run's input and origin, from the payload that a claim brings. */
export function readOrigin(codec: Codec, payload: Payload): { readonly input: unknown; readonly origin: RunOrigin } {
  const { input, parent, startedBy, budget, scheduledAt, forkedFrom, unchecked } = codec.decode(payload) as {
    input?: unknown
  } & RunOrigin
  const origin = {
    ...(parent !== undefined && { parent }),
    ...(startedBy !== undefined && { startedBy }),
    ...(forkedFrom !== undefined && { forkedFrom }),
    ...(budget !== undefined && { budget }),
    ...(scheduledAt !== undefined && { scheduledAt }),
    ...(unchecked !== undefined && { unchecked }),
  }
  return { input, origin }
}
