import type { LogRecord } from '../../model/event.ts'
import { keyOfRecord, pathOf } from './call-key.ts'
import { noteLateFailure, reopenInside } from './reopen.ts'
import { fallbackPath, isInside } from './scope-paths.ts'
import type { CallHistory, FailureData } from './tape.ts'
import type { TapeBuilder, TapeHandlers } from './tape-builder.ts'

/** Steps, sections and effects. */
export const onCalls = {
  step_started: startStep,
  stream_opened(tape, record) {
    const { stream } = tape.data<{ stream: string }>(record)
    if (record.step === null) tape.streams.set(stream, { isStale: false })
    else {
      const history = tape.call('step', record)
      history.opened = [...(history.opened ?? []), { attempt: record.attempt, stream }]
    }
  },
  step_completed: (tape, record) => tape.settle('step', record),
  step_skipped: (tape, record) => tape.settle('step', record),
  step_failed: (tape, record) => fail(tape, record, 'step'),
  step_undone(tape, record) {
    const { of } = tape.data<{ of: number }>(record)
    // Its operation is free: if it is done again, it starts from the beginning.
    for (const history of tape.calls.values()) if ((history.outcome ?? history.decided)?.seq === of) delete history.effect
  },
  effect_intended: intendEffect,
  effect_unsure(tape, record) {
    const history = tape.call('effect', record)
    history.effect = 'unsure'
    history.key = tape.data<{ key: string }>(record).key
  },
  effect_resolved: resolveEffect,
  effect_completed(tape, record) {
    tape.settle('effect', record)
    tape.call('effect', record).key ??= tape.data<{ key: string }>(record).key
  },
  effect_skipped(tape, record) {
    tape.settle('effect', record)
    tape.call('effect', record).key = tape.data<{ key: string }>(record).key
  },
  effect_failed: (tape, record) => fail(tape, record, 'effect'),
} satisfies TapeHandlers

/** What step_started says. */
interface StartData {
  readonly inputFingerprint?: string
  readonly scope?: string
  readonly hasUndo?: boolean
  readonly key?: string
  /** Of `ctx.begin`: it was recorded before the function got the step. */
  readonly isFirst?: boolean
}

function startStep(tape: TapeBuilder, record: LogRecord): void {
  const history = tape.call('step', record)
  history.isRunning = true
  if (history.opened !== undefined) delete history.opened
  if (history.isDueAnew !== undefined) delete history.isDueAnew
  const { inputFingerprint, scope, hasUndo, key, isFirst } = tape.data<StartData>(record)
  if (isFirst === true) history.begunFirstAt = record.seq
  if (inputFingerprint !== undefined) history.inputFingerprint = inputFingerprint
  if (hasUndo === true) history.hasUndo = true
  if (key !== undefined) history.key = key
  if (scope !== undefined) startSection(tape, record, Object.assign(history, { scope }))
}

function startSection(tape: TapeBuilder, record: LogRecord, history: CallHistory & { scope: string }): void {
  const { scope } = history
  tape.scopes.set(scope, history)
  tape.sites.set(scope, history).set(fallbackPath(scope), history)
  tape.keysOfScopes.set(scope, keyOfRecord('step', record))
  forgetUsage(tape, scope)
  history.started = { seq: record.seq, at: record.at, patchCount: tape.patches.length }
}

/** Another attempt of a section uses again what it uses in its own code. */
function forgetUsage({ booked }: TapeBuilder, scope: string): void {
  for (const key of booked) if (isInside(pathOf(key), scope)) booked.delete(key)
}

function fail(tape: TapeBuilder, record: LogRecord, kind: 'step' | 'effect'): void {
  const { next, retryAt, counts, error, open, failed } = tape.data<FailureData>(record)
  const history = tape.call(kind, record)
  history.isRunning = false
  delete history.opened
  if (counts !== false) history.failures++
  if (error !== undefined) history.lastError = error
  delete history.next
  delete history.retryAt
  if (next === 'fallback' || next === 'pause') history.next = next
  // If the worker dies from here on, it is in the fallback.
  if (next === 'fallback') history.deaths = 0
  if (retryAt !== undefined) history.retryAt = retryAt
  if (kind === 'effect') history.effect = open === true ? 'intended' : 'not_happened'
  if (failed !== undefined) history.failed = [...(history.failed ?? []), ...failed]
  if (history.scope !== undefined) {
    forgetUsage(tape, history.scope)
    if (next === 'retry') retrySection(tape, history.scope, history)
  }
  if (next !== 'throw') return
  tape.settle(kind, record, true)
  noteLateFailure(tape, kind, record)
}

function retrySection(tape: TapeBuilder, scope: string, history: CallHistory): void {
  const inside = (history.failed ?? []).filter((key) => isInside(pathOf(key), scope))
  reopenInside(tape, scope, inside)
  delete history.failed
}

/** What effect_intended says. */
interface IntentData {
  readonly key: string
  readonly hasUndo?: boolean
  readonly undo?: string
  /** Written again by a holder because the store had lost the first one. */
  readonly wasForgotten?: true
}

function intendEffect(tape: TapeBuilder, record: LogRecord): void {
  const { key, hasUndo, undo, wasForgotten } = tape.data<IntentData>(record)
  // The call that has this key will find the operation. What came before is done again, perhaps with other results and so other keys.
  if (wasForgotten === true) return
  const history = tape.call('effect', record)
  history.effect = 'intended'
  history.key = key
  delete history.isDueAnew
  delete history.decided
  if (hasUndo === true) history.hasUndo = true
  if (undo !== undefined) history.undo = undo
}

function resolveEffect(tape: TapeBuilder, record: LogRecord): void {
  const { happened, result, key } = tape.data<{ happened: boolean; result?: unknown; key: string }>(record)
  const history = tape.calls.get(keyOfRecord('effect', record))
  // About an effect of an earlier tape, or from before a rollback: this call has another key, or was never made.
  if (history?.key !== key) return
  history.effect = happened ? 'happened' : 'not_happened'
  history.resolution = result
  if (happened) history.decided = { seq: record.seq, payload: record.payload }
}
