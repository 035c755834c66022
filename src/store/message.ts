import type { Payload } from '../model/payload.ts'

export interface RunKey {
  readonly owner: string
  readonly runId: string
}

/** A message to a run. `kind` says what it is about: 'pause', 'cancel', 'rollback', 'signal', 'child', 'answer' and the like. */
export interface NewMessage extends RunKey {
  readonly kind: string
  readonly name: string | null
  readonly payload: Payload | null
}

/** A message that is put into the inbox by itself. */
export interface Delivery extends NewMessage {
  /** Of the messages to a run with the same one, the first is delivered. Kept as long as the run. */
  readonly dedupeId?: string
}

export interface Message extends NewMessage {
  readonly id: number
  readonly at: number
}
