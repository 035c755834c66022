import type { ArtifactChunks, ArtifactContent } from '../define/artifacts.ts'
import { HoldfastError } from '../model/errors.ts'

/** Streams that an artifact was saved from: whatever is still in them is not all of it. */
const used = new WeakSet<object>()

/** The bytes of what is to be saved. What can't be content is refused here, before anything is written. */
export function chunksOf(content: ArtifactContent, signal?: AbortSignal): AsyncIterable<Uint8Array> {
  if (typeof content === 'string') return one(textBytes(content))
  if (content instanceof Uint8Array) return one(content)
  if (content instanceof ArrayBuffer) return one(new Uint8Array(content))
  if (typeof content === 'function') return streamed(content, signal)
  if (!isStream(content)) throw notContent(content)
  if (used.has(content))
    throw new HoldfastError(
      'invalid_input',
      'The content of an artifact is a stream that was read before, by an earlier attempt or another call. Pass a function that opens it: content: () => createReadStream(file).',
    )
  used.add(content)
  return streamed(() => content, signal)
}

function isStream(content: unknown): content is ArtifactChunks {
  return typeof content === 'object' && content !== null && Symbol.asyncIterator in content
}

async function* one(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  if (bytes.byteLength > 0) yield bytes
}

async function* streamed(
  start: () => ArtifactChunks | Promise<ArtifactChunks>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  const chunks = await orFailed(async () => {
    const started = await start()
    if (!isStream(started)) throw notContent(started)
    return started[Symbol.asyncIterator]()
  })
  let isOver = false
  try {
    for (;;) {
      const next = await orFailed(() => beforeAbort(chunks.next(), signal))
      isOver = next.done === true
      if (next.done) return
      const { value } = next
      if (typeof value !== 'string' && !(value instanceof Uint8Array)) throw notContent(value)
      const bytes = typeof value === 'string' ? textBytes(value) : value
      if (bytes.byteLength > 0) yield bytes
    }
  } catch (error) {
    isOver ||= signal?.aborted === true
    throw error
  } finally {
    // One that hangs is not waited for.
    if (!isOver) await chunks.return?.()
    else chunks.return?.().catch(() => {})
  }
}

/** Rejects when the signal aborts, whatever becomes of the promise. */
function beforeAbort<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise
  return new Promise<T>((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}

async function orFailed<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act()
  } catch (cause) {
    if (cause instanceof HoldfastError) throw cause
    throw new HoldfastError(
      'stream_failed',
      `The stream with the content of an artifact failed: ${cause instanceof Error ? cause.message : String(cause)}. Nothing was saved.`,
      { cause, retryable: true },
    )
  }
}

function textBytes(text: string): Uint8Array {
  if (!text.isWellFormed())
    throw new HoldfastError(
      'value_not_storable',
      'The content of an artifact is text with a lone surrogate, which UTF-8 can not hold. Pass bytes, or text.toWellFormed().',
    )
  return new TextEncoder().encode(text)
}

function notContent(content: unknown): HoldfastError {
  const what = content === null ? 'null' : content === undefined ? 'undefined' : `of type ${typeof content}`
  return new HoldfastError(
    'invalid_input',
    `The content of an artifact is ${what}; give text, bytes (Uint8Array or ArrayBuffer), a stream of them, or a function that returns one.`,
  )
}
