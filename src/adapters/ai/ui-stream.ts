import type { UIMessage, UIMessageChunk } from 'ai'
import { HoldfastError, type RunEvent, type RunHandle } from '../../index.ts'
import { approvalShown } from './approval.ts'
import { chunksOfParts, outcomesOf } from './kept-message.ts'
import { readChunks } from './packed-chunks.ts'
import type { ChatState } from './transcript.ts'
import { UiSteps } from './ui-steps.ts'

export interface UiStreamOptions {
  /** The stream of the run that the agent writes to. Default `ui`. */
  readonly name?: string
  /** The first offset that the page has not seen: one more than the last SSE id. Default 0. */
  readonly from?: number
  /** The id of the message that the page is building. Default: the run's id. */
  readonly messageId?: string
  /** What the page is told of the error of a run that failed. Default: that there was one. */
  readonly onError?: (error: unknown) => string
  /** Headers of the response, besides those of the protocol. */
  readonly headers?: Readonly<Record<string, string>>
}

/** Also knows which questions were answered just now: the run has not recorded that yet. */
export interface ReadOptions extends UiStreamOptions {
  readonly answered?: readonly string[]
  /** The messages as they are now: what a stopped answer had said is kept after its run has ended. */
  readonly messages?: () => Promise<readonly UIMessage[]>
}

const keepAliveMs = 15_000

/**
 * What an agent writes to its stream, as a Response in the UI message stream protocol of the AI SDK: server-sent events, whose ids are
 * the offsets of their chunks. Ends when the run does, or when it waits for an approval. Where the chunks of a chat's answer were dropped it serves the
 * message from the state: to a page that comes back at an offset, all of it after a `start` event named `replay`.
 */
export function uiStream(run: RunHandle, options: UiStreamOptions = {}): Response {
  return uiResponse(run, options)
}

export function uiResponse(run: RunHandle, options: ReadOptions): Response {
  const { from = 0 } = options
  if (!Number.isSafeInteger(from) || from < 0)
    throw new HoldfastError(
      'invalid_input',
      `from of uiStream is ${String(from)}; it must be an offset: 0 or a positive whole number.`,
    )
  const gone = new AbortController()
  const lines = eventLines(run, options, gone.signal)
  const encoder = new TextEncoder()
  const body = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      const { done, value } = await lines.next()
      if (done === true) controller.close()
      else controller.enqueue(encoder.encode(value))
    },
    cancel: () => gone.abort(),
  })
  return new Response(body, {
    headers: {
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache',
      connection: 'keep-alive',
      'x-vercel-ai-ui-message-stream': 'v1',
      'x-accel-buffering': 'no',
      ...options.headers,
    },
  })
}

/** Server-sent events, with a comment where nothing was said for a while: proxies close what is silent. */
async function* eventLines(run: RunHandle, options: ReadOptions, signal: AbortSignal): AsyncGenerator<string, void, void> {
  const chunks = uiChunks(run, options, signal)
  let next = chunks.next()
  while (!signal.aborted) {
    const result = await Promise.race([next, silence(signal, next)])
    if (result === undefined) {
      yield ': nothing new\n\n'
      continue
    }
    if (result.done === true) break
    const { offset, chunk, isReplay } = result.value
    const name = isReplay === true ? 'event: replay\n' : ''
    yield `${name}${offset === undefined ? '' : `id: ${offset}\n`}data: ${JSON.stringify(chunk)}\n\n`
    next = chunks.next()
  }
  if (!signal.aborted) yield 'data: [DONE]\n\n'
}

function silence(signal: AbortSignal, until: Promise<unknown>): Promise<undefined> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      resolve(undefined)
    }
    const timer = setTimeout(end, keepAliveMs)
    signal.addEventListener('abort', end)
    until.then(end, end)
  })
}

interface UiEvent {
  /** Undefined for what is not stored: it belongs to this response. */
  readonly offset?: number
  readonly chunk: UIMessageChunk
  /** The message begins anew: a page forgets what it has of it. */
  readonly isReplay?: true
}

