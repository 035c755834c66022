import { streamError } from './model-errors.ts'
import type { ModelAnswer, ModelContent, ModelStreamPart } from './model-v4.ts'

/** Reads a provider's stream to its end: the answer that the same call without a stream would have given. */
export async function readModelStream(
  stream: ReadableStream<ModelStreamPart>,
  onPart: (part: ModelStreamPart) => Promise<void>,
): Promise<ModelAnswer> {
  const answer = new Answer()
  for await (const part of stream) {
    answer.add(part)
    await onPart(part)
  }
  return answer.complete()
}

type Block = Extract<ModelContent, { type: 'text' | 'reasoning' }>

class Answer {
  readonly #content: ModelContent[] = []
  readonly #open = new Map<string, Block>()
  #warnings: ModelAnswer['warnings'] = []
  #response: NonNullable<ModelAnswer['response']> = {}
  #end: Extract<ModelStreamPart, { type: 'finish' }> | undefined

  add(part: ModelStreamPart): void {
    switch (part.type) {
      case 'text-start':
      case 'reasoning-start':
        this.#begin(part.id, { type: part.type === 'text-start' ? 'text' : 'reasoning', text: '' }, part)
        return
      case 'text-delta':
      case 'reasoning-delta': {
        const block = this.#open.get(part.id)
        if (block === undefined) throw new Error(`The provider sent text for block "${part.id}", which it has not begun.`)
        if (typeof part.delta !== 'string') throw new Error(`The provider sent text for block "${part.id}" that is none.`)
        block.text += part.delta
        describe(block, part)
        return
      }
      case 'text-end':
      case 'reasoning-end': {
        const block = this.#open.get(part.id)
        if (block !== undefined) describe(block, part)
        this.#open.delete(part.id)
        return
      }
      case 'tool-call':
      case 'tool-result':
      case 'tool-approval-request':
      case 'custom':
      case 'file':
      case 'reasoning-file':
      case 'source':
        this.#content.push(part)
        return
      case 'stream-start':
        this.#warnings = part.warnings
        return
      case 'response-metadata': {
        const { type: _, ...response } = part
        this.#response = { ...this.#response, ...response }
        return
      }
      case 'finish':
        this.#end = part
        return
      case 'error':
        throw streamError(part.error)
    }
  }

  complete(): ModelAnswer {
    if (this.#end === undefined) throw new Error('The provider ended its answer before it was complete.')
    const { finishReason, usage, providerMetadata } = this.#end
    return {
      ...{ content: this.#content, finishReason, usage, warnings: this.#warnings, response: this.#response },
      ...(providerMetadata !== undefined && { providerMetadata }),
    }
  }

  #begin(id: string, block: Block, part: Described): void {
    describe(block, part)
    this.#open.set(id, block)
    this.#content.push(block)
  }
}

interface Described {
  readonly providerMetadata?: Block['providerMetadata']
  readonly citations?: unknown
}

function describe(block: Block, { providerMetadata, citations }: Described): void {
  if (providerMetadata !== undefined) block.providerMetadata = providerMetadata
  if (citations !== undefined) Object.assign(block, { citations })
}

/** A recorded answer as a stream, for `streamText`: it comes all at once. */
export function streamOf(answer: ModelAnswer): ReadableStream<ModelStreamPart> {
  const { content, finishReason, usage, warnings, response, providerMetadata } = answer
  const parts: ModelStreamPart[] = [
    { type: 'stream-start', warnings },
    { type: 'response-metadata', ...response },
    ...content.flatMap((block, index) => partsOf(block, String(index))),
    { type: 'finish', finishReason, usage, ...(providerMetadata !== undefined && { providerMetadata }) },
  ]
  return ReadableStream.from(parts) as ReadableStream<ModelStreamPart>
}

function partsOf(block: ModelContent, id: string): ModelStreamPart[] {
  if (block.type !== 'text' && block.type !== 'reasoning') return [block]
  const { type, text, ...rest } = block
  return [
    { type: `${type}-start`, id },
    { type: `${type}-delta`, id, delta: text },
    { type: `${type}-end`, id, ...rest },
  ] as ModelStreamPart[]
}
