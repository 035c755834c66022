import type { AnyWorkflow } from '../../index.ts'
import type { Store } from '../../store/store.ts'
import type { ProcessTimes } from './explored-process.ts'

/** The id of the run in every case: keys that come of it are the same in all of them. */
export const runId = 'explored'

/** What all cases have in common. */
export interface Setup {
  readonly createStore: (options: {
    readonly clockOffsetMs: () => number
  }) => Promise<{ store: Store; close: () => Promise<void> }>
  readonly world: () => unknown
  readonly workflow: (world: never) => AnyWorkflow
  readonly workflows: (world: never) => readonly AnyWorkflow[]
  readonly input: (world: never) => unknown
  readonly answers: Readonly<Record<string, unknown>>
  readonly signals: Readonly<Record<string, unknown>>
  readonly unsure: 'truth' | 'happened' | 'not' | 'ask'
  readonly cancels: boolean
  readonly times: ProcessTimes
  /** How long nothing may happen in a case, in ms of real time, before it counts as stuck. */
  readonly stuckMs: number
}
