/** Positions of a log after the first, up to and including the last. */
export interface LogRange {
  readonly afterSeq: number
  readonly toSeq: number
}

/**
 * Ranges of a log, each longer than the one before: positions are gapless, so that a range costs no more than its length, however
 * few of its records are looked for. A limit of records would cost a store the whole rest of the log each time.
 */
export function* forwards(afterSeq: number, toSeq: number, length: number): Generator<LogRange> {
  for (let [from, width] = [afterSeq, length]; from < toSeq; width = Math.min(2 * width, longestRange)) {
    const end = Math.min(toSeq, from + width)
    yield { afterSeq: from, toSeq: end }
    from = end
  }
}

/** The same from the end. */
export function* backwards(afterSeq: number, toSeq: number, length: number): Generator<LogRange> {
  for (let [end, width] = [toSeq, length]; end > afterSeq; width = Math.min(2 * width, longestRange)) {
    const from = Math.max(afterSeq, end - width)
    yield { afterSeq: from, toSeq: end }
    end = from
  }
}

const longestRange = 50_000
