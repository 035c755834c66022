import { recordChecksum } from '../../model/checksum.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import type { Change, Committed, Due, NewRun, Refusal, RunChange } from '../../store/change.ts'
import type { Hint } from '../../store/store.ts'
import { BigintColumn, BooleanColumn, BytesColumn, FloatColumn, IntegerColumn, TextColumn } from './columns.ts'
import type { Leases } from './leases.ts'
import { operationJson } from './operations.ts'
import { byteLengthOf, bytesOf, newSnapshotChecksum, runOfJson, textOf, toOperation } from './rows.ts'
import { type HeldGroup, type SortedChanges, sortChanges } from './sort-changes.ts'

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
  readAnswer(text: string): Answers
}

export interface Answers {
  readonly answers: readonly Committed[]
  /** The store's time of the write. */
  readonly now: number
}

export function encodeBatch(changes: readonly Change[], { offset, isDurable, leases }: CommitOptions): Batch {
  const sorted = sortChanges(changes, leases)
  const events = new Events(countEvents(changes))
  const extras = new Extras()
  const held = encodeHeld(changes, sorted.held, events)
  const starts = encodeStarts(changes, sorted, events)
  const others = encodeOthers(changes, sorted, { events, extras })
  return {
    values: [offset, isDurable, sorted.rankCount, ...held, ...starts, ...others, ...extras.encode(), ...events.encode()],
    readAnswer: (text) => readAnswers(text, changes, { sorted, leases }),
  }
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
    const { owner, threadId, runId, run } = changes[i] as Change
    const isClaimable = (runId !== null && run?.status !== undefined) || (answer as WokenAnswer).hasWoken === true
    if (isClaimable) hints.push(runId === null ? { owner, threadId, isClaimable } : { owner, threadId, runId, isClaimable })
    else if (isHeard) hints.push(runId === null ? { owner, threadId } : { owner, threadId, runId })
    for (const { run, isNew } of answer.created) {
      if (isNew) hints.push({ owner: run.owner, threadId: run.threadId, runId: run.id, isClaimable: true })
    }
  }
  return hints
}

/** Groups of held changes as parallel arrays: h_ what every step has, m_ how a run begins, waits and ends, s_ snapshots. */
function encodeHeld(changes: readonly Change[], groups: readonly HeldGroup[], events: Events): readonly unknown[] {
  if (groups.length === 0) return noHeld
  const count = groups.length
  const [threads, runs, epochs, leases] = [
    new BigintColumn(count),
    new BigintColumn(count),
    new BigintColumn(count),
    new TextColumn(count, 36),
  ]
  const [counts, flags, steps, leaseMs] = [
    new IntegerColumn(count),
    new IntegerColumn(count),
    new TextColumn(count),
    new BigintColumn(count),
  ]
  const [statuses, reasons, dueKinds, dues] = [new TextColumn(), new TextColumn(), new IntegerColumn(), new BigintColumn()]
  const [tapes, inputs, ends, versions] = [new IntegerColumn(), new IntegerColumn(), new IntegerColumn(), new BigintColumn()]
  const snapshots = new Snapshots()
  for (let at = 0; at < count; at++) {
    const group = groups[at] as HeldGroup
    const row = heldRow(changes, group, { slot: at + 1, events, snapshots })
    threads.push(group.place.thread)
    runs.push(group.place.run)
    epochs.push(group.epoch)
    leases.push(group.leaseId)
    counts.push(row.count)
    flags.push(row.flags)
    steps.push(row.step)
    leaseMs.push(row.leaseMs)
    statuses.push(row.status)
    reasons.push(row.reason)
    dueKinds.push(row.dueKind)
    dues.push(row.due)
    tapes.push(row.tape)
    inputs.push(row.input)
    ends.push(row.end)
    versions.push(row.stateVersion)
  }
  return [
    ...[threads, runs, epochs, leases, counts, flags, steps, leaseMs].map((column) => column.encode()),
    ...[statuses, reasons, dueKinds, dues, tapes, inputs, ends, versions].map((column) => column.encode()),
    ...snapshots.encode(),
  ]
}

