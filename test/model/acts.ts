/** When something is done to a run: as soon as so many things were noted in the journal, or when nothing moves any more. */
export interface Moment {
  readonly afterNotes: number
}

/** What somebody outside of a run does to it. */
export type Act =
  | { readonly kind: 'signal'; readonly name: string }
  | { readonly kind: 'answer'; readonly how: 'once' | 'twice' | 'wrong' }
  | { readonly kind: 'resolve' }
  | { readonly kind: 'pause' }
  | { readonly kind: 'resume' }
  /** `run`: of a copy that a fork made, not of the run that was started. */
  | { readonly kind: 'cancel'; readonly undo: boolean; readonly run?: string }
  | { readonly kind: 'retry'; readonly run?: string }
  /** To the checkpoint at this fraction of those that there are. */
  | { readonly kind: 'rollback'; readonly to: number }
  | { readonly kind: 'edit' }
  | { readonly kind: 'delete' }
  | { readonly kind: 'advance'; readonly ms: number }
  | Fork
  /** A fork in which a recorded call has another result: the one at this fraction of those that the run shows up to there. */
  | (Omit<Fork, 'kind' | 'edits'> & { readonly kind: 'replace'; readonly call: number })
  /** The state goes back to the checkpoint at this fraction. */
  | { readonly kind: 'rewind'; readonly to: number }

/** A copy of a thread, which is then continued. */
export interface Fork {
  readonly kind: 'fork'
  /** Of which thread: below a half that of the run that was started, then the one at this fraction of all others. */
  readonly of: number
  /** At the checkpoint at this fraction of those that there are. */
  readonly at: number
  readonly edits: boolean
  /** What becomes of the copy when it has been resumed. `rollback`: to the checkpoint at this fraction. */
  readonly fate: 'resume' | 'cancel' | { readonly rollback: number }
}

export interface PlannedAct extends Moment {
  readonly act: Act
  /** Which client does it. */
  readonly client: 0 | 1
  /** The reply to the write that is under way is held back until the act has reached the store. */
  readonly isWedged: boolean
}

/** As `afterNotes`: when all runs have ended. */
export const whenAllHaveEnded = 1_000_000

/** What goes wrong with the process that executes runs. `write` counts its commits, over all its lives. */
export type Fault =
  /** It ends right before or after a write; another takes its place. */
  | { readonly kind: 'crash'; readonly write: number; readonly when: 'before' | 'after' }
  /** The write is done, and nobody hears of it. */
  | { readonly kind: 'lost_reply'; readonly write: number }
  /** The store refuses it. */
  | { readonly kind: 'outage'; readonly write: number }
  /** A real process ends by SIGKILL. */
  | { readonly kind: 'kill'; readonly write: number; readonly when: 'before' | 'after' }
  /** It stands still until its lease is over and another process has the run. */
  | { readonly kind: 'lost_lease'; readonly write: number }
