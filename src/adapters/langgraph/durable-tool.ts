import { createHash } from 'node:crypto'
import type { EffectCheck } from '../../index.ts'
import { HoldfastError } from '../../index.ts'
import { carryOut, type NodeConfig } from './once.ts'

/** What is done when nobody knows whether a call of the tool happened. */
export interface DurableToolOptions<Input> {
  /** One key is one effect, in all threads: two calls with one key are one. Default: derived from thread, task and tool call. */
  readonly key?: (input: Input) => string
  /** Finds out whether it happened, and what the tool returned. */
  readonly check?: (key: string, input: Input) => Promise<EffectCheck<unknown>> | EffectCheck<unknown>
  /** The service deduplicates by key (see `operationKey`), or the tool only reads: it is called again. */
  readonly idempotent?: boolean
}

/** Any structured tool of LangChain. */
interface AnyTool {
  readonly name: string
  // biome-ignore lint/suspicious/noExplicitAny: inputs and outputs are the tool's own
  invoke(input: any, config?: any): Promise<any>
}

/** What the function of a tool is called with. */
// biome-ignore lint/suspicious/noExplicitAny: whatever comes after it
type InputOf<T> = T extends { readonly func: (input: infer I, ...rest: any[]) => unknown } ? I : unknown

type Call = (input: unknown, manager: EventHandler | undefined, config: NodeConfig) => unknown

interface EventHandler {
  handleToolEvent?(event: unknown): Promise<void>
}

/**
 * A tool whose calls are effects: when the node that calls it runs again, a call that was recorded returns its result. Works with `ToolNode`,
 * and in nodes that pass on their config. A tool that throws may have acted: unless it throws `NotHappened`, or `check` or `idempotent` is
 * given, the graph is interrupted for a person.
 */
export function durableTool<T extends AnyTool>(tool: T, options: DurableToolOptions<InputOf<T>> = {}): T {
  const call = (tool as unknown as { readonly _call?: Call })._call
  if (typeof call !== 'function') {
    throw new HoldfastError(
      'invalid_input',
      'durableTool needs a tool of LangChain, as tool(…) of @langchain/core/tools makes it.',
    )
  }
  const { key, check, idempotent } = options
  const durable: Call = (input, manager, config) => {
    const id = (config as { readonly toolCall?: { readonly id?: string } } | undefined)?.toolCall?.id
    return carryOut(
      config,
      tool.name,
      {
        run: async (operation) => finished(await call.call(tool, input, manager, { ...config, [keyName]: operation }), manager),
        ...(key !== undefined && { key: key(input as InputOf<T>) }),
        ...(check !== undefined && { check: (operation) => check(operation, input as InputOf<T>) }),
        ...(idempotent !== undefined && { idempotent }),
      },
      { ...(id !== undefined && { id }), ...inputHash(input) },
    )
  }
  return Object.create(tool, { _call: { value: durable } }) as T
}

/** The operation key of the call that is carried out, for the service that the tool calls: it is the same whenever the call is repeated. */
export function operationKey(config: NodeConfig): string {
  const key = (config as { readonly [keyName]?: unknown })[keyName]
  if (typeof key === 'string') return key
  throw new HoldfastError('invalid_input', 'operationKey needs the second argument of a tool that was made with durableTool.')
}

const keyName = 'holdfastOperationKey'

/** What a tool that reports in between returns at its end. */
async function finished(made: unknown, manager: EventHandler | undefined): Promise<unknown> {
  if (typeof made !== 'object' || made === null || !(Symbol.asyncIterator in made) || !('next' in made)) return made
  const events = made as AsyncGenerator<unknown, unknown>
  for (;;) {
    const { done, value } = await events.next()
    if (done === true) return value
    await manager?.handleToolEvent?.(value)
  }
}

/** Inputs that are not JSON are not compared. */
function inputHash(input: unknown): { readonly input?: string } {
  try {
    return {
      input: createHash('sha256')
        .update(JSON.stringify(input) ?? '')
        .digest('base64url')
        .slice(0, 16),
    }
  } catch {
    return {}
  }
}
