import { createHash } from 'node:crypto'
import type { ToolSet, UIMessageChunk } from 'ai'
import { type Context, HoldfastError, type RetryOptions, type StepHandle } from '../../index.ts'
import { type ApprovalOptions, type Decision, decide } from './approval.ts'
import { messageOf } from './model-errors.ts'
import type { AnyTool, GivenToTool } from './model-v4.ts'
import { type EffectToolOptions, kindOf } from './tool-kinds.ts'
import { asJson, write, writeInStep } from './tool-output.ts'

export interface DurableToolsOptions extends ApprovalOptions {
  /** The stream of the run that says to a UI what tools returned and which calls wait for approval. Default none. */
  readonly stream?: string
  /** Attempts of tools that are steps. Default: the workflow's, else 3. */
  readonly retry?: RetryOptions
  /** Time limit of one attempt, in ms. Default none. */
  readonly timeoutMs?: number
}

/** What `execute` of a durable tool is given besides the options of the AI SDK: read it with `durableCall`. */
export interface DurableCall {
  /** Of the run, in the scope of this call. Of use in tools made with `withContext`; the body of a step or effect may not call it. */
  readonly ctx: Context
  /** The same for every attempt of this call: an idempotency key. */
  readonly key: string
  /** Of a tool that is a step. */
  readonly step?: StepHandle
}

const callMark = Symbol('holdfast call')

/** The context and the key of a tool call, from the options that `execute` was given. */
export function durableCall(options: GivenToTool): DurableCall {
  const call = (options as { readonly [callMark]?: DurableCall })[callMark]
  if (call !== undefined) return call
  throw new HoldfastError(
    'invalid_input',
    'This tool was not called as a durable one. Pass its tools through durableTools, or to runAgent.',
  )
}

/**
 * The same tools, each of whose calls is recorded once, in a scope of its own: as a step, as an effect (`effect`), or as the recorded calls
 * that it makes (`withContext`). MCP tools go by their annotations: read-only ones are steps, all others effects.
 */
export function durableTools<Tools extends ToolSet>(ctx: Context, tools: Tools, options: DurableToolsOptions = {}): Tools {
  const entries = Object.entries(tools).map(([name, tool]) => [
    name,
    tool.execute === undefined ? tool : durableTool(ctx, name, tool, options),
  ])
  return Object.fromEntries(entries) as Tools
}

function durableTool(ctx: Context, name: string, tool: AnyTool, options: DurableToolsOptions): AnyTool {
  const { needsApproval, toModelOutput, ...rest } = tool
  const decisions = new Map<string, Decision>()
  return {
    ...rest,
    execute: (input: unknown, given: GivenToTool) => {
      return ctx.scope(scopeOf(name, given.toolCallId), async (inner) => {
        const call = { ctx: inner, name, tool, input, given }
        const decision = await decide(call, options)
        decisions.set(given.toolCallId, decision)
        if (!decision.approved) return decision
        return carryOut({ ...call, input: decision.input }, options)
      })
    },
    toModelOutput: async (result: { toolCallId: string; input: unknown; output: unknown }) => {
      const { approved, reason, isEdited, input } = decisions.get(result.toolCallId) ?? { approved: true }
      if (!approved) return { type: 'execution-denied', ...(reason !== undefined && { reason }) }
      const output =
        toModelOutput === undefined
          ? modelOutput(result.output)
          : await toModelOutput({ ...result, input: input ?? result.input })
      return isEdited === true ? withEdit(output, input) : output
    },
  } as AnyTool
}

interface ToolCall {
  readonly ctx: Context
  readonly name: string
  readonly tool: AnyTool
  readonly input: unknown
  readonly given: GivenToTool
}

