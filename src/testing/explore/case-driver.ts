import { setTimeout as delay } from 'node:timers/promises'
import type { Holdfast, InboxItem } from '../../index.ts'
import type { Store } from '../../store/store.ts'
import { type Survey, surveyRuns } from '../survey-runs.ts'
import type { TestClock } from '../test-clock.ts'
import { runId, type Setup } from './case-setup.ts'

/** More answers, timers and takeovers than this, and a case does not come to its end. */
const mostRounds = 2_000

export interface DriverOptions {
  readonly hf: Holdfast
  readonly store: Store
  readonly clock: TestClock
  readonly setup: Setup
  /** The names of the workflows that each process is opened with. */
  readonly workflows: () => readonly string[]
  /** A process that is being started. */
  readonly starting: () => Promise<void> | undefined
  /** What an effect that was sent under a key came to, where it came to a result. */
  readonly sentUnder: (key: string) => { readonly value: unknown } | { readonly error: unknown } | undefined
}

/** What happens around the processes of a case: people answer, signals are sent, time passes. */
export class CaseDriver {
  /** Effects that a person was asked about and did not decide. */
  readonly undecided = new Set<string>()
  readonly #options: DriverOptions
  readonly #sent = new Set<string>()
  #hasCancelled = false
  #isCancelling = false
  #changes = 0
  #heard: (() => void) | undefined

  constructor(options: DriverOptions) {
    this.#options = options
  }

  /** Until everything has ended, or waits for what does not come. Says why, where it hangs or does not end. */
  async drive(): Promise<string | undefined> {
    let changes = -1
    let since = performance.now()
    for (let round = 0; round < mostRounds; ) {
      await this.#options.starting()
      if (this.#changes !== changes) {
        changes = this.#changes
        since = performance.now()
      }
      const survey = await surveyRuns(this.#options.store)
      if (survey.unfinished.length === 0) return undefined
      if (survey.isBusy || this.#isCancelling || this.#options.starting() !== undefined) {
        if (performance.now() - since > this.#options.setup.stuckMs)
          return `${describe(survey)}, and nothing happens any more${this.#unknownTo(survey)}`
        await this.#untilChanged()
        continue
      }
      round++
      if (await this.#help(survey)) continue
      if (survey.nextDueAt === undefined) return undefined
      this.#options.clock.advance(survey.nextDueAt - this.#options.clock.now())
    }
    return 'the run does not come to an end: timers and answers follow one another'
  }

  /** A process that was started anew knows what its client was opened with, and not what a call would bring. */
  #unknownTo({ unfinished }: Survey): string {
    const known = new Set(this.#options.workflows())
    const missing = new Set(unfinished.map(({ workflow }) => workflow).filter((name) => !known.has(name)))
    if (missing.size === 0) return ''
    const names = [...missing].map((name) => `"${name}"`).join(', ')
    return `: a process that takes over does not have workflow ${names}. Name it in workflows, here and in open`
  }

  /** Does what a run waits for, if it can. */
  async #help(survey: Survey): Promise<boolean> {
    let hasHelped = false
    for (const item of await this.#options.hf.inbox()) hasHelped = (await this.#answer(item)) || hasHelped
    const isWaiting = survey.unfinished.some(({ id, status }) => id === runId && status === 'waiting')
    for (const [name, value] of isWaiting ? Object.entries(this.#options.setup.signals) : []) {
      if (this.#sent.has(name)) continue
      this.#sent.add(name)
      await this.#options.hf.signal(runId, name, value)
      hasHelped = true
    }
    if (hasHelped || !this.#options.setup.cancels || this.#hasCancelled || survey.nextDueAt !== undefined) return hasHelped
    this.#hasCancelled = true
    this.#isCancelling = true
    const run = await this.#options.hf.runs.get(runId)
    const done = () => {
      this.#isCancelling = false
    }
    // What becomes of it is seen in the log.
    run.cancel({ by: 'explore' }).then(done, done)
    return true
  }

  async #answer(item: InboxItem): Promise<boolean> {
    const { answers, unsure } = this.#options.setup
    if (item.kind === 'question') {
      const path = Object.hasOwn(answers, item.name) ? item.name : item.name.slice(item.name.lastIndexOf('/') + 1)
      if (!Object.hasOwn(answers, path)) return false
      await this.#options.hf.answer(item.runId, item.name, answers[path], { id: item.id, by: 'explore' })
      return true
    }
    if (item.kind !== 'effect') return false
    if (unsure === 'ask') {
      this.undecided.add(item.key)
      return false
    }
    const sent = this.#options.sentUnder(item.key)
    const happened = unsure === 'happened' || (unsure === 'truth' && sent !== undefined)
    const result = sent !== undefined && 'value' in sent ? { result: sent.value } : {}
    await this.#options.hf.resolve(item.key, { happened, ...(happened && result), by: 'explore' })
    return true
  }

  /** Something happened that could have changed where runs stand. */
  changed(): void {
    this.#changes++
    this.#heard?.()
  }

  /** Until something happens, or a moment has passed. */
  async #untilChanged(): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    await new Promise<void>((resolve) => {
      this.#heard = resolve
      timer = setTimeout(resolve, 5)
    })
    clearTimeout(timer)
    this.#heard = undefined
  }

  /** Until no process does anything any more. */
  async untilStill(isAtWork: () => boolean): Promise<void> {
    for (let last = -1, still = 0, tries = 0; still < 2 && tries < 200; tries++) {
      await delay(3)
      const now = this.#changes
      still = now === last && !isAtWork() ? still + 1 : 0
      last = now
    }
  }
}

/** What the runs that have not ended wait for. */
function describe({ unfinished }: Survey): string {
  return unfinished
    .map(
      ({ id, status, reason }) =>
        `${id === runId ? 'the run' : `run "${id}"`} is ${status}${reason === null ? '' : ` (${reason})`}`,
    )
    .join(', ')
}
