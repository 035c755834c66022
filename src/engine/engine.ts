import type { ArtifactParts } from '../artifacts/artifacts-parts.ts'
import type { Registry } from '../define/workflow.ts'
import type { Embedder } from '../memory/embedder.ts'
import type { Codec } from '../model/codec.ts'
import type { Logger } from '../model/logger.ts'
import type { Store } from '../store/store.ts'
import type { HeadStateCache } from './state/head-state-cache.ts'
import type { RunControl } from './undo/open-dependents.ts'
import type { OpenQuestions } from './waiting/open-questions.ts'
import type { QuietTimes } from './waiting/quiet-times.ts'
import type { Committer } from './writing/committer.ts'
import type { Outbox } from './writing/outbox.ts'
import type { Sendings } from './writing/sendings.ts'

/** What executing a run needs besides the run. */
export interface Engine {
  readonly store: Store
  readonly committer: Committer
  readonly codec: Codec
  readonly cache: HeadStateCache
  readonly log: Logger
  readonly leaseMs: number
  /** As in WorkerOptions. Absent: the defaults. */
  readonly longWaitMs?: number | undefined
  readonly mismatchMs?: number | undefined
  readonly control: RunControl
  readonly questions: OpenQuestions
  /** The workflows that this process can execute. */
  readonly registry: Registry
  /** Absent: there is no target to tell about runs. */
  readonly outbox?: Outbox
  /** Ends the worker's sleep: something may be due. */
  readonly wakeWorker: () => void
  readonly quietTimes: QuietTimes
  /** Absent: facts are recalled by their words alone. */
  readonly embedder?: Embedder | undefined
  readonly artifacts: ArtifactParts
  /** What the process sends, for other executions as well. */
  readonly sendings: Sendings
}
