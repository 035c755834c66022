import type { Codec } from '../model/codec.ts'
import type { Payload } from '../model/payload.ts'
import type { Budget } from '../model/usage.ts'

/** What a run is started with besides its input; it stands beside it in the payload of run_queued and of run_started. */
export interface RunOrigin {
  /** The run that started it and waits for it. */
  readonly parent?: string
  /** Its limits, where they are not those of its workflow. */
  readonly budget?: Budget
}

/** A run's input and origin, from the payload that a claim brings. */
export function readOrigin(codec: Codec, payload: Payload): { readonly input: unknown; readonly origin: RunOrigin } {
  const { input, parent, budget } = codec.decode(payload) as { input?: unknown } & RunOrigin
  return { input, origin: { ...(parent !== undefined && { parent }), ...(budget !== undefined && { budget }) } }
}
