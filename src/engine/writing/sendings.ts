import type { RunKey } from '../../store/store.ts'

/** How long the outcome of a sending is kept for the next execution of its run. */
const keptMs = 60_000

interface Sending {
  readonly owner: string
  readonly runId: string
  readonly outcome: Promise<unknown>
  /** Its execution gave the run up: the next one in this process takes the outcome. */
  isKept: boolean
  hasEnded: boolean
}

/** The effects that this process is sending, by owner and key, whichever execution began it. */
export class Sendings {
  readonly #underWay = new Map<string, Sending>()

  /** Whether `run` of the effect is under way, or has ended and its outcome was not taken: its execution has lost the run, or ended without it. */
  has(owner: string, key: string): boolean {
    return this.#underWay.size > 0 && this.#underWay.has(nameOf(owner, key))
  }

  /** Sends an effect of a run. While it is being sent already, nothing is sent: that sending's outcome counts. */
  send<T>(owner: string, key: string, runId: string, run: () => Promise<T> | T): Promise<T> | T {
    const name = nameOf(owner, key)
    const earlier = this.#underWay.get(name)
    if (earlier !== undefined) {
      earlier.isKept = false
      const taken = () => this.#forget(name, earlier)
      earlier.outcome.then(taken, taken)
      return earlier.outcome as Promise<T>
    }
    const outcome = run()
    if (!(outcome instanceof Promise)) return outcome
    const sending: Sending = { owner, runId, outcome, isKept: false, hasEnded: false }
    this.#underWay.set(name, sending)
    const ended = () => {
      sending.hasEnded = true
      if (sending.isKept) setTimeout(() => this.#forget(name, sending), keptMs).unref()
      else this.#forget(name, sending)
    }
    outcome.then(ended, ended)
    return outcome
  }

  /** From now on the outcome of what is being sent for a run is kept, for the execution that takes the run up next. */
  keep(run: RunKey): void {
    for (const sending of this.#ofRun(run)) sending.isKept = true
  }

  /** Another holder has the run: what comes of it is not for this process. */
  letGo({ owner, runId }: RunKey): void {
    for (const [name, sending] of this.#underWay) {
      if (sending.owner !== owner || sending.runId !== runId) continue
      sending.isKept = false
      if (sending.hasEnded) this.#underWay.delete(name)
    }
  }

  /**
   * Waits, for so long at most, until nothing of a run is being sent: the next execution of the run would look for what has not happened yet.
   * What came of it is kept.
   */
  async settle(run: RunKey, limitMs: number): Promise<void> {
    this.keep(run)
    const ofRun = this.#ofRun(run)
    if (ofRun.length === 0) return
    let timer: NodeJS.Timeout | undefined
    const limit = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, limitMs)
    })
    await Promise.race([Promise.allSettled(ofRun.map(({ outcome }) => outcome)), limit])
    clearTimeout(timer)
  }

  #ofRun({ owner, runId }: RunKey): Sending[] {
    return [...this.#underWay.values()].filter((sending) => sending.owner === owner && sending.runId === runId)
  }

  #forget(name: string, sending: Sending): void {
    if (this.#underWay.get(name) === sending) this.#underWay.delete(name)
  }
}

function nameOf(owner: string, key: string): string {
  return `${owner}\0${key}`
}
