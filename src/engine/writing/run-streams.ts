import type { StreamWriter } from '../../define/context.ts'
import type { Codec } from '../../model/codec.ts'
import { isPrimitive } from '../../model/codec.ts'
import { HoldfastError } from '../../model/errors.ts'
import { checkId } from '../../model/ids.ts'
import type { ChunkWriter, NewChunks } from '../../model/stream.ts'
import type { Call } from '../calls/calls.ts'
import type { CallKey } from '../replay/call-key.ts'

/** Chunks that no commit took along are written this often at most. */
const flushMs = 50
/** The first after a pause waits only so long: somebody waits for it, and a step that ends before needs no write of its own. */
const firstMs = 4
/** So many bytes are written at once, and a record is not made longer. */
const recordBytes = 64 * 1024
/** While more than this waits to be written, `write` resolves later. */
const roomBytes = 1024 * 1024
/** A writer that does not wait for room is refused here. */
const maxBytes = 16 * 1024 * 1024
/** A text that may be longer than this, encoded, is tried at once: what cannot be stored is refused where it is written. */
const longText = 8 * 1024

/**
 * The streams of one execution: gathers what is written to them until a change takes it along.
 *
 *   R1  Chunks reach a stream in the order in which they were written.
 *   R2  Every change of the run takes along all that was written before it was made: no result is durable before its chunks.
 *   R3  The log knows who writes to a stream (stream_opened) no later than the stream itself: after a death the next execution
 *       can mark what was left open without looking for it.
 *   R4  The n-th chunk that the function itself writes in a tape is written once: a replay counts those that are there and skips them.
 *       After a retry or a rollback, when it may go another way, they are void and all are written anew.
 */
export class RunStreams {
  readonly #options: RunStreamsOptions
  #pending: Batch[] = []
  /** Of what is gathered. */
  #pendingBytes = 0
  /** Of what is gathered or on its way. */
  #bytes = 0
  /** Of each change that is on its way, in order. */
  readonly #underWay: number[] = []
  /** The last batch of each stream, while it is gathered: it may be continued. */
  readonly #last = new Map<string, Batch>()
  readonly #open = new Map<CallKey, Attempt>()
  /** The last attempt of each call that has failed: what a body writes after its time-out is dropped. */
  readonly #failed = new Map<CallKey, number>()
  readonly #function: ChunkWriter
  readonly #functionStreams = new Map<string, FunctionStream>()
  #timer: NodeJS.Timeout | undefined
  #isFlushing = false
  #flushedAt = Number.NEGATIVE_INFINITY
  #hasEnded = false
  #whenRoom: (() => void)[] = []

  constructor(options: RunStreamsOptions) {
    this.#options = options
    this.#function = { tape: options.tape, step: null, count: 0, attempt: 0 }
  }

  get hasPending(): boolean {
    return this.#pending.length > 0
  }

