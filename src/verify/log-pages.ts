import type { LogRecord } from '../model/event.ts'
import type { Thread } from '../store/store.ts'
import type { Findings, Source } from './findings.ts'

/** The first page; the next ones are as long as makes about `pageBytes`. */
const firstSize = 200
const mostRecords = 1_000
const pageBytes = 4 * 1024 * 1024

/** A stretch of the log that can be read. */
export interface LogPage {
  readonly records: readonly LogRecord[]
  /** Of their data and patches. */
  readonly bytes: number
}

/**
 * The log of a thread up to where it ended, in pages, without what can't be read: that is noted, a stretch of it at once, however long
 * it is.
 */
export async function* logPages(
  { store, signal }: Source,
  thread: Thread,
  findings: Findings,
): AsyncGenerator<LogPage, void, void> {
  const { owner, threadId, headSeq, baseSeq } = thread

  async function read(afterSeq: number, toSeq: number): Promise<LogPage | { readonly damage: string }> {
    signal?.throwIfAborted()
    const stretch = { owner, threadId, afterSeq, toSeq }
    // Without its contents a record has a checksum of its own.
    const [whole, bare] = await store.readLogs([stretch, { ...stretch, bare: true }])
    for (const found of [whole, bare]) if (found !== undefined && 'damage' in found) return { damage: found.damage.message }
    const records = whole !== undefined && 'records' in whole ? whole.records : []
    if (records.length !== toSeq - afterSeq || !records.every(({ seq }, index) => seq === afterSeq + 1 + index))
      return { damage: `A record between ${afterSeq + 1} and ${toSeq} is missing.` }
    return { records, bytes: records.reduce((sum, record) => sum + bytesOf(record), 0) }
  }

  /** The page in parts, up to the first record that can't be read. Returns the last position before that. */
  async function* readablePart(afterSeq: number, toSeq: number): AsyncGenerator<LogPage, number, void> {
    let readable = afterSeq
    for (let damaged = toSeq; damaged > readable + 1; ) {
      const middle = Math.floor((readable + damaged) / 2)
      const part = await read(readable, middle)
      if ('damage' in part) damaged = middle
      else {
        yield part
        readable = middle
      }
    }
    return readable
  }

  /** The next position that can be read after one that can't: looked for in strides that double, so a lost end costs little. */
  async function nextReadable(damaged: number): Promise<number> {
    let unreadable = damaged
    for (let stride = 1; unreadable < headSeq; stride *= 2) {
      const at = Math.min(headSeq, damaged + stride)
      if ('damage' in (await read(at - 1, at))) unreadable = at
      else return firstReadable(unreadable, at)
    }
    return headSeq + 1
  }

  async function firstReadable(damaged: number, at: number): Promise<number> {
    let [unreadable, readable] = [damaged, at]
    while (readable > unreadable + 1) {
      const middle = Math.floor((unreadable + readable) / 2)
      if ('damage' in (await read(middle - 1, middle))) unreadable = middle
      else readable = middle
    }
    return readable
  }

  let size = firstSize
  for (let afterSeq = baseSeq; afterSeq < headSeq; ) {
    const toSeq = Math.min(headSeq, afterSeq + size)
    const page = await read(afterSeq, toSeq)
    if (!('damage' in page)) {
      yield page
      afterSeq = toSeq
      size = Math.max(1, Math.min(mostRecords, Math.floor((page.records.length * pageBytes) / Math.max(1, page.bytes))))
      continue
    }
    const damaged = (yield* readablePart(afterSeq, toSeq)) + 1
    const one = await read(damaged - 1, damaged)
    const next = await nextReadable(damaged)
    const what = next === damaged + 1 ? `Record ${damaged}` : `Of records ${damaged} to ${next - 1} not all`
    findings.note('record', `${what} can't be read${'damage' in one ? `: ${one.damage}` : '.'}`, { seq: damaged })
    afterSeq = next - 1
  }
}

function bytesOf({ payload, patch }: LogRecord): number {
  return (payload?.length ?? 0) + (patch?.length ?? 0)
}
