import type { UIMessage, UIMessageChunk } from 'ai'
import { type Holdfast, HoldfastError, type OpenQuestion, type RunHandle, type RunInfo } from '../../index.ts'
import { approvalShown } from './approval.ts'
import { validMessage } from './chat-message.ts'
import { type ChatInput, type ChatWorkflow, chatStream, steeringSignal, takesSteering } from './chat-workflow.ts'
import { digest } from './digest.ts'
import { readChunks } from './packed-chunks.ts'
import { readBody } from './read-body.ts'
import { refusal } from './refusal.ts'
import { type ChatState, isUnfinishedCall, messageIn, partsOf } from './transcript.ts'
import { type ReadOptions, uiResponse } from './ui-stream.ts'

/** On whose behalf a request is made. */
export interface ChatCaller {
  /** The owner of their chats. Chats of others look like missing ones. */
  readonly owner: string
  /** Who answers approvals. Default: the owner. */
  readonly by?: string
  /** What else they are: an approval that asks `to` somebody can be answered on the page only by whom that names, here or in `by`. */
  readonly roles?: readonly string[]
}

export interface ChatHandlerOptions {
  /** Says who makes a request: the owner's name, or nothing to refuse it. */
  readonly authorize: (request: Request) => MaybePromise<ChatCaller | string | null | undefined>
  /** A longer body is refused. Default 4 MiB. */
  readonly maxBodyBytes?: number
  /** What the page is told of the error of a run that failed. Default: that there was one. */
  readonly onError?: (error: unknown) => string
}

type MaybePromise<T> = T | Promise<T>

const maxBytes = 4 * 1024 * 1024
const unfinished = ['pending', 'running', 'waiting', 'paused'] as const

/** Deals with the requests of one caller. */
export class ChatDesk {
  readonly #hf: Holdfast
  readonly #chat: ChatWorkflow
  readonly #options: ChatHandlerOptions
  readonly #caller: ChatCaller

  constructor(hf: Holdfast, chat: ChatWorkflow, options: ChatHandlerOptions, caller: ChatCaller) {
    this.#hf = hf.as(caller.owner)
    this.#chat = chat
    this.#options = options
    this.#caller = caller
  }

