import type { RunEvent } from 'holdfast'
import { sources } from './gather.ts'
import { bar, duration, line } from './screen.ts'

/** Shows a run's events, one line for each that matters. */
export class EventScreen {
  readonly #startedAt: number
  readonly #begun = new Set<string>()
  #resultCount = 0
  #fraction = 0
  #lastFailure = ''

  constructor(startedAt: number) {
    this.#startedAt = startedAt
  }

  show(event: RunEvent): void {
    const { type, data = {}, durationMs = 0 } = event
    const atMs = event.at - this.#startedAt
    const step = nameOf(event)
    switch (type) {
      case 'run_recovered':
        line(atMs, 'again', 'recovered', `${this.#resultCount} results on record, none is executed again`)
        break
      case 'step_started':
        this.#showStart(atMs, event, data['via'] === 'fallback')
        break
      case 'step_completed':
        this.#resultCount++
        line(atMs, 'done', step, duration(durationMs), isInner(step) ? '' : bar(this.#fraction))
        break
      case 'effect_completed':
        this.#resultCount++
        line(atMs, 'done', step, `${duration(durationMs)}, once and never again`)
        break
      case 'step_failed':
        this.#showFailure(atMs, step, firstWords(event.error?.message ?? ''))
        break
      case 'step_skipped':
        line(atMs, 'skipped', step, 'skipped, as planned')
        break
      case 'progress_reported':
        this.#fraction = Number(data['fraction'])
        break
      case 'question_asked':
        line(atMs, 'begun', 'a question', (data['question'] as { text: string }).text)
        break
      case 'question_answered':
        line(atMs, 'done', 'the answer', `${data['result'] === true ? 'yes' : 'no'}, by ${data['by']}`)
        break
      case 'run_completed':
        line(atMs, 'done', 'completed')
    }
  }

  /** A step inside a step of the plan is shown when it ends, or when it is repeated. */
  #showStart(atMs: number, event: RunEvent, isFallback: boolean): void {
    const step = nameOf(event)
    if (isFallback) line(atMs, 'again', step, 'its fallback')
    else if (this.#begun.has(event.step ?? '')) line(atMs, 'again', step, 'again')
    else if (!isInner(step)) line(atMs, 'begun', step)
    this.#begun.add(event.step ?? '')
  }

  /** A failure that an inner step passes on to the step around it is shown once. */
  #showFailure(atMs: number, step: string, message: string): void {
    if (message !== this.#lastFailure) line(atMs, 'wrong', step, message)
    this.#lastFailure = message
  }
}

/** `gather/source[2]` is the source of that number, `analyze[fallback]/trends` a step of the fallback. */
export function nameOf({ step = '' }: RunEvent): string {
  return step.replace(/source\[(\d)\]/, (_, index) => sources[Number(index)] ?? '').replace('[fallback]', '')
}

function isInner(step: string): boolean {
  return step.includes('/')
}

/** As much of a message as fits on a line. */
function firstWords(message: string): string {
  const text = message.replace(/^Step "[^"]*" (of run "[^"]*" )?/, '')
  return text.length <= 51 ? text : `${text.slice(0, 50)}…`
}
