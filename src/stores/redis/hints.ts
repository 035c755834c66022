import type { Change, Committed } from '../../store/change.ts'
import { hintOfChange, hintOfMail, hintOfNewRun } from '../../store/hints.ts'
import type { Hint } from '../../store/store.ts'

/** Adds hints of what a written change may have changed. */
export function addHints(hints: Hint[], change: Change, answer: Committed | undefined): void {
  if (answer?.ok !== true) return
  hints.push(hintOf(change))
  for (const { run, isNew } of answer.created) if (isNew) hints.push(hintOfNewRun(run))
  if (change.delivers !== undefined) hints.push(...change.delivers.map((message) => hintOfMail(message)))
}

/** Hints of what others may be waiting for, made before the change is written: they are published in the call that writes it. */
export function expectedHintsOf(change: Change): Hint[] {
  const { creates, delivers } = change
  const own = creates !== undefined || isUrgent(change) ? [hintOf(change)] : []
  if (creates === undefined && delivers === undefined) return own
  return [...own, ...(creates ?? []).map(hintOfNewRun), ...(delivers ?? []).map((message) => hintOfMail(message))]
}

function hintOf(change: Change): Hint {
  return hintOfChange(change, closesOperation(change))
}

function isUrgent(change: Change): boolean {
  return change.run?.status !== undefined || closesOperation(change)
}

/** Runs that wait for the operation become due. */
function closesOperation({ operation }: Change): boolean {
  return operation?.kind === 'complete' || operation?.kind === 'fail' || operation?.kind === 'resolve'
}
