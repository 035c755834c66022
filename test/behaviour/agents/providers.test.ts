import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import Anthropic from '@anthropic-ai/sdk'
import { APICallError } from 'ai'
import { type Context, type StepHandle, workflow } from 'holdfast'
import { runAgent, uiStream } from 'holdfast/ai'
import OpenAI from 'openai'
import { expect, it, test } from 'vitest'
import { model } from '../../../examples/plain-sdk/model.ts'
import { failureOf } from '../runs.ts'
import { onEveryStore } from '../stores.ts'
import { type Conduct, startProvider } from './provider.ts'

const atOnce = { attempts: 3, minMs: 0, maxMs: 0, jitter: false } as const

onEveryStore('a provider over HTTP', (scene) => {
  it.each([
    ['hangs up', 'answers'],
    ['is busy', 'answers'],
    ['talks nonsense', 'answers'],
    ['is silent', 'answers'],
  ] satisfies [Conduct, Conduct][])('that %s is asked again, and the page sees no word twice', async (...conducts) => {
    const provider = await startProvider(...conducts)
    const agent = workflow('agent', async (ctx) => {
      const { chatModel } = createOpenAICompatible({ name: 'local', baseURL: provider.url, includeUsage: true })
      const call = { prompt: 'Tell', stream: 'ui', retry: atOnce, timeoutMs: 1_000, price: () => 0.25 }
      return (await runAgent(ctx, { model: chatModel('m') }, call)).text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    expect(await run.result()).toBe('once upon a time')
    expect(provider.requests.length).toBe(2)
    const text = await new Response(uiStream(run).body).text()
    expect(text.match(/"delta":"[^"]*"/g)?.join('')).toBe('"delta":"once ""delta":"upon ""delta":"a ""delta":"time"')
    // What was paid for and not said by the provider can't be counted.
    expect((await run.info()).usage).toMatchObject({ inputTokens: 12, outputTokens: 4, cost: 0.25 })
  })

  it('that refuses is asked once, and the error says what it said', async () => {
    const provider = await startProvider('refuses')
    const agent = workflow('agent', async (ctx) => {
      const { chatModel } = createOpenAICompatible({ name: 'local', baseURL: provider.url })
      return (await runAgent(ctx, { model: chatModel('m') }, { prompt: 'Tell', stream: 'ui', retry: atOnce })).text
    })
    const hf = await scene.open({ workflows: [agent] })
    const error = await failureOf(await hf.start(agent))
    expect([error.name, error.message]).toEqual(['AI_APICallError', expect.stringContaining('400')])
    expect(provider.requests.length).toBe(1)
  })

  it('that only hangs up fails the run after the attempts of the step', async () => {
    const provider = await startProvider('hangs up')
    const agent = workflow('agent', async (ctx) => {
      const { chatModel } = createOpenAICompatible({ name: 'local', baseURL: provider.url })
      try {
        return (await runAgent(ctx, { model: chatModel('m') }, { prompt: 'Tell', stream: 'ui', retry: atOnce })).text
      } catch (error) {
        return APICallError.isInstance(error)
      }
    })
    const hf = await scene.open({ workflows: [agent] })
    expect(typeof (await hf.run(agent))).toBe('boolean')
    expect(provider.requests.length).toBe(3)
  })
})

test.each([['hangs up'], ['is busy'], ['talks nonsense']] satisfies [Conduct][])(
  'model() with the OpenAI SDK: a provider that %s is asked again',
  async (conduct) => {
    const provider = await startProvider(conduct, 'answers')
    const client = new OpenAI({ baseURL: provider.url, apiKey: 'none', maxRetries: 0 })
    const ask = async (request: OpenAI.ChatCompletionCreateParamsStreaming, step: StepHandle) => {
      const stream = client.chat.completions.stream(request as never, { signal: step.signal })
      for await (const chunk of stream) await step.stream('tokens').write(chunk.choices[0]?.delta.content ?? '')
      return stream.finalChatCompletion()
    }
    await tell(provider.requests, async (ctx) => {
      const request = {
        model: 'm',
        stream: true,
        stream_options: { include_usage: true },
        messages: [{ role: 'user', content: 'Tell' }],
      } as const
      const answer = await model(ctx, 'model', request as never, ask, atOnce)
      return answer.choices[0]?.message.content
    })
  },
)

test.each([['hangs up'], ['is busy']] satisfies [Conduct][])(
  'model() with the Anthropic SDK: a provider that %s is asked again',
  async (conduct) => {
    const provider = await startProvider(conduct, 'answers')
    const client = new Anthropic({ baseURL: provider.url.replace('/v1', ''), apiKey: 'none', maxRetries: 0 })
    const ask = async (request: Anthropic.MessageStreamParams, step: StepHandle) => {
      const stream = client.messages.stream(request, { signal: step.signal })
      stream.on('text', (text) => void step.stream('tokens').write(text))
      return stream.finalMessage()
    }
    await tell(provider.requests, async (ctx) => {
      const request: Anthropic.MessageStreamParams = {
        model: 'm',
        max_tokens: 100,
        messages: [{ role: 'user', content: 'Tell' }],
      }
      const answer = await model(ctx, 'model', request, ask, atOnce)
      return answer.content.map((block) => (block.type === 'text' ? block.text : '')).join('')
    })
  },
)

async function tell(requests: readonly unknown[], say: (ctx: Context) => Promise<string | null | undefined>): Promise<void> {
  const { open } = await import('holdfast')
  const teller = workflow('teller', say)
  await using hf = await open('memory:', { workflows: [teller], logger: false })
  const run = await hf.start(teller)
  expect(await run.result()).toBe('once upon a time')
  expect(requests.length).toBe(2)
  expect((await run.info()).usage).toMatchObject({ inputTokens: 12, outputTokens: 4 })
  const words: string[] = []
  for await (const { chunk, isAborted } of run.stream<string>('tokens')) if (isAborted !== true && chunk) words.push(chunk)
  expect(words.join('')).toBe('once upon a time')
}

test('model() does not ask again where the provider refuses, and tells a request on replay from another one', async () => {
  const provider = await startProvider('refuses')
  const client = new OpenAI({ baseURL: provider.url, apiKey: 'none', maxRetries: 0 })
  const { open } = await import('holdfast')
  const asking = workflow('asking', (ctx) =>
    model(ctx, 'model', { model: 'm', messages: [] }, (request) => client.chat.completions.create(request), atOnce),
  )
  await using hf = await open('memory:', { workflows: [asking], logger: false })
  const run = await hf.start(asking)
  expect((await failureOf(run)).message).toContain('400')
  expect(provider.requests.length).toBe(1)
  const [started] = (await run.events()).filter(({ type }) => type === 'step_started')
  expect(started?.data).toMatchObject({ kind: 'model', input: { request: expect.any(String) } })
})
