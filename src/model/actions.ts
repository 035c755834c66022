import type { PauseReason } from './run.ts'

/** What a person can do about something, in the same words everywhere: the inbox and notifications. */
export type Actions = readonly string[]

export const actionsForQuestion: Actions = ['answer', 'cancel']
export const actionsForUnsureEffect: Actions = ['resolve']
export const actionsForFailedRun: Actions = ['retry', 'rollback']

/** What can be done about a run that stopped, by why it did. */
export const actionsForPausedRun: Readonly<Record<PauseReason, Actions>> = {
  asked: ['resume', 'cancel', 'rollback'],
  retries: ['resume', 'cancel', 'rollback'],
  budget: ['resume with a higher budget', 'cancel', 'rollback'],
  undo: ['resume', 'cancel with undo: false'],
  poisoned: ['resume', 'cancel'],
  mismatch: ['resume', 'cancel', 'rollback'],
}
