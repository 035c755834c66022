import type { EventType } from '../model/event.ts'
import type { Patch } from '../model/patch.ts'

/**
 * A history as the debugger reads it: the log of a thread, or whatever another system keeps. Ids of checkpoints and events are
 * opaque: they are given back as they came. Nothing here executes or changes anything.
 */
export interface History {
  /** What messages call it. */
  readonly name: string
  /** Only this run is looked at; null: all that happened. */
  readonly runId: string | null

  /** Oldest first, after a checkpoint. At most `limit`. */
  checkpoints(query: { readonly after?: string; readonly limit: number }): Promise<readonly HistoryCheckpoint[]>

  /** The id of what an id or a label names. `invalid_id` where there is nothing of that name. */
  find(checkpoint: string): Promise<string>

  /** The state right after an event or checkpoint; with null, before the first. Undefined where nothing was ever written. */
  stateAt(id: string | null): Promise<unknown>

  /** The state right before an event. */
  stateBefore(id: string): Promise<unknown>

  /** The id of a position, and the position of an id. */
  idAt(position: number): string
  positionOf(id: string): number

  /** One event, with its data. */
  event(id: string): Promise<HistoryEvent>

  /** The same history without the restriction to one run. */
  whole(): History

  /** Where it was forked from, if it was and that is still there. */
  origin(): Promise<HistoryOrigin | null>

  /** Positions of changes that an event took out of the state: those of attempts that were made again. */
  voidedBy(id: string): Promise<readonly number[]>

  /** Oldest first. Of `runId` alone, where the history is of one run. */
  events(query: EventQuery): Promise<readonly HistoryEvent[]>

  /** Events that changed the state, of all runs and by hand. Oldest first, or newest first. Without their data, those that go back excepted. */
  changes(query: ChangeQuery): Promise<readonly HistoryEvent[]>
}

/** The history that another one was forked from. */
export interface HistoryOrigin {
  readonly history: History
  /** The event that says so. */
  readonly event: HistoryEvent
  /** Up to this position the fork is a copy. */
  readonly upTo: number
  /** Where the origin has the state that the fork has at a position of the copy. */
  positionOf(position: number): number
}

export interface HistoryCheckpoint {
  readonly id: string
  /** The one that it came from; null for the first. Several may have the same. */
  readonly parent: string | null
  readonly at: number
  readonly runId: string | null
  readonly step: string | null
  readonly label: string | null
  /** What was written for it. */
  readonly bytes: number
}

export interface EventQuery {
  readonly after?: string
  /** Up to and including this one. */
  readonly to?: string
  readonly types?: readonly EventType[]
  /** Data of events of these types only; absent: of all. */
  readonly dataOf?: readonly EventType[]
  /** Also what events changed of the state, where `dataOf` is given. */
  readonly withPatches?: boolean
  /** In the history of one run, also the events of others that changed the state, without their data. */
  readonly withEdits?: boolean
  /** About so many are looked at: fewer may be found, and none only where there are no more. */
  readonly limit: number
}

export interface ChangeQuery {
  readonly after?: string
  /** Up to and including this one. */
  readonly to: string
  /** About so many are looked at: fewer or a few more may be found, and none only where there are no more. */
  readonly limit: number
  readonly newestFirst?: boolean
  /** Also rollbacks and rewinds, whether they changed it or not. */
  readonly withReturns?: boolean
}

export interface HistoryEvent {
  /** The state right after it can be asked for by this. */
  readonly id: string
  /** Rises from event to event. */
  readonly position: number
  readonly at: number
  readonly type: EventType
  /** Null: an edit by hand. */
  readonly runId: string | null
  readonly step: string | null
  /** Which call of that step, from 1; 0 where there is no step. */
  readonly count: number
  /** From 1; 0 where there is none. */
  readonly attempt: number
  readonly durationMs: number | null
  readonly isCheckpoint: boolean
  readonly data: Readonly<Record<string, unknown>>
  readonly patch: Patch | null
  /** Of a rollback: what its run did after this position is forgotten, and the state is the one that was there. Of a rewind: what all did. */
  readonly backTo: number | null
}
