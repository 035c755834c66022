import { LifeProcess, type LifeProcessOptions } from './life-process.ts'

/**
 * Processes for the lives of scenes. Starting one takes longer than living: there is always one that waits, started ahead, and
 * who came to the end of one life goes on to the first life of another scene. Only who was killed is gone.
 */
export class Cast {
  readonly #options: LifeProcessOptions
  readonly #waiting: LifeProcess[] = []

  constructor(options: LifeProcessOptions) {
    this.#options = options
  }

  take(): LifeProcess {
    const taken = this.#waiting.shift() ?? new LifeProcess(this.#options)
    if (this.#waiting.length === 0) this.#waiting.push(new LifeProcess(this.#options))
    return taken
  }

  giveBack(process: LifeProcess): void {
    if (!process.isOver) this.#waiting.push(process)
  }

  async dismiss(): Promise<void> {
    await Promise.all(this.#waiting.splice(0).map((process) => process.dismiss()))
  }
}
