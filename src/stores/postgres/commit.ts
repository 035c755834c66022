import { recordChecksum } from '../../model/checksum.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import type { Change, Committed, Due, NewRun, Refusal } from '../../store/change.ts'
import type { Hint } from '../../store/store.ts'
import { bigintArray, booleanArray, bytesArray, floatArray, integerArray, textArray } from './binary-arrays.ts'
import type { Leases } from './leases.ts'
import { operationJson } from './operations.ts'
import { byteLengthOf, bytesOf, newSnapshotChecksum, runOfJson, textOf, toOperation } from './rows.ts'
import { type HeldGroup, sortChanges, type SortedChanges } from './sort-changes.ts'

/** The writer's two parameters come first, then those of a batch: commit-sql.ts. */
export const commitSql = `SELECT holdfast.fn_commit(${Array.from({ length: 58 }, (_, index) => `$${index + 1}`).join(', ')})`

export interface CommitOptions {
  /** Whole ms added to the server's time. */
  readonly offset: number
  /** The flush is waited for. */
  readonly isDurable: boolean
  readonly leases: Leases
}

/** A batch as the server gets it, and how to read what it answers. */
export interface Batch {
  readonly values: readonly unknown[]
  readAnswer(text: string): { readonly answers: readonly Committed[]; readonly now: number }
}

export function encodeBatch(changes: readonly Change[], { offset, isDurable, leases }: CommitOptions): Batch {
  const sorted = sortChanges(changes, leases)
  const events = new Events()
  const extras = new Extras()
  const held = encodeHeld(changes, sorted.held, events)
  const starts = encodeStarts(changes, sorted, events)
  const others = encodeOthers(changes, sorted, { events, extras })
  return {
    values: [offset, isDurable, sorted.rankCount, ...held, ...starts, ...others, ...extras.encode(), ...events.encode()],
    readAnswer: (text) => {
      const answer = JSON.parse(text) as Answer
      return { answers: readAnswers(answer, changes, { sorted, leases }), now: answer.now }
    },
  }
}

/** What to tell subscribers about a change that was written. */
export function hintsOf(change: Change, answer: Committed): Hint[] {
  if (!answer.ok) return []
  const { owner, threadId, runId } = change
  const isClaimable = (runId !== null && change.run?.status !== undefined) || (answer as WokenAnswer).hasWoken === true
  const hint = { owner, threadId, ...(runId === null ? {} : { runId }), ...(isClaimable ? { isClaimable } : {}) }
  const created = answer.created.filter(({ isNew }) => isNew)
  return [hint, ...created.map(({ run }) => ({ owner: run.owner, threadId: run.threadId, runId: run.id, isClaimable: true }))]
}

function encodeHeld(changes: readonly Change[], groups: readonly HeldGroup[], events: Events): unknown[] {
  if (groups.length === 0) return Array(22).fill(null)
  const rows = groups.map((group, index) => heldRow(changes, group, { slot: index + 1, events }))
  const snapshots = rows.flatMap((row) => row.snapshots)
  const hasMoves = rows.some((row) => row.status !== null || row.dueKind !== null || row.tape !== null || row.end !== null || (row.flags & 8) !== 0)
  return [
    bigintArray(groups.map(({ place }) => place.thread)),
    bigintArray(groups.map(({ place }) => place.run)),
    bigintArray(groups.map(({ epoch }) => epoch)),
    textArray(groups.map(({ leaseId }) => leaseId)),
    integerArray(rows.map((row) => row.count)),
    integerArray(rows.map((row) => row.flags)),
    textArray(rows.map((row) => row.step)),
    bigintArray(rows.map((row) => row.leaseMs)),
    rows.some((row) => row.status !== null) ? textArray(rows.map((row) => row.status)) : null,
    ...(hasMoves
      ? [
          textArray(rows.map((row) => row.reason)),
          integerArray(rows.map((row) => row.dueKind)),
          bigintArray(rows.map((row) => row.due)),
          integerArray(rows.map((row) => row.tape)),
          integerArray(rows.map((row) => row.input)),
          integerArray(rows.map((row) => row.end)),
        ]
      : [null, null, null, null, null, null]),
    rows.some((row) => row.stateVersion !== null) ? bigintArray(rows.map((row) => row.stateVersion)) : null,
    ...(snapshots.length > 0
      ? [
          integerArray(snapshots.map(({ slot }) => slot)),
          integerArray(snapshots.map(({ ord }) => ord)),
          bigintArray(snapshots.map(({ stateVersion }) => stateVersion)),
          bigintArray(snapshots.map(({ checksum }) => checksum)),
          textArray(snapshots.map(({ state }) => textOf(state))),
          bytesArray(snapshots.map(({ state }) => bytesOf(state))),
        ]
      : [null, null, null, null, null, null]),
  ]
}

