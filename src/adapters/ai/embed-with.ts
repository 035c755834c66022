import { type EmbeddingModel, embedMany } from 'ai'
import type { Embed } from '../../index.ts'

/**
 * What makes vectors of facts with an embedding model of the AI SDK: `open(url, { embed: embedWith(openai.embedding('text-embedding-3-small')) })`. Vectors
 * bear the name of the model, so another model makes its own.
 */
export function embedWith(model: EmbeddingModel): { readonly embed: Embed; readonly model: string } {
  return {
    embed: async (texts) => (await embedMany({ model, values: texts })).embeddings,
    model: typeof model === 'string' ? model : `${model.provider}:${model.modelId}`,
  }
}
