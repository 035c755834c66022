import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { generateText, isStepCount, tool } from 'ai'
import { type Context, workflow } from 'holdfast'
import { chatWorkflow, durableCall, durableModel, durableTools, effect, runAgent, withContext } from 'holdfast/ai'
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

/** The path of the question about a tool call. */
const approvalOf = (name: string, toolCallId: string) =>
  `${name}-${createHash('sha256').update(toolCallId).digest('hex').slice(0, 10)}/approve`
const order = z.object({ order: z.string() })
const toldBy = (model: ReturnType<typeof scriptedModel>) =>
  [...model.doGenerateCalls, ...model.doStreamCalls]
    .at(-1)
    ?.prompt.flatMap(({ role, content }) => (role === 'tool' ? content : []))
    .map((part) => (part.type === 'tool-result' ? part.output.type : part.type))

describe('an unmodified agent of the AI SDK that is killed at every point', () => {
  const check = async (options: Parameters<typeof explore<Outside>>[0], cases = 10) => {
    const report = await explore({ world: () => new Outside(), ...options })
    expect(String(report)).toContain('nothing went wrong')
    expect(report.cases.length).toBeGreaterThan(cases)
  }

  test('has a person asked inside one of three tools in parallel, once', { timeout: patience(120_000) }, async () => {
    await check({
      workflow: (outside) =>
        workflow('agent', async (ctx: Context) => {
          const turns = [calls(['find', { order: '1' }], ['refund', { order: '1', amount: 40 }], ['ask', {}]), says('All done.')]
          const model = durableModel(ctx, scriptedModel({ turns, before: () => outside.answers++ }))
          const tools = durableTools(ctx, {
            find: tool({ inputSchema: order, execute: ({ order }) => `order ${order}` }),
            refund: refundTool(outside),
            ask: withContext(
              tool({
                inputSchema: z.object({}),
                execute: (_, call) => durableCall(call).ctx.ask<string>('which', { question: '?' }),
              }),
            ),
          })
          const { text, totalUsage, steps } = await generateText({ model, tools, prompt: 'Refund', stopWhen: isStepCount(5) })
          return [text, totalUsage.totalTokens, steps[0]?.toolResults.map(({ output }) => output)]
        }),
      answers: { which: 'the red one' },
      invariant: ({ world, output, run }) => {
        assert.deepEqual(output, ['All done.', 30, ['order 1', { receipt: 'r-refund:1' }, 'the red one']])
        assert.deepEqual(world.payments, [{ key: 'refund:1', amount: 40 }])
        assert.deepEqual([run.usage.inputTokens, run.usage.outputTokens], [20, 10])
      },
    })
  })

  test('pays what was approved, and hears of what was denied', { timeout: patience(120_000) }, async () => {
    await check({
      workflow: (outside) =>
        workflow('agent', async (ctx: Context) => {
          const turns = [
            calls(['refund', { order: '1', amount: 200 }, 'a'], ['refund', { order: '2', amount: 300 }, 'b']),
            says('One was refunded.'),
          ]
          const model = scriptedModel({ turns })
          const { steps } = await runAgent(
            ctx,
            { model, tools: { refund: refundTool(outside) }, toolApproval: { refund: 'user-approval' } },
            { prompt: 'Refund', stream: 'ui' },
          )
          return steps.at(-1)?.text
        }),
      answers: {
        [approvalOf('refund', 'a')]: { approved: true },
        [approvalOf('refund', 'b')]: { approved: false, reason: 'Not this one.' },
      },
      invariant: ({ world, output, run }) => {
        assert.equal(output, 'One was refunded.')
        assert.deepEqual(world.payments, [{ key: 'refund:1', amount: 200 }])
        assert.equal(run.usage.inputTokens, 20)
      },
    })
  })

  test('keeps no word of an attempt that broke off, and books what it was told of', { timeout: patience(120_000) }, async () => {
    await check({
      workflow: (outside) =>
        chatWorkflow({
          name: 'chat',
          model: { retry: { ...atOnce, attempts: 5 } },
          agent: {
            model: scriptedModel({
              turns: [says('once upon a time')],
              before: () => outside.answers++,
              beforeChunk: (chunk) => {
                if (outside.answers === 1 && chunk === 5) throw new Error('The connection broke.')
              },
            }),
          },
        }),
      input: { message: { id: 'm1', role: 'user', parts: [{ type: 'text', text: 'Tell' }] } },
      invariant: ({ state, run, events }) => {
        const texts = state.messages[1].parts.flatMap((part: { text?: string }) => part.text ?? [])
        assert.deepEqual(texts, ['once upon a time'])
        assert.equal(events.filter(({ type, step }) => type === 'step_completed' && step === 'model').length, 1)
        assert.equal(run.usage.inputTokens, 10)
      },
      compare: ({ state }) => state.messages[1].parts.length,
    })
  })

  test('pauses after the call that used up its tokens, which is paid for once', { timeout: patience(120_000) }, async () => {
    await check(
      {
        workflow: workflow({ name: 'agent', budget: { tokens: 100 } }, async (ctx: Context) => {
          const turns = [{ ...calls(['find', { order: '1' }]), usage: [90, 20] as const }, says('Found.')]
          const find = tool({ inputSchema: order, execute: () => 'found' })
          return (await runAgent(ctx, { model: scriptedModel({ turns }), tools: { find } }, { prompt: 'Find', stream: 'ui' }))
            .text
        }),
        invariant: ({ run, events }) => {
          assert.deepEqual([run.status, run.usage.tokens], ['paused', 110])
          assert.equal(events.filter(({ type, step }) => type === 'step_completed' && step === 'model').length, 1)
        },
      },
      4,
    )
  })

  test('tells its model of a tool that failed for good', { timeout: patience(120_000) }, async () => {
    await check({
      workflow: workflow('agent', async (ctx: Context) => {
        const model = scriptedModel({ turns: [calls(['broken', {}]), says('Sorry.')] })
        const broken = tool({
          inputSchema: z.object({}),
          execute: (): string => {
            throw new Error('The service is down.')
          },
        })
        const { text, steps } = await runAgent(
          ctx,
          { model, tools: { broken } },
          { prompt: 'Try', stream: 'ui', toolOptions: { retry: atOnce } },
        )
        return [text, steps[0]?.content.map(({ type }) => type), toldBy(model) ?? ['error-text']]
      }),
      invariant: ({ output }) => assert.deepEqual(output, ['Sorry.', ['tool-call', 'tool-error'], ['error-text']]),
    })
  })

  test('is cancelled in a tool, and does not ask its model again', { timeout: patience(120_000) }, async () => {
    await check(
      {
        workflow: (outside) =>
          workflow('agent', async (ctx: Context) => {
            const model = scriptedModel({ turns: [calls(['wait', {}]), says('never')] })
            const wait = withContext(
              tool({ inputSchema: z.object({}), execute: (_, call) => durableCall(call).ctx.waitFor<string>('never') }),
            )
            const { text } = await runAgent(ctx, { model, tools: { wait, refund: refundTool(outside) } }, { prompt: 'Wait' })
            return text
          }),
        cancel: true,
        invariant: ({ run, events }) => {
          assert.equal(run.status, 'cancelled')
          assert.equal(events.filter(({ type, step }) => type === 'step_completed' && step === 'model').length, 1)
        },
      },
      4,
    )
  })

  test('gives agents in parallel their own answers, in whatever order they come', { timeout: patience(120_000) }, async () => {
    await check({
      workflow: (outside) =>
        workflow('agent', async (ctx: Context) => {
          const research = withContext(
            tool({
              inputSchema: z.object({ topic: z.string() }),
              execute: async ({ topic }, call) => {
                const model = scriptedModel({ turns: [says(`about ${topic}`)], before: () => outside.answers++ })
                return (await runAgent(durableCall(call).ctx, { model }, { prompt: 'Research it' })).text
              },
            }),
          )
          const turns = [calls(...['a', 'b', 'c'].map((topic) => ['research', { topic }, topic] as const)), says('Done.')]
          const { steps } = await runAgent(ctx, { model: scriptedModel({ turns }), tools: { research } }, { prompt: 'All' })
          return steps[0]?.toolResults.map(({ output }) => output)
        }),
      orders: 10,
      invariant: ({ output }) => assert.deepEqual(output, ['about a', 'about b', 'about c']),
    })
  })
})
