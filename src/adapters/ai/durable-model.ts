import { gateway, type LanguageModel, type ToolSet, type UIMessageChunk, wrapLanguageModel } from 'ai'
import type { Context, RetryOptions, StepHandle } from '../../index.ts'
import { digest } from './digest.ts'
import { withHref, withUrl } from './file-urls.ts'
import { exhausted, isWorthRetrying } from './model-errors.ts'
import { readModelStream, streamOf } from './model-stream.ts'
import type { ChunkListener, ModelAnswer, ModelRequest, ModelUsage, ModelV4, ProviderModel } from './model-v4.ts'
import { packer } from './packed-chunks.ts'
import { type Rooms, roomsOf } from './room.ts'
import { chunkOf } from './ui-chunks.ts'

export interface TokenUsage {
  readonly inputTokens: number
  readonly outputTokens: number
  /** Of the input tokens, those that the provider had cached. */
  readonly cachedInputTokens: number
}

/** What a call costs, in the currency of the run's budget. `model` is the model's id. */
export type Price = (model: string, usage: TokenUsage) => number

export interface DurableModelOptions {
  /** Name of the step. Default `model`. */
  readonly name?: string
  /** The stream of the run that gets the answer while it is generated, as chunks for a UI. Default none. */
  readonly stream?: string
  /** Attempts of a call. Default: the workflow's, else 3. What the provider calls not retryable is not tried again. */
  readonly retry?: RetryOptions
  /** Time limit of one attempt, in ms. Default none. */
  readonly timeoutMs?: number
  readonly price?: Price
  /** The tools that the model may call, so that the stream says at once when a call has an invalid input. */
  readonly tools?: ToolSet
}

/** Also hears what a transcript needs. */
export interface ModelOptions extends DurableModelOptions {
  readonly onChunks?: ChunkListener | undefined
}

/**
 * The same model, each of whose calls is a step of the run: a recorded answer is not asked for again. Works wherever the AI SDK takes a
 * model: `generateText`, `streamText`, `ToolLoopAgent`.
 */
export function durableModel(ctx: Context, model: LanguageModel, options: DurableModelOptions = {}): ModelV4 {
  return wrapLanguageModel({
    model: typeof model === 'string' ? (globalThis.AI_SDK_DEFAULT_PROVIDER ?? gateway).languageModel(model) : model,
    middleware: {
      specificationVersion: 'v4',
      wrapGenerate: ({ model, params }) => callModel(ctx, model, params, options),
      wrapStream: async ({ model, params }) => ({ stream: streamOf(await callModel(ctx, model, params, options)) }),
    },
  })
}

async function callModel(ctx: Context, model: ModelV4, request: ModelRequest, options: ModelOptions): Promise<ModelAnswer> {
  const { name = 'model', retry, timeoutMs } = options
  const made = { isNew: false }
  const release = await reserve(ctx, model, request, options)
  const body = (step: StepHandle) => {
    made.isNew = true
    return attempt(step, model, request, { ...options, rooms: roomsOf(ctx) })
  }
  try {
    const answer = await ctx.step(name, body, {
      kind: 'model',
      input: inputOf(model, request),
      // Whoever called it has given it up.
      retry: { retryIf: (error) => request.abortSignal?.aborted !== true && isWorthRetrying(error), ...retry },
      ...(timeoutMs !== undefined && { timeoutMs }),
    })
    return { ...answer, content: answer.content.map(withUrl) }
  } catch (error) {
    throw exhausted(error)
  } finally {
    release(made.isNew)
  }
}

/** A run that has no room for the longest answer pauses before the call and not after it. */
async function reserve(ctx: Context, model: ModelV4, { maxOutputTokens: tokens }: ModelRequest, { price }: ModelOptions) {
  if (tokens === undefined) return () => {}
  const rooms = roomsOf(ctx)
  const cost = price?.(model.modelId, { inputTokens: 0, outputTokens: tokens, cachedInputTokens: 0 }) ?? 0
  const missing = { tokens: rooms.tokens.begin(tokens), cost: rooms.cost.begin(cost) }
  if (missing.tokens > 0) await ctx.reserve({ tokens: missing.tokens })
  if (missing.cost > 0) await ctx.reserve({ cost: missing.cost })
  return (isNew: boolean) => {
    rooms.tokens.end(tokens, isNew ? 0 : missing.tokens)
    rooms.cost.end(cost, isNew ? 0 : missing.cost)
  }
}

