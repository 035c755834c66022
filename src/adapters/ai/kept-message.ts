import type { ProviderMetadata, UIMessage, UIMessageChunk } from 'ai'

type Part = UIMessage['parts'][number]
type ToolPart = Extract<Part, { toolCallId: string }>

/** What a page is sent of a message that is kept in a state: chunks from which it builds the same parts. */
export function chunksOfParts(parts: readonly Part[]): UIMessageChunk[] {
  return parts.flatMap((part, index) => chunksOf(part, `kept-${index}`))
}

/** How the tool calls among them ended; a page that knows that already stays as it is. */
export function outcomesOf(parts: readonly Part[]): UIMessageChunk[] {
  return parts.flatMap((part) => ('toolCallId' in part ? outcomeOf(part) : []))
}

function chunksOf(part: Part, id: string): UIMessageChunk[] {
  if ('toolCallId' in part) return [callOf(part), ...approvalOf(part), ...outcomeOf(part)]
  switch (part.type) {
    case 'step-start':
      return [{ type: 'start-step' }]
    case 'text':
    case 'reasoning': {
      const { type, text, state, providerMetadata } = part
      const described = providerMetadata === undefined ? {} : { providerMetadata }
      const said: UIMessageChunk[] = [
        { type: `${type}-start`, id, ...described },
        { type: `${type}-delta`, id, delta: text },
      ]
      return state === 'streaming' ? said : [...said, { type: `${type}-end`, id, ...described }]
    }
    default:
      // Sources, files, data and what was steered with: the chunk is the part.
      return [part as UIMessageChunk]
  }
}

function callOf(part: ToolPart): UIMessageChunk {
  const { toolCallId, title, input, callProviderMetadata } = part as ToolPart & { callProviderMetadata?: ProviderMetadata }
  const toolName = part.type === 'dynamic-tool' ? part.toolName : part.type.slice('tool-'.length)
  return {
    ...{ type: 'tool-input-available', toolCallId, toolName, input, ...marks(part) },
    ...(title !== undefined && { title }),
    ...(callProviderMetadata !== undefined && { providerMetadata: callProviderMetadata }),
  }
}

function approvalOf(part: ToolPart): UIMessageChunk[] {
  const { toolCallId } = part
  const { approval } = part as { approval?: { id: string; approved?: boolean; reason?: string; requestReason?: string } }
  if (approval === undefined) return []
  const { id: approvalId, approved, reason, requestReason } = approval
  return [
    { type: 'tool-approval-request', approvalId, toolCallId, ...(requestReason !== undefined && { reason: requestReason }) },
    ...(approved === undefined
      ? []
      : [{ type: 'tool-approval-response' as const, approvalId, approved, ...(reason !== undefined && { reason }) }]),
  ] as UIMessageChunk[]
}

function outcomeOf(part: ToolPart): UIMessageChunk[] {
  const { toolCallId, state } = part
  if (state === 'output-denied') return [{ type: 'tool-output-denied', toolCallId }]
  if (state === 'output-error') return [{ type: 'tool-output-error', toolCallId, errorText: part.errorText, ...marks(part) }]
  if (state !== 'output-available') return []
  const { output, preliminary } = part
  return [
    { type: 'tool-output-available', toolCallId, output, ...marks(part), ...(preliminary !== undefined && { preliminary }) },
  ]
}

function marks({ type, providerExecuted }: ToolPart) {
  return { ...(type === 'dynamic-tool' && { dynamic: true }), ...(providerExecuted !== undefined && { providerExecuted }) }
}
