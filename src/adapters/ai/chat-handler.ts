import { type Holdfast, HoldfastError } from '../../index.ts'
import { ChatDesk, type ChatHandlerOptions } from './chat-desk.ts'
import type { ChatWorkflow } from './chat-workflow.ts'
import { refusal, refusalOf } from './refusal.ts'

type Handler = (request: Request) => Promise<Response>

/** Handlers of requests, one for each method, as web frameworks take them; `handle` takes any. */
export interface ChatHandlers {
  /** Sends a message, regenerates an answer, or answers approvals. Answers with the stream of the run. */
  readonly POST: Handler
  /**
   * `…/ID/stream` resumes the stream of the answer that is being made (204 if there is none); with `?message=MESSAGE&from=OFFSET` that of one answer,
   * after what the page has. `…/ID` returns the messages.
   */
  readonly GET: Handler
  /** `…/ID` stops the answer that is being made. What it has said by then is kept. */
  readonly DELETE: Handler
  readonly handle: Handler
}

/** Serves a chat over HTTP to `useChat` of the AI SDK, or to a page that speaks its protocol. */
export function chatHandler(hf: Holdfast, chat: ChatWorkflow, options: ChatHandlerOptions): ChatHandlers {
  if (typeof options?.authorize !== 'function')
    throw new HoldfastError('invalid_input', 'chatHandler needs authorize: a function that says whose chats a request may reach.')
  const { maxBodyBytes } = options
  if (maxBodyBytes !== undefined && !(maxBodyBytes >= 1))
    throw new HoldfastError('invalid_input', `maxBodyBytes is ${String(maxBodyBytes)}; it must be a number of bytes, from 1.`)
  hf.register(chat)
  const guarded = (answer: (desk: ChatDesk, request: Request) => Promise<Response>) => async (request: Request) => {
    try {
      const given = await options.authorize(request)
      const caller = typeof given === 'string' ? { owner: given } : given
      // The empty owner is that of everything that was given none: a session without a user would reach it.
      if (!caller || caller.owner === '') return refusal(401, 'access_denied', 'Who are you?')
      return await answer(new ChatDesk(hf, chat, options, caller), request)
    } catch (error) {
      return refusalOf(error)
    }
  }
  const POST = guarded((desk, request) => desk.send(request))
  const GET = guarded((desk, request) => desk.read(request))
  const DELETE = guarded((desk, request) => desk.stop(request))
  const methods: Record<string, Handler> = { POST, GET, DELETE }
  const unknown: Handler = async () => refusal(405, 'invalid_input', 'Use POST, GET or DELETE.')
  return { POST, GET, DELETE, handle: (request) => (methods[request.method] ?? unknown)(request) }
}