/** Tells calls apart on replay, without a copy of the prompt in every record: it would grow with the square of the conversation. */
function inputOf({ provider, modelId }: ProviderModel, request: ModelRequest): Record<string, unknown> {
  const {
    prompt,
    tools,
    responseFormat,
    providerOptions,
    abortSignal: _,
    headers: _h,
    includeRawChunks: _r,
    ...settings
  } = request
  return {
    model: `${provider}/${modelId}`,
    settings: withoutUndefined({ ...settings, responseFormat: digest(responseFormat), providerOptions: digest(providerOptions) }),
    messages: prompt.length,
    ...withoutUndefined({ tools: digest(tools), prompt: digest(prompt) }),
  }
}

async function attempt(
  step: StepHandle,
  model: ModelV4,
  request: ModelRequest,
  options: ModelOptions & { readonly rooms: Rooms },
): Promise<ModelAnswer> {
  const { abortSignal } = request
  const signal = abortSignal === undefined ? step.signal : AbortSignal.any([step.signal, abortSignal])
  const call = { ...request, abortSignal: signal }
  const book = (used: ModelUsage | undefined) => {
    const usage = usageOf(model, used, options)
    step.usage(usage)
    options.rooms.tokens.use(usage.inputTokens + usage.outputTokens)
    options.rooms.cost.use(usage.cost ?? 0)
  }
  if (options.stream !== undefined)
    return recorded(await streamed(step, model, call, { ...options, stream: options.stream, book }), model)
  const answer = await model.doGenerate(call)
  book(answer.usage)
  return recorded(answer, model)
}

async function streamed(
  step: StepHandle,
  model: ModelV4,
  request: ModelRequest,
  options: ModelOptions & { readonly stream: string; readonly book: (usage: ModelUsage | undefined) => void },
): Promise<ModelAnswer> {
  const output = step.stream(options.stream)
  const chunks: UIMessageChunk[] = []
  const packed = packer()
  const write = (chunk: UIMessageChunk) => {
    if (options.onChunks !== undefined) chunks.push(chunk)
    return output.write(packed(chunk))
  }
  const { stream } = await model.doStream(request)
  await write({ type: 'start-step' })
  const answer = await readModelStream(stream, async (part) => {
    // Paid for, also if the attempt fails after it.
    if (part.type === 'finish') options.book(part.usage)
    const chunk = await chunkOf(part, options.tools)
    if (chunk !== undefined) await write(chunk)
  })
  await options.onChunks?.(step, chunks)
  return answer
}

/** What the record keeps. Ids and times are fixed here: the SDK would invent others on every replay. */
function recorded(
  { content, finishReason, usage, warnings, providerMetadata, structuredOutputText, response }: ModelAnswer,
  model: ModelV4,
): ModelAnswer {
  const { raw: _, ...tokens } = usage ?? unknownUsage
  return {
    ...{ content: content.map(withHref), usage: compact(tokens), warnings: warnings ?? [] },
    finishReason: compact(finishReason ?? { unified: 'other', raw: undefined }),
    ...(providerMetadata !== undefined && { providerMetadata }),
    ...(structuredOutputText !== undefined && { structuredOutputText }),
    response: {
      id: response?.id ?? crypto.randomUUID(),
      timestamp: response?.timestamp ?? new Date(),
      modelId: response?.modelId ?? model.modelId,
    },
  }
}

const unknownUsage: ModelUsage = {
  inputTokens: { total: undefined, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: undefined, text: undefined, reasoning: undefined },
}

function usageOf({ modelId }: ModelV4, usage: ModelUsage | undefined, { price }: ModelOptions) {
  const inputTokens = count(usage?.inputTokens?.total)
  const outputTokens = count(usage?.outputTokens?.total)
  const cost = price?.(modelId, { inputTokens, outputTokens, cachedInputTokens: count(usage?.inputTokens?.cacheRead) })
  return { model: modelId, inputTokens, outputTokens, ...(cost !== undefined && { cost }) }
}

/** What a provider says of its answer may be nonsense: the answer is paid for, and kept. */
function count(tokens: number | undefined): number {
  return tokens !== undefined && Number.isFinite(tokens) && tokens > 0 ? tokens : 0
}

/** What is undefined takes more room in a record than what is there. */
function compact<T extends object>(object: T): T {
  const entries = Object.entries(object).filter(([, value]) => value !== undefined)
  return Object.fromEntries(
    entries.map(([key, value]) => [key, typeof value === 'object' && value !== null ? compact(value) : value]),
  ) as T
}

function withoutUndefined<T extends object>(object: T): T {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as T
}
