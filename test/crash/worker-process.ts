import { readFileSync } from 'node:fs'
import { patience } from '../patience.ts'
import { type JournalEntry, readJournal } from './journal.ts'
import type { LifeEnd, LifeProcess } from './life-process.ts'
import type { Life } from './live.ts'
import type { OpenedScene, Stage } from './stage.ts'

/** A process under test that works until it is told to close. */
export class WorkerProcess {
  readonly life: Life
  readonly over: Promise<LifeEnd>
  readonly #process: LifeProcess

  private constructor(life: Life, process: LifeProcess, limitMs: number) {
    this.life = life
    this.#process = process
    this.over = this.#untilOver(limitMs)
  }

  static async start(
    stage: Stage,
    scene: OpenedScene,
    own: Parameters<Stage['lifeIn']>[1],
    { nodeArgs = [], limitMs = patience(60_000) }: { nodeArgs?: readonly string[]; limitMs?: number } = {},
  ): Promise<WorkerProcess> {
    return new WorkerProcess(await stage.lifeIn(scene, own), stage.startProcess({ nodeArgs }), limitMs)
  }

  get pid(): number {
    return this.#process.pid
  }

  /** What this life noted so far. */
  notes(): JournalEntry[] {
    return readJournal(this.life.journal).filter(({ life }) => life === this.life.number)
  }

  async untilNoted(isIt: (note: JournalEntry) => boolean, what: string): Promise<void> {
    await until(
      () => this.notes().some(isIt),
      what,
      () => this.#process.isOver,
    )
  }

  /** Waits until the process has stopped itself. */
  async untilStopped(): Promise<void> {
    await until(
      () => this.#state() === 'T',
      `process ${this.pid} stops`,
      () => this.#process.isOver,
    )
  }

  goOn(): void {
    this.signal('SIGCONT')
  }

  signal(signal: NodeJS.Signals): void {
    this.#process.child.kill(signal)
  }

  async kill(): Promise<void> {
    this.signal('SIGKILL')
    await this.over
  }

  /** Closes Holdfast and ends the process. */
  async close(how: 'input' | 'SIGTERM' = 'input'): Promise<LifeEnd> {
    if (how === 'SIGTERM') this.signal('SIGTERM')
    else this.#process.child.stdin?.write('close\n')
    return this.over
  }

  async #untilOver(limitMs: number): Promise<LifeEnd> {
    const end = await this.#process.live(this.life, limitMs)
    return { ...end, ...(await this.#process.dismiss()) }
  }

  #state(): string {
    const stat = readFileSync(`/proc/${this.pid}/stat`, 'latin1')
    return stat.slice(stat.lastIndexOf(')') + 2)[0] as string
  }
}

/** Looks again and again, since nobody tells; gives up after a while. */
export async function until(
  isSo: () => boolean | Promise<boolean>,
  what: string,
  isHopeless: () => boolean = () => false,
): Promise<void> {
  const deadline = performance.now() + patience(20_000)
  while (!(await isSo())) {
    if (performance.now() > deadline || isHopeless()) throw new Error(`Waited in vain until ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
