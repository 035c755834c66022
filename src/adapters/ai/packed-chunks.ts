import type { UIMessageChunk } from 'ai'
import type { RunHandle, StreamItem } from '../../index.ts'

type Block = { readonly type: 'text-delta' | 'reasoning-delta'; readonly id: string }

/**
 * How chunks are stored. Most of a stream are single words, each of which would be ten times as long as a chunk: a word of the block that
 * its writer began last is stored as a bare text.
 */
export function packer(): (chunk: UIMessageChunk) => UIMessageChunk | string {
  let block: Block | undefined
  return (chunk) => {
    block = blockBegunBy(chunk) ?? block
    const isDelta = chunk.type === 'text-delta' || chunk.type === 'reasoning-delta'
    return isDelta && chunk.type === block?.type && chunk.id === block.id && Object.keys(chunk).length === 3 ? chunk.delta : chunk
  }
}

/** The chunks that a run has written to a stream, and those that follow. */
export async function* readChunks(
  run: RunHandle,
  name: string,
  signal?: AbortSignal,
): AsyncGenerator<StreamItem<UIMessageChunk>, void, void> {
  const blocks = new Map<string, Block>()
  for await (const item of run.stream<UIMessageChunk | string>(name, signal === undefined ? {} : { signal })) {
    const { chunk: stored, ...rest } = item
    const block = blocks.get(item.part)
    const chunk = typeof stored !== 'string' ? stored : block === undefined ? undefined : { ...block, delta: stored }
    if (chunk === undefined) yield rest
    else {
      const begun = blockBegunBy(chunk)
      if (begun !== undefined) blocks.set(item.part, begun)
      yield { ...rest, chunk }
    }
  }
}

function blockBegunBy(chunk: UIMessageChunk): Block | undefined {
  if (chunk.type === 'text-start') return { type: 'text-delta', id: chunk.id }
  return chunk.type === 'reasoning-start' ? { type: 'reasoning-delta', id: chunk.id } : undefined
}
