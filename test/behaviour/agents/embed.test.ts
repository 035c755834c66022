import { MockEmbeddingModelV4 } from 'ai/test'
import { embedWith } from 'holdfast/ai'
import { expect, it, vi } from 'vitest'
import { onLocalStores } from '../stores.ts'

onLocalStores('facts with a model of the AI SDK', ({ open }) => {
  it('are recalled by its vectors, which bear its name', async () => {
    const asked: string[] = []
    const model = new MockEmbeddingModelV4({
      provider: 'test',
      modelId: 'tiny',
      maxEmbeddingsPerCall: 2,
      doEmbed: async ({ values }) => {
        asked.push(...values)
        return {
          embeddings: values.map((text) => [/tea|drink/.test(text) ? 1 : 0, /cat|pet/.test(text) ? 1 : 0, 0.1]),
          warnings: [],
        }
      },
    })
    const embed = embedWith(model)
    expect(embed.model).toBe('test:tiny')
    expect(embedWith('openai/text-embedding-3-small').model).toBe('openai/text-embedding-3-small')
    const hf = await open({ embed })
    const { remember, recall } = hf.memory.of('alice')
    for (const text of ['Alice likes tea', 'Alice has a cat', 'Alice is tall']) await remember(text)
    await vi.waitUntil(async () => (await recall('any pets?', { minScore: 0.9 })).length === 1)
    const [first] = await recall('any pets?')
    expect(first).toMatchObject({ text: 'Alice has a cat', scores: { vector: expect.any(Number) } })
    expect(asked).toContain('Alice is tall')
  })
})
