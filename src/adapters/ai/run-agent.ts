import {
  experimental_createSteering as createSteering,
  type GenerateTextResult,
  type ModelMessage,
  type OutputInterface,
  type Experimental_Steering as Steering,
  ToolLoopAgent,
  type ToolLoopAgentSettings,
  type ToolSet,
  type UserModelMessage,
} from 'ai'
import { type Context, HoldfastError } from '../../index.ts'
import type { ToolApproval } from './approval.ts'
import { durableModel, type ModelOptions } from './durable-model.ts'
import { type DurableToolsOptions, durableTools } from './durable-tools.ts'
import { writeInStep } from './tool-output.ts'

/** The SDK's context of an agent, which is not the context of a run. */
type RuntimeContext = Record<string, unknown>

/** Settings of an agent of the AI SDK. */
export type AgentSettings<Tools extends ToolSet = ToolSet, Answer extends OutputInterface = never> = Omit<
  ToolLoopAgentSettings<never, Tools, RuntimeContext, Answer>,
  'prepareCall' | 'callOptionsSchema' | 'experimental_toolApprovalSecret' | 'maxRetries'
>

export type AgentPrompt =
  | { readonly prompt: string | ModelMessage[]; readonly messages?: never }
  | { readonly messages: ModelMessage[]; readonly prompt?: never }

export interface AgentCallOptions
  extends Omit<ModelOptions, 'tools' | 'name'>,
    Pick<DurableToolsOptions, 'to' | 'approvalTimeoutMs'> {
  /** The signal that brings messages into the run while it works: a text, or a user message of the AI SDK. Default: it takes none. */
  readonly steering?: string
  /** Options of tools that are steps. */
  readonly toolOptions?: Pick<DurableToolsOptions, 'retry' | 'timeoutMs'>
}

/**
 * Runs an agent of the AI SDK as part of a workflow: its model calls are steps, its tools steps or effects, its approvals questions. Takes the
 * settings of a `ToolLoopAgent` as they are, and returns what it returns.
 */
export async function runAgent<Tools extends ToolSet, Answer extends OutputInterface = never>(
  ctx: Context,
  settings: AgentSettings<Tools, Answer>,
  call: AgentPrompt & AgentCallOptions,
): Promise<GenerateTextResult<Tools, RuntimeContext, Answer>> {
  const { prompt, messages, steering: signal, toolOptions, to, approvalTimeoutMs, ...modelOptions } = call
  const { toolApproval, tools, prepareStep, ...rest } = settings
  if ('prepareCall' in settings)
    throw new HoldfastError('invalid_input', 'runAgent takes no prepareCall: prepare the settings before the call.')
  const { stream, onChunks } = call
  const output = { ...(stream !== undefined && { stream }), onChunks }
  const durable = (model: AgentSettings['model']) =>
    durableModel(ctx, model, { ...modelOptions, ...(tools !== undefined && { tools }) })
  const agent = new ToolLoopAgent<never, Tools, RuntimeContext, Answer>({
    ...rest,
    model: durable(settings.model),
    // Retries belong to the step: both together would multiply, and a replay would sleep through the SDK's delays again.
    maxRetries: 0,
    ...(tools !== undefined && {
      tools: durableTools(ctx, tools, {
        ...{ ...toolOptions, ...output, tools },
        ...(toolApproval !== undefined && { toolApproval: toolApproval as ToolApproval }),
        ...(to !== undefined && { to }),
        ...(approvalTimeoutMs !== undefined && { approvalTimeoutMs }),
        ...(settings.runtimeContext !== undefined && { runtimeContext: settings.runtimeContext }),
      }),
    }),
    ...(prepareStep !== undefined && {
      prepareStep: async (options: Parameters<typeof prepareStep>[0]) => {
        const prepared = await prepareStep(options)
        return prepared?.model === undefined ? prepared : { ...prepared, model: durable(prepared.model) }
      },
    }),
  } as unknown as ToolLoopAgentSettings<never, Tools, RuntimeContext, Answer>)
  const steering = signal === undefined ? undefined : createSteering()
  return agent.generate({
    ...(messages === undefined ? { prompt } : { messages }),
    ...(steering !== undefined && {
      experimental_steering: steering,
      onStepEnd: () => steer(ctx, signal as string, steering, output),
    }),
  } as Parameters<typeof agent.generate>[0])
}

/** Hands on what was sent by now. Asked after every step, also the last: an answer that is complete is continued. */
async function steer(
  ctx: Context,
  signal: string,
  steering: Steering,
  output: { stream?: string; onChunks?: ModelOptions['onChunks'] },
): Promise<void> {
  for (;;) {
    const message = await next(ctx, signal)
    if (message === undefined) return
    const id = ctx.uuid()
    const text = typeof message === 'string' ? message : JSON.stringify(message.content)
    await writeInStep(ctx, output, [{ type: 'steering-message', id, parts: [{ type: 'text', text }] }])
    void steering.steer(message, { id })
  }
}

async function next(ctx: Context, signal: string): Promise<string | UserModelMessage | undefined> {
  try {
    return await ctx.waitFor<string | UserModelMessage>(signal, { timeoutMs: 0 })
  } catch (error) {
    if (error instanceof HoldfastError && error.code === 'timeout') return undefined
    throw error
  }
}
