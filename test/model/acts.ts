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
  | { readonly kind: 'cancel'; readonly undo: boolean }
  | { readonly kind: 'retry' }
  /** To the checkpoint at this fraction of those that there are. */
  | { readonly kind: 'rollback'; readonly to: number }
  | { readonly kind: 'edit' }
  | { readonly kind: 'delete' }
  | { readonly kind: 'advance'; readonly ms: number }

export interface PlannedAct extends Moment {
  readonly act: Act
  /** Which client does it. */
  readonly client: 0 | 1
  /** The reply to the write that is under way is held back until the act has reached the store. */
  readonly isWedged: boolean
}

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
