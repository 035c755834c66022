import type { LogRecord } from '../../model/event.ts'
import { addUsage, type Budget, noUsage, type UsageTotal } from '../../model/usage.ts'
import { type CallKey, keyOfRecord, kindOf, pathOf } from './call-key.ts'
import type { ForkMark } from './fork-mark.ts'
import { forgetName, reopen, reopenFailures, stepsInside, takeOwnName } from './reopen.ts'
import { around } from './scope-paths.ts'
import { type CallHistory, countDeath, type Order, type Recovery } from './tape.ts'
import type { TapeBuilder, TapeHandlers } from './tape-builder.ts'

/** The run itself: how it was started, stopped and continued, and what it has used. */
export const onControl = {
  run_started(tape, record) {
    tape.number = record.count
    tape.usage = addUsage(tape.usage, tape.data<{ usage?: Partial<UsageTotal> }>(record).usage ?? {})
  },
  run_recovered(tape, record) {
    const { epoch = 0, running = [] } = tape.data<Partial<Recovery>>(record)
    tape.recoveries.push({ epoch, running })
    for (const key of running) countDeath(tape, key)
  },
  run_retried: retry,
  run_resumed(tape, record) {
    if (tape.isRolledBack) showAllAtLast(tape, Number.POSITIVE_INFINITY)
    else if (tape.givenFrom !== undefined) showAllAtLast(tape, tape.givenFrom)
    tape.isRolledBack = false
    tape.givenFrom = undefined
    // Resumed by a person: the function may be called again.
    tape.order = tape.data<{ order?: Order }>(record).order ?? replayable(tape.order)
    if (tape.order !== undefined) return
    for (const [key, history] of tape.calls) if (history.next === 'pause') reopen(tape, key)
  },
  run_paused: noteOrder,
  undo_ordered: noteOrder,
  run_rolled_back(tape, record) {
    tape.isRolledBack = true
    renew(tape, record)
    tape.order = undefined
  },
  run_failed(tape, record) {
    tape.order = undefined
    if (tape.data<{ isUndone?: boolean }>(record).isUndone !== true) return
    // Its open children were cancelled. If it is retried, it starts others.
    for (const [key, { outcome }] of tape.calls) if (outcome === undefined && kindOf(key) === 'child') forgetName(tape, key)
  },
  run_cancelled(tape) {
    tape.order = undefined
  },
  usage_recorded(tape, record) {
    const { child, ...used } = tape.data<Partial<UsageTotal> & { child?: string }>(record)
    tape.usage = addUsage(tape.usage, used)
    if (child !== undefined) addUsageOfChild(tape, child, used)
    // Without an attempt it is a call of ctx.usage, which a replay makes again. With one it comes from the body of a step.
    if (record.step !== null && record.attempt === 0) tape.booked.add(keyOfRecord('value', record))
  },
  budget_raised(tape, record) {
    tape.raised = { ...tape.raised, ...tape.data<{ budget: Budget }>(record).budget }
  },
} satisfies TapeHandlers

/** What holds even if the record was rolled back since. These come before the other handlers. */
export const onLasting = {
  /** What a child used is used. A child that was retried has used more, and its record says how much more. */
  child_completed(tape, record) {
    const { runId: child, usage } = tape.data<{ runId: string; usage?: Partial<UsageTotal> }>(record)
    tape.childEnds.set(record.seq, child)
    if (usage === undefined) return
    tape.usage = addUsage(tape.usage, usage)
    addUsageOfChild(tape, child, usage)
  },
  /** Up to here the tape is a copy, wherever the run was rolled back to since. */
  run_paused(tape, record) {
    const { fork } = tape.data<{ fork?: ForkMark }>(record)
    if (fork !== undefined) endCopy(tape, record, fork)
  },
  /** What was undone stays undone, also if its result was not rolled back. */
  step_undone(tape, record) {
    const { of } = tape.data<{ of: number }>(record)
    tape.undone.add(of)
    const child = tape.childEnds.get(of)
    if (child !== undefined) tape.undoneChildren.add(child)
  },
} satisfies TapeHandlers

function retry(tape: TapeBuilder, record: LogRecord): void {
  tape.retriedAt = record.at
  renew(tape, record)
  const isUndone = ({ outcome, decided }: CallHistory) => tape.undone.has((outcome ?? decided)?.seq ?? 0)
  const undone = [...tape.calls].filter(([, history]) => isUndone(history)).flatMap(([key]) => [key, ...stepsInside(tape, key)])
  for (const key of new Set(undone)) forgetName(tape, key)
  reopenFailures(tape, [
    ...(tape.data<{ reopened?: CallKey[] }>(record).reopened ?? []),
    // What was undone is done again, and the scopes around it are entered again.
    ...undone.flatMap((key) => [key, ...around(pathOf(key), tape.keysOfScopes)]),
  ])
}

/** The function will write its streams again, and messages from children may be gone. */
function renew(tape: TapeBuilder, record: LogRecord): void {
  tape.renewedSeq = record.seq
  for (const stream of tape.streams.values()) stream.isStale = true
}

function noteOrder(tape: TapeBuilder, record: LogRecord): void {
  tape.order = tape.data<{ order?: Order }>(record).order ?? tape.order
}

/** The tape up to here is a copy. Calls that have no result in it begin under names of their own; results that were given for later calls wait for those. */
function endCopy(tape: TapeBuilder, { seq }: LogRecord, { optionalFrom = seq }: ForkMark): void {
  tape.copiedUpTo = seq
  tape.givenFrom = optionalFrom
  for (const history of tape.calls.values()) {
    if (history.outcome === undefined) takeOwnName(history)
    else history.isCopied = true
  }
  for (const outcome of tape.outcomes.values())
    if (outcome.seq >= optionalFrom) tape.replaceOutcome({ ...outcome, isOptional: true })
}

function replayable(order: Order | undefined): Order | undefined {
  if (order === undefined || order.kind === 'fail') return order
  const { replays: _, ...again } = order
  return again
}

/** After a rollback or a fork the function continues from the last result that is left, with the state as it was edited since. */
function showAllAtLast(tape: TapeBuilder, before: number): void {
  const last = [...tape.outcomes.values()].findLast(({ seq }) => seq < before)
  if (last !== undefined) tape.replaceOutcome({ ...last, patchCount: tape.patches.length })
}

function addUsageOfChild({ usageOfChildren }: TapeBuilder, child: string, used: Partial<UsageTotal>): void {
  usageOfChildren.set(child, addUsage(usageOfChildren.get(child) ?? noUsage, used))
}