const noHeld: readonly null[] = Array(22).fill(null)

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
}

/** The changes of one lease, one after the other, as one: what a later one sets wins. */
function heldRow(changes: readonly Change[], { indexes }: HeldGroup, { slot, events, snapshots }: Into): HeldRow {
  const row: HeldRow = {
    ...{ count: 0, flags: 0, step: null, leaseMs: null, status: null, reason: null },
    ...{ dueKind: null, due: null, tape: null, input: null, end: null, stateVersion: null },
  }
  for (const index of indexes) {
    const change = changes[index] as Change
    const before = row.count
    events.add(slot, change, before)
    row.count += change.events.length
    if (change.run !== undefined) setRun(row, change.run, before + Math.min(1, change.events.length))
    if (change.stateVersion !== undefined) row.stateVersion = whole(change.stateVersion, 'state version')
    if (change.snapshot !== undefined) snapshots.add(change, { slot, ord: row.count, stateVersion: row.stateVersion })
  }
  return row
}

interface Into {
  readonly slot: number
  readonly events: Events
  readonly snapshots: Snapshots
}

function setRun(row: HeldRow, to: RunChange, first: number): void {
  row.flags |= flagsOf(to)
  if (to.currentStep !== undefined) row.step = to.currentStep
  if (to.reason !== undefined) row.reason = to.reason
  if (to.leaseMs !== undefined) row.leaseMs = wholeMs(to.leaseMs)
  if (to.status !== undefined) row.status = to.status
  if (to.due !== undefined) [row.dueKind, row.due] = dueOf(to.due)
  if (to.startsTape === true) {
    row.tape = first
    if (to.hasNewInput === true) row.input = first
  }
  if (to.setsEnd === true) row.end = row.count
}

/** As fn_commit and fn_step take them. */
export function flagsOf({ hasProgress, currentStep, uncountClaim, reason }: RunChange): number {
  return (
    (hasProgress === true ? 1 : 0) |
    (currentStep !== undefined ? 2 : 0) |
    (uncountClaim === true ? 4 : 0) |
    (reason !== undefined ? 8 : 0)
  )
}

class Snapshots {
  readonly #slots = new IntegerColumn()
  readonly #ords = new IntegerColumn()
  readonly #versions = new BigintColumn()
  readonly #checksums = new BigintColumn()
  readonly #states = new PayloadColumns()

  add(change: Change, { slot, ord, stateVersion }: { slot: number; ord: number; stateVersion: number | null }): void {
    const state = change.snapshot as Payload
    this.#slots.push(slot)
    this.#ords.push(ord)
    this.#versions.push(stateVersion)
    this.#checksums.push(newSnapshotChecksum(change, state))
    this.#states.push(state)
  }

