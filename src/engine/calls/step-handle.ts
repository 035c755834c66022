import type { StepHandle } from '../../define/context.ts'
import { checkUsage, refuseUnknownUsage } from '../../model/usage.ts'
import type { CallHost } from '../execution/call-host.ts'
import { reportLateWrite } from '../execution/end-errors.ts'
import { joinWrites } from '../writing/join-writes.ts'
import type { RecordWrites } from '../writing/record-writes.ts'
import { AttemptArtifacts } from './attempt-artifacts.ts'
import { AttemptMemory } from './attempt-memory.ts'
import type { Call } from './calls.ts'

export type Recipe = (draft: never) => unknown

/** What an attempt writes with its result. */
export class AttemptWrites {
  /** The body is over: nothing can be added. */
  isOver = false
  readonly recipes: Recipe[] = []
  /** Made when it is first asked for. */
  memory: AttemptMemory | undefined
  artifacts: AttemptArtifacts | undefined
  #records: RecordWrites | undefined

  /** What is written to records with the result. Made when the body is over. */
  get records(): RecordWrites | undefined {
    if (this.memory === undefined || this.artifacts === undefined) return this.memory ?? this.artifacts
    this.#records ??= joinWrites(this.memory, this.artifacts)
    return this.#records
  }
}

/** What the body of a step is given. */
// A class, because an object literal with getters takes longer to make than all the rest of a short step's bookkeeping.
export class Handle implements StepHandle<never> {
  readonly attempt: number
  readonly update: StepHandle<never>['update']
  readonly usage: StepHandle<never>['usage']
  readonly log: StepHandle<never>['log']
  readonly #host: CallHost
  readonly #call: Call
  readonly #signal: AbortSignal | undefined

  readonly #writes: AttemptWrites

  constructor(host: CallHost, call: Call, attempt: number, writes: AttemptWrites, signal: AbortSignal | undefined) {
    this.attempt = attempt
    // Functions of its own, so that they can be destructured: ({ update }) => update(…).
    this.update = (recipe) => {
      // In a timer that was left behind nothing would catch an error.
      if (writes.isOver) reportLateWrite(host.run, call.path, 'step.update')
      else writes.recipes.push(recipe as Recipe)
    }
    this.usage = (usage) => {
      refuseUnknownUsage('step.usage', usage)
      host.budget.book(call, checkUsage(usage), attempt)
    }
    this.log = (message, data) => host.run.log.info(message, { runId: host.run.runId, step: call.path, attempt, ...data })
    this.#host = host
    this.#call = call
    this.#writes = writes
    this.#signal = signal
  }

  get stream(): StepHandle<never>['stream'] {
    return (name) => this.#host.output.streams.ofStep(this.#call, this.attempt, name)
  }

  get memory(): StepHandle<never>['memory'] {
    this.#writes.memory ??= new AttemptMemory(this.#host, this.#call, this.attempt, this.#writes)
    return this.#writes.memory
  }

  get artifacts(): StepHandle<never>['artifacts'] {
    const { signal } = this
    this.#writes.artifacts ??= new AttemptArtifacts(this.#host, this.#call, this.attempt, { writes: this.#writes, signal })
    return this.#writes.artifacts
  }

  get key(): string {
    return this.#host.calls.keyOf(this.#call)
  }

  get signal(): AbortSignal {
    return this.#signal ?? this.#host.activity.signal
  }

  get progress(): StepHandle<never>['progress'] {
    return (fraction, note) => this.#host.output.progress.report(this.#call.path, fraction, note)
  }
}
