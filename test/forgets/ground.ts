import type { Store } from 'holdfast'
import type { StoreDump } from '../crash/store-dump.ts'
import type { WorkerOrder } from './worker.ts'

/** A store that forgets, and the ways of a client and of workers to it. */
export interface Ground {
  readonly hasSql: boolean
  /** It flushes nothing but the intents of effects before it acknowledges. */
  readonly isRelaxed: boolean
  /** For the client. */
  openStore(): Promise<Store>
  startWorker(order: WorkerOrder): Promise<RunningWorker>
  /** The store will be as it is now. What is written from here on may be forgotten. */
  keep(): Promise<unknown>
  /** The store loses its last writes. Nobody is let in before `admit`. */
  forget(): Promise<void>
  /** Lets the client in again (0), or the nth worker. */
  admit(nth: number): void
  /** All that the store has. */
  read(): Promise<KeptDump>
  stop(): Promise<void>
}

export interface RunningWorker {
  /** Closes it and says what was wrong with that. */
  close(): Promise<string[]>
  /** Ends it in whatever state it is. */
  kill(): void
}

export interface KeptDump extends StoreDump {
  readonly orders: readonly { readonly run: string; readonly round: number; readonly token: string }[]
}
