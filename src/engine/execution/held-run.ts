import type { AnyWorkflow } from '../../define/workflow.ts'
import type { Codec } from '../../model/codec.ts'
import type { Logger } from '../../model/logger.ts'
import type { Claim, Store } from '../../store/store.ts'
import type { Engine } from '../engine.ts'
import type { TapePlace } from '../replay/section-around.ts'
import type { Tape } from '../replay/tape.ts'
import type { LeaseHistory } from '../writing/lease-history.ts'
import type { RunOrigin } from '../writing/run-origin.ts'

/** The run that is executed, as it was claimed and read, and what its process has for it. Nothing in it changes. */
export class HeldRun {
  readonly engine: Engine
  readonly store: Store
  readonly codec: Codec
  readonly log: Logger
  readonly claim: Claim
  /** What was acknowledged under the lease, here and in earlier executions. */
  readonly history: LeaseHistory
  readonly workflow: AnyWorkflow
  readonly tape: Tape
  /** What the run was started with besides its input. */
  readonly origin: RunOrigin
  /** A rollback can't go back further: to where the tape began. */
  readonly earliestSeq: number

  constructor(engine: Engine, options: HeldRunOptions) {
    this.engine = engine
    this.store = engine.store
    this.codec = engine.codec
    this.log = engine.log
    this.claim = options.claim
    this.history = options.history
    this.workflow = options.workflow
    this.tape = options.tape
    this.origin = options.origin
    this.earliestSeq = options.earliestSeq
  }

  get owner(): string {
    return this.claim.run.owner
  }

  get runId(): string {
    return this.claim.run.id
  }

  get threadId(): string {
    return this.claim.run.threadId
  }

  get place(): TapePlace {
    return { owner: this.owner, threadId: this.threadId, runId: this.runId, afterSeq: this.earliestSeq }
  }
}

export interface HeldRunOptions {
  readonly claim: Claim
  readonly history: LeaseHistory
  readonly workflow: AnyWorkflow
  readonly tape: Tape
  readonly origin: RunOrigin
  readonly earliestSeq: number
}