  /** The stream of an attempt of a step. Once the attempt is over, what is still written to it is dropped. */
  ofStep(call: Call, attempt: number, name: string): StreamWriter {
    checkId('stream name', name)
    return {
      write: (chunk) => {
        const isOver = !this.#options.isRunning(call) || (this.#failed.get(call.key) ?? 0) >= attempt
        if (this.#hasEnded || isOver) return room
        const copy = this.#copy(chunk, name)
        return this.#add(this.#opened(call, attempt, name), name, copy)
      },
    }
  }

  #opened(call: Call, attempt: number, name: string): ChunkWriter {
    let opened = this.#open.get(call.key)
    if (opened === undefined) {
      opened = { writer: { tape: this.#options.tape, step: call.path, count: call.count, attempt }, names: new Set() }
      this.#open.set(call.key, opened)
    }
    if (!opened.names.has(name)) {
      opened.names.add(name)
      this.#options.onOpen(call, attempt, name)
    }
    return opened.writer
  }

  /** A stream of the function itself. On a replay the chunks that are stored already are skipped (R4). */
  ofFunction(name: string): StreamWriter {
    checkId('stream name', name)
    const stored = this.#options.written.get(name)
    const stream = this.#functionStreams.get(name) ?? { count: 0, stored: stored ?? 0, isOpen: stored !== undefined }
    this.#functionStreams.set(name, stream)
    return {
      write: (chunk) => {
        this.#options.beforeWrite(name)
        if (this.#hasEnded) return room
        const copy = this.#copy(chunk, name)
        stream.count++
        if (stream.count <= stream.stored) return room
        if (!stream.isOpen) {
          stream.isOpen = true
          this.#options.onOpen(null, 0, name)
        }
        return this.#add(this.#function, name, copy)
      },
    }
  }

  /** The attempt has its result, and the change with it is about to be made: its chunks hold. */
  settle(call: Call): void {
    this.#open.delete(call.key)
  }

  /** The attempt has failed: what it wrote is void, said with the change that says so or before. */
  abort(call: Call, attempt: number): void {
    this.#failed.set(call.key, attempt)
    const opened = this.#open.get(call.key)
    if (opened === undefined) return
    this.#open.delete(call.key)
    this.abortWriter(opened.writer, opened.names)
  }

  abortWriter(writer: ChunkWriter, names: Iterable<string>): void {
    if (this.#hasEnded) return
    for (const stream of names) this.#push({ writer, stream, chunks: null, bytes: 0 })
    this.#schedule()
  }

  /** What the function wrote to a stream is void, because it may go another way now: it writes all of it anew. */
  reopen(name: string): void {
    this.abortWriter(this.#function, [name])
    this.#functionStreams.set(name, { count: 0, stored: 0, isOpen: true })
    this.#options.onOpen(null, 0, name)
  }

  /** The execution ends: attempts that are under way are void, and nothing is gathered any more. The last change takes along the rest. */
  end(): void {
    if (this.#hasEnded) return
    for (const { writer, names } of this.#open.values()) this.abortWriter(writer, names)
    this.#open.clear()
    this.#hasEnded = true
    clearTimeout(this.#timer)
    this.#wake()
  }

  /**
   * Like `end` where a write failed and it is not known whether it is there: what was gathered behind it is dropped, or it would stand in its
   * place. Answers with what says that attempts are void.
   */
  abandon(): readonly NewChunks[] {
    this.take()
    this.end()
    return this.take()
  }

  /** All that was gathered, for the change that is being made (R2). */
  take(): readonly NewChunks[] {
    if (this.#pending.length === 0) return nothing
    const chunks = this.#pending.map(({ writer, stream, chunks }) => ({
      ...{ ...writer, stream },
      ...(chunks === null ? { size: 1, payload: null } : { size: chunks.length, payload: this.#options.codec.encode(chunks) }),
    }))
    this.#underWay.push(this.#pendingBytes)
    this.#pending = []
    this.#pendingBytes = 0
    this.#last.clear()
    clearTimeout(this.#timer)
    this.#timer = undefined
    return chunks
  }

  /** The earliest change that took chunks along was answered. */
  written(): void {
    this.#bytes -= this.#underWay.shift() ?? 0
    if (this.#bytes < roomBytes) this.#wake()
  }

  #add(writer: ChunkWriter, stream: string, { chunk, bytes }: Copy): Promise<void> {
    const last = this.#last.get(stream)
    if (last !== undefined && last.chunks !== null && last.writer === writer && last.bytes + bytes <= recordBytes) {
      last.chunks.push(chunk)
      last.bytes += bytes
    } else {
      this.#push({ writer, stream, chunks: [chunk], bytes })
    }
    this.#pendingBytes += bytes
    this.#bytes += bytes
    if (this.#pendingBytes >= recordBytes) this.#flush()
    else this.#schedule()
    return this.#bytes < roomBytes ? room : new Promise((resolve) => this.#whenRoom.push(resolve))
  }

  #push(batch: Batch): void {
    this.#pending.push(batch)
    this.#last.set(batch.stream, batch)
  }

  #schedule(): void {
    if (this.#hasEnded || this.#isFlushing) return
    this.#timer ??= setTimeout(() => this.#flush(), Math.max(firstMs, this.#flushedAt + flushMs - performance.now()))
  }

  /** One write after the other; what comes meanwhile is gathered for the next. */
  #flush(): void {
    if (this.#isFlushing || this.#hasEnded || this.#pending.length === 0) return
    this.#isFlushing = true
    this.#flushedAt = performance.now()
    this.#options
      .flush()
      .catch(() => {})
      .finally(() => {
        this.#isFlushing = false
        if (this.#pendingBytes >= recordBytes) this.#flush()
        else if (this.#pending.length > 0) this.#schedule()
      })
  }

  #wake(): void {
    for (const wake of this.#whenRoom.splice(0)) wake()
  }

  /** What is written later is what was given now. Refused where it cannot be stored, or where too much waits already. */
  #copy(chunk: unknown, stream: string): Copy {
    if (this.#bytes >= maxBytes) throw this.#full(stream)
    if (typeof chunk === 'string' && chunk.length < longText) return { chunk, bytes: chunk.length + 16 }
    if (isPrimitive(chunk) && typeof chunk !== 'string') {
      this.#options.codec.encode(chunk)
      return { chunk, bytes: 32 }
    }
    const payload = this.#options.codec.encode([chunk])
    const [copy] = typeof chunk === 'string' ? [chunk] : (this.#options.codec.decode(payload) as [unknown])
    return { chunk: copy, bytes: typeof chunk === 'string' ? chunk.length : payload.length }
  }

  #full(stream: string): HoldfastError {
    const { runId } = this.#options
    return new HoldfastError(
      'queue_full',
      `Stream "${stream}" of run "${runId}" has more than ${maxBytes / 1024 / 1024} MiB waiting to be written. Await write(), which resolves when there is room.`,
      { retryable: true, details: { runId, stream } },
    )
  }
}

export interface RunStreamsOptions {
  readonly runId: string
  readonly codec: Codec
  /** The number of the tape. */
  readonly tape: number
  /** How many chunks the function has written to its streams in this tape, by name. */
  readonly written: ReadonlyMap<string, number>
  /** Whether the body of the call is running. */
  readonly isRunning: (call: Call) => boolean
  /** Refuses a write of the function in a run that was cancelled or fenced, and inside a body. */
  readonly beforeWrite: (name: string) => void
  /** Before the first chunk of a writer (R3). `call` is null for the function. */
  readonly onOpen: (call: Call | null, attempt: number, name: string) => void
  /** Makes and writes a change, which takes along what is gathered. */
  readonly flush: () => Promise<unknown>
}

/** What one writer wrote to one stream in a row; `chunks` is null where it says that all before is void. */
interface Batch {
  readonly writer: ChunkWriter
  readonly stream: string
  readonly chunks: unknown[] | null
  bytes: number
}

interface Attempt {
  readonly writer: ChunkWriter
  readonly names: Set<string>
}

interface FunctionStream {
  count: number
  readonly stored: number
  isOpen: boolean
}

interface Copy {
  readonly chunk: unknown
  readonly bytes: number
}

const nothing: readonly NewChunks[] = []
/** There is room: one promise for all, so that a write costs nothing. */
const room = Promise.resolve()
