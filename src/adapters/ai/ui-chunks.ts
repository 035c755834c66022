import { asSchema, type ToolSet, type UIMessageChunk } from 'ai'
import { messageOf } from './model-errors.ts'
import type { AnyTool, ModelStreamPart } from './model-v4.ts'

type Part<Type extends ModelStreamPart['type']> = Extract<ModelStreamPart, { type: Type }>

/** What a page is told of a part of a model's stream; undefined for what is none of its business. */
export async function chunkOf(part: ModelStreamPart, tools: ToolSet | undefined): Promise<UIMessageChunk | undefined> {
  switch (part.type) {
    case 'text-start':
    case 'text-delta':
    case 'text-end':
    case 'reasoning-start':
    case 'reasoning-delta':
    case 'reasoning-end':
    case 'custom':
      return part as UIMessageChunk
    case 'tool-input-start': {
      const { type, id: toolCallId, toolName, providerExecuted, dynamic } = part
      return { type, toolCallId, toolName, ...marks(ownTool(tools, toolName), { providerExecuted, dynamic }) }
    }
    case 'tool-input-delta':
      return { type: part.type, toolCallId: part.id, inputTextDelta: part.delta }
    case 'tool-call':
      return toolCallChunk(part, tools)
    case 'tool-result':
      return providerResultChunk(part)
    case 'file':
    case 'reasoning-file':
      return fileChunk(part)
    case 'source':
      return sourceChunk(part)
    default:
      return undefined
  }
}

/** The tool of that name, and never what objects inherit: the name is the model's. */
function ownTool(tools: ToolSet | undefined, name: string): AnyTool | undefined {
  return tools !== undefined && Object.hasOwn(tools, name) ? tools[name] : undefined
}

async function toolCallChunk(part: Part<'tool-call'>, tools: ToolSet | undefined): Promise<UIMessageChunk> {
  const { toolCallId, toolName, providerExecuted, dynamic } = part
  const tool = ownTool(tools, toolName)
  const described = { toolCallId, toolName, ...marks(tool, { providerExecuted, dynamic }) }
  const input = parsed(part.input)
  const problem = await problemOf(part, input, tools)
  if (problem !== undefined) return { type: 'tool-input-error', ...described, input: input ?? part.input, errorText: problem }
  return { type: 'tool-input-available', ...described, input }
}

/** Why the call will not be carried out, as far as that can be said before. */
async function problemOf({ toolName, providerExecuted }: Part<'tool-call'>, input: unknown, tools: ToolSet | undefined) {
  if (input === undefined) return 'The input is not valid JSON.'
  if (tools === undefined || providerExecuted === true) return undefined
  const tool = ownTool(tools, toolName)
  if (tool === undefined) return `There is no tool "${toolName}".`
  try {
    const checked = await asSchema(tool.inputSchema).validate?.(input)
    return checked === undefined || checked.success ? undefined : messageOf(checked.error)
  } catch (error) {
    // The SDK tells the model: the answer is not to be paid for again.
    return messageOf(error)
  }
}

function parsed(input: string): unknown {
  try {
    return JSON.parse(input.trim() === '' ? '{}' : input)
  } catch {
    return undefined
  }
}

function marks(
  tool: AnyTool | undefined,
  { providerExecuted, dynamic }: { providerExecuted?: boolean | undefined; dynamic?: boolean | undefined },
) {
  const isDynamic = tool?.type === 'dynamic' || dynamic === true
  return { ...(providerExecuted === true && { providerExecuted }), ...(isDynamic && { dynamic: true }) }
}

function providerResultChunk({ toolCallId, result, isError }: Part<'tool-result'>): UIMessageChunk {
  const done = { toolCallId, providerExecuted: true }
  if (isError === true) return { type: 'tool-output-error', ...done, errorText: messageOf(result) }
  return { type: 'tool-output-available', ...done, output: result }
}

function fileChunk({ type, mediaType, data }: Part<'file'> | Part<'reasoning-file'>): UIMessageChunk | undefined {
  if (data.type === 'url') return { type, mediaType, url: String(data.url) }
  if (data.type !== 'data') return undefined
  const base64 = typeof data.data === 'string' ? data.data : Buffer.from(data.data).toString('base64')
  return { type, mediaType, url: `data:${mediaType};base64,${base64}` }
}

function sourceChunk(source: Part<'source'>): UIMessageChunk {
  const { id: sourceId, title } = source
  if (source.sourceType === 'url') return { type: 'source-url', sourceId, url: source.url, ...(title !== undefined && { title }) }
  const { mediaType, filename } = source
  return { type: 'source-document', sourceId, mediaType, title: title ?? '', ...(filename !== undefined && { filename }) }
}
