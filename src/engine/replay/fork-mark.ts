import type { Codec } from '../../model/codec.ts'
import type { LogRecord } from '../../model/event.ts'

/** What the run_paused at the end of a copied tape says, as `fork`: what comes before it was done by another run. */
export interface ForkMark {
  /** The checkpoint that the thread was forked from. */
  readonly from: string
  /** Results from this position on are there only if a call asks for them. */
  readonly optionalFrom?: number
}

/** The mark that a record is, if it is one. */
export function forkMarkOf({ type, payload }: LogRecord, codec: Codec): ForkMark | undefined {
  return type !== 'run_paused' || payload === null ? undefined : (codec.decode(payload) as { fork?: ForkMark }).fork
}
