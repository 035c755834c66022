import { readFileSync } from 'node:fs'
import { patience } from '../../patience.ts'
import type { CrashTestBed, Environment } from './crash-test-bed.ts'
import { type JournalEntry, readJournal } from './journal.ts'
import type { ProcessEnd, ProcessUnderTest } from './process-under-test.ts'
import type { ProcessRun } from './run-process.ts'

/** A process under test that works until it is told to close. */
export class WorkerProcess {
  readonly processRun: ProcessRun
  readonly ended: Promise<ProcessEnd>
  readonly #tested: ProcessUnderTest

  private constructor(processRun: ProcessRun, tested: ProcessUnderTest, limitMs: number) {
    this.processRun = processRun
    this.#tested = tested
    this.ended = this.#run(limitMs)
  }

  static async start(
    bed: CrashTestBed,
    environment: Environment,
    own: Parameters<CrashTestBed['processIn']>[1],
    { nodeArgs = [], limitMs = patience(60_000) }: { nodeArgs?: readonly string[]; limitMs?: number } = {},
  ): Promise<WorkerProcess> {
    return new WorkerProcess(await bed.processIn(environment, own), bed.startProcess({ nodeArgs }), limitMs)
  }

  get pid(): number {
    return this.#tested.pid
  }

  /** What this process noted so far. */
  notes(): JournalEntry[] {
    return readJournal(this.processRun.journal).filter(({ processNumber }) => processNumber === this.processRun.number)
  }

  async untilNoted(isWanted: (note: JournalEntry) => boolean, what: string): Promise<void> {
    await until(
      () => this.notes().some(isWanted),
      what,
      () => this.#tested.hasEnded,
    )
  }

  /** Waits until the process has stopped itself. */
  async untilStopped(): Promise<void> {
    await until(
      () => this.#state() === 'T',
      `process ${this.pid} stops`,
      () => this.#tested.hasEnded,
    )
  }

  resume(): void {
    this.signal('SIGCONT')
  }

  signal(signal: NodeJS.Signals): void {
    this.#tested.child.kill(signal)
  }

  async kill(): Promise<void> {
    this.signal('SIGKILL')
    await this.ended
  }

  /** Closes Holdfast and ends the process. */
  async close(how: 'input' | 'SIGTERM' = 'input'): Promise<ProcessEnd> {
    if (how === 'SIGTERM') this.signal('SIGTERM')
    else this.#tested.child.stdin?.write('close\n')
    return this.ended
  }

  async #run(limitMs: number): Promise<ProcessEnd> {
    const end = await this.#tested.run(this.processRun, limitMs)
    return { ...end, ...(await this.#tested.end()) }
  }

  #state(): string {
    const stat = readFileSync(`/proc/${this.pid}/stat`, 'latin1')
    return stat.slice(stat.lastIndexOf(')') + 2)[0] as string
  }
}

/** Polls until the condition holds; throws after a while, or as soon as it is hopeless. */
export async function until(
  isTrue: () => boolean | Promise<boolean>,
  what: string,
  isHopeless: () => boolean = () => false,
): Promise<void> {
  const deadline = performance.now() + patience(20_000)
  while (!(await isTrue())) {
    if (performance.now() > deadline || isHopeless()) throw new Error(`Gave up waiting until ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