  encode(): unknown[] {
    return [this.#slots, this.#ords, this.#versions, this.#checksums]
      .map((column): unknown => column.encode())
      .concat(this.#states.encode())
  }
}

/** New runs on threads of their own as parallel arrays. */
function encodeStarts(changes: readonly Change[], { held, starts }: SortedChanges, events: Events): readonly unknown[] {
  if (starts.length === 0) return noStarts
  const count = starts.length
  const [indexes, ranks, owners, threads] = [
    new IntegerColumn(count),
    new IntegerColumn(count),
    new TextColumn(count),
    new TextColumn(count, 36),
  ]
  const [ids, workflows, versions, queues] = [
    new TextColumn(count, 36),
    new TextColumn(count),
    new BigintColumn(count),
    new TextColumn(count),
  ]
  const [priorities, fingerprints, dueKinds] = [new BigintColumn(count), new TextColumn(count, 44), new IntegerColumn(count)]
  const [dues, rejects] = [new BigintColumn(count), new BooleanColumn(count)]
  for (const [at, { index, rank }] of starts.entries()) {
    const create = (changes[index] as Change).creates?.[0] as NewRun
    events.addQueued(held.length + at + 1, create)
    const [dueKind, due] = dueOf(create.due)
    indexes.push(index)
    ranks.push(rank)
    owners.push(create.owner)
    threads.push(create.threadId)
    ids.push(create.id)
    workflows.push(create.workflow)
    versions.push(whole(create.version, 'workflow version'))
    queues.push(create.queue)
    priorities.push(whole(create.priority, 'priority'))
    fingerprints.push(create.fingerprint)
    dueKinds.push(dueKind)
    dues.push(due)
    rejects.push(create.ifBusy === 'reject')
  }
  const columns = [
    indexes,
    ranks,
    owners,
    threads,
    ids,
    workflows,
    versions,
    queues,
    priorities,
    fingerprints,
    dueKinds,
    dues,
    rejects,
  ]
  return columns.map((column) => column.encode())
}

const noStarts: readonly null[] = Array(13).fill(null)

function encodeOthers(
  changes: readonly Change[],
  { held, starts, others }: SortedChanges,
  into: { events: Events; extras: Extras },
): unknown[] {
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
    ...{
      owner,
      thread: change.threadId,
      run: change.runId,
      count: change.events.length,
      is_checkpoint: change.isCheckpoint,
      label,
    },
    ...(stateVersion === undefined ? {} : { state_version: whole(stateVersion, 'state version') }),
    ...(snapshot === undefined ? {} : { snapshot: extras.add(snapshot, newSnapshotChecksum(change, snapshot)) }),
    ...(readMessages === undefined ? {} : { read: readMessages.filter(Number.isSafeInteger) }),
    ...guardJson(guard),
    ...(to === undefined ? {} : runJson(to)),
    ...(operation === undefined
      ? {}
      : { operation: operationJson(owner, operation, (payload, checksum) => extras.add(payload, checksum)) }),
  }
}

function guardJson(guard: Change['guard']): object {
  switch (guard.kind) {
    case 'lease':
      return { guard: 'lease', epoch: countOrNull(guard.epoch), lease: guard.leaseId }
    case 'run':
      return {
        guard: 'run',
        epoch: countOrNull(guard.epoch),
        guard_status: guard.status,
        is_undisturbed: guard.undisturbed === true,
      }
    case 'thread':
      return { guard: 'thread', guard_head: countOrNull(guard.headSeq) }
    case 'none':
      return { guard: 'none' }
  }
}

function runJson(to: RunChange): object {
  const [due_kind, due] = to.due === undefined ? [undefined, undefined] : dueOf(to.due)
  return {
    ...{
      has_run: true,
      status: to.status,
      sets_reason: to.reason !== undefined,
      reason: to.reason,
      due_kind,
      due,
      wait_key: to.waitKey,
    },
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
  readonly #slots: IntegerColumn
  readonly #ords: IntegerColumn
  readonly #types: TextColumn
  readonly #steps: TextColumn
  readonly #counts: IntegerColumn
  readonly #attempts: IntegerColumn
  readonly #ats: FloatColumn
  readonly #durations: FloatColumn
  readonly #checkpointBytes: BigintColumn
  readonly #checksums: BigintColumn
  readonly #payloads: PayloadColumns
  readonly #patches: PayloadColumns

  constructor(count: number) {
    this.#slots = new IntegerColumn(count)
    this.#ords = new IntegerColumn(count)
    this.#types = new TextColumn(count, 16)
    this.#steps = new TextColumn(count, 16)
    this.#counts = new IntegerColumn(count)
    this.#attempts = new IntegerColumn(count)
    this.#ats = new FloatColumn(count)
    this.#durations = new FloatColumn(count)
    this.#checkpointBytes = new BigintColumn(count)
    this.#checksums = new BigintColumn(count)
    this.#payloads = new PayloadColumns(count)
    this.#patches = new PayloadColumns(count)
  }

  /** The events of a change, after `before` others of the same slot. */
  add(slot: number, change: Change, before: number): void {
    const { events } = change
    let bytes = 0
    for (let i = 0; i < events.length; i++) {
      const event = events[i] as NewEvent
      const isCheckpoint = change.isCheckpoint && i === events.length - 1
      bytes += byteLengthOf(event.payload) + byteLengthOf(event.patch)
      this.#push(event, {
        slot,
        ord: before + i + 1,
        place: change,
        runId: change.runId,
        checkpointBytes: isCheckpoint ? bytes : null,
      })
    }
  }

