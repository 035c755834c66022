import type { UIMessageChunk } from 'ai'
import type { Context, StepHandle } from '../../index.ts'
import type { ChunkListener } from './model-v4.ts'

/** Where the chunks of tool calls go; nowhere without a stream. */
export interface ToolOutput {
  readonly stream?: string
  readonly onChunks?: ChunkListener | undefined
}

export async function write(
  step: StepHandle,
  { stream, onChunks }: ToolOutput,
  chunks: readonly UIMessageChunk[],
): Promise<void> {
  if (stream === undefined) return
  const output = step.stream(stream)
  for (const chunk of chunks) await output.write(chunk)
  await onChunks?.(step, chunks)
}

/**
 * In a step of its own, where there is no other, which costs no write: its result is buffered. The function itself may not write them: calls
 * of tools in parallel need not come in the same order on a replay, which skips as many of the function's chunks as there are.
 */
export async function writeInStep(ctx: Context, output: ToolOutput, chunks: readonly UIMessageChunk[]): Promise<void> {
  if (output.stream === undefined) return
  await ctx.step('ui', (step) => write(step, output, chunks), { checkpoint: false })
}

/** What a page and a model are sent of a value. JSON has no bigint: its digits. What has no JSON at all, the record refuses and says where. */
export function asJson(value: unknown): unknown {
  try {
    const json = JSON.stringify(value, (_, one) => (typeof one === 'bigint' ? String(one) : one))
    return json === undefined ? (value ?? null) : JSON.parse(json)
  } catch {
    return value
  }
}
