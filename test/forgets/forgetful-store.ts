import type { Store } from 'holdfast'
import type { StoreDump } from '../crash/bed/store-dump.ts'
import type { WorkerOrder } from './worker.ts'

/** A store that forgets, with the connections of a client and of workers to it. */
export interface ForgetfulStore {
  readonly hasSql: boolean
  /** Before it acknowledges, it flushes nothing but the intents of effects. */
  readonly isRelaxed: boolean
  /** For the client. */
  openStore(): Promise<Store>
  startWorker(order: WorkerOrder): Promise<RunningWorker>
  /** Marks the present contents as kept. What is written from here on may be forgotten. */
  keep(): Promise<unknown>
  /** The store loses its last writes, and accepts no connection before `admit`. */
  forget(): Promise<void>
  /** Lets the client (0) or the n-th worker connect again. */
  admit(nth: number): void
  /** Everything in the store. */
  read(): Promise<KeptDump>
  stop(): Promise<void>
}

export interface RunningWorker {
  /** Closes it, and returns what went wrong. */
  close(): Promise<string[]>
  /** Ends it in whatever state it is. */
  kill(): void
}

export interface KeptDump extends StoreDump {
  readonly orders: readonly { readonly run: string; readonly round: number; readonly token: string }[]
}
