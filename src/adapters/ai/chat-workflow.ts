import { convertToModelMessages, type ToolSet, type UIMessage } from 'ai'
import { type Context, HoldfastError, state, type Workflow, type WorkflowOptions, workflow } from '../../index.ts'
import { type AgentCallOptions, type AgentSettings, runAgent } from './run-agent.ts'
import { type ChatState, isUnfinishedCall, transcript } from './transcript.ts'

/** What a run of a chat is started with. */
export interface ChatInput {
  /** What the user said; without one, the last answer is generated again. */
  readonly message?: UIMessage
  /** The message from which on the conversation is replaced. */
  readonly replaces?: string
}

export interface ChatOutput {
  /** Of the answer, in the state: its text is not kept a second time as the output of the run. */
  readonly messageId: string
}

export type ChatWorkflow = Workflow<ChatInput, ChatOutput, ChatState>

export interface ChatSettings<Tools extends ToolSet>
  extends Pick<
      WorkflowOptions<ChatInput, ChatOutput, ChatState>,
      'name' | 'version' | 'budget' | 'timeoutMs' | 'queue' | 'priority' | 'retry'
    >,
    Pick<AgentCallOptions, 'to' | 'approvalTimeoutMs' | 'price' | 'toolOptions'> {
  /** Settings of the agent that answers, or what makes them for one answer: with MCP tools, or with what is known of the user. */
  readonly agent:
    | AgentSettings<Tools>
    | ((ctx: Context<ChatState>, input: ChatInput) => AgentSettings<Tools> | Promise<AgentSettings<Tools>>)
  /**
   * Makes a long conversation shorter, before each answer. What it leaves out stays in the thread's history. A replay calls it again: what is not
   * decided by the messages alone, such as a summary by a model, belongs into `ctx.step`. Default: everything is kept.
   */
  readonly compact?: (
    messages: readonly UIMessage[],
    ctx: Context<ChatState>,
  ) => readonly UIMessage[] | Promise<readonly UIMessage[]>
  /** Retries and time limit of model calls. */
  readonly model?: Pick<AgentCallOptions, 'retry' | 'timeoutMs'>
  /** Takes messages while it answers. Costs two writes for each model call. Default false. */
  readonly steering?: boolean
}

/** The stream of a chat's runs. */
export const chatStream = 'ui'
/** The signal that brings a message into an answer that is being made. */
export const steeringSignal = 'steer'

const chatState = state<ChatState>({ version: 1, initial: () => ({ messages: [] }) })
/** An answer is in the state once it is complete. */
const kept = { state: chatState, streams: 'recent' } as const

/** A workflow that answers in a conversation: one thread for each, its messages in the state, one run for each answer. */
export function chatWorkflow<Tools extends ToolSet = ToolSet>(settings: ChatSettings<Tools>): ChatWorkflow {
  const { agent, compact, model, steering, to, approvalTimeoutMs, price, toolOptions, ...options } = settings
  if (agent === null || (typeof agent !== 'object' && typeof agent !== 'function'))
    throw new HoldfastError(
      'invalid_input',
      `chatWorkflow "${settings.name}" needs agent: settings of an agent, or a function that makes them.`,
    )
  const given = { to, approvalTimeoutMs, price, toolOptions }
  const callOptions = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
  const chat = workflow<ChatInput, ChatOutput, ChatState>({ ...options, ...kept }, async (ctx, input) => {
    takeMessage(ctx, input)
    const all = ctx.state.messages
    const kept = await compact?.(all, ctx)
    if (kept !== undefined && kept !== all)
      ctx.update((draft) => void draft.messages.splice(0, draft.messages.length, ...structuredClone(kept)))
    const answering = typeof agent === 'function' ? await agent(ctx, input) : agent
    // What an earlier run has left unfinished, its model can't be told of: no result will follow.
    const told = ctx.state.messages.map((message) => ({
      ...message,
      parts: message.parts.filter((part) => !isUnfinishedCall(part)),
    }))
    const messages = await convertToModelMessages(told, answering.tools === undefined ? {} : { tools: answering.tools })
    await runAgent(ctx, answering, {
      ...{ messages, stream: chatStream, onChunks: transcript(ctx.runId) },
      ...{ ...model, ...callOptions },
      ...(steering === true && { steering: steeringSignal }),
    })
    return { messageId: ctx.runId }
  })
  if (steering === true) steered.add(chat)
  return chat
}

const steered = new WeakSet<ChatWorkflow>()

/** Whether a message that is sent to it while it answers is read. */
export function takesSteering(chat: ChatWorkflow): boolean {
  return steered.has(chat)
}

/** For `compact`: keeps the last messages, from one of the user on. */
export function keepLast(count: number): (messages: readonly UIMessage[]) => readonly UIMessage[] {
  if (!Number.isSafeInteger(count) || count < 1)
    throw new HoldfastError('invalid_input', `keepLast takes how many messages to keep, from 1; not ${String(count)}.`)
  return (messages) => {
    if (messages.length <= count) return messages
    const first = messages.findIndex(({ role }, index) => index >= messages.length - count && role === 'user')
    return first === -1 ? messages : messages.slice(first)
  }
}

/** A message that is there already is replaced, with all that came after it. */
function takeMessage(ctx: Context<ChatState>, { message, replaces }: ChatInput): void {
  // Not on the draft, which would make a copy of every message that is looked at.
  const at = ctx.state.messages.findIndex(({ id }) => id === (replaces ?? message?.id))
  ctx.update(({ messages }) => {
    if (at !== -1) messages.splice(at)
    if (message !== undefined) messages.push(structuredClone(message))
  })
}
