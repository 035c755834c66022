import type { Actions } from './actions.ts'
import type { PauseReason } from './run.ts'

/** What is said: how a run ended, or that it needs somebody. */
export const notificationKinds = ['completed', 'failed', 'waiting_for_person', 'paused', 'poisoned', 'budget_exceeded'] as const

export type NotificationKind = (typeof notificationKinds)[number]

/** One message about a run. Plain JSON, the same for a function and for a webhook. */
export interface Notification {
  /** One id a message, however often it is delivered: what was heard before can be dropped. */
  readonly id: string
  readonly kind: NotificationKind
  /** When it happened, in ms since 1970 by the store's clock. */
  readonly at: number
  readonly runId: string
  readonly threadId: string
  readonly owner: string
  readonly workflow: string
  /** Why it is paused. */
  readonly reason?: PauseReason
  /** The step, effect or question that it is about, with its scopes. */
  readonly step?: string
  readonly error?: { readonly name: string; readonly message: string; readonly code?: string }
  /** What a person is asked. Left out where it is larger than 32 KiB: `hf.inbox()` has it. */
  readonly question?: unknown
  /** Which asking it is: given to `hf.answer` as `id`. */
  readonly questionId?: string
  /** Whom the question is for. */
  readonly to?: string
  /** Names this asking and what it shows: given to `hf.answer`, the answer counts for this and nothing else. */
  readonly shown?: string
  /** Why an earlier answer was not taken. */
  readonly problem?: string
  /** The effect that nobody knows the outcome of, for `hf.resolve`. */
  readonly effectKey?: string
  /** What can be done about it. */
  readonly actions: Actions
}
