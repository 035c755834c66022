import { codeOf } from '../model/errors.ts'
import type { RunKey } from '../store/store.ts'
import type { CallKey } from './tape.ts'

/** What others can do to a run, for those who started it. */
export interface Steering {
  cancel(key: RunKey): Promise<void>
  retry(key: RunKey): Promise<void>
}

/** Children and questions that a run waits for, and that end with it. */
export class Dependants {
  readonly #owner: string
  readonly #steering: Steering
  readonly #closeQuestion: (key: string) => Promise<void>
  readonly #children = new Map<CallKey, { readonly runId: string; readonly seq: number }>()
  readonly #questions = new Map<CallKey, { readonly key: string; readonly seq: number }>()

  constructor(options: { owner: string; steering: Steering; closeQuestion: (key: string) => Promise<void> }) {
    this.#owner = options.owner
    this.#steering = options.steering
    this.#closeQuestion = options.closeQuestion
  }

  child(call: CallKey, runId: string, seq: number): void {
    this.#children.set(call, { runId, seq })
  }

  question(call: CallKey, key: string, seq: number): void {
    this.#questions.set(call, { key, seq })
  }

  /** It has come to its own end. */
  settled(call: CallKey): void {
    this.#children.delete(call)
    this.#questions.delete(call)
  }

  isEmpty(afterSeq: number): boolean {
    return ![...this.#children.values(), ...this.#questions.values()].some(({ seq }) => seq > afterSeq)
  }

  /** Ends those that began after a position. One that has ended by itself meanwhile is none any more. */
  async end(afterSeq: number): Promise<void> {
    const children = [...this.#children].filter(([, { seq }]) => seq > afterSeq)
    await Promise.all(children.map(([, { runId }]) => this.#cancel(runId)))
    for (const [call] of children) this.#children.delete(call)
    const questions = [...this.#questions].filter(([, { seq }]) => seq > afterSeq)
    for (const [call, { key }] of questions) {
      await this.#closeQuestion(key)
      this.#questions.delete(call)
    }
  }

  async #cancel(runId: string): Promise<void> {
    try {
      await this.#steering.cancel({ owner: this.#owner, runId })
    } catch (error) {
      if (codeOf(error) !== 'conflict' && codeOf(error) !== 'run_not_found') throw error
    }
  }
}
