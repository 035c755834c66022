import assert from 'node:assert/strict'
import { tool } from 'ai'
import { workflow } from 'holdfast'
import { chatWorkflow, durableCall, effect, runAgent, withContext } from 'holdfast/ai'
import { explore } from 'holdfast/testing'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { patience } from '../../patience.ts'
import { calls, says, scriptedModel } from './scripted-model.ts'

const atOnce = { attempts: 3, minMs: 0, maxMs: 0, jitter: false } as const

/** What is outside of the process, and outlives its crashes. */
class Outside {
  readonly payments: { key: string; amount: number }[] = []
  /** Calls of the model that were paid for. */
  answers = 0

  pay(key: string, amount: number) {
    if (!this.payments.some((payment) => payment.key === key)) this.payments.push({ key, amount })
    return { receipt: `r-${key}` }
  }
}

const refundTool = (outside: Outside) =>
  effect(
    tool({
      inputSchema: z.object({ order: z.string(), amount: z.number() }),
      execute: ({ amount }, options) => outside.pay(durableCall(options).key, amount),
    }),
    { key: ({ order }) => `refund:${order}`, idempotent: true },
  )

const settings = (outside: Outside) => ({
  model: scriptedModel({
    turns: [
      {
        text: 'Looking.',
        ...calls(['find', { order: '1' }], ['refund', { order: '1', amount: 200 }], ['research', { topic: 'refunds' }]),
      },
      says('It is refunded.'),
    ],
    before: () => outside.answers++,
  }),
  tools: {
    find: tool({ inputSchema: z.object({ order: z.string() }), execute: ({ order }) => `order ${order}` }),
    refund: refundTool(outside),
    research: withContext(
      tool({
        inputSchema: z.object({ topic: z.string() }),
        execute: async ({ topic }, options) => {
          const model = scriptedModel({ turns: [says(`about ${topic}`)], before: () => outside.answers++ })
          return (await runAgent(durableCall(options).ctx, { model }, { prompt: 'Research it', retry: atOnce })).text
        },
      }),
    ),
  },
  toolApproval: { refund: 'user-approval' as const },
})

describe('an agent that is killed at every point', () => {
  test('refunds once, says each thing once, and counts what was paid for', { timeout: patience(120_000) }, async () => {
    const report = await explore({
      world: () => new Outside(),
      workflow: (outside) =>
        workflow('agent', async (ctx) => {
          const { text } = await runAgent(ctx, settings(outside), { prompt: 'Refund it', stream: 'ui', retry: atOnce })
          return text
        }),
      answers: { approve: { approved: true, input: { order: '1', amount: 150 } } },
      invariant: ({ world, output, events, run }) => {
        assert.deepEqual(world.payments, [{ key: 'refund:1', amount: 150 }])
        assert.equal(output, 'It is refunded.')
        // The run's account has every call that is on record, and none that is not.
        const recorded = events.filter(({ type, step }) => type === 'step_completed' && step?.endsWith('model')).length
        assert.equal(recorded, 3)
        assert.ok(run.usage.inputTokens >= 30 && run.usage.inputTokens <= world.answers * 10)
        const attempts = events.filter(({ type, step }) => type === 'step_failed' && step?.endsWith('model')).length
        assert.equal(run.usage.inputTokens, (recorded + attempts) * 10)
      },
    })
    expect(String(report)).toContain('nothing went wrong')
    expect(report.cases.length).toBeGreaterThan(30)
  })

  test('leaves one message of the assistant, with each word once', { timeout: patience(120_000) }, async () => {
    const report = await explore({
      world: () => new Outside(),
      workflow: (outside) => chatWorkflow({ name: 'chat', agent: settings(outside), model: { retry: atOnce } }),
      input: { message: { id: 'm1', role: 'user', parts: [{ type: 'text', text: 'Refund it' }] } },
      answers: { approve: { approved: false, reason: 'Too much.' } },
      invariant: ({ world, state, output }) => {
        const [, answer] = state.messages
        assert.deepEqual([world.payments, output], [[], { messageId: answer.id }])
        const shown = answer.parts.map(
          (part: { type: string; text?: string; state?: string }) => part.text ?? part.state ?? part.type,
        )
        assert.deepEqual(shown, [
          ...['step-start', 'Looking.', 'output-available', 'output-denied', 'output-available', 'step-start', 'It is refunded.'],
        ])
        assert.equal(state.messages.length, 2)
      },
      compare: ({ state }) => state.messages.map(({ parts }: { parts: unknown[] }) => parts.length),
    })
    expect(String(report)).toContain('nothing went wrong')
  })
})
