import type { NewEvent } from '../../model/event.ts'
import type { KeyedRecord, RecordChange } from '../../model/record.ts'

/** Records that are written with a result. */
export interface RecordWrites {
  readonly isEmpty: boolean
  /** Another client may be first: the change is then made again, and nothing later of the run may be sent before it. */
  readonly isContested: boolean
  /** They need no commit of their own. */
  readonly canWait: boolean
  /** Reads what they are computed from. */
  prepare(): Promise<void>
  readonly records: readonly RecordChange[]
  /** What the log says about them, before the result. */
  readonly events: readonly NewEvent[]
  /** All of them again, after one was refused, which is now this; null where it is gone. */
  recordsAfter(found: KeyedRecord | null): Promise<readonly RecordChange[]>
  /** A contested write has been answered, or given up. */
  answered?(): void
}
