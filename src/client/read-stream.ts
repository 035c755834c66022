import type { Core } from '../control/core.ts'
import { waitAtMost } from '../control/wait-at-most.ts'
import { isOutage } from '../engine/writing/committer.ts'
import { HoldfastError } from '../model/errors.ts'
import { isTerminal, type Run } from '../model/run.ts'
import { type ChunkRecord, isDropped } from '../model/stream.ts'
import type { RunKey } from '../store/store.ts'

export interface StreamOptions {
  /** The first offset to read. Default 0. */
  readonly from?: number
  /** Stops reading, for example when the client of a web server has disconnected. */
  readonly signal?: AbortSignal
}

/** A chunk of a stream, or a mark that earlier ones are void. */
export interface StreamItem<Chunk = unknown> {
  /** Position in the stream, from 0 and without gaps. */
  readonly offset: number
  /** Absent in an item that only marks a part as void. */
  readonly chunk?: Chunk
  /** The path of the step that wrote it; absent if the function itself did. */
  readonly step?: string
  /** The attempt that wrote it, from 1. */
  readonly attempt: number
  /** An opaque id, shared by the chunks of one attempt and by no others. */
  readonly part: string
  /**
   * What this part has written up to here is void: the attempt failed, its worker died, or the run ended without its result. Discard what
   * you have of the part; if more chunks of it follow, it starts over.
   */
  readonly isAborted?: true
}

/** Records per read. */
const pageSize = 50

/** Yields a stream from `from` on, until the run has ended and everything was read. */
export async function* readStream<Chunk>(
  core: Core,
  key: RunKey & { readonly stream: string },
  readRun: () => Promise<Run>,
  { from = 0, signal }: StreamOptions,
): AsyncGenerator<StreamItem<Chunk>, void, void> {
  if (!Number.isSafeInteger(from) || from < 0)
    throw new HoldfastError('invalid_input', `from is ${String(from)}; it must be an offset: 0 or a positive whole number.`)
  const reader = new Reader<Chunk>(core, key, from)
  while (signal?.aborted !== true) {
    // Requested before reading, so that nothing written in between is missed.
    const next = core.waiters.nextEvent(key)
    try {
      // The status first: if the run has ended by now, everything it wrote can be read.
      const run = await readRun()
      do {
        for (const item of await reader.nextPage()) {
          if (signal?.aborted) return
          yield item
        }
      } while (reader.hasMore)
      if (isTerminal(run.status)) return
    } catch (error) {
      if (core.waiters.isClosed) throw closedError(key, reader.next)
      if (!isOutage(error)) throw error
    }
    if (core.waiters.isClosed) throw closedError(key, reader.next)
    await waitAtMost(next, Number.POSITIVE_INFINITY, signal)
  }
}

/** Reads page after page, and knows which parts are void. */
class Reader<Chunk> {
  readonly #core: Core
  readonly #key: RunKey & { readonly stream: string }
  /** For each part the offset up to which it is void; null until the marks have been read. */
  #voids: Map<string, number> | null = null
  /** The next offset to be read. */
  next: number
  /** The last page was full. */
  hasMore = false

  constructor(core: Core, key: RunKey & { readonly stream: string }, from: number) {
    this.#core = core
    this.#key = key
    this.next = from
  }

  async nextPage(): Promise<StreamItem<Chunk>[]> {
    this.#voids ??= await this.#readVoids()
    const records = await this.#core.store.readChunks({ ...this.#key, from: this.next, limit: pageSize })
    for (const record of records) {
      if (isDropped(record)) throw prunedError(this.#key, record.size)
      noteVoid(this.#voids, record)
    }
    const items = records.flatMap((record) => this.#itemsOf(record)).filter(({ offset }) => offset >= this.next)
    this.hasMore = records.length === pageSize
    this.next = (items.at(-1)?.offset ?? this.next - 1) + 1
    return items
  }

  /** The marks are read first, so that a late reader never shows what is void already. */
  async #readVoids(): Promise<Map<string, number>> {
    const voids = new Map<string, number>()
    for (let from = this.next; ; ) {
      const marks = await this.#core.store.readChunks({ ...this.#key, from, limit: pageSize, abortsOnly: true })
      for (const mark of marks) noteVoid(voids, mark)
      const last = marks.at(-1)
      if (last === undefined || marks.length < pageSize) return voids
      from = last.offset + 1
    }
  }

  #itemsOf(record: ChunkRecord): StreamItem<Chunk>[] {
    const { offset: first, step, attempt, payload } = record
    const part = partOf(record)
    const isVoid = first < (this.#voids?.get(part) ?? 0)
    const common = {
      ...(step !== null && { step }),
      ...{ attempt: Math.max(1, attempt), part },
      ...((isVoid || payload === null) && { isAborted: true as const }),
    }
    if (payload === null) return [{ offset: first, ...common }]
    const chunks = this.#core.codec.decode(payload) as Chunk[]
    return chunks.map((chunk, index) => ({ offset: first + index, chunk, ...common }))
  }
}

function noteVoid(voids: Map<string, number>, record: ChunkRecord): void {
  if (record.payload === null) voids.set(partOf(record), record.offset)
}

function partOf({ tape, step, count, attempt }: ChunkRecord): string {
  return `${tape}/${step ?? ''}#${count}.${attempt}`
}

function prunedError({ runId, stream }: RunKey & { readonly stream: string }, length: number): HoldfastError {
  return new HoldfastError(
    'pruned',
    `The chunks of stream "${stream}" of run "${runId}" up to offset ${length} were dropped after the run had ended. Read its output, or the state of its thread.`,
    { details: { runId, stream, from: length } },
  )
}

function closedError({ runId, stream }: RunKey & { readonly stream: string }, next: number): HoldfastError {
  return new HoldfastError(
    'closed',
    `Holdfast was closed while stream "${stream}" of run "${runId}" was being read; the run continues. Continue reading from offset ${next}.`,
    { details: { runId, stream, from: next } },
  )
}
