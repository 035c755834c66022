import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { onTestFinished } from 'vitest'

/** How a provider answers one request. */
export type Conduct =
  /** Says it to the end. */
  | 'answers'
  /** Closes the connection in the middle. */
  | 'hangs up'
  /** Says nothing, and keeps the connection open. */
  | 'is silent'
  /** 400, which no other attempt changes. */
  | 'refuses'
  /** 429 */
  | 'is busy'
  /** 200, and what is no answer. */
  | 'talks nonsense'

export interface Provider {
  readonly url: string
  /** The bodies of the requests, in order. */
  readonly requests: Record<string, unknown>[]
}

const words = ['once ', 'upon ', 'a ', 'time']

/**
 * A server that speaks the protocols of two providers: chat completions of OpenAI at /v1/chat/completions, messages of Anthropic at
 * /v1/messages. The n-th request is dealt with by the n-th conduct, and those after by the last.
 */
export async function startProvider(...conducts: readonly Conduct[]): Promise<Provider> {
  const requests: Record<string, unknown>[] = []
  const server = createServer(async (request, response) => {
    const body = await bodyOf(request)
    requests.push(body)
    const conduct = conducts[Math.min(requests.length, conducts.length) - 1] ?? 'answers'
    if (conduct === 'is silent') return
    if (conduct === 'refuses') return refuse(response, 400)
    if (conduct === 'is busy') return refuse(response, 429)
    if (conduct === 'talks nonsense')
      return void response.writeHead(200, { 'content-type': 'text/event-stream' }).end('data: <html>\n\n')
    const events = request.url === '/v1/messages' ? anthropic() : openai()
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const said = conduct === 'hangs up' ? events.slice(0, 4) : events
    for (const event of said) {
      response.write(event)
      await new Promise((resolve) => setTimeout(resolve, 2))
    }
    if (conduct === 'hangs up') response.destroy()
    else response.end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, requests }
}

async function bodyOf(request: IncomingMessage): Promise<Record<string, unknown>> {
  const pieces: Uint8Array[] = []
  for await (const piece of request) pieces.push(piece)
  return JSON.parse(Buffer.concat(pieces).toString() || '{}')
}

function refuse(response: ServerResponse, status: number): void {
  const error = { type: 'invalid_request_error', message: `The provider says ${status}.` }
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ type: 'error', error }))
}

function openai(): string[] {
  const chunk = (data: object) =>
    `data: ${JSON.stringify({ id: 'chat-1', object: 'chat.completion.chunk', created: 1, model: 'm', ...data })}\n\n`
  return [
    ...words.map((content) => chunk({ choices: [{ index: 0, delta: { role: 'assistant', content }, finish_reason: null }] })),
    chunk({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }),
    chunk({ choices: [], usage: { prompt_tokens: 12, completion_tokens: 4, total_tokens: 16 } }),
    'data: [DONE]\n\n',
  ]
}

function anthropic(): string[] {
  const event = (data: { type: string } & object) => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`
  const message = {
    id: 'msg-1',
    type: 'message',
    role: 'assistant',
    model: 'm',
    content: [],
    stop_reason: null,
    stop_sequence: null,
  }
  return [
    event({ type: 'message_start', message: { ...message, usage: { input_tokens: 12, output_tokens: 1 } } } as never),
    event({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } } as never),
    ...words.map((text) => event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } } as never)),
    event({ type: 'content_block_stop', index: 0 } as never),
    event({
      type: 'message_delta',
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: 4 },
    } as never),
    event({ type: 'message_stop' }),
  ]
}
