import type { ChildProcess } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { type JournalEntry, readJournal } from './journal.ts'
import type { Life } from './live.ts'
import { type Ended, startLife, untilOver } from './stage.ts'

/** A process under test that works until it is told to close, seen from outside. */
export class WorkerProcess {
  readonly life: Life
  readonly child: ChildProcess
  readonly over: Promise<Ended>
  #isOver = false

  constructor(life: Life, { nodeArgs = [], limitMs = 60_000 }: { nodeArgs?: readonly string[]; limitMs?: number } = {}) {
    this.life = life
    this.child = startLife(life, [], nodeArgs)
    this.over = untilOver(this.child, limitMs).finally(() => {
      this.#isOver = true
    })
  }

  get pid(): number {
    return this.child.pid as number
  }

  /** What this life noted so far. */
  notes(): JournalEntry[] {
    return readJournal(this.life.journal).filter(({ life }) => life === this.life.number)
  }

  async untilNoted(isIt: (note: JournalEntry) => boolean, what: string): Promise<void> {
    await until(
      () => this.notes().some(isIt),
      what,
      () => this.#isOver,
    )
  }

  /** Waits until the process has stopped itself. */
  async untilStopped(): Promise<void> {
    await until(
      () => this.#state() === 'T',
      `process ${this.pid} stops`,
      () => this.#isOver,
    )
  }

  goOn(): void {
    this.child.kill('SIGCONT')
  }

  /** Closes Holdfast and ends the process. */
  async close(how: 'input' | 'SIGTERM' = 'input'): Promise<Ended> {
    if (how === 'SIGTERM') this.child.kill('SIGTERM')
    else this.child.stdin?.write('close\n')
    return this.over
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
  const deadline = performance.now() + 20_000
  while (!(await isSo())) {
    if (performance.now() > deadline || isHopeless()) throw new Error(`Waited in vain until ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