async function* uiChunks(run: RunHandle, options: ReadOptions, signal: AbortSignal): AsyncGenerator<UiEvent, void, void> {
  const { name = 'ui', from = 0, messageId = run.id, answered = [] } = options
  const steps = new UiSteps()
  let next = 0
  yield { chunk: { type: 'start', messageId } }
  try {
    for await (const item of readChunks(run, name, signal)) {
      for (const chunk of steps.take(item)) {
        // What is put before the chunk of an offset has none of its own, so that a page asks for both again or for neither.
        if (item.offset >= from) yield { ...(chunk.type !== 'finish-step' && { offset: item.offset }), chunk }
      }
      next = item.offset + 1
      if (!(await waitsForApproval(run, steps.awaited, answered, signal))) continue
      yield { chunk: { type: 'finish-step' } }
      yield { chunk: { type: 'finish', finishReason: 'tool-calls' } }
      return
    }
  } catch (error) {
    if (!(error instanceof HoldfastError) || error.code !== 'pruned') throw error
    if (!signal.aborted) yield* keptMessage(run, steps, { ...options, isUpToDate: from <= next })
    return
  }
  if (!signal.aborted) yield* ending(run, steps, options)
}

/** What the page has not got of a message whose chunks were dropped, from the state: the step that it is at, again, and what follows. */
async function* keptMessage(
  run: RunHandle,
  steps: UiSteps,
  options: ReadOptions & { readonly isUpToDate: boolean },
): AsyncGenerator<UiEvent, void, void> {
  const message = await findMessage(run, options)
  if (message === undefined) {
    yield { chunk: { type: 'error', errorText: 'The chunks of this answer were dropped, and no message is kept of it.' } }
    return
  }
  // Which parts a page has that came with an offset of its own, nobody knows any more.
  if (!options.isUpToDate) yield { chunk: { type: 'start', messageId: options.messageId ?? run.id }, isReplay: true }
  const begun = options.isUpToDate ? steps.begun : 0
  const starts = message.parts.flatMap(({ type }, index) => (type === 'step-start' ? [index] : []))
  const from = begun === 0 ? 0 : (starts[begun - 1] ?? message.parts.length) + 1
  if (begun > 0) yield { chunk: { type: 'reset-step' } }
  const chunks = [...outcomesOf(message.parts.slice(0, from)), ...chunksOfParts(message.parts.slice(from))]
  let isOpen = begun > 0
  for (const chunk of chunks) {
    if (chunk.type === 'start-step' && isOpen) yield { chunk: { type: 'finish-step' } }
    isOpen ||= chunk.type === 'start-step'
    yield { chunk }
  }
  if (message.metadata !== undefined) yield { chunk: { type: 'message-metadata', messageMetadata: message.metadata } }
  yield* ending(run, { isOpen }, options)
}

async function findMessage(run: RunHandle, { messages }: ReadOptions): Promise<UIMessage | undefined> {
  const find = (kept: readonly UIMessage[] | undefined) => kept?.find(({ id }) => id === run.id)
  return find(await messages?.()) ?? find((await run.state<Partial<ChatState> | undefined>())?.messages)
}

async function* ending(
  run: RunHandle,
  steps: Pick<UiSteps, 'isOpen'>,
  { onError }: ReadOptions,
): AsyncGenerator<UiEvent, void, void> {
  const { status, error } = await run.info()
  if (status === 'cancelled') {
    yield { chunk: { type: 'abort' } }
  } else if (status === 'failed') {
    yield { chunk: { type: 'error', errorText: onError?.(error) ?? 'An error occurred.' } }
  } else {
    if (steps.isOpen) yield { chunk: { type: 'finish-step' } }
    yield { chunk: { type: 'finish' } }
  }
}

/** Whether all of these were asked, and none was answered. The asking may be recorded a moment after the page was told. */
async function waitsForApproval(
  run: RunHandle,
  approvals: readonly string[],
  answered: readonly string[],
  signal: AbortSignal,
): Promise<boolean> {
  if (approvals.length === 0 || approvals.some((id) => answered.includes(id))) return false
  const changes = run.watch({ signal })
  try {
    for (;;) {
      const events = await run.events()
      const states = approvals.map((id) => stateOfApproval(events, id))
      if (states.includes('answered')) return false
      if (states.every((state) => state === 'asked')) return true
      if ((await changes.next()).done === true) return false
    }
  } finally {
    await changes.return()
  }
}

function stateOfApproval(events: readonly RunEvent[], approvalId: string): 'asked' | 'answered' | undefined {
  const asked = events.findLast(
    ({ type, data }) => type === 'question_asked' && approvalShown(data?.['question'])?.approvalId === approvalId,
  )
  if (asked === undefined) return undefined
  const key = asked.data?.['key']
  return events.some(({ type, data }) => type === 'question_answered' && data?.['key'] === key) ? 'answered' : 'asked'
}
