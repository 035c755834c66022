import type { Change } from '../../store/change.ts'
import { type Answers, readAnswers } from './answers.ts'
import { encodeOthers } from './change-json.ts'
import { encodeLeasedChunks } from './chunks.ts'
import { commitParameters, commitValues } from './commit-parameters.ts'
import { EventEncoder } from './event-columns.ts'
import { ExtraPayloads } from './extra-payloads.ts'
import { encodeLeased } from './leased-columns.ts'
import type { Leases } from './leases.ts'
import { callSql } from './parameters.ts'
import { sortChanges } from './sort-changes.ts'
import { encodeStarts } from './start-columns.ts'

export const commitSql = `SELECT ${callSql('fn_commit', commitParameters)}`

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
  const events = new EventEncoder(countEvents(changes))
  const extras = new ExtraPayloads()
  const { leased, snapshots } = encodeLeased(changes, sorted.leased, events)
  const starts = encodeStarts(changes, sorted, events)
  const chunks = encodeLeasedChunks(changes, sorted.leased, extras)
  const others = encodeOthers(changes, sorted, { events, extras })
  const hasRecords = changes.some(({ records }) => records !== undefined)
  return {
    values: commitValues(
      {
        p_offset: offset,
        p_sync: isDurable,
        p_ranks: sorted.rankCount,
        p_records: hasRecords,
        p_others: others,
        p_chunks: chunks,
      },
      { leased, snapshots, starts, extras: extras.encode(), events: events.encode() },
    ),
    readAnswer: (text) => readAnswers(text, changes, { sorted, leases }),
  }
}

function countEvents(changes: readonly Change[]): number {
  let count = 0
  for (const { events, creates } of changes) count += events.length + (creates?.length ?? 0)
  return count
}
