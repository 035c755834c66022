import type { StandardSchemaV1 } from '@standard-schema/spec'
import { asSchema, type ToolApprovalStatus, type ToolSet, type UIMessageChunk } from 'ai'
import { type Context, HoldfastError, type StepHandle } from '../../index.ts'
import { digest } from './digest.ts'
import { messageOf } from './model-errors.ts'
import type { AnyTool, GivenToTool } from './model-v4.ts'
import { type ToolOutput, write, writeInStep } from './tool-output.ts'

/** Which calls need approval: a status for each tool or a function of its input, or one function for all calls, as in the AI SDK. */
export type ToolApproval = GenericApproval | Readonly<Record<string, ToolApprovalStatus | ApprovalFunction>>

// biome-ignore lint/suspicious/noExplicitAny: as the AI SDK calls them, for tools of any kind
type ApprovalFunction = (input: any, options: any) => ToolApprovalStatus | PromiseLike<ToolApprovalStatus>
// biome-ignore lint/suspicious/noExplicitAny: as above
type GenericApproval = (options: any) => ToolApprovalStatus | PromiseLike<ToolApprovalStatus>

export interface ApprovalOptions extends ToolOutput {
  /** As in the AI SDK. A call that needs approval is a question to a person: in `hf.inbox()`, answered with an `ApprovalAnswer`. */
  readonly toolApproval?: ToolApproval | undefined
  /** Who should approve: a name, a role, an address. */
  readonly to?: string
  /** How long to wait for an answer, in ms. After it the call is denied. Default forever. */
  readonly approvalTimeoutMs?: number
  /** What `toolApproval` is given as the run's `runtimeContext`. */
  readonly runtimeContext?: unknown
  /** What `toolApproval` is given as all tools. */
  readonly tools?: ToolSet
}

/** The answer to the question whether a tool may be called. */
export interface ApprovalAnswer {
  readonly approved: boolean
  /** Told to the model where it is denied. */
  readonly reason?: string
  /** Carried out instead of the model's input. */
  readonly input?: unknown
}

/** What the question shows. */
export interface ApprovalQuestion {
  /** Names this request in the stream, and no other one: a call that is proposed again has another. */
  readonly approvalId: string
  readonly tool: string
  readonly input: unknown
  readonly reason?: string
}

export interface Decision extends ApprovalAnswer {
  readonly isEdited?: boolean
}

export interface ProposedCall {
  readonly ctx: Context
  readonly name: string
  readonly tool: AnyTool
  readonly input: unknown
  readonly given: GivenToTool
}

/** Of the question, in the scope of its tool call. */
const approvalName = 'approve'

/** What a question shows, if it is the request of an approval. */
export function approvalShown(question: unknown): ApprovalQuestion | undefined {
  const shown = question as Partial<ApprovalQuestion> | null | undefined
  return typeof shown?.approvalId === 'string' && typeof shown.tool === 'string' ? (shown as ApprovalQuestion) : undefined
}

/** Whether a tool may be called, and with which input. Asks a person where the policy says so, and waits. */
export async function decide(call: ProposedCall, options: ApprovalOptions): Promise<Decision> {
  const { ctx, name, tool, input, given } = call
  if (!hasPolicy(name, tool, options.toolApproval)) return { approved: true, input }
  // Recorded: what a policy looks up may be another thing on a replay.
  const { type, reason, approvalId } = await ctx.step('policy', (step) => applyPolicy(step, call, options), { checkpoint: false })
  if (approvalId !== undefined) {
    const answer = await ask(call, { approvalId, tool: name, input, ...(reason !== undefined && { reason }) }, options)
    const isEdited = answer.approved && answer.input !== undefined
    await writeInStep(ctx, options, answered(given.toolCallId, name, approvalId, answer))
    return { ...answer, input: isEdited ? answer.input : input, isEdited }
  }
  if (type !== 'denied') return { approved: true, input }
  await writeInStep(ctx, options, [{ type: 'tool-output-denied', toolCallId: given.toolCallId }])
  return { approved: false, ...(reason !== undefined && { reason }) }
}

function hasPolicy(name: string, { needsApproval }: AnyTool, approval: ToolApproval | undefined): boolean {
  if (typeof approval === 'function') return true
  const own = approval !== undefined && Object.hasOwn(approval, name) ? approval[name] : undefined
  return own !== undefined || (needsApproval !== undefined && needsApproval !== false)
}

