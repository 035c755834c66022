import { type ProcessOptions, ProcessUnderTest } from './process-under-test.ts'

/**
 * Processes for scenarios. Starting one takes longer than what it does, so one is always started ahead, and a process that completes is
 * used again as the first process of another scenario. Only killed ones are gone.
 */
export class ProcessPool {
  readonly #options: ProcessOptions
  readonly #idle: ProcessUnderTest[] = []

  constructor(options: ProcessOptions) {
    this.#options = options
  }

  take(): ProcessUnderTest {
    const taken = this.#idle.shift() ?? new ProcessUnderTest(this.#options)
    if (this.#idle.length === 0) this.#idle.push(new ProcessUnderTest(this.#options))
    return taken
  }

  giveBack(tested: ProcessUnderTest): void {
    if (!tested.hasEnded) this.#idle.push(tested)
  }

  async close(): Promise<void> {
    await Promise.all(this.#idle.splice(0).map((tested) => tested.end()))
  }
}
