import { AbstractChat, type ChatInit, type ChatState, DefaultChatTransport, type UIMessage } from 'ai'

class PageState implements ChatState<UIMessage> {
  status: ChatState<UIMessage>['status'] = 'ready'
  error: Error | undefined
  messages: UIMessage[]

  constructor(messages: UIMessage[]) {
    this.messages = messages
  }

  pushMessage = (message: UIMessage) => {
    this.messages = [...this.messages, message]
  }
  popMessage = () => {
    this.messages = this.messages.slice(0, -1)
  }
  replaceMessage = (index: number, message: UIMessage) => {
    this.messages = this.messages.with(index, structuredClone(message))
  }
  snapshot = <T>(value: T): T => structuredClone(value)
}

/** A page with the chat client of the AI SDK: what `useChat` does, without React. */
export class ChatPage extends AbstractChat<UIMessage> {
  constructor(
    id: string,
    handle: (request: Request) => Promise<Response>,
    init: Partial<ChatInit<UIMessage>> & { headers?: Record<string, string> } = {},
  ) {
    const { messages = [], headers = {}, ...rest } = init
    const fetch = (url: unknown, options?: RequestInit) => handle(new Request(new URL(String(url), 'http://page'), options))
    const transport = new DefaultChatTransport<UIMessage>({ api: '/chat', headers, fetch: fetch as typeof globalThis.fetch })
    super({ ...rest, id, transport, state: new PageState(structuredClone(messages)) })
  }

  /** What the page shows of the last message. */
  get shown(): string {
    return (this.messages.at(-1)?.parts ?? [])
      .map((part) => (part.type === 'text' ? part.text : `[${part.type}${stateOf(part)}]`))
      .join(' ')
  }
}

function stateOf(part: UIMessage['parts'][number]): string {
  return 'toolCallId' in part ? ` ${part.state}` : ''
}
