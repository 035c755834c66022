import type { Change, Committed, NewRun, Refusal } from '../../store/change.ts'
import type { Hint } from '../../store/store.ts'
import type { Leases } from './leases.ts'
import { runOfJson, toOperation } from './rows.ts'
import type { HeldGroup, SortedChanges } from './sort-changes.ts'
import { dueOf } from './whole-numbers.ts'

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
  for (let at = 0; at < sorted.held.length; at++) {
    const { indexes, leaseId } = sorted.held[at] as HeldGroup
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
  /** For each held group the head before it; -1 where the lease was lost. */
  readonly before: readonly number[]
  /** Held groups whose runs have mail, from 1, and the latest message of each. */
  readonly mail: readonly number[]
  readonly last: readonly number[]
  /** Starts that were written set by set, from 1; absent: all. */
  readonly made?: readonly number[]
  readonly others?: readonly OtherAnswer[]
}

type OtherAnswer =
  | { readonly refusal: Refusal; readonly operation?: Parameters<typeof toOperation>[0] }
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
    const { refusal, operation } = answer
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
export function isMail(lastMessage: number, { mailSeen = 0 }: Change): boolean {
  return lastMessage > mailSeen
}

function startedAnswer({ creates }: Change, now: number): Committed {
  const { owner, id, threadId, workflow, version, queue, priority, fingerprint, due } = (creates as readonly [NewRun])[0]
  const [kind, ms] = dueOf(due)
  const run = {
    ...{ owner, id, threadId, workflow, version, status: 'pending' as const, reason: null, queue, priority, fingerprint },
    ...{ epoch: 0, leaseId: null, leaseUntil: null, leaseHolder: null, dueAt: kind === 1 ? now + (ms ?? 0) : ms },
    ...{ claimsWithoutProgress: 0, currentStep: null, inputSeq: 1, tapeSeq: null, endSeq: null },
    ...{ createdAt: now, startedAt: null, finishedAt: null },
  }
  return { ok: true, firstSeq: 1, lastSeq: 1, now, created: [{ run, isNew: true }], hasMail: false }
}

/** What to tell subscribers about changes that were written; of steps nothing where nobody is here to hear it. */
export function hintsOf(
  changes: readonly Change[],
  answers: readonly Committed[],
  { isHeard }: { readonly isHeard: boolean },
): Hint[] {
  const hints: Hint[] = []
  for (let i = 0; i < changes.length; i++) {
    const answer = answers[i] as Committed
    if (!answer.ok) continue
    const { owner, threadId, runId, run, chunks, delivers = [] } = changes[i] as Change
    const isClaimable = (runId !== null && run?.status !== undefined) || (answer as WokenAnswer).hasWoken === true
    if (chunks !== undefined && runId !== null)
      hints.push({ owner, threadId, runId, hasChunks: true, ...(isClaimable && { isClaimable }) })
    else if (isClaimable) hints.push(runId === null ? { owner, threadId, isClaimable } : { owner, threadId, runId, isClaimable })
    else if (isHeard) hints.push(runId === null ? { owner, threadId } : { owner, threadId, runId })
    for (const { run, isNew } of answer.created) {
      if (isNew) hints.push({ owner: run.owner, threadId: run.threadId, runId: run.id, isClaimable: true })
    }
    // Whether it waits, or is there at all, is not worth an answer: who hears of it looks.
    for (const { owner, runId } of delivers) hints.push({ owner, runId, hasMail: true, isClaimable: true })
  }
  return hints
}
