import type { Clock } from './clock.ts'
import type { Connections, Statement } from './connections.ts'
import type { Leases } from './leases.ts'
import type { Watch } from './watch.ts'
import type { Writes } from './writes.ts'

/** What the acts of one open store share. */
export interface StoreParts {
  readonly connections: Connections
  readonly writes: Writes
  readonly watch: Watch
  readonly clock: Clock
  readonly leases: Leases
  /** SQL of this folder, for the store's schema. */
  readonly prepare: (sql: string) => Statement
  /** Every write waits for the flush; otherwise those that must. */
  readonly isFull: boolean
}