interface HeldRow {
  count: number
  flags: number
  step: string | null
  leaseMs: number | null
  status: string | null
  reason: string | null
  dueKind: number | null
  due: number | null
  tape: number | null
  input: number | null
  end: number | null
  stateVersion: number | null
  snapshots: { slot: number; ord: number; stateVersion: number | null; checksum: number; state: Payload }[]
}

/** The changes of one lease, one after the other, as one: what a later one sets wins. */
function heldRow(changes: readonly Change[], { indexes }: HeldGroup, { slot, events }: { slot: number; events: Events }): HeldRow {
  const row: HeldRow = {
    ...{ count: 0, flags: 0, step: null, leaseMs: null, status: null, reason: null, dueKind: null, due: null },
    ...{ tape: null, input: null, end: null, stateVersion: null, snapshots: [] },
  }
  for (const index of indexes) {
    const change = changes[index] as Change
    const before = row.count
    events.add(slot, change, before)
    row.count += change.events.length
    const first = before + Math.min(1, change.events.length)
    const { run: to } = change
    if (to !== undefined) {
      if (to.hasProgress === true) row.flags |= 1
      if (to.currentStep !== undefined) {
        row.flags |= 2
        row.step = to.currentStep
      }
      if (to.uncountClaim === true) row.flags |= 4
      if (to.reason !== undefined) {
        row.flags |= 8
        row.reason = to.reason
      }
      if (to.leaseMs !== undefined) row.leaseMs = wholeMs(to.leaseMs)
      if (to.status !== undefined) row.status = to.status
      if (to.due !== undefined) [row.dueKind, row.due] = dueOf(to.due)
      if (to.startsTape === true) {
        row.tape = first
        if (to.hasNewInput === true) row.input = first
      }
      if (to.setsEnd === true) row.end = row.count
    }
    if (change.stateVersion !== undefined) row.stateVersion = whole(change.stateVersion, 'state version')
    if (change.snapshot !== undefined) {
      const checksum = newSnapshotChecksum(change, change.snapshot)
      row.snapshots.push({ slot, ord: row.count, stateVersion: row.stateVersion, checksum, state: change.snapshot })
    }
  }
  return row
}

function encodeStarts(changes: readonly Change[], { held, starts }: SortedChanges, events: Events): unknown[] {
  if (starts.length === 0) return Array(13).fill(null)
  const creates = starts.map(({ index }) => (changes[index] as Change).creates?.[0] as NewRun)
  for (const [at, create] of creates.entries()) events.addQueued(held.length + at + 1, create)
  const dues = creates.map(({ due }) => dueOf(due))
  return [
    integerArray(starts.map(({ index }) => index)),
    integerArray(starts.map(({ rank }) => rank)),
    textArray(creates.map(({ owner }) => owner)),
    textArray(creates.map(({ threadId }) => threadId)),
    textArray(creates.map(({ id }) => id)),
    textArray(creates.map(({ workflow }) => workflow)),
    bigintArray(creates.map(({ version }) => whole(version, 'workflow version'))),
    textArray(creates.map(({ queue }) => queue)),
    bigintArray(creates.map(({ priority }) => whole(priority, 'priority'))),
    textArray(creates.map(({ fingerprint }) => fingerprint)),
    integerArray(dues.map(([kind]) => kind)),
    bigintArray(dues.map(([, due]) => due)),
    booleanArray(creates.map(({ ifBusy }) => ifBusy === 'reject')),
  ]
}

function encodeOthers(changes: readonly Change[], { held, starts, others }: SortedChanges, into: { events: Events; extras: Extras }): unknown[] {
  if (others.length === 0) return [null]
  let slot = held.length + starts.length
  const encoded = others.map(({ index, rank, createRanks }) => {
    const change = changes[index] as Change
    slot += 1
    into.events.add(slot, change, 0)
    const json = { index, slot, rank, ...changeJson(change, into.extras) }
    const creates = (change.creates ?? []).map((create, at) => {
      slot += 1
      into.events.addQueued(slot, create)
      return { slot, rank: createRanks[at], ...createJson(create) }
    })
    return creates.length === 0 ? json : { ...json, creates }
  })
  return [JSON.stringify(encoded)]
}

