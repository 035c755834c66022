import type { Payload } from './payload.ts'

/** What a thread's log can say. Noun, then past verb. */
export const eventTypes = [
  'run_queued',
  'run_started',
  'run_recovered',
  'run_paused',
  'run_resumed',
  'run_retried',
  'run_rolled_back',
  'run_cancelled',
  'run_completed',
  'run_failed',
  'step_started',
  'step_completed',
  'step_failed',
  'step_skipped',
  'step_undone',
  'undo_ordered',
  'state_updated',
  'state_migrated',
  'value_recorded',
  'effect_intended',
  'effect_completed',
  'effect_failed',
  'effect_skipped',
  'effect_unsure',
  'effect_resolved',
  'question_asked',
  'question_answered',
  'signal_received',
  'timer_set',
  'timer_fired',
  'wait_withdrawn',
  'child_started',
  'child_completed',
  'progress_reported',
  'stream_opened',
  'artifact_saved',
  'artifact_read',
  'artifact_deleted',
  'memory_written',
  'memory_recalled',
  'usage_recorded',
  'budget_exceeded',
  'budget_raised',
  'thread_rewound',
  'thread_forked',
  'thread_deleted',
] as const

export type EventType = (typeof eventTypes)[number]

/** An event on its way into the log. The store adds `seq`; the rest is decided by the writer. */
export interface NewEvent {
  readonly type: EventType
  /** Path of the step, scopes included (`gather/fetch`); null for events of the run or thread. */
  readonly step: string | null
  /**
   * Which call of that path in this tape, from 1; 0 where there is no step. Of run_started: which tape of the run; of thread_rewound and
   * thread_forked: the version of the state definition of the state from there on.
   */
  readonly count: number
  /** The attempt of the step, from 1; 0 where there is none. */
  readonly attempt: number
  /** When it happened, by the store's clock, in ms since 1970. */
  readonly at: number
  readonly durationMs: number | null
  /** Encoded data of the event. */
  readonly payload: Payload | null
  /** Encoded patch of the thread's state made by this event. */
  readonly patch: Payload | null
}

/** An event as the log keeps it. */
export interface LogRecord extends NewEvent {
  /** Position in the thread's log: per thread, gapless, from 1. */
  readonly seq: number
  /** The run it belongs to; null for an edit of the thread by hand. */
  readonly runId: string | null
  /** A commit that leaves a checkpoint ended here. */
  readonly isCheckpoint: boolean
}
