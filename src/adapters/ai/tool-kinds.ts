import type { InferToolInput, InferToolOutput, Tool } from 'ai'
import type { EffectCheck, RetryOptions, Undo } from '../../index.ts'
import type { AnyTool } from './model-v4.ts'

// biome-ignore lint/suspicious/noExplicitAny: a tool of any input and output
type SomeTool = Tool<any, any, any>

export interface EffectToolOptions<Given extends SomeTool = SomeTool> {
  /** Unique per owner: one key is one effect. Default: derived from the run and the tool call. */
  readonly key?: string | ((input: InferToolInput<Given>) => string)
  /** Finds out whether it happened, when a crash, an error or a time-out left the outcome unknown. */
  readonly check?: (
    key: string,
    input: InferToolInput<Given>,
  ) => Promise<EffectCheck<InferToolOutput<Given>>> | EffectCheck<InferToolOutput<Given>>
  /** The other side deduplicates by key, which `execute` gets from `durableCall(options).key`: with an unknown outcome it is sent again. */
  readonly idempotent?: boolean
  readonly retry?: RetryOptions
  /** Time limit of one attempt, in ms. After it the outcome is unknown. Default none. */
  readonly timeoutMs?: number
  /** Undoes it when the run is cancelled or rolled back. */
  readonly undo?: Undo<InferToolOutput<Given>>
}

const effectMark = Symbol('holdfast effect')
const contextMark = Symbol('holdfast context')

/** A tool that touches the world: each call is a `ctx.once`, recorded before and after, and never repeated blindly. */
export function effect<Given extends SomeTool>(tool: Given, options: EffectToolOptions<Given> = {}): Given {
  return { ...tool, [effectMark]: options }
}

/** A tool whose `execute` makes recorded calls itself, on `durableCall(options).ctx`: a sub-agent, a question, a child run. */
export function withContext<Given extends SomeTool>(tool: Given): Given {
  return { ...tool, [contextMark]: true }
}

export type ToolKind = { readonly is: 'step' | 'context' } | { readonly is: 'effect'; readonly options: EffectToolOptions }

export function kindOf(tool: AnyTool): ToolKind {
  const marked = tool as { readonly [effectMark]?: EffectToolOptions; readonly [contextMark]?: true }
  if (marked[effectMark] !== undefined) return { is: 'effect', options: marked[effectMark] }
  if (marked[contextMark] !== undefined) return { is: 'context' }
  return kindByAnnotations(tool.metadata as McpMetadata | undefined)
}

interface McpMetadata {
  readonly clientName?: string
  readonly annotations?: { readonly readOnlyHint?: boolean; readonly idempotentHint?: boolean }
}

/** What an MCP server does not call read-only may do anything, and what it does not call idempotent is not sent twice. */
function kindByAnnotations(metadata: McpMetadata | undefined): ToolKind {
  if (metadata?.clientName === undefined && metadata?.annotations === undefined) return { is: 'step' }
  const { readOnlyHint, idempotentHint } = metadata.annotations ?? {}
  if (readOnlyHint === true) return { is: 'step' }
  return { is: 'effect', options: idempotentHint === true ? { idempotent: true } : {} }
}
