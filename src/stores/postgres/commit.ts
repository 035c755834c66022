import type { Change } from '../../store/change.ts'
import { type Answers, readAnswers } from './answers.ts'
import { Extras, encodeOthers } from './change-json.ts'
import { encodeHeldChunks } from './chunks.ts'
import { EventColumns } from './event-columns.ts'
import { encodeHeld } from './held-columns.ts'
import type { Leases } from './leases.ts'
import { sortChanges } from './sort-changes.ts'
import { encodeStarts } from './start-columns.ts'

/** The writer's two parameters come first, then those of a batch: commit-sql.ts. */
export const commitSql = `SELECT holdfast.fn_commit(${Array.from({ length: 63 }, (_, index) => `$${index + 1}`).join(', ')})`

export interface CommitOptions {
  /** Whole ms added to the server's time. */
  readonly offset: number
  /** The flush is waited for. */
  readonly isDurable: boolean
  readonly leases: Leases
}

/** A batch as the server gets it, and how to read what it answers. */
export interface Batch {
  readonly values: readonly unknown[]
  readAnswer(text: string): Answers
}

export function encodeBatch(changes: readonly Change[], { offset, isDurable, leases }: CommitOptions): Batch {
  const sorted = sortChanges(changes, leases)
  const events = new EventColumns(countEvents(changes))
  const extras = new Extras()
  const held = encodeHeld(changes, sorted.held, events)
  const starts = encodeStarts(changes, sorted, events)
  const chunks = encodeHeldChunks(changes, sorted.held, extras)
  const others = encodeOthers(changes, sorted, { events, extras })
  return {
    values: [offset, isDurable, sorted.rankCount, ...held, ...starts, ...others, chunks, ...extras.encode(), ...events.encode()],
    readAnswer: (text) => readAnswers(text, changes, { sorted, leases }),
  }
}

function countEvents(changes: readonly Change[]): number {
  let count = 0
  for (const { events, creates } of changes) count += events.length + (creates?.length ?? 0)
  return count
}
