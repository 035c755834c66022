import { newRun } from '../../model/new-run.ts'
import type { Change, Committed, NewRun, Refusal } from '../../store/change.ts'
import { hintOfChange, hintOfMail, hintOfNewRun } from '../../store/hints.ts'
import type { Hint } from '../../store/store.ts'
import { dueOf } from './integers.ts'
import type { Leases } from './leases.ts'
import { type RecordJson, recordOfJson } from './records.ts'
import { runOfJson, toOperation } from './rows.ts'
import type { LeasedGroup, SortedChanges } from './sort-changes.ts'

export interface Answers {
  readonly answers: readonly Committed[]
  /** The store's time of the write. */
  readonly now: number
}

export function readAnswers(
  text: string,
  changes: readonly Change[],
  { sorted, leases }: { sorted: SortedChanges; leases: Leases },
): Answers {
  const answer = JSON.parse(text) as Answer
  const answers = new Array<Committed>(changes.length)
  const { now } = answer
  const lastMessages = new Map(answer.mail.map((slot, at) => [slot, answer.last[at] as number]))
  for (let at = 0; at < sorted.leased.length; at++) {
    const { indexes, leaseId } = sorted.leased[at] as LeasedGroup
    let before = answer.before[at] as number
    const isLost = before < 0
    for (const index of indexes) {
      const change = changes[index] as Change
      const count = change.events.length
      const firstSeq = count > 0 ? before + 1 : before
      before += count
      answers[index] = isLost
        ? { ok: false, refusal: 'lease_lost' }
        : { ok: true, firstSeq, lastSeq: before, now, created: [], hasMail: isMail(lastMessages.get(at + 1) ?? 0, change) }
      if (isLost || (change.run?.status !== undefined && change.run.status !== 'running')) leases.forget(leaseId)
    }
  }
  const made = answer.made === undefined ? null : new Set(answer.made)
  const rest: number[] = sorted.others.map(({ index }) => index)
  for (const [at, { index }] of sorted.starts.entries()) {
    if (made !== null && !made.has(at + 1)) rest.push(index)
    else answers[index] = startedAnswer(changes[index] as Change, now)
  }
  rest.sort((a, b) => a - b)
  for (const [at, index] of rest.entries()) answers[index] = otherAnswer(answer.others?.[at] as OtherAnswer, now)
  return { answers, now }
}

interface Answer {
  readonly now: number
  /** For each leased group the head before it; -1 where the lease was lost. */
  readonly before: readonly number[]
  /** Leased groups whose runs have mail, from 1, and the latest message of each. */
  readonly mail: readonly number[]
  readonly last: readonly number[]
  /** Starts that were written set by set, from 1; absent: all. */
  readonly made?: readonly number[]
  readonly others?: readonly OtherAnswer[]
}

type OtherAnswer =
  | { readonly refusal: Refusal; readonly operation?: Parameters<typeof toOperation>[0]; readonly record?: RecordJson }
  | {
      readonly refusal?: undefined
      readonly first: number
      readonly last: number
      readonly mail: boolean
      readonly woken: boolean
      readonly created: readonly { readonly is_new: boolean; readonly run: Parameters<typeof runOfJson>[0] }[]
    }

type WokenAnswer = Committed & { readonly hasWoken?: boolean }

function otherAnswer(answer: OtherAnswer, now: number): Committed {
  if (answer.refusal !== undefined) {
    const { refusal, operation, record } = answer
    if (refusal === 'record_changed') return { ok: false, refusal, record: record === undefined ? null : recordOfJson(record) }
    return { ok: false, refusal, ...(operation === undefined ? {} : { operation: toOperation(operation) }) }
  }
  const { first, last, mail, woken } = answer
  const created = answer.created.map(({ is_new, run }) => ({ run: runOfJson(run), isNew: is_new }))
  const committed: WokenAnswer = { ok: true, firstSeq: first, lastSeq: last, now, created, hasMail: mail }
  // For hintsOf alone: callers get exactly what the contract names.
  if (woken) Object.defineProperty(committed, 'hasWoken', { value: true, enumerable: false })
  return committed
}

/** Whether a run's latest message is one that the writer of the change does not know. */
function isMail(lastMessage: number, { mailSeen = 0 }: Change): boolean {
  return lastMessage > mailSeen
}

function startedAnswer({ creates }: Change, now: number): Committed {
  const create = (creates as readonly [NewRun])[0]
  const [kind, ms] = dueOf(create.due)
  const run = newRun(create, { epoch: 0, inputSeq: 1, dueAt: kind === 1 ? now + (ms ?? 0) : ms, now })
  return { ok: true, firstSeq: 1, lastSeq: 1, now, created: [{ run, isNew: true }], hasMail: false }
}

/** What to tell subscribers about changes that were written; nothing of steps where this process has no subscriber. */
export function hintsOf(
  changes: readonly Change[],
  answers: readonly Committed[],
  { isHeard }: { readonly isHeard: boolean },
): Hint[] {
  const hints: Hint[] = []
  for (let i = 0; i < changes.length; i++) {
    const answer = answers[i] as Committed
    if (!answer.ok) continue
    const change = changes[i] as Change
    const hint = hintOfChange(change, (answer as WokenAnswer).hasWoken === true)
    if (isHeard || hint.isClaimable === true || hint.hasChunks === true) hints.push(hint)
    for (const { run, isNew } of answer.created) if (isNew) hints.push(hintOfNewRun(run))
    // Whether the run waits, or exists at all, is not worth an answer: a subscriber looks for itself.
    for (const message of change.delivers ?? []) hints.push(hintOfMail(message))
  }
  return hints
}
