import { HoldfastError } from '../model/errors.ts'
import type { EventType } from '../model/event.ts'
import { messageCountAfter, messageCountOf } from '../model/message-count.ts'
import { summaryIn } from '../model/summary.ts'
import { addUsage, noUsage, type UsageTotal } from '../model/usage.ts'
import { allEvents } from './all-events.ts'
import type { History, HistoryCheckpoint, HistoryEvent } from './history.ts'
import { returns, StepsInForce } from './steps-in-force.ts'

/** A checkpoint in a timeline, or with `buckets` several in a row. */
export interface TimelineRow {
  /** The checkpoint; of several, the last. `stateAt`, `diff`, `blame` and `rollback` take it. */
  readonly checkpoint: string
  /** Ms since 1970, by the store's clock. */
  readonly at: number
  /** Null: an edit by hand. */
  readonly runId: string | null
  /** What was recorded there; null where it was no step. */
  readonly step: string | null
  readonly label: string | null
  /** Steps and effects with a result, up to here; those that were rolled back or rewound are not among them. */
  readonly stepCount: number
  /** Length of `state.messages` here; null where the state has no such list. */
  readonly messageCount: number | null
  /** What the steps took whose results were recorded since the row before; null where nothing was timed. */
  readonly durationMs: number | null
  /** Bytes of data and state changes that the commit wrote. */
  readonly bytes: number
  /** Tokens that were booked since the row before, those of children included. */
  readonly tokens: number
  /** Cost that was booked since the row before, that of children included. */
  readonly cost: number
  /** How many checkpoints the row stands for. */
  readonly checkpoints: number
  /** What was recorded there for its step, in at most 256 bytes. With the option `summaries`. */
  readonly summary?: string
}

export interface TimelineOptions {
  /** Rows after this checkpoint: the last one of the page before. */
  readonly after?: string
  /** At most so many checkpoints, 1 to 100,000. Default 1,000; with `buckets`, all. */
  readonly limit?: number
  /** Folds them into at most so many rows, 1 to 10,000, each of about as many checkpoints. */
  readonly buckets?: number
  /** Rows say what was recorded, in short: it is read for that. Default false. */
  readonly summaries?: boolean
}

/**
 * The checkpoints of a history, oldest first. A page costs the log of its rows and one load of the state where it begins, a later page
 * also a count of the steps before it; `buckets` costs one pass over the log.
 */
export async function readTimeline(history: History, options: TimelineOptions = {}): Promise<TimelineRow[]> {
  const { buckets } = options
  const limit = checkCount('limit', options.limit, 100_000) ?? (buckets === undefined ? 1_000 : Number.POSITIVE_INFINITY)
  checkCount('buckets', buckets, 10_000)
  const after = options.after === undefined ? null : await history.find(options.after)
  const reader = new TimelineReader(history, after, options.summaries === true)
  const rows: TimelineRow[] = []
  while (rows.length < limit) {
    const page = await reader.next(Math.min(pageSize, limit - rows.length))
    if (page.length === 0) break
    for (const row of page) rows.push(row)
  }
  return buckets === undefined ? rows : fold(rows, buckets)
}

const pageSize = 2_000
/** Events whose data counts. */
const counted: readonly EventType[] = ['usage_recorded', 'child_completed', ...returns]
/** Those whose data is shown in short. */
const shown: readonly EventType[] = [
  ...(['step_completed', 'effect_completed', 'effect_skipped', 'question_answered', 'signal_received'] as const),
]

class TimelineReader {
  readonly #history: History
  readonly #steps = new StepsInForce()
  #after: string | null
  #messages: number | null | undefined

  readonly #summaries: boolean

  constructor(history: History, after: string | null, summaries: boolean) {
    this.#history = history
    this.#after = after
    this.#summaries = summaries
  }

  /** The rows of the next checkpoints, at most `limit`; none at the end. */
  async next(limit: number): Promise<TimelineRow[]> {
    const from = this.#after === null ? {} : { after: this.#after }
    const checkpoints = await this.#history.checkpoints({ ...from, limit })
    const last = checkpoints.at(-1)
    if (last === undefined) return []
    if (this.#messages === undefined) await this.#begin()
    const range = { ...from, to: last.id }
    const dataOf = this.#summaries ? [...counted, ...shown] : counted
    const rows: TimelineRow[] = []
    let row = new RowInProgress()
    for await (const event of allEvents(this.#history, { ...range, dataOf, withPatches: true, withEdits: true })) {
      if (this.#history.runId === null || event.runId === this.#history.runId) {
        row.add(event)
        this.#steps.add(event)
      }
      if (event.patch !== null) this.#messages = messageCountAfter(this.#messages ?? null, event.patch)
      const checkpoint = checkpoints[rows.length]
      if (checkpoint?.id !== event.id) continue
      const summary = this.#summaries ? summaryIn(event.type, event.data) : {}
      rows.push({ ...row.end(checkpoint, this.#steps.count, this.#messages ?? null), ...summary })
      row = new RowInProgress()
    }
    this.#after = last.id
    return rows
  }

  async #begin(): Promise<void> {
    if (this.#after !== null) await this.#steps.read(this.#history, { to: this.#after })
    this.#messages = messageCountOf(await this.#history.stateAt(this.#after))
  }
}

/** What happened since the row before. */
class RowInProgress {
  #usage: UsageTotal = noUsage
  #durationMs: number | null = null

  add({ type, data, durationMs }: HistoryEvent): void {
    if (durationMs !== null) this.#durationMs = (this.#durationMs ?? 0) + durationMs
    if (type === 'usage_recorded') this.#usage = addUsage(this.#usage, data)
    if (type === 'child_completed') this.#usage = addUsage(this.#usage, (data['usage'] ?? {}) as Partial<UsageTotal>)
  }

  end({ id, at, runId, step, label, bytes }: HistoryCheckpoint, stepCount: number, messageCount: number | null): TimelineRow {
    const { tokens, cost } = this.#usage
    const durationMs = this.#durationMs
    return {
      ...{ checkpoint: id, at, runId, step, label, stepCount, messageCount },
      ...{ durationMs, bytes, tokens, cost, checkpoints: 1 },
    }
  }
}

function fold(rows: readonly TimelineRow[], buckets: number): TimelineRow[] {
  const count = Math.min(buckets, rows.length)
  return Array.from({ length: count }, (_, index) => {
    const part = rows.slice(Math.floor((index * rows.length) / count), Math.floor(((index + 1) * rows.length) / count))
    return part.reduce(join)
  })
}

function join(a: TimelineRow, b: TimelineRow): TimelineRow {
  return {
    ...b,
    step: b.step ?? a.step,
    label: b.label ?? a.label,
    ...(b.summary === undefined && a.summary !== undefined && b.step === null && { summary: a.summary }),
    durationMs: a.durationMs === null && b.durationMs === null ? null : (a.durationMs ?? 0) + (b.durationMs ?? 0),
    bytes: a.bytes + b.bytes,
    tokens: a.tokens + b.tokens,
    cost: addUsage(addUsage(noUsage, a), b).cost,
    checkpoints: a.checkpoints + b.checkpoints,
  }
}

export function checkCount(name: string, value: unknown, most: number): number | undefined {
  if (value === undefined) return undefined
  if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= most) return value as number
  throw new HoldfastError(
    'invalid_input',
    `${name} is ${String(value)}; it must be a whole number from 1 to ${most.toLocaleString('en')}.`,
  )
}
