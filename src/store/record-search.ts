import type { RecordField } from '../model/record.ts'

/** Which records have the most of some fields. A field weighs the more, the fewer records have it. */
export interface RecordSearch {
  readonly owner: string
  readonly collection: string
  /** Each once. Found is what has any of them. */
  readonly fields: readonly RecordField[]
  /** Only records that have all of these, too. */
  readonly having?: readonly RecordField[]
  readonly limit: number
}

export interface RecordRanking {
  /** Of each of the fields that were asked for, in order. */
  readonly weights: readonly number[]
  /**
   * The greatest weight first, and of the same weight the greatest key. A record that has expired may be among them until it is swept:
   * `readRecords` leaves it out.
   */
  readonly hits: readonly RecordHit[]
}

export interface RecordHit {
  readonly key: string
  /** The sum of the weights of the fields that it has. */
  readonly weight: number
}

/**
 * What fields weigh of which so many records have each: `1000 ln(1 + (all + 1) / (count + ½))`, rounded. Whole numbers, so that sums are the same
 * in any order, and on every store.
 */
export function fieldWeights(counts: readonly number[]): number[] {
  const all = counts.reduce((sum, count) => sum + count, 0)
  return counts.map((count) => Math.round(1000 * Math.log(1 + (all + 1) / (count + 0.5))))
}