/** The names of fn_apply for what a change says; what is absent is null there. */
function changeJson(change: Change, extras: Extras): object {
  const { owner, guard, run: to, label, stateVersion, snapshot, readMessages, operation } = change
  return {
    ...{ owner, thread: change.threadId, run: change.runId, count: change.events.length, is_checkpoint: change.isCheckpoint, label },
    ...(stateVersion === undefined ? {} : { state_version: whole(stateVersion, 'state version') }),
    ...(snapshot === undefined ? {} : { snapshot: extras.add(snapshot, newSnapshotChecksum(change, snapshot)) }),
    ...(readMessages === undefined ? {} : { read: readMessages.filter(Number.isSafeInteger) }),
    ...guardJson(guard),
    ...(to === undefined ? {} : runJson(to)),
    ...(operation === undefined ? {} : { operation: operationJson(owner, operation, (payload, checksum) => extras.add(payload, checksum)) }),
  }
}

function guardJson(guard: Change['guard']): object {
  switch (guard.kind) {
    case 'lease':
      return { guard: 'lease', epoch: guard.epoch, lease: guard.leaseId }
    case 'run':
      return { guard: 'run', epoch: guard.epoch, guard_status: guard.status, is_undisturbed: guard.undisturbed === true }
    case 'thread':
      return { guard: 'thread', guard_head: guard.headSeq }
    case 'none':
      return { guard: 'none' }
  }
}

function runJson(to: NonNullable<Change['run']>): object {
  const [due_kind, due] = to.due === undefined ? [undefined, undefined] : dueOf(to.due)
  return {
    ...{ has_run: true, status: to.status, sets_reason: to.reason !== undefined, reason: to.reason, due_kind, due, wait_key: to.waitKey },
    ...{ sets_step: to.currentStep !== undefined, step: to.currentStep, has_progress: to.hasProgress, uncounts: to.uncountClaim },
    ...{ starts_tape: to.startsTape, has_new_input: to.hasNewInput, sets_end: to.setsEnd },
    ...(to.leaseMs === undefined ? {} : { lease_ms: wholeMs(to.leaseMs) }),
  }
}

function createJson({ owner, threadId, id, workflow, version, queue, priority, fingerprint, due, ifBusy }: NewRun): object {
  const [due_kind, dueMs] = dueOf(due)
  return {
    ...{ owner, thread: threadId, run: id, workflow, version: whole(version, 'workflow version'), queue },
    ...{ priority: whole(priority, 'priority'), fingerprint },
    ...{ due_kind, due: dueMs, reject: ifBusy === 'reject' },
  }
}

/** The events of a batch as parallel arrays. */
class Events {
  readonly #slots: number[] = []
  readonly #ords: number[] = []
  readonly #types: string[] = []
  readonly #steps: (string | null)[] = []
  readonly #counts: number[] = []
  readonly #attempts: number[] = []
  readonly #ats: number[] = []
  readonly #durations: (number | null)[] = []
  readonly #checkpointBytes: (number | null)[] = []
  readonly #checksums: number[] = []
  readonly #payloads: (Payload | null)[] = []
  readonly #patches: (Payload | null)[] = []

  /** The events of a change, after `before` others of the same slot. */
  add(slot: number, change: Change, before: number): void {
    const { events } = change
    let bytes = 0
    for (let i = 0; i < events.length; i++) {
      const event = events[i] as NewEvent
      const isCheckpoint = change.isCheckpoint && i === events.length - 1
      bytes += byteLengthOf(event.payload) + byteLengthOf(event.patch)
      this.#push(event, { slot, ord: before + i + 1, place: change, runId: change.runId, checkpointBytes: isCheckpoint ? bytes : null })
    }
  }

  addQueued(slot: number, { queued, ...create }: NewRun): void {
    const checkpointBytes = byteLengthOf(queued.payload) + byteLengthOf(queued.patch)
    this.#push(queued, { slot, ord: 1, place: create, runId: create.id, checkpointBytes })
  }

