import type { Fault, PlannedAct } from './acts.ts'
import type { StoreName } from './grounds.ts'
import type { Program } from './program.ts'

/** Everything that one try consists of. A seed gives one case. */
export interface Case {
  readonly seed: number
  readonly store: StoreName
  readonly program: Program
  readonly acts: readonly PlannedAct[]
  readonly faults: readonly Fault[]
  /** The second client has a worker too. */
  readonly hasSecondWorker: boolean
  /** How often the run is retried when it has failed. */
  readonly retries: number
  /** Somebody is told of what happens. */
  readonly notifies: boolean
}