  addQueued(slot: number, create: NewRun): void {
    const { queued, id: runId } = create
    const checkpointBytes = byteLengthOf(queued.payload) + byteLengthOf(queued.patch)
    this.#push(queued, { slot, ord: 1, place: create, runId, checkpointBytes })
  }

  encode(): unknown[] {
    return [
      ...[this.#slots, this.#ords, this.#types, this.#steps, this.#counts, this.#attempts, this.#ats, this.#durations].map(
        (column) => column.encode(),
      ),
      ...[this.#checkpointBytes.encode(), this.#checksums.encode(), ...this.#payloads.encode(), ...this.#patches.encode()],
    ]
  }

  #push(event: NewEvent, { slot, ord, place, runId, checkpointBytes }: EventPlace): void {
    const { type, step, count, attempt, at, durationMs, payload, patch } = event
    const record = { runId, type, step, count, attempt, at, durationMs, payload, patch, isCheckpoint: checkpointBytes !== null }
    this.#slots.push(slot)
    this.#ords.push(ord)
    this.#types.push(type)
    this.#steps.push(step)
    this.#counts.push(count32(count))
    this.#attempts.push(count32(attempt))
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
  readonly #checksums = new BigintColumn()
  readonly #payloads = new PayloadColumns()
  #count = 0

  add(payload: Payload, checksum: number): number {
    this.#checksums.push(checksum)
    this.#payloads.push(payload)
    return ++this.#count
  }

  encode(): unknown[] {
    return [this.#checksums.encode(), ...this.#payloads.encode()]
  }
}

/** Text and bytes apart; null for a kind that does not occur. */
class PayloadColumns {
  readonly #texts: TextColumn
  readonly #bytes = new BytesColumn()

  constructor(count = 1) {
    this.#texts = new TextColumn(count, 64)
  }

  push(payload: Payload | null): void {
    this.#texts.push(textOf(payload))
    this.#bytes.push(bytesOf(payload))
  }

  encode(): (Buffer | null)[] {
    return [this.#texts.encode(), this.#bytes.encode()]
  }
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

function readAnswers(
  text: string,
  changes: readonly Change[],
  { sorted, leases }: { sorted: SortedChanges; leases: Leases },
): Answers {
  const answer = JSON.parse(text) as Answer
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
  return { answers, now }
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

function countEvents(changes: readonly Change[]): number {
  let count = 0
  for (const { events, creates } of changes) count += events.length + (creates?.length ?? 0)
  return count
}

/** Kind and ms as the functions take them. */
function dueOf(due: Due): [number, number | null] {
  if (due === 'never') return [3, null]
  return 'at' in due ? [2, wholeMs(due.at)] : [1, wholeMs(due.inMs)]
}

/** The end of time of a Date, so that no number is too large for the server. */
const endOfTime = 8_640_000_000_000_000

/** Rounded up: nothing is due before its time. */
export function wholeMs(ms: number): number {
  if (Number.isNaN(ms)) throw new HoldfastError('invalid_input', 'A time is not a number; nothing was written.')
  return Math.ceil(Math.min(endOfTime, Math.max(-endOfTime, ms)))
}

/** What is not a whole number equals none. */
function countOrNull(value: number): number | null {
  return Number.isSafeInteger(value) ? value : null
}

/** Counts of calls and attempts are kept in 32 bits. */
export function count32(value: number): number {
  if ((value | 0) === value) return value
  throw new HoldfastError('invalid_input', `${value} calls or attempts are more than the store can count; nothing was written.`)
}

function whole(value: number, what: string): number {
  if (Number.isSafeInteger(value)) return value
  throw new HoldfastError('invalid_input', `The ${what} ${value} is not a whole number; nothing was written.`)
}
