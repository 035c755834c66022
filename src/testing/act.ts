import type { Change } from '../store/change.ts'
import type { Store } from '../store/store.ts'

/** Which of the stores a change is made for, the first being the reference: lease ids and message ids differ. */
export type Side = number

/** One for each store. */
export type BySide<Value> = readonly Value[]

/** One act of the contract, performed on all stores. */
export interface Act {
  readonly kind: string
  /** For the trace of a failure. */
  readonly what: unknown
  perform(store: Store, side: Side): Promise<unknown>
  /** Takes what was learned from the answers, before they are compared. */
  settle?(answers: BySide<unknown>): void
}

export type SidedChange = (side: Side) => Change
