import { codeOf, type HoldfastError } from '../../model/errors.ts'
import type { Budget } from '../../model/usage.ts'
import type { OperationChange } from '../../store/change.ts'
import type { RunKey } from '../../store/store.ts'
import type { CallKey } from '../replay/call-key.ts'
import type { OpenChild, OpenQuestion } from '../replay/run-past.ts'

/** What can be done to another run: by the run that started it. */
export interface RunControl {
  /** Resolves when the run has ended as cancelled. `timeout`: not yet. `conflict`: it had ended by itself, or one of its undos failed. */
  cancel(key: RunKey, options: { readonly undo: boolean }): Promise<void>
  retry(key: RunKey): Promise<void>
  /** Lets a run that is paused continue, with more of a budget. */
  resume(key: RunKey, options: { readonly budget: Budget }): Promise<void>
}

/** Children and questions that a run waits for, and that end with it. They are told of before the commit that begins them. */
export class OpenDependents {
  readonly #run: DependedRun
  // Made with the first of each: most runs have none.
  #children: Map<CallKey, OpenChild> | undefined
  #questions: Map<CallKey, OpenQuestion> | undefined
  #settled: Set<CallKey> | undefined

  constructor(run: DependedRun) {
    this.#run = run
  }

  child(child: OpenChild): void {
    if (this.#settled?.has(child.call)) return
    this.#children ??= new Map()
    this.#children.set(child.call, child)
  }

  question(call: CallKey, key: string, seq: number): void {
    if (this.#settled?.has(call)) return
    this.#questions ??= new Map()
    this.#questions.set(call, { call, key, seq })
  }

  /** What the log says, of this tape or, under keys of their own, of earlier ones. */
  add(open: { readonly children: readonly OpenChild[]; readonly questions: readonly OpenQuestion[] }): void {
    for (const child of open.children) this.child(child)
    for (const { call, key, seq } of open.questions) this.question(call, key, seq)
  }

  /** It has come to its own end. */
  settled(call: CallKey): void {
    this.#settled ??= new Set()
    this.#settled.add(call)
    this.#children?.delete(call)
    this.#questions?.delete(call)
  }

  get hasQuestions(): boolean {
    return this.#questions !== undefined && this.#questions.size > 0
  }

  isEmpty(afterSeq: number): boolean {
    return ![...(this.#children?.values() ?? []), ...(this.#questions?.values() ?? [])].some(({ seq }) => seq > afterSeq)
  }

  /** Ends those that began after a position, the children first. Says what became of the children. */
  async end(afterSeq: number, options: { readonly undo: boolean }): Promise<EndedChildren> {
    const children = [...(this.#children?.values() ?? [])].filter(({ seq }) => seq > afterSeq)
    const ends = await Promise.all(children.map((child) => this.#cancel(child, options)))
    for (const { child, isOver } of ends) if (isOver) this.settled(child.call)
    const obstacle = ends.find(({ isOver, error }) => !isOver && codeOf(error) !== 'timeout')?.error
    if (ends.some(({ isOver }) => !isOver)) return { ended: [], isOver: false, ...(obstacle && { obstacle }) }
    await this.closeQuestions(afterSeq)
    return { ended: ends, isOver: true }
  }

  async closeQuestions(afterSeq = 0): Promise<void> {
    for (const { call, key, seq } of [...(this.#questions?.values() ?? [])]) {
      if (seq <= afterSeq) continue
      await this.#run.journal.tryOperation({ kind: 'fail', key })
      this.settled(call)
    }
  }

  async #cancel(child: OpenChild, options: { readonly undo: boolean }): Promise<EndedChild> {
    try {
      const { owner, engine } = this.#run.run
      await engine.control.cancel({ owner, runId: child.runId }, options)
      return { child, isOver: true }
    } catch (error) {
      const code = codeOf(error)
      if (code === 'run_not_found') return { child, isOver: true }
      if (code !== 'conflict' && code !== 'timeout') throw error
      const { status } = (error as HoldfastError).details
      const isOver = status === 'completed' || status === 'failed' || status === 'cancelled'
      return { child, isOver, isCompleted: status === 'completed', error: error as HoldfastError }
    }
  }
}

/** The run that they belong to. */
interface DependedRun {
  readonly run: { readonly owner: string; readonly engine: { readonly control: RunControl } }
  readonly journal: { tryOperation(operation: OperationChange): Promise<boolean> }
}

export interface EndedChild {
  readonly child: OpenChild
  readonly isOver: boolean
  /** It came to its own end before the cancel reached it. */
  readonly isCompleted?: boolean
  readonly error?: HoldfastError
}

export interface EndedChildren {
  /** None is open any more. */
  readonly isOver: boolean
  readonly ended: readonly EndedChild[]
  /** Why one can't be ended. */
  readonly obstacle?: HoldfastError
}
