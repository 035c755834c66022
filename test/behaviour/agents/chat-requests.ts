import type { UIMessage } from 'ai'
import type { Holdfast } from 'holdfast'
import type { ChatState } from 'holdfast/ai'

export const authorize = (request: Request) => request.headers.get('x-user')
export const alice = { 'x-user': 'alice' }

export const userMessage = (text: string, id = text): UIMessage => ({ id, role: 'user', parts: [{ type: 'text', text }] })
export const post = (body: unknown, headers: Record<string, string> = alice) =>
  new Request('http://page/chat', {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'content-type': 'application/json', ...headers },
  })

export interface ServerEvent {
  readonly id?: number
  readonly chunk: { readonly type: string } & Record<string, unknown>
}

/** The events of a response in the UI message stream protocol. */
export async function* eventsOf(response: Response): AsyncGenerator<ServerEvent, void, void> {
  let rest = ''
  for await (const bytes of response.body ?? []) {
    const events = (rest + new TextDecoder().decode(bytes)).split('\n\n')
    rest = events.pop() ?? ''
    for (const event of events) {
      const [, id, data] = /^(?:id: (\d+)\n)?data: (.*)$/.exec(event) ?? []
      if (data !== undefined && data !== '[DONE]') yield { ...(id !== undefined && { id: Number(id) }), chunk: JSON.parse(data) }
    }
  }
}

export async function chunksOf(response: Response): Promise<string[]> {
  const types: string[] = []
  for await (const { chunk } of eventsOf(response)) types.push('delta' in chunk ? `${chunk['delta']}` : chunk.type)
  return types
}

export const messagesOf = async (hf: Holdfast, id: string) => (await hf.thread(id).state<ChatState>()).messages
export const textOf = (message: UIMessage | undefined) =>
  (message?.parts ?? []).map((part) => (part.type === 'text' ? part.text : part.type)).join(' ')

export const stopOf = (chatId: string) => new Request(`http://page/chat/${chatId}`, { method: 'DELETE', headers: alice })
