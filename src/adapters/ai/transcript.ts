import { readUIMessageStream, type UIMessage, type UIMessageChunk } from 'ai'
import type { StepHandle } from '../../index.ts'
import type { ChunkListener } from './model-v4.ts'

export interface ChatState {
  readonly messages: UIMessage[]
}

type Draft = { messages: UIMessage[] }
type ToolPart = { toolCallId: string; state: string } & Record<string, unknown>

/** Keeps the message of the assistant in the state of a chat: what a step said is added in the commit that records it. */
export function transcript(messageId: string): ChunkListener {
  return async (step, chunks) => {
    const said = chunks[0]?.type === 'start-step' ? await partsOf(chunks) : []
    const rest = said.length > 0 ? [] : chunks
    ;(step as StepHandle<Draft>).update((draft) => {
      const { parts } = messageIn(draft, messageId)
      parts.push(...said)
      for (const chunk of rest) apply(parts, chunk)
    })
  }
}

/** A new one follows its question, if that is named and there, and otherwise comes last. */
export function messageIn({ messages }: Draft, id: string, question?: string): UIMessage {
  const found = messages.findLast((message) => message.id === id)
  if (found !== undefined) return found
  const asked = question === undefined ? -1 : messages.findIndex((message) => message.id === question)
  const at = asked === -1 ? messages.length : asked + 1
  messages.splice(at, 0, { id, role: 'assistant', parts: [] })
  return messages[at] as UIMessage
}

/** The parts of a message that a page has built once it has got these chunks. */
export async function partsOf(chunks: readonly UIMessageChunk[]): Promise<UIMessage['parts']> {
  let message: UIMessage | undefined
  const stream = ReadableStream.from(joined(chunks)) as ReadableStream<UIMessageChunk>
  for await (const next of readUIMessageStream({ stream })) message = next
  // Without the properties that are undefined.
  return JSON.parse(JSON.stringify(message?.parts ?? [])) as UIMessage['parts']
}

/** With the words of each block in one chunk: every chunk costs a copy of the whole message. */
function joined(chunks: readonly UIMessageChunk[]): UIMessageChunk[] {
  const result: UIMessageChunk[] = []
  for (const chunk of chunks) {
    const last = result.at(-1)
    const isDelta = chunk.type === 'text-delta' || chunk.type === 'reasoning-delta'
    if (isDelta && last?.type === chunk.type && last.id === chunk.id)
      result[result.length - 1] = { ...last, ...chunk, delta: last.delta + chunk.delta }
    else if (chunk.type !== 'tool-input-start' && chunk.type !== 'tool-input-delta') result.push(chunk)
  }
  return result
}

/** A tool call of which it is not said how it ended: nothing that a model could be told of. */
export function isUnfinishedCall(part: UIMessage['parts'][number]): boolean {
  return 'toolCallId' in part && !['output-available', 'output-error', 'output-denied'].includes(part.state)
}

/** What became of a tool call, on its part of the message. */
function apply(parts: UIMessage['parts'], chunk: UIMessageChunk): void {
  if (chunk.type === 'steering-message') {
    parts.push({ type: 'steering-message', id: chunk.id, parts: chunk.parts } as UIMessage['parts'][number])
    return
  }
  const part = (parts as unknown as ToolPart[]).findLast((one) =>
    chunk.type === 'tool-approval-response'
      ? (one['approval'] as { id?: string } | undefined)?.id === chunk.approvalId
      : 'toolCallId' in chunk && one.toolCallId === chunk.toolCallId,
  )
  if (part !== undefined) Object.assign(part, outcomeOf(part, chunk))
}

function outcomeOf(part: ToolPart, chunk: UIMessageChunk): Record<string, unknown> {
  switch (chunk.type) {
    case 'tool-input-available':
      return { input: chunk.input }
    case 'tool-output-available':
      return { state: 'output-available', output: chunk.output, ...(chunk.preliminary === true && { preliminary: true }) }
    case 'tool-output-error':
      return { state: 'output-error', errorText: chunk.errorText }
    case 'tool-output-denied':
      return { state: 'output-denied' }
    case 'tool-approval-request': {
      const { approvalId: id, reason } = chunk
      return { state: 'approval-requested', approval: { id, ...(reason !== undefined && { requestReason: reason }) } }
    }
    case 'tool-approval-response': {
      const { approved, reason } = chunk
      const approval = { ...(part['approval'] as object), approved, ...(reason !== undefined && { reason }) }
      return { state: 'approval-responded', approval }
    }
    default:
      return {}
  }
}
