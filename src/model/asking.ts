import { fingerprint } from './codec.ts'
import { newRunId } from './new-run-id.ts'

/** What question_asked says of one asking of a question. */
export interface Asking {
  /** Its id, by which it is answered: the key of its operation. */
  readonly key: string
  readonly question: unknown
  /** Fingerprint of what is shown: an answer counts for this and nothing else. */
  readonly shown: string
  readonly to?: string
  /** Why an earlier answer was not taken. */
  readonly problem?: string
}

/** By chance: it is recorded in the write that asks, so that a crash leaves both or neither, and a replay asks under no other. */
export function newAskingId(): string {
  return `ask_${newRunId()}`
}

/** Names this asking and what it shows: the same question asked again has another. */
export function shownOf({ key, shown }: Pick<Asking, 'key' | 'shown'>): string {
  return fingerprint([key, shown])
}