  async send(request: Request): Promise<Response> {
    if (!/^application\/json\b/i.test(request.headers.get('content-type') ?? ''))
      return refusal(415, 'invalid_input', 'Send JSON, with content-type application/json.')
    const body = (await readBody(request, this.#options.maxBodyBytes ?? maxBytes)) as Partial<ChatRequest> | null
    const chatId = body?.id
    const last = body?.message ?? (Array.isArray(body?.messages) ? body.messages.at(-1) : undefined)
    if (typeof chatId !== 'string') throw new HoldfastError('invalid_input', 'The body needs the id of the chat.')
    if (body?.trigger === 'regenerate-message') return this.#regenerate(chatId, body.messageId, last)
    const message = await validMessage(last)
    if (message.role === 'assistant') return this.#answer(chatId, message)
    if (message.role !== 'user') throw new HoldfastError('invalid_input', `A message of a ${message.role} can't be sent.`)
    if (body?.steer === true) return this.#steer(chatId, message)
    const replaces = typeof body?.messageId === 'string' ? await this.#replaced(chatId, body.messageId, body.messages) : {}
    const id = `chat-${digest([chatId, message, replaces])}`
    const isMadeAgain = typeof body?.messageId === 'string' && (await this.#isReplaced(chatId, id))
    return this.#start(chatId, { message, ...replaces }, isMadeAgain ? `chat-${crypto.randomUUID()}` : id)
  }

  async read(request: Request): Promise<Response> {
    const { chatId, isStream, messageId } = chatOf(request)
    if (isStream && messageId !== null) return this.#respond(await this.#answerOf(chatId, messageId), { from: offsetOf(request) })
    const [run] = await this.#unfinished(chatId)
    if (isStream) return run === undefined ? new Response(null, { status: 204 }) : this.#respond(run, { from: offsetOf(request) })
    const state = await this.#messages(chatId)
    return Response.json({ messages: state, ...(run !== undefined && { run: { id: run.id, ...(await statusOf(run)) } }) })
  }

  async stop(request: Request): Promise<Response> {
    const { chatId } = chatOf(request)
    const last = await this.#lastRun(chatId)
    // Whoever stopped it may have died before what it had said was kept.
    const stopped = last.status === 'cancelled' ? [await this.#hf.runs.get(last.id)] : []
    // The last first, so that none begins in the place of one that was stopped.
    for (const run of [...stopped, ...(await this.#unfinished(chatId)).reverse()]) {
      if (await this.#cancelled(run)) await this.#keepPartial(chatId, run)
    }
    return new Response(null, { status: 204 })
  }

  /** False if it has ended by itself in the meantime. */
  async #cancelled(run: RunHandle): Promise<boolean> {
    try {
      await run.cancel({ undo: false, by: this.#caller.by ?? this.#caller.owner })
      return true
    } catch (error) {
      const { status } = await run.info()
      if (status === 'completed' || status === 'failed') return false
      throw error
    }
  }

  async #start(chatId: string, input: ChatInput, id: string): Promise<Response> {
    await this.#refuseOtherThread(chatId)
    const run = await this.#hf.start(this.#chat, input, { id, threadId: chatId })
    return this.#respond(run, {})
  }

  async #regenerate(chatId: string, messageId: unknown, shown: unknown): Promise<Response> {
    const messages = await this.#messages(chatId)
    const last = messages.at(-1)
    const asked = shown === undefined ? undefined : await validMessage(shown)
    // A question that was stopped before its turn is not in the state.
    if (typeof messageId !== 'string' && asked?.role === 'user' && !messages.some(({ id }) => id === asked.id))
      return this.#start(chatId, { message: asked }, `chat-${crypto.randomUUID()}`)
    const named = messages.findIndex(({ id }) => id === messageId)
    // An answer that failed before it said anything is not in the state: its question is the last message.
    const meant = messages[named] ?? (typeof messageId !== 'string' || last?.role === 'user' ? last : undefined)
    if (meant === undefined) throw new HoldfastError('invalid_input', `Chat "${chatId}" has no answer to generate again.`)
    const answer = meant.role === 'assistant' ? meant : messages[messages.indexOf(meant) + 1]
    const [beingMade] = answer === undefined ? await this.#unfinished(chatId) : []
    const replaces = answer?.id ?? beingMade?.id
    return this.#start(chatId, replaces === undefined ? {} : { replaces }, `chat-${crypto.randomUUID()}`)
  }

  /** The page has sent back a message of the assistant: with answers of the user to approvals in it. */
  async #answer(chatId: string, message: UIMessage): Promise<Response> {
    const answers = message.parts.flatMap((part) =>
      'approval' in part && part.state === 'approval-responded' ? [part.approval] : [],
    )
    const [run] = await this.#unfinished(chatId)
    if (answers.length === 0)
      throw new HoldfastError('invalid_input', 'The last message is of the assistant, and answers no approval.')
    if (run === undefined) throw new HoldfastError('already_answered', `Nothing in chat "${chatId}" waits for an approval.`)
    const open = (await this.#hf.inbox()).filter((item) => item.kind === 'question' && item.runId === run.id) as OpenQuestion[]
    const { owner, by = owner } = this.#caller
    // A page that lost its connection sends again what it has answered before.
    const given = answers.flatMap((answer) => {
      const question = open.find((item) => approvalShown(item.question)?.approvalId === answer.id)
      return question === undefined ? [] : [{ ...answer, question }]
    })
    if (given.length === 0) {
      const ids = answers.map(({ id }) => `"${id}"`).join(', ')
      throw new HoldfastError('already_answered', `Approval ${ids} of chat "${chatId}" is not open.`)
    }
    // All before the first is answered: of one request, everything is done or nothing.
    for (const { question } of given) this.#refuseUnlessAsked(question)
    let requestedAt = 0
    for (const { id, approved, reason, question } of given) {
      requestedAt = Math.max(requestedAt, await offsetOfRequest(run, id))
      await this.#hf.answer(
        run.id,
        question.name,
        { approved, ...(typeof reason === 'string' && { reason }) },
        { by, id: question.id },
      )
    }
    return this.#respond(run, { from: requestedAt + 1, messageId: message.id, answered: answers.map(({ id }) => id) })
  }

  #refuseUnlessAsked({ to }: OpenQuestion): void {
    const { owner, by = owner, roles = [] } = this.#caller
    if (to === undefined || to === by || roles.includes(to)) return
    throw new HoldfastError('access_denied', `This approval is asked of "${to}".`)
  }

  /**
   * The message from which on an edit replaces the conversation. One that was compacted away, or stopped before its turn, is not in the state: then it
   * is what follows the last message before it that is.
   */
  async #replaced(chatId: string, messageId: string, shown: unknown): Promise<{ replaces: string }> {
    const before = (Array.isArray(shown) ? shown : []).slice(0, -1).map((one) => (one as Partial<UIMessage> | null)?.id)
    const kept = before.length === 0 ? [] : await this.#messages(chatId)
    if (kept.length === 0 || kept.some(({ id }) => id === messageId)) return { replaces: messageId }
    const next = kept[kept.findLastIndex(({ id }) => before.includes(id)) + 1]
    return { replaces: next?.id ?? messageId }
  }

  /** The same edit was made before, and what it gave is no longer there: it is not that request which is sent twice. */
  async #isReplaced(chatId: string, runId: string): Promise<boolean> {
    const { items } = await this.#hf.runs.list({ threadId: chatId, workflow: this.#chat.name, status: 'completed', limit: 1_000 })
    return items.some(({ id }) => id === runId) && !(await this.#messages(chatId)).some(({ id }) => id === runId)
  }

  async #steer(chatId: string, message: UIMessage): Promise<Response> {
    if (!takesSteering(this.#chat)) {
      const advice = 'Send it without steer, or give chatWorkflow steering: true.'
      throw new HoldfastError('conflict', `Workflow "${this.#chat.name}" takes no messages while it answers. ${advice}`)
    }
    const [run] = await this.#unfinished(chatId)
    if (run === undefined) throw new HoldfastError('conflict', `Chat "${chatId}" has no answer that a message could go into.`)
    const text = message.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n')
    await this.#hf.signal(run.id, steeringSignal, text, { id: message.id })
    return new Response(null, { status: 202 })
  }

  #respond(run: RunHandle, options: ReadOptions): Response {
    const { onError } = this.#options
    const messages = () => this.#messages(run.threadId)
    return uiResponse(run, { name: chatStream, messages, ...(onError !== undefined && { onError }), ...options })
  }

  /** Throws `run_not_found` for a chat that this owner does not have. */
  async #messages(chatId: string): Promise<readonly UIMessage[]> {
    await this.#lastRun(chatId)
    return ((await this.#hf.thread(chatId).state()) as ChatState | undefined)?.messages ?? []
  }

  async #lastRun(chatId: string): Promise<RunInfo> {
    const [last] = (await this.#hf.runs.list({ threadId: chatId, workflow: this.#chat.name, limit: 1 })).items
    if (last === undefined) throw new HoldfastError('run_not_found', `There is no chat "${chatId}".`, { details: { chatId } })
    return last
  }

  /** The run that makes or made an answer of this chat. */
  async #answerOf(chatId: string, messageId: string): Promise<RunHandle> {
    const run = await this.#hf.runs.get(messageId)
    const { threadId, workflow } = await run.info()
    if (threadId === chatId && workflow === this.#chat.name) return run
    throw new HoldfastError('run_not_found', `Chat "${chatId}" has no answer "${messageId}".`, { details: { chatId, messageId } })
  }

  /** The id of a chat comes from the page, which must not reach what other workflows keep under ids of the same owner. */
  async #refuseOtherThread(chatId: string): Promise<void> {
    const [run] = (await this.#hf.runs.list({ threadId: chatId, limit: 1 })).items
    if (run === undefined || run.workflow === this.#chat.name) return
    const [own] = (await this.#hf.runs.list({ threadId: chatId, workflow: this.#chat.name, limit: 1 })).items
    if (own === undefined) throw new HoldfastError('conflict', `"${chatId}" is no chat. Give the new chat another id.`)
  }

  /** The runs of a chat that have not ended, the oldest first. */
  async #unfinished(chatId: string): Promise<RunHandle[]> {
    const { items } = await this.#hf.runs.list({ threadId: chatId, workflow: this.#chat.name, status: unfinished, limit: 1_000 })
    return Promise.all(items.reverse().map(({ id }) => this.#hf.runs.get(id)))
  }

  /** What a stopped answer had said: its chunks are void, and its step has left nothing in the state. */
  async #keepPartial(chatId: string, run: RunHandle): Promise<void> {
    const parts = await partsOf(await chunksOfLastAttempt(run))
    // A message that was sent in the meantime may have its answer already.
    const { message: question } = (await run.info()).input as ChatInput
    await this.#hf.thread(chatId).update((draft) => {
      const state = draft as { messages?: UIMessage[] }
      const { messages = [] } = state
      const own = messages.find(({ id }) => id === run.id)
      // By another request, which stopped it at the same time.
      if ((own?.metadata as Marked | undefined)?.aborted === true) return
      if (parts.length === 0 && own === undefined) return
      state.messages = messages
      // What was said can be in the store before its question, which is written with the first result.
      const isAsked = own !== undefined || messages.some(({ id }) => id === question?.id)
      if (!isAsked && question !== undefined) messages.push(structuredClone(question))
      const message = messageIn({ messages }, run.id, question?.id)
      message.parts.push(...parts.filter((part) => !('toolCallId' in part)))
      for (const part of message.parts)
        if (isUnfinishedCall(part)) Object.assign(part, { state: 'output-error', errorText: 'Stopped.' })
      message.metadata = { ...(message.metadata as object | undefined), aborted: true }
    })
  }
}

interface Marked {
  readonly aborted?: boolean
}

interface ChatRequest {
  readonly id: unknown
  readonly messages: readonly unknown[]
  readonly message: unknown
  readonly trigger: unknown
  readonly messageId: unknown
  readonly steer: unknown
}

function chatOf(request: Request): { chatId: string; isStream: boolean; messageId: string | null } {
  const { pathname, searchParams } = new URL(request.url)
  const segments = pathname.split('/').filter((segment) => segment !== '')
  const isStream = segments.at(-1) === 'stream'
  const segment = segments.at(isStream ? -2 : -1) ?? ''
  try {
    return { chatId: decodeURIComponent(segment), isStream, messageId: searchParams.get('message') }
  } catch (cause) {
    throw new HoldfastError('invalid_input', `"${segment}" in the URL is not an encoded id of a chat.`, { cause })
  }
}

/** Where a page that was disconnected goes on: as a browser's EventSource says it, or in the URL. */
function offsetOf(request: Request): number {
  const last = request.headers.get('last-event-id')
  const from = new URL(request.url).searchParams.get('from')
  return from !== null ? Number(from) : last !== null ? Number(last) + 1 : 0
}

async function offsetOfRequest(run: RunHandle, approvalId: string): Promise<number> {
  // It is there: the question was asked after it. One that no page was told of is not waited for.
  for await (const { chunk, offset } of readChunks(run, chatStream, AbortSignal.timeout(5_000)))
    if (chunk?.type === 'tool-approval-request' && chunk.approvalId === approvalId) return offset
  return 0
}

async function chunksOfLastAttempt(run: RunHandle): Promise<UIMessageChunk[]> {
  let chunks: UIMessageChunk[] = []
  let attempt: string | undefined
  try {
    for await (const { chunk, part, isAborted } of readChunks(run, chatStream)) {
      if (chunk?.type === 'start-step') {
        chunks = []
        attempt = isAborted === true ? part : undefined
      }
      if (chunk !== undefined && part === attempt) chunks.push(chunk)
    }
  } catch (error) {
    // What was kept of it is in the state.
    if (error instanceof HoldfastError && error.code === 'pruned') return []
    throw error
  }
  return chunks
}

async function statusOf(run: RunHandle): Promise<{ status: string; reason?: string }> {
  const { status, reason } = await run.info()
  return { status, ...(reason !== undefined && reason !== null && { reason }) }
}
