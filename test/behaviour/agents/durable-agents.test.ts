import { APICallError, dynamicTool, generateText, isStepCount, streamText, ToolLoopAgent, tool } from 'ai'
import { MockLanguageModelV4 } from 'ai/test'
import { type Context, type RunEvent, type RunHandle, workflow } from 'holdfast'
import { durableCall, durableModel, durableTools, effect, mcpTools, runAgent, withContext } from 'holdfast/ai'
import { expect, it, vi } from 'vitest'
import { z } from 'zod'
import { becomes, failureOf, gate } from '../runs.ts'
import { onEveryStore } from '../stores.ts'
import { calls, says, scriptedModel } from './scripted-model.ts'

const atOnce = { attempts: 3, minMs: 0, maxMs: 0, jitter: false } as const
const order = z.object({ order: z.string() })
const refund = z.object({ order: z.string(), amount: z.number() })

const completed = async (run: RunHandle, type = 'step_completed') =>
  (await run.events()).filter((event: RunEvent) => event.type === type).map(({ step }) => step?.replace(/-[0-9a-f]{10}/, ''))

onEveryStore('an agent of the AI SDK', (scene) => {
  it('calls tools in parallel, asks a person in one of them, and goes on in another process', async () => {
    const done: string[] = []
    const hangs = gate()
    const agent = (isFirst: boolean) =>
      workflow('agent', async (ctx: Context) => {
        const model = durableModel(
          ctx,
          scriptedModel({
            turns: async (prompt) => {
              const isSecond = prompt.some(({ role }) => role === 'tool')
              done.push(`${isSecond ? 'second' : 'first'} call in ${isFirst ? 'A' : 'B'}`)
              if (isSecond && isFirst) await hangs.promise
              if (isSecond) return says('All done.')
              return calls(['find', { order: '1' }], ['pay', { order: '1', amount: 40 }], ['ask', { order: '1' }])
            },
          }),
        )
        const tools = durableTools(ctx, {
          find: tool({
            inputSchema: order,
            execute: ({ order }) => {
              done.push('find')
              return `order ${order}`
            },
          }),
          pay: effect(
            tool({
              inputSchema: refund,
              execute: (_, options) => {
                done.push(`pay ${durableCall(options).key}`)
                return 'paid'
              },
            }),
            { key: ({ order }) => `refund:${order}`, idempotent: true },
          ),
          ask: withContext(
            tool({
              inputSchema: order,
              execute: (_, options) => durableCall(options).ctx.ask<string>('which', { question: 'Which one?' }),
            }),
          ),
        })
        const { text, totalUsage } = await generateText({ model, tools, prompt: 'Refund order 1', stopWhen: isStepCount(5) })
        return { text, tokens: totalUsage.totalTokens }
      })
    const first = await scene.openMortal({ workflows: [agent(true)] })
    await first.hf.start('agent', undefined, { id: 'r' })
    const elsewhere = await scene.open({ worker: false })
    await vi.waitUntil(async () => (await elsewhere.inbox()).length === 1)
    await elsewhere.answer('r', 'which', 'the red one', { by: 'alice' })
    await vi.waitUntil(() => done.includes('second call in A'))
    await first.die()
    scene.advance(11_000)
    const second = await scene.open({ workflows: [agent(false)] })
    const run = await second.runs.get<{ text: string; tokens: number }>('r')
    expect(await run.result()).toEqual({ text: 'All done.', tokens: 30 })
    hangs.open()
    expect(done.toSorted()).toEqual(['find', 'first call in A', 'pay refund:1', 'second call in A', 'second call in B'])
    expect((await run.info()).usage).toMatchObject({ inputTokens: 20, outputTokens: 10 })
  })

  it('asks for approval in another process, and the model hears of a denial', async () => {
    const paid: unknown[] = []
    const heard: unknown[] = []
    const agent = workflow('agent', async (ctx: Context) => {
      const { text } = await runAgent(
        ctx,
        {
          model: scriptedModel({
            turns: (prompt) => {
              const results = prompt.flatMap(({ role, content }) => (role === 'tool' ? content : []))
              heard.push(...results.map((part) => (part.type === 'tool-result' ? part.output : part.type)))
              if (results.length > 0) return says('One was refunded.')
              return calls(
                ['refund', { order: '1', amount: 200 }, 'a'],
                ['refund', { order: '2', amount: 300 }, 'b'],
                ['refund', { order: '3', amount: 5 }, 'c'],
              )
            },
          }),
          tools: {
            refund: effect(
              tool({
                inputSchema: refund,
                execute: (input) => {
                  paid.push(input)
                  return `refunded ${input.order}`
                },
              }),
              { key: ({ order }) => `refund:${order}`, idempotent: true },
            ),
          },
          toolApproval: { refund: ({ amount }) => (amount > 100 ? { type: 'user-approval', reason: 'a lot' } : undefined) },
        },
        { prompt: 'Refund them', to: 'finance' },
      )
      return text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent, undefined, { id: 'r' })
    const elsewhere = await scene.open({ worker: false })
    await vi.waitUntil(async () => (await elsewhere.inbox()).length === 2)
    const items = await elsewhere.inbox()
    const asked = items.map((item) => (item.kind === 'question' ? { question: item.question, to: item.to } : item))
    expect(asked).toContainEqual({
      question: { approvalId: expect.any(String), tool: 'refund', input: { order: '1', amount: 200 }, reason: 'a lot' },
      to: 'finance',
    })
    for (const item of items) {
      if (item.kind !== 'question') continue
      const { input } = item.question as { input: { order: string; amount: number } }
      const answer =
        input.order === '1' ? { approved: true, input: { ...input, amount: 150 } } : { approved: false, reason: 'Not this one.' }
      await elsewhere.answer('r', item.name, answer, { id: item.id, by: 'alice' })
    }
    expect(await run.result()).toBe('One was refunded.')
    expect(paid.toSorted((a, b) => JSON.stringify(a).localeCompare(JSON.stringify(b)))).toEqual([
      { order: '1', amount: 150 },
      { order: '3', amount: 5 },
    ])
    expect(heard).toEqual([
      {
        type: 'content',
        value: [
          { type: 'text', text: 'Approved with another input: {"order":"1","amount":150}' },
          { type: 'text', text: 'refunded 1' },
        ],
      },
      { type: 'execution-denied', reason: 'Not this one.' },
      { type: 'text', value: 'refunded 3' },
    ])
  })

  it('asks again where an edited input does not fit the tool, and refuses a second answer', async () => {
    const paid: unknown[] = []
    const agent = workflow('agent', async (ctx: Context) => {
      const tools = {
        refund: tool({
          inputSchema: refund,
          needsApproval: true,
          execute: (input) => {
            paid.push(input)
            return 'refunded'
          },
        }),
      }
      const turns = [calls(['refund', { order: '1', amount: 200 }]), says('Done.')]
      return (await runAgent(ctx, { model: scriptedModel({ turns }), tools }, { prompt: 'Refund it' })).text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent, undefined, { id: 'r' })
    await vi.waitUntil(async () => (await hf.inbox()).length === 1)
    const wrong = { approved: true, input: { order: '1', amount: 'all' } }
    await expect(hf.answer('r', 'approve', wrong)).rejects.toMatchObject({ code: 'invalid_input' })
    await expect(hf.answer('r', 'approve', { approved: 'yes' })).rejects.toMatchObject({ code: 'invalid_input' })
    // Another process does not have the schema: what it gave is refused when it is taken, and asked again.
    const elsewhere = await scene.open({ worker: false })
    await elsewhere.answer('r', 'approve', wrong)
    await vi.waitUntil(async () => (await hf.inbox()).some((item) => item.kind === 'question' && item.problem !== undefined))
    await hf.answer('r', 'approve', { approved: true })
    expect(await run.result()).toBe('Done.')
    expect(paid).toEqual([{ order: '1', amount: 200 }])
    await expect(hf.answer('r', 'approve', { approved: true })).rejects.toMatchObject({ code: 'already_answered' })
  })

  it('pauses where its tokens are used up, and goes on with a higher budget', async () => {
    let asked = 0
    const agent = workflow({ name: 'agent', budget: { tokens: 100 } }, async (ctx: Context) => {
      const turns = [
        { ...calls(['find', { order: '1' }]), usage: [90, 20] as const },
        { text: 'Found.', usage: [30, 10] as const },
      ]
      const model = scriptedModel({ turns, before: () => asked++ })
      const tools = { find: tool({ inputSchema: order, execute: () => 'found' }) }
      return (await runAgent(ctx, { model, tools }, { prompt: 'Find it', price: (_, { inputTokens }) => inputTokens / 1000 }))
        .text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    await becomes(run, 'paused')
    expect(asked).toBe(1)
    await run.resume({ budget: { tokens: 1000 } })
    expect(await run.result()).toBe('Found.')
    expect(asked).toBe(2)
    expect((await run.info()).usage).toMatchObject({ tokens: 150, cost: 0.12 })
  })

  it('pauses before a call whose longest answer has no room', async () => {
    let asked = 0
    const agent = workflow({ name: 'agent', budget: { tokens: 100 } }, async (ctx: Context) => {
      const model = scriptedModel({ turns: [says('Hello.')], before: () => asked++ })
      return (await runAgent(ctx, { model, maxOutputTokens: 500 }, { prompt: 'Hi' })).text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    await becomes(run, 'paused')
    expect(asked).toBe(0)
    await run.resume({ budget: { tokens: 1000 } })
    expect(await run.result()).toBe('Hello.')
  })

  it('sets aside room for the longest answer of each call, and not for those that were shorter, also after a restart', async () => {
    const asked: number[] = []
    const steps = [1, 2, 3, 4, 5]
    const look = tool({ inputSchema: order, execute: () => 'seen' })
    const agent = workflow({ name: 'agent', budget: { tokens: 1_000 } }, async (ctx: Context) => {
      const turns = [...steps.map((n) => calls(['look', { order: String(n) }, `c${n}`])), says('Seen.')]
      const model = scriptedModel({ turns, before: (call) => asked.push(call) })
      const { text } = await runAgent(ctx, { model, tools: { look }, maxOutputTokens: 600 }, { prompt: 'Look' })
      await ctx.ask('again', { question: 'Again?' })
      return (await runAgent(ctx, { model: scriptedModel({ turns: [says('Yes.')] }), maxOutputTokens: 900 }, { prompt: text }))
        .text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    await vi.waitUntil(async () => (await hf.inbox()).length === 1)
    expect(asked.length).toBe(6)
    await becomes(run, 'waiting')
    await hf.answer(run.id, 'again', true)
    // 90 tokens were used, so there is room for 900 more.
    expect(await run.result()).toBe('Yes.')
  })

  it('tells the model of a tool that failed for good, of one that is not there, and of an input that does not fit', async () => {
    let attempts = 0
    const heard: unknown[] = []
    const agent = workflow('agent', async (ctx: Context) => {
      const model = scriptedModel({
        turns: (prompt) => {
          const results = prompt.flatMap(({ role, content }) => (role === 'tool' ? content : []))
          if (results.length === 0)
            return calls(
              ['broken', { order: '1' }],
              ['missing', { order: '1' }],
              ['broken', { order: 1 }],
              ['broken', '{nonsense'],
            )
          heard.push(...results.map((part) => (part.type === 'tool-result' ? part.output.type : part.type)))
          return says('Sorry.')
        },
      })
      const tools = {
        broken: tool({
          inputSchema: order,
          execute: (): string => {
            attempts++
            throw new Error('The service is down.')
          },
        }),
      }
      return (await runAgent(ctx, { model, tools }, { prompt: 'Try', toolOptions: { retry: atOnce } })).text
    })
    const hf = await scene.open({ workflows: [agent] })
    expect(await hf.run(agent)).toBe('Sorry.')
    expect(attempts).toBe(3)
    expect(heard).toEqual(['error-text', 'error-text', 'error-text', 'error-text'])
  })

  it('is cancelled in a tool, without another call of the model', async () => {
    let asked = 0
    const inTool = gate()
    const agent = workflow('agent', async (ctx: Context) => {
      const model = scriptedModel({ turns: [calls(['wait', {}]), says('never')], before: () => asked++ })
      const wait = tool({
        inputSchema: z.object({}),
        execute: (_, { abortSignal }) =>
          new Promise((_, reject) => {
            inTool.open()
            abortSignal?.addEventListener('abort', () => reject(abortSignal.reason))
          }),
      })
      return (
        await new ToolLoopAgent({ model: durableModel(ctx, model), tools: durableTools(ctx, { wait }) }).generate({
          prompt: 'Wait',
        })
      ).text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    await inTool.promise
    await run.cancel()
    expect((await run.info()).status).toBe('cancelled')
    expect(asked).toBe(1)
  })

  it('gives parallel calls of one tool their own results on a replay, in whatever order they came', async () => {
    let isReplay = false
    const ends = { a: gate(), b: gate() }
    const agent = workflow('agent', async (ctx: Context) => {
      const model = durableModel(
        ctx,
        scriptedModel({ turns: [calls(['research', { topic: 'a' }, 'x'], ['research', { topic: 'b' }, 'y']), says('Done.')] }),
      )
      const research = withContext(
        tool({
          inputSchema: z.object({ topic: z.string() }),
          execute: async ({ topic }, options) => {
            const { ctx } = durableCall(options)
            const inner = scriptedModel({
              turns: [says(`about ${topic}`)],
              before: async () => {
                if (isReplay) throw new Error('asked again')
                if (topic === 'a') await ends.a.promise
                else await ends.b.promise
              },
            })
            return (await runAgent(ctx, { model: inner }, { prompt: `Research it` })).text
          },
        }),
      )
      const { steps } = await generateText({
        model,
        tools: durableTools(ctx, { research }),
        prompt: 'Research both',
        stopWhen: isStepCount(3),
      })
      await ctx.ask('wait', { question: 'Go on?' })
      return steps[0]?.toolResults.map(({ input, output }) => [(input as { topic: string }).topic, output])
    })
    const first = await scene.openMortal({ workflows: [agent] })
    await first.hf.start(agent, undefined, { id: 'r' })
    ends.b.open()
    const elsewhere = await scene.open({ worker: false })
    await vi.waitUntil(async () => (await completed(await elsewhere.runs.get('r'))).includes('research/model'))
    ends.a.open()
    await vi.waitUntil(async () => (await elsewhere.inbox()).length === 1)
    await first.die()
    scene.advance(11_000)
    isReplay = true
    const second = await scene.open({ workflows: [agent] })
    await second.answer('r', 'wait', true)
    const results = await (await second.runs.get<[string, string][]>('r')).result()
    expect(results.toSorted()).toEqual([
      ['a', 'about a'],
      ['b', 'about b'],
    ])
  })

  it('retries what the provider calls retryable, and only that; the SDK does not retry on top', async () => {
    const failing = (isRetryable: boolean, times: number) => {
      let asked = 0
      const fail = () => {
        if (++asked > times) return
        throw new APICallError({
          message: `refused ${asked}`,
          url: 'x',
          requestBodyValues: {},
          isRetryable,
          statusCode: isRetryable ? 503 : 400,
        })
      }
      return { count: () => asked, model: scriptedModel({ turns: [says('Hello.')], before: fail }) }
    }
    const provider = { twice: failing(true, 2), always: failing(true, 9), refusing: failing(false, 9) }
    const agent = workflow('agent', async (ctx: Context, which: keyof typeof provider) => {
      const model = durableModel(ctx, provider[which].model, { retry: atOnce })
      // Without maxRetries: 0, as somebody will write it.
      try {
        return (await generateText({ model, prompt: 'Hi' })).text
      } catch (error) {
        await ctx.sleep(0)
        return { isApiError: APICallError.isInstance(error), message: (error as Error).message }
      }
    })
    const hf = await scene.open({ workflows: [agent] })
    expect(await hf.run(agent, 'twice')).toBe('Hello.')
    expect(await hf.run(agent, 'always')).toEqual({ isApiError: true, message: 'refused 3' })
    expect(await hf.run(agent, 'refusing')).toEqual({ isApiError: true, message: 'refused 1' })
    expect(Object.values(provider).map(({ count }) => count())).toEqual([3, 3, 1])
  })

  it('takes messages while it works, also when its answer was complete already', async () => {
    const inCall = gate()
    const goOn = gate()
    const prompts: string[] = []
    const agent = workflow('agent', async (ctx: Context) => {
      const model = scriptedModel({
        turns: (prompt) => {
          const said = prompt.filter(({ role }) => role === 'user').map(({ content }) => (content[0] as { text: string }).text)
          prompts.push(said.join(' | '))
          return says(`Answer to ${said.length}.`)
        },
        before: async (call) => {
          if (call > 1) return
          inCall.open()
          await goOn.promise
        },
      })
      return (await runAgent(ctx, { model }, { prompt: 'Hi', steering: 'steer' })).text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    await inCall.promise
    await hf.signal(run.id, 'steer', 'In French, please')
    await hf.signal(run.id, 'steer', 'And short')
    goOn.open()
    expect(await run.result()).toBe('Answer to 3.')
    expect(prompts).toEqual(['Hi', 'Hi | In French, please | And short'])
  })

  it('pauses as mismatch where a model call is made with another prompt than it was recorded with', async () => {
    let word = 'one'
    const agent = workflow('agent', async (ctx: Context) => {
      const { text } = await runAgent(ctx, { model: scriptedModel({ turns: [says('Yes.')] }) }, { prompt: `Is it ${word}?` })
      await ctx.ask('go_on', { question: 'Go on?' })
      return text
    })
    const first = await scene.openMortal({ workflows: [agent] })
    await first.hf.start(agent, undefined, { id: 'r' })
    const second = await scene.open({ workflows: [agent], worker: { quietMs: 20 } })
    await vi.waitUntil(async () => (await second.inbox()).length === 1)
    await first.die()
    scene.advance(11_000)
    word = 'two'
    await second.answer('r', 'go_on', true)
    expect((await failureOf(await second.runs.get('r'))).code).toBe('nondeterminism')
  })

  it('takes MCP tools by their annotations, as they were when the run began', async () => {
    const called: string[] = []
    let listed = 0
    const annotations = { read: { readOnlyHint: true }, put: { idempotentHint: true }, send: {} }
    const client = {
      listTools: async () => {
        listed++
        return { tools: Object.entries(annotations).map(([name, hints]) => ({ name, hints })) }
      },
      toolsFromDefinitions: ({ tools }: { tools: { name: string; hints: object }[] }) =>
        Object.fromEntries(
          tools.map(({ name, hints }) => [
            name,
            {
              ...dynamicTool({ inputSchema: z.object({}), execute: () => called.push(name) }),
              metadata: { clientName: 'mcp', annotations: hints },
            },
          ]),
        ),
    }
    const agent = workflow('agent', async (ctx: Context) => {
      const tools = await mcpTools(ctx, client)
      const model = scriptedModel({ turns: [calls(['read', {}], ['put', {}], ['send', {}]), says('Done.')] })
      const { text } = await runAgent(ctx, { model, tools }, { prompt: 'Do it' })
      await ctx.ask('again', { question: 'Again?' })
      return text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    await becomes(run, 'waiting')
    await hf.answer(run.id, 'again', true)
    expect(await run.result()).toBe('Done.')
    expect([listed, called.toSorted()]).toEqual([1, ['put', 'read', 'send']])
    expect((await completed(run)).filter((step) => step?.includes('/'))).toEqual(['read/read'])
    expect((await completed(run, 'effect_completed')).toSorted()).toEqual(['put/put', 'send/send'])
  })

  it('leaves an effect whose outcome is hidden to a person, and goes on with what they say', async () => {
    let sent = 0
    const agent = workflow('agent', async (ctx: Context) => {
      const send = effect(
        tool({
          inputSchema: z.object({}),
          execute: (): string => {
            sent++
            throw new Error('The connection broke.')
          },
        }),
        { key: 'mail-1' },
      )
      const turns = [calls(['send', {}]), says('It was sent.')]
      return (await runAgent(ctx, { model: scriptedModel({ turns }), tools: { send } }, { prompt: 'Send it' })).text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    await vi.waitUntil(async () => (await hf.inbox()).some(({ kind }) => kind === 'effect'))
    await hf.resolve('mail-1', { happened: true, result: 'sent', by: 'alice' })
    expect(await run.result()).toBe('It was sent.')
    expect(sent).toBe(1)
  })

  it('asks a policy once, denies what nobody answers in time, and hears what the policy denies by itself', async () => {
    let asked = 0
    const heard: unknown[] = []
    const agent = workflow('agent', async (ctx: Context) => {
      const model = scriptedModel({
        turns: (prompt) => {
          const results = prompt.flatMap(({ role, content }) => (role === 'tool' ? content : []))
          if (results.length === 0) return calls(['pay', { order: 'a' }], ['pay', { order: 'b' }], ['pay', { order: 'c' }])
          heard.push(...results.map((part) => (part.type === 'tool-result' ? part.output : part.type)))
          return says('Done.')
        },
      })
      const toolApproval = ({ toolCall }: { toolCall: { input: unknown } }) => {
        asked++
        const { order } = toolCall.input as { order: string }
        if (order === 'a') return 'user-approval' as const
        return order === 'b' ? { type: 'denied' as const, reason: 'Never b.' } : undefined
      }
      const pay = tool({ inputSchema: order, execute: ({ order }) => `paid ${order}` })
      return (await runAgent(ctx, { model, tools: { pay }, toolApproval }, { prompt: 'Pay', approvalTimeoutMs: 300 })).text
    })
    const hf = await scene.open({ workflows: [agent] })
    expect(await hf.run(agent)).toBe('Done.')
    expect(asked).toBe(3)
    expect(heard).toEqual([
      { type: 'execution-denied', reason: 'Nobody answered in time.' },
      { type: 'execution-denied', reason: 'Never b.' },
      { type: 'text', value: 'paid c' },
    ])
  })

  it('makes no call whose policy says what is no status, and takes whatever is true as a need for approval', async () => {
    const heard: unknown[] = []
    const made: string[] = []
    const pay = (name: string) =>
      tool({
        inputSchema: order,
        execute: () => {
          made.push(name)
          return name
        },
      })
    const agent = workflow('agent', async (ctx: Context) => {
      const model = scriptedModel({
        turns: (prompt) => {
          const results = prompt.flatMap(({ role, content }) => (role === 'tool' ? content : []))
          heard.push(...results.map((part) => (part.type === 'tool-result' ? part.output : part.type)))
          const input = { order: '1' }
          return results.length > 0 ? says('done') : calls(['typo', input], ['boolean', input], ['truthy', input])
        },
      })
      const settings = {
        model,
        tools: {
          typo: pay('typo'),
          boolean: pay('boolean'),
          truthy: { ...pay('truthy'), needsApproval: () => 'yes' as unknown as boolean },
        },
        toolApproval: { typo: 'user_approval' as 'user-approval', boolean: () => true as unknown as 'user-approval' },
      }
      return (await runAgent(ctx, settings, { prompt: 'Pay', approvalTimeoutMs: 1 })).text
    })
    const hf = await scene.open()
    expect(await (await hf.start(agent)).result()).toBe('done')
    expect(made).toEqual([])
    expect(heard).toEqual([
      { type: 'error-text', value: expect.stringContaining('toolApproval said user_approval of a call of "typo"') },
      { type: 'error-text', value: expect.stringContaining('toolApproval said true of a call of "boolean"') },
      { type: 'execution-denied', reason: 'Nobody answered in time.' },
    ])
  })

  it('tells the model of a schema that breaks, and of what a tool threw that JSON has no word for', async () => {
    const heard: unknown[] = []
    let asked = 0
    const broken = z.object({}).refine(() => {
      throw new Error('The check broke.')
    })
    const agent = workflow('agent', async (ctx: Context) => {
      const model = scriptedModel({
        turns: (prompt) => {
          asked++
          const results = prompt.flatMap(({ role, content }) => (role === 'tool' ? content : []))
          heard.push(...results.map((part) => (part.type === 'tool-result' ? part.output : part.type)))
          return results.length > 0 ? says('done') : calls(['check', {}], ['count', {}])
        },
      })
      const throws = (): string => {
        throw 10n
      }
      const tools = {
        check: tool({ inputSchema: broken, execute: () => 'checked' }),
        count: withContext(tool({ inputSchema: z.object({}), execute: throws })),
      }
      return (await runAgent(ctx, { model, tools }, { prompt: 'Go', stream: 'ui', retry: atOnce })).text
    })
    const hf = await scene.open()
    const run = await hf.start(agent)
    expect(await run.result()).toBe('done')
    expect(asked).toBe(2)
    expect(heard).toEqual([
      { type: 'error-text', value: expect.stringContaining('The check broke.') },
      { type: 'error-text', value: expect.stringContaining('10') },
    ])
    const errors: unknown[] = []
    for await (const { chunk } of run.stream<{ type: string; errorText?: string }>('ui'))
      if (chunk?.type === 'tool-output-error') errors.push(chunk.errorText)
    expect(errors).toEqual(['10'])
  })

  it('does not try a call again that its caller has given up', async () => {
    let asked = 0
    const agent = workflow('agent', async (ctx: Context) => {
      const caller = new AbortController()
      const model = scriptedModel({
        turns: [says('never')],
        before: () => {
          asked++
          caller.abort()
          throw caller.signal.reason
        },
      })
      await generateText({ model: durableModel(ctx, model, { retry: atOnce }), prompt: 'Hello', abortSignal: caller.signal })
    })
    const hf = await scene.open()
    await failureOf(await hf.start(agent))
    expect(asked).toBe(1)
  })

  it('is durable in streamText, and with the models that prepareStep gives', async () => {
    let asked = 0
    const agent = workflow('agent', async (ctx: Context) => {
      const model = scriptedModel({ turns: [says('Hello there.')], before: () => asked++ })
      const { text } = streamText({ model: durableModel(ctx, model), prompt: 'Hi' })
      const streamed = await text
      const prepared = await runAgent(ctx, { model: 'none/none', prepareStep: () => ({ model }) }, { prompt: 'Hi' })
      await ctx.ask('again', { question: 'Again?' })
      return [streamed, prepared.text]
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    await becomes(run, 'waiting')
    await hf.answer(run.id, 'again', true)
    expect(await run.result()).toEqual(['Hello there.', 'Hello there.'])
    expect(asked).toBe(2)
    expect(await completed(run)).toEqual(['model', 'model'])
  })

  it('shows what a tool yields on its way, records the last of it, and gives up one that takes too long', async () => {
    const heard: unknown[] = []
    const agent = workflow('agent', async (ctx: Context) => {
      const model = scriptedModel({
        turns: (prompt) => {
          const results = prompt.flatMap(({ role, content }) => (role === 'tool' ? content : []))
          heard.splice(0, heard.length, ...results.map((part) => (part.type === 'tool-result' ? part.output : part.type)))
          return results.length > 0 ? says('Done.') : calls(['count', {}], ['hang', {}])
        },
      })
      const tools = {
        count: tool({
          inputSchema: z.object({}),
          execute: async function* () {
            yield 'one'
            yield 'two'
          },
        }),
        hang: tool({ inputSchema: z.object({}), execute: () => new Promise<string>(() => {}) }),
      }
      const toolOptions = { retry: { attempts: 1 }, timeoutMs: 300 }
      return (await runAgent(ctx, { model, tools }, { prompt: 'Go', stream: 'ui', toolOptions })).text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    expect(await run.result()).toBe('Done.')
    expect(heard).toEqual([
      { type: 'text', value: 'two' },
      { type: 'error-text', value: expect.stringContaining('took longer than 300 ms') },
    ])
    const outputs: unknown[] = []
    for await (const { chunk } of run.stream<{ type: string; output?: unknown; preliminary?: boolean }>('ui'))
      if (chunk?.type === 'tool-output-available') outputs.push([chunk.output, chunk.preliminary ?? false])
    expect(outputs).toEqual([
      ['one', true],
      ['two', true],
      ['two', false],
    ])
  })

  it('keeps a fingerprint of each prompt, and no copy', async () => {
    const agent = workflow('agent', async (ctx: Context) => {
      const turns = [calls(['find', { order: '1' }]), calls(['find', { order: '2' }, 'b']), says('Found.')]
      const find = tool({ inputSchema: order, execute: () => 'found' })
      return (await runAgent(ctx, { model: scriptedModel({ turns }), tools: { find } }, { prompt: 'x'.repeat(100_000) })).text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    expect(await run.result()).toBe('Found.')
    const events = await run.events()
    expect(events.filter(({ type, step }) => type === 'step_started' && step === 'model').length).toBe(3)
    expect(JSON.stringify(events).length).toBeLessThan(10_000)
  })

  it('keeps files that a model makes, and an answer whose usage is nonsense', async () => {
    const none = { total: undefined, noCache: undefined, cacheRead: undefined, cacheWrite: undefined }
    const answers = [
      {
        type: 'finish',
        finishReason: { unified: 'tool-calls', raw: undefined },
        usage: { inputTokens: { ...none, total: Number.NaN } },
      },
      { type: 'finish' },
    ]
    const file = (data: object) => ({ type: 'file', mediaType: 'image/png', data })
    let asked = 0
    const model = new MockLanguageModelV4({
      doStream: async () => {
        const parts = [
          file({ type: 'url', url: new URL('http://127.0.0.1/a.png') }),
          file({ type: 'data', data: new Uint8Array([1, 2]) }),
          answers[asked++],
        ]
        return { stream: ReadableStream.from(parts) as never }
      },
    })
    const agent = workflow('agent', async (ctx: Context) => {
      const made: unknown[] = []
      for (const prompt of ['one', 'two'])
        made.push(
          (await durableModel(ctx, model, { stream: 'ui' }).doGenerate({ prompt: [{ role: 'system', content: prompt }] }))
            .content,
        )
      await ctx.ask('again', { question: 'Again?' })
      return JSON.stringify(made)
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    await becomes(run, 'waiting')
    await hf.answer(run.id, 'again', true)
    const made = [file({ type: 'url', url: 'http://127.0.0.1/a.png' }), file({ type: 'data', data: new Uint8Array([1, 2]) })]
    expect(await run.result()).toEqual(JSON.stringify([made, made]))
    expect(asked).toBe(2)
    expect((await run.info()).usage).toMatchObject({ inputTokens: 0, outputTokens: 0 })
  })

  it('refuses what can not be durable', async () => {
    const agent = workflow('agent', async (ctx: Context) => {
      const settings = { model: scriptedModel({ turns: [] }), prepareCall: () => ({}) }
      await runAgent(ctx, settings as never, { prompt: 'Hi' })
    })
    const hf = await scene.open({ workflows: [agent] })
    expect((await failureOf(await hf.start(agent))).code).toBe('invalid_input')
    expect(() => durableCall({ toolCallId: '1', messages: [] } as never)).toThrow(
      expect.objectContaining({ code: 'invalid_input' }),
    )
  })
})
