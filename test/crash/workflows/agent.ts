import { type AnyWorkflow, workflow } from 'holdfast'
import type { TestServices } from '../bed/test-services.ts'
import { type Diary, diary, type RecordedCalls, wait } from './recorded-calls.ts'

/** An agent of the AI SDK that streams its words, finds an order, asks whether it may pay, pays, and says so. */
export function agent(services: TestServices, { on }: RecordedCalls): AnyWorkflow {
  return workflow<undefined, unknown, Diary>({ name: 'agent', state: diary }, async (ctx) => {
    // Only where it is run: loading it takes longer than most of what the other workflows do.
    const [{ generateText, isStepCount, tool }, { z }, { durableCall, durableModel, durableTools, effect }] = await Promise.all([
      import('ai'),
      import('zod'),
      import('holdfast/ai'),
    ])
    const { scriptedModel, calls } = await import('../../behaviour/agents/scripted-model.ts')
    const { body, ack } = on(ctx)
    const order = z.object({ order: z.string() })
    const turns = [
      { text: 'Let me look at it.', ...calls(['find', { order: '1' }, 'call-1'], ['pay', { order: '1' }, 'call-2']) },
      { text: 'It is paid.' },
    ]
    const modelOf = (number: number) => {
      const name = `model_${number}`
      const slow = (chunk: number) => (chunk === 1 ? body(name, 1) : chunk === 4 ? wait(60) : undefined)
      return durableModel(ctx, scriptedModel({ turns, beforeChunk: slow }), { name, stream: 'ui' })
    }
    const tools = durableTools(
      ctx,
      {
        find: tool({ inputSchema: order, execute: ({ order }) => `order ${order}` }),
        pay: effect(
          tool({
            inputSchema: order,
            execute: (_, options) => services.send({ name: 'pay', key: durableCall(options).key, dedupes: true }),
          }),
          { key: ({ order }) => `pay:${order}`, idempotent: true, retry: { attempts: 3, minMs: 1, maxMs: 2 } },
        ),
      },
      { stream: 'ui', toolApproval: { pay: 'user-approval' } },
    )
    const { text, totalUsage } = await generateText({
      ...{ model: modelOf(1), tools, prompt: 'Pay order 1', maxRetries: 0, stopWhen: isStepCount(5) },
      prepareStep: ({ stepNumber }) => ({ model: modelOf(stepNumber + 1) }),
      onStepEnd: ({ stepNumber }) => ack(`model_${stepNumber + 1}`),
    })
    return { text, tokens: totalUsage.totalTokens }
  })
}