type Status = Exclude<ToolApprovalStatus, string | undefined>
/** `approvalId` where a person is asked. */
type Verdict = Status & { readonly approvalId?: string }

const statuses: ReadonlySet<unknown> = new Set<Status['type']>(['not-applicable', 'approved', 'denied', 'user-approval'])

function unknownStatus(tool: string, given: unknown): HoldfastError {
  const allowed = [...statuses].map((status) => `"${status}"`).join(', ')
  return new HoldfastError(
    'invalid_input',
    `toolApproval said ${messageOf(given)} of a call of "${tool}", which was not made. It must be undefined or one of ${allowed}.`,
  )
}

async function applyPolicy(step: StepHandle, call: ProposedCall, options: ApprovalOptions): Promise<Verdict> {
  const given = await statusOf(call, options)
  const status: Status = given === undefined ? { type: 'not-applicable' } : typeof given === 'string' ? { type: given } : given
  // What is no status must not count as consent.
  if (!statuses.has(status?.type)) throw unknownStatus(call.name, given)
  if (status.type !== 'user-approval') return status
  const { reason } = status
  const { toolCallId } = call.given
  // Not from the id of the call alone: there are providers that give one id to call after call.
  const approvalId = `approval-${digest(step.key)?.slice(0, 16)}`
  await write(step, options, [{ type: 'tool-approval-request', approvalId, toolCallId, ...(reason !== undefined && { reason }) }])
  return { ...status, approvalId }
}

async function statusOf({ name, tool, input, given }: ProposedCall, options: ApprovalOptions): Promise<ToolApprovalStatus> {
  const { toolApproval, runtimeContext = {}, tools } = options
  const { toolCallId, messages, context } = given
  if (typeof toolApproval === 'function') {
    const toolCall = { type: 'tool-call', toolCallId, toolName: name, input }
    return toolApproval({ toolCall, tools, toolsContext: { [name]: context }, messages, runtimeContext })
  }
  const own = toolApproval !== undefined && Object.hasOwn(toolApproval, name) ? toolApproval[name] : undefined
  if (typeof own === 'function') return own(input, { toolCallId, messages, toolContext: context, runtimeContext })
  if (own !== undefined) return own
  const { needsApproval } = tool
  const needs =
    typeof needsApproval === 'function' ? await needsApproval(input as never, { toolCallId, messages, context }) : needsApproval
  return needs ? 'user-approval' : undefined
}

function ask({ ctx, tool }: ProposedCall, question: ApprovalQuestion, options: ApprovalOptions): Promise<ApprovalAnswer> {
  const { to, approvalTimeoutMs } = options
  return ctx.ask<ApprovalAnswer>(approvalName, {
    question,
    schema: answerSchema(tool),
    ...(to !== undefined && { to }),
    ...(approvalTimeoutMs !== undefined && {
      timeoutMs: approvalTimeoutMs,
      default: { approved: false, reason: 'Nobody answered in time.' },
    }),
  })
}

/** Refuses what is no answer, and an edited input that the tool would not take. */
function answerSchema(tool: AnyTool): StandardSchemaV1<unknown, ApprovalAnswer> {
  return {
    '~standard': {
      version: 1,
      vendor: 'holdfast',
      validate: async (value) => {
        const { approved, reason, input } = (value ?? {}) as ApprovalAnswer
        if (typeof approved !== 'boolean') return { issues: [{ message: 'approved must be true or false', path: ['approved'] }] }
        if (reason !== undefined && typeof reason !== 'string')
          return { issues: [{ message: 'reason must be a text', path: ['reason'] }] }
        const answer = { approved, ...(reason !== undefined && { reason }) }
        if (input === undefined) return { value: answer }
        const checked = await asSchema(tool.inputSchema).validate?.(input)
        if (checked?.success === false) return { issues: [{ message: messageOf(checked.error), path: ['input'] }] }
        return { value: { ...answer, input: checked === undefined ? input : checked.value } }
      },
    },
  }
}

function answered(toolCallId: string, toolName: string, approvalId: string, answer: ApprovalAnswer): UIMessageChunk[] {
  const { approved, reason, input } = answer
  const response = { type: 'tool-approval-response' as const, approvalId, approved, ...(reason !== undefined && { reason }) }
  if (!approved) return [response, { type: 'tool-output-denied', toolCallId }]
  return input === undefined ? [response] : [{ type: 'tool-input-available', toolCallId, toolName, input }, response]
}
