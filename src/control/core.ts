import type { ArtifactParts } from '../artifacts/artifacts-parts.ts'
import type { Registry } from '../define/workflow.ts'
import type { OpenQuestions } from '../engine/waiting/open-questions.ts'
import type { Committer } from '../engine/writing/committer.ts'
import type { Embedder } from '../memory/embedder.ts'
import type { Codec } from '../model/codec.ts'
import type { Logger } from '../model/logger.ts'
import type { Store } from '../store/store.ts'
import type { RunWaiters } from './run-waiters.ts'

/** What every call of a client shares, whichever owner it is bound to. */
export interface Core {
  readonly store: Store
  readonly committer: Committer
  readonly codec: Codec
  readonly registry: Registry
  readonly waiters: RunWaiters
  readonly log: Logger
  readonly questions: OpenQuestions
  readonly hasWorker: boolean
  /** Absent: facts are recalled by their words alone. */
  readonly embedder?: Embedder | undefined
  readonly artifacts: ArtifactParts
  /** The store's time. */
  now(): Promise<number>
  /** Ends the worker's sleep, because something may be due. */
  wakeWorker(): void
}