async function carryOut(call: ToolCall, options: DurableToolsOptions): Promise<unknown> {
  const { ctx, tool, given } = call
  const { toolCallId } = given
  const kind = kindOf(tool)
  try {
    if (kind.is === 'step') return await runAsStep(call, options)
    const output = kind.is === 'effect' ? await runAsEffect(call, kind.options) : await execute(call, { ctx, key: toolCallId })
    await writeInStep(ctx, options, [available(toolCallId, output)])
    return output
  } catch (error) {
    const errorText = messageOf(error)
    await writeInStep(ctx, options, [{ type: 'tool-output-error', toolCallId, errorText }])
    // The SDK can't put every value that may be thrown into words.
    throw error instanceof Error ? error : new Error(errorText)
  }
}

function runAsStep(call: ToolCall, options: DurableToolsOptions): Promise<unknown> {
  const { ctx, name, input, given } = call
  const { retry, timeoutMs } = options
  const body = async (step: StepHandle) => {
    const preliminary = (output: unknown) => write(step, options, [{ ...available(given.toolCallId, output), preliminary: true }])
    const output = await execute(call, { ctx, key: step.key, step }, step.signal, preliminary)
    await write(step, options, [available(given.toolCallId, output)])
    return output
  }
  return ctx.step(stepName(name), body, {
    kind: 'tool',
    input,
    ...(retry !== undefined && { retry }),
    ...(timeoutMs !== undefined && { timeoutMs }),
  })
}

function runAsEffect(call: ToolCall, options: EffectToolOptions): Promise<unknown> {
  const { ctx, name, input } = call
  const { key, check, ...rest } = options
  return ctx.once(stepName(name), {
    ...rest,
    ...(key !== undefined && { key: typeof key === 'function' ? key(input as never) : key }),
    ...(check !== undefined && { check: (key: string) => check(key, input as never) }),
    run: (key, { signal }) => execute(call, { ctx, key }, signal),
  })
}

/** Calls the user's function. One that yields outputs returns the last of them. */
async function execute(
  { tool, input, given }: ToolCall,
  durable: DurableCall,
  signal?: AbortSignal,
  onPreliminary?: (output: unknown) => Promise<void>,
): Promise<unknown> {
  const signals = [signal, given.abortSignal].filter((one) => one !== undefined)
  const options = {
    ...given,
    ...durable,
    [callMark]: durable,
    ...(signals.length > 0 && { abortSignal: AbortSignal.any(signals) }),
  }
  const made: unknown = tool.execute?.(input as never, options)
  if (!isAsyncIterable(made)) return made
  let last: unknown
  for await (const output of made) {
    last = output
    await onPreliminary?.(output)
  }
  return last
}

function isAsyncIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value
}

function available(toolCallId: string, output: unknown): UIMessageChunk & { readonly type: 'tool-output-available' } {
  return { type: 'tool-output-available', toolCallId, output: asJson(output) }
}

/** Calls of one tool in parallel have names of their own, so that no replay can hand one the result of another. */
function scopeOf(name: string, toolCallId: string): string {
  return `${stepName(name)}-${createHash('sha256').update(toolCallId).digest('hex').slice(0, 10)}`
}

/** Names of tools, of MCP servers above all, may hold what names of steps may not. */
function stepName(tool: string): string {
  return tool.replaceAll(/[/[]/g, '_')
}

type ToModelOutput = NonNullable<AnyTool['toModelOutput']>
type ModelOutput = Awaited<ReturnType<ToModelOutput>>

/** As the AI SDK does it for a tool that does not say. */
function modelOutput(output: unknown): ModelOutput {
  if (typeof output === 'string') return { type: 'text', value: output }
  return { type: 'json', value: asJson(output) as Extract<ModelOutput, { type: 'json' }>['value'] }
}

/** The model sees its own input in the conversation: it is told what was carried out instead. */
function withEdit(output: ModelOutput, input: unknown): ModelOutput {
  const said = `Approved with another input: ${JSON.stringify(asJson(input))}`
  const before =
    output.type === 'content' ? output.value : [{ type: 'text' as const, text: 'value' in output ? textOf(output.value) : '' }]
  return { type: 'content', value: [{ type: 'text', text: said }, ...before] }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(asJson(value))
}