  encode(): unknown[] {
    if (this.#slots.length === 0) return Array(14).fill(null)
    return [
      integerArray(this.#slots),
      integerArray(this.#ords),
      textArray(this.#types),
      textArray(this.#steps),
      integerArray(this.#counts),
      integerArray(this.#attempts),
      floatArray(this.#ats),
      floatArray(this.#durations),
      bigintArray(this.#checkpointBytes),
      bigintArray(this.#checksums),
      ...payloadArrays(this.#payloads),
      ...payloadArrays(this.#patches),
    ]
  }

  #push(event: NewEvent, { slot, ord, place, runId, checkpointBytes }: EventPlace): void {
    const { type, step, count, attempt, at, durationMs, payload, patch } = event
    const record = { runId, type, step, count, attempt, at, durationMs, payload, patch, isCheckpoint: checkpointBytes !== null }
    this.#slots.push(slot)
    this.#ords.push(ord)
    this.#types.push(type)
    this.#steps.push(step)
    this.#counts.push(count)
    this.#attempts.push(attempt)
    this.#ats.push(at)
    this.#durations.push(durationMs)
    this.#checkpointBytes.push(checkpointBytes)
    this.#checksums.push(recordChecksum(place, record))
    this.#payloads.push(payload)
    this.#patches.push(patch)
  }
}

interface EventPlace {
  readonly slot: number
  readonly ord: number
  readonly place: { readonly owner: string; readonly threadId: string }
  readonly runId: string | null
  readonly checkpointBytes: number | null
}

/** Payloads of operations and snapshots of changes that travel as JSON: counted from 1. */
class Extras {
  readonly #payloads: Payload[] = []
  readonly #checksums: number[] = []

  add(payload: Payload, checksum: number): number {
    this.#checksums.push(checksum)
    return this.#payloads.push(payload)
  }

  encode(): unknown[] {
    return this.#payloads.length === 0 ? [null, null, null] : [bigintArray(this.#checksums), ...payloadArrays(this.#payloads)]
  }
}

/** Text and bytes apart; null for a kind that does not occur. */
function payloadArrays(payloads: readonly (Payload | null)[]): [Buffer | null, Buffer | null] {
  let [hasText, hasBytes] = [false, false]
  for (const payload of payloads) {
    if (typeof payload === 'string') hasText = true
    else if (payload !== null) hasBytes = true
  }
  return [hasText ? textArray(payloads.map(textOf)) : null, hasBytes ? bytesArray(payloads.map(bytesOf)) : null]
}

interface Answer {
  readonly now: number
  /** For each held group the head before it; -1 where the lease was lost. */
  readonly before: readonly number[]
  /** Held groups whose runs have mail, from 1. */
  readonly mail: readonly number[]
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

function readAnswers(answer: Answer, changes: readonly Change[], { sorted, leases }: { sorted: SortedChanges; leases: Leases }): Committed[] {
  const answers = new Array<Committed>(changes.length)
  const { now } = answer
  const mail = new Set(answer.mail)
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
        : { ok: true, firstSeq, lastSeq: before, now, created: [], hasMail: mail.has(at + 1) }
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
  return answers
}

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

function startedAnswer(change: Change, now: number): Committed {
  const { due, queued, ifBusy, ...create } = change.creates?.[0] as NewRun
  const [kind, dueMs] = dueOf(due)
  const run = {
    ...{ owner: create.owner, id: create.id, threadId: create.threadId, workflow: create.workflow, version: create.version },
    ...{ status: 'pending' as const, reason: null, queue: create.queue, priority: create.priority, fingerprint: create.fingerprint },
    ...{ epoch: 0, leaseId: null, leaseUntil: null, leaseHolder: null, dueAt: kind === 1 ? now + (dueMs ?? 0) : dueMs },
    ...{ claimsWithoutProgress: 0, currentStep: null, inputSeq: 1, tapeSeq: null, endSeq: null },
    ...{ createdAt: now, startedAt: null, finishedAt: null },
  }
  return { ok: true, firstSeq: 1, lastSeq: 1, now, created: [{ run, isNew: true }], hasMail: false }
}

/** Kind and ms as the functions take them. */
function dueOf(due: Due): [number, number | null] {
  if (due === 'never') return [3, null]
  return 'at' in due ? [2, wholeMs(due.at)] : [1, wholeMs(due.inMs)]
}

/** The end of time of a Date, so that no number is too large for the server. */
const endOfTime = 8_640_000_000_000_000

/** Rounded up: nothing is due before its time. */
function wholeMs(ms: number): number {
  if (Number.isNaN(ms)) throw new HoldfastError('invalid_input', 'A time is not a number; nothing was written.')
  return Math.ceil(Math.min(endOfTime, Math.max(-endOfTime, ms)))
}

function whole(value: number, what: string): number {
  if (Number.isSafeInteger(value)) return value
  throw new HoldfastError('invalid_input', `The ${what} ${value} is not a whole number; nothing was written.`)
}
