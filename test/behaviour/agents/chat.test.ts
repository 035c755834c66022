import { lastAssistantMessageIsCompleteWithApprovalResponses, tool, type UIMessage } from 'ai'
import { type RunHandle, workflow } from 'holdfast'
import {
  type ApprovalQuestion,
  type ChatState,
  chatHandler,
  chatWorkflow,
  durableCall,
  effect,
  keepLast,
  runAgent,
  uiStream,
  withContext,
} from 'holdfast/ai'
import { expect, it, vi } from 'vitest'
import { z } from 'zod'
import { becomes, gate } from '../runs.ts'
import { onEveryStore } from '../stores.ts'
import { ChatPage } from './chat-page.ts'
import {
  alice,
  authorize,
  chunksOf,
  eventsOf,
  messagesOf,
  post,
  type ServerEvent,
  stopOf,
  textOf,
  userMessage,
} from './chat-requests.ts'
import { calls, says, scriptedModel } from './scripted-model.ts'

const atOnce = { attempts: 3, minMs: 0, maxMs: 0, jitter: false } as const
const echo = chatWorkflow({
  name: 'echo',
  agent: {
    model: scriptedModel({
      turns: (prompt) => {
        const [part] = (prompt.findLast(({ role }) => role === 'user')?.content ?? []) as { text: string }[]
        return says(`You said: ${part?.text}`)
      },
    }),
  },
})

onEveryStore('what an agent streams to a page', (scene) => {
  it('begins a step anew where an attempt was given up, and is the same from every offset', async () => {
    const hf = await scene.open()
    const agent = workflow('agent', async (ctx) => {
      const model = scriptedModel({
        turns: [says('once upon a time')],
        beforeChunk: (chunk, call) => {
          if (call === 1 && chunk === 5) throw new Error('The connection broke.')
        },
      })
      return (await runAgent(ctx, { model }, { prompt: 'Tell', stream: 'ui', retry: atOnce })).text
    })
    const run = await hf.start(agent)
    expect(await run.result()).toBe('once upon a time')
    const all: ServerEvent[] = []
    for await (const event of eventsOf(uiStream(run))) all.push(event)
    const shown = all.map(({ chunk }) => ('delta' in chunk ? chunk['delta'] : chunk.type))
    expect(shown).toEqual([
      ...['start', 'start-step', 'reset-step', 'text-start', 'once ', 'upon ', 'a ', 'time', 'text-end', 'finish-step', 'finish'],
    ])
    const offsets = all.flatMap(({ id }) => (id === undefined ? [] : [id]))
    for (const from of [0, ...offsets.map((offset) => offset + 1)]) {
      const rest: ServerEvent[] = []
      for await (const event of eventsOf(uiStream(run, { from }))) rest.push(event)
      expect(rest.filter(({ id }) => id !== undefined)).toEqual(all.filter(({ id }) => id !== undefined && id >= from))
    }
  })

  it('shows a live reader the words of a broken attempt until they are said anew, and none twice at the end', async () => {
    const seen = gate()
    const agent = workflow('agent', async (ctx) => {
      const model = scriptedModel({
        turns: [says('once upon a time')],
        beforeChunk: async (chunk, call) => {
          if (call !== 1 || chunk !== 5) return
          await seen.promise
          throw new Error('The connection broke.')
        },
      })
      return (await runAgent(ctx, { model }, { prompt: 'Tell', stream: 'ui', retry: atOnce })).text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    const reader = await scene.open({ worker: false })
    const chunks: unknown[] = []
    for await (const { chunk } of eventsOf(uiStream(await reader.runs.get(run.id)))) {
      chunks.push('delta' in chunk ? chunk['delta'] : chunk.type)
      if (chunk['delta'] === 'upon ') seen.open()
    }
    expect(chunks).toEqual([
      ...['start', 'start-step', 'text-start', 'once ', 'upon ', 'reset-step', 'text-start', 'once ', 'upon ', 'a ', 'time'],
      ...['text-end', 'finish-step', 'finish'],
    ])
  })

  it('says that a run failed, without its reasons', async () => {
    const agent = workflow('agent', async (ctx) => {
      const model = scriptedModel({
        turns: () => {
          throw new Error('secret')
        },
      })
      return (await runAgent(ctx, { model }, { prompt: 'Tell', stream: 'ui', retry: { attempts: 1 } })).text
    })
    const hf = await scene.open({ workflows: [agent] })
    const run = await hf.start(agent)
    await run.result().catch(() => {})
    const events: ServerEvent[] = []
    for await (const event of eventsOf(uiStream(run))) events.push(event)
    expect(events.at(-1)?.chunk).toEqual({ type: 'error', errorText: 'An error occurred.' })
    expect(() => uiStream(run, { from: -1 })).toThrow(expect.objectContaining({ code: 'invalid_input' }))
  })
})

onEveryStore('a chat', (scene) => {
  it('answers the chat client of the AI SDK, and keeps the same messages as the page', async () => {
    const hf = await scene.open()
    const { handle } = chatHandler(hf, echo, { authorize })
    const page = new ChatPage('c1', handle, { headers: alice })
    await page.sendMessage({ text: 'hello' })
    expect(page.error).toBeUndefined()
    expect(page.shown).toBe('[step-start] You said: hello')
    await page.sendMessage({ text: 'again' })
    expect(page.shown).toBe('[step-start] You said: again')
    const stored = await messagesOf(hf.as('alice'), 'c1')
    expect(stored.map(({ role }) => role)).toEqual(['user', 'assistant', 'user', 'assistant'])
    expect(stored).toEqual(JSON.parse(JSON.stringify(page.messages)))
  })

  it('asks for an approval on the page, also after a reload, and carries out the tool once', async () => {
    const paid: unknown[] = []
    const chat = chatWorkflow({
      name: 'support',
      agent: {
        model: scriptedModel({
          turns: [{ text: 'Let me see.', ...calls(['refund', { order: '1', amount: 200 }]) }, says('It is refunded.')],
        }),
        tools: {
          refund: effect(
            tool({
              inputSchema: z.object({ order: z.string(), amount: z.number() }),
              execute: (input) => {
                paid.push(input)
                return { receipt: 7 }
              },
            }),
            { key: ({ order }) => `refund:${order}`, idempotent: true },
          ),
        },
        toolApproval: { refund: 'user-approval' },
      },
      to: 'finance',
    })
    const hf = await scene.open()
    let roles = ['finance']
    const { handle } = chatHandler(hf, chat, {
      authorize: (request) => ({ owner: authorize(request) ?? '', by: 'alice@desk', roles }),
    })
    const before = new ChatPage('c1', handle, { headers: alice })
    await before.sendMessage({ text: 'refund order 1' })
    expect(before.shown).toBe('[step-start] Let me see. [tool-refund approval-requested]')
    expect(before.status).toBe('ready')

    // The tab is closed and opened again: the messages of the state, then the stream.
    const loaded = await handle(new Request('http://page/chat/c1', { headers: alice }))
    const { messages, run } = (await loaded.json()) as { messages: UIMessage[]; run: { status: string } }
    expect(run.status).toMatch(/running|waiting/)
    const sendAutomaticallyWhen = lastAssistantMessageIsCompleteWithApprovalResponses
    const page = new ChatPage('c1', handle, { headers: alice, messages, sendAutomaticallyWhen })
    await page.resumeStream()
    expect(page.shown).toBe('[step-start] Let me see. [tool-refund approval-requested]')
    const part = page.messages.at(-1)?.parts.find((one) => 'toolCallId' in one) as { approval: { id: string } }
    // Who is not asked can't approve, whatever the page sends.
    roles = ['sales']
    {
      const approval = { id: part.approval.id, approved: true }
      const [sent] = [{ ...page.messages.at(-1), parts: [{ ...part, state: 'approval-responded', approval }] }]
      const refused = await handle(post({ id: 'c1', messages: [sent] }))
      expect([refused.status, ((await refused.json()) as { error: { code: string } }).error.code]).toEqual([403, 'access_denied'])
    }
    roles = ['finance']
    await page.addToolApprovalResponse({ id: part.approval.id, approved: true })
    await vi.waitUntil(() => page.shown.endsWith('It is refunded.'))
    expect(page.shown).toBe('[step-start] Let me see. [tool-refund output-available] [step-start] It is refunded.')
    expect(paid).toEqual([{ order: '1', amount: 200 }])

    const stored = await messagesOf(hf.as('alice'), 'c1')
    expect(textOf(stored.at(-1))).toBe('step-start Let me see. tool-refund step-start It is refunded.')
    expect(stored.at(-1)?.parts[2]).toMatchObject({
      state: 'output-available',
      output: { receipt: 7 },
      approval: { approved: true },
    })
    // The other page answers late.
    await before.addToolApprovalResponse({ id: part.approval.id, approved: true })
    const again = await handle(post({ id: 'c1', messages: before.messages }))
    expect([again.status, ((await again.json()) as { error: { code: string } }).error.code]).toEqual([409, 'already_answered'])
    expect(paid.length).toBe(1)
    const [audited] = (
      await (await hf.as('alice').runs.get((await hf.as('alice').runs.list()).items[0]?.id ?? '')).events()
    ).filter(({ type }) => type === 'question_answered')
    expect(audited?.data).toMatchObject({ by: 'alice@desk', result: { approved: true } })
  })

  it('goes on in another process while the page reads, and the page sees no word twice', async () => {
    const agent = (isFirst: boolean, seen: Promise<void>) =>
      chatWorkflow({
        name: 'story',
        agent: {
          model: scriptedModel({
            turns: [says('once upon a time there was')],
            beforeChunk: async (chunk) => {
              if (isFirst && chunk === 6) await new Promise(() => seen)
            },
          }),
        },
      })
    const seen = gate()
    const first = await scene.openMortal({ workflows: [agent(true, seen.promise)] })
    const chatThere = agent(false, seen.promise)
    const front = await scene.open({ worker: false })
    // The server that the page talks to has no worker of its own.
    const { handle } = chatHandler(front, chatThere, { authorize })
    const page = new ChatPage('c1', handle, { headers: alice })
    const sent = page.sendMessage({ text: 'tell me' })
    await vi.waitUntil(() => page.shown.includes('upon'))
    await first.die()
    scene.advance(11_000)
    await scene.open({ workflows: [chatThere] })
    await sent
    expect(page.error).toBeUndefined()
    expect(page.shown).toBe('[step-start] once upon a time there was')
    expect(textOf((await messagesOf(front.as('alice'), 'c1')).at(-1))).toBe('step-start once upon a time there was')
  })

  it('is stopped: what was said is kept and marked, and the page that is reading ends', async () => {
    const said = gate()
    const chat = chatWorkflow({
      name: 'story',
      agent: {
        model: scriptedModel({
          turns: (prompt) => says(prompt.filter(({ role }) => role === 'user').length === 1 ? 'once upon a time' : 'the end'),
          beforeChunk: async (chunk, call, signal) => {
            if (call !== 1 || chunk !== 5) return
            said.open()
            await new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)))
          },
        }),
      },
    })
    const hf = await scene.open()
    const { handle, DELETE } = chatHandler(hf, chat, { authorize })
    const page = new ChatPage('c1', handle, { headers: alice })
    const sent = page.sendMessage({ text: 'tell me' })
    await said.promise
    await vi.waitUntil(() => page.shown.includes('upon'))
    const stopped = await DELETE(stopOf('c1'))
    expect(stopped.status).toBe(204)
    await sent
    expect(page.shown).toContain('once upon')
    const [question, answer] = await messagesOf(hf.as('alice'), 'c1')
    expect([textOf(question), textOf(answer), answer?.metadata]).toEqual(['tell me', 'step-start once upon ', { aborted: true }])
    expect((await handle(new Request('http://page/chat/c1/stream', { headers: alice }))).status).toBe(204)
    const next = new ChatPage('c1', handle, { headers: alice, messages: await messagesOf(hf.as('alice'), 'c1') })
    await next.sendMessage({ text: 'go on' })
    expect(next.shown).toBe('[step-start] the end')
  })

  it('keeps the order where a message is sent while it is stopped, and answers one that was stopped before its turn', async () => {
    let hangs = true
    const said = gate()
    const chat = chatWorkflow({
      name: 'story',
      agent: {
        model: scriptedModel({
          turns: () => says('once upon a time'),
          beforeChunk: async (chunk, _, signal) => {
            if (!hangs || chunk !== 5) return
            said.open()
            await new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)))
          },
        }),
      },
    })
    const hf = await scene.open()
    const { handle, POST, DELETE } = chatHandler(hf, chat, { authorize })
    const send = (text: string, trigger = 'submit-message') => POST(post({ id: 'c1', messages: [userMessage(text)], trigger }))
    const stop = () => DELETE(stopOf('c1'))
    const one = await send('one')
    await said.promise
    // What no page was shown may be lost with the stop.
    const page = new ChatPage('c1', handle, { headers: alice, messages: [] })
    const shown = page.resumeStream()
    await vi.waitUntil(() => page.shown.includes('upon'))
    hangs = false
    const [stopped, two] = await Promise.all([stop(), send('two')])
    expect(stopped.status).toBe(204)
    await Promise.all([shown, ...[one, two].map(chunksOf)])
    const messages = await messagesOf(hf.as('alice'), 'c1')
    expect(messages.slice(0, 2).map(textOf)).toEqual(['one', 'step-start once upon '])

    hangs = true
    const three = await send('three')
    const four = await send('four')
    await vi.waitUntil(async () => (await messagesOf(hf.as('alice'), 'c1')).some(({ id }) => id === 'three'))
    await stop()
    await Promise.all([three, four].map(chunksOf))
    hangs = false
    const later = new ChatPage('c1', handle, { headers: alice, messages: await messagesOf(hf.as('alice'), 'c1') })
    later.messages = [...later.messages, userMessage('four')]
    await later.regenerate()
    expect(later.error).toBeUndefined()
    const stored = await messagesOf(hf.as('alice'), 'c1')
    expect(stored.slice(-2).map(textOf)).toEqual(['four', 'step-start once upon a time'])
    expect(stored.map(({ id }) => id)).toContain('three')
  })

  it('is stopped with a message in line before anything was written, and answers the next one', async () => {
    let hangs = true
    const begun = gate()
    const chat = chatWorkflow({
      name: 'story',
      agent: async (ctx) => {
        if (hangs) {
          begun.open()
          await new Promise((_, reject) => ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason)))
        }
        return { model: scriptedModel({ turns: () => says('once upon a time') }) }
      },
    })
    const hf = await scene.open()
    const { handle, POST, DELETE } = chatHandler(hf, chat, { authorize })
    const one = await POST(post({ id: 'c1', messages: [userMessage('one')] }))
    await begun.promise
    const two = await POST(post({ id: 'c1', messages: [userMessage('two')] }))
    const stopped = await DELETE(new Request('http://page/chat/c1', { method: 'DELETE', headers: alice }))
    expect(stopped.status).toBe(204)
    await Promise.all([one, two].map(chunksOf))
    hangs = false
    const page = new ChatPage('c1', handle, { headers: alice, messages: [] })
    await page.sendMessage({ text: 'three' })
    expect(page.error).toBeUndefined()
    const stored = (await messagesOf(hf.as('alice'), 'c1')).map(textOf)
    expect(stored.slice(-2)).toEqual(['three', 'step-start once upon a time'])
  })

  it('goes on after it was stopped while an approval was open, or while a tool was at work', async () => {
    const atWork = gate()
    const heard: unknown[] = []
    const chat = chatWorkflow({
      name: 'support',
      agent: {
        model: scriptedModel({
          turns: (prompt) => {
            const users = prompt.filter(({ role }) => role === 'user').length
            if (users === 3) heard.push(...prompt.flatMap(({ role, content }) => (role === 'tool' ? content : [])))
            return users === 3 ? says('Never mind.') : calls(['refund', { order: String(users) }, `c${users}`])
          },
        }),
        tools: {
          refund: tool({
            inputSchema: z.object({ order: z.string() }),
            execute: (_, { abortSignal }) =>
              new Promise<string>((_, reject) => {
                atWork.open()
                abortSignal?.addEventListener('abort', () => reject(abortSignal.reason))
              }),
          }),
        },
        toolApproval: { refund: 'user-approval' },
      },
    })
    const hf = await scene.open()
    const { handle, POST, DELETE } = chatHandler(hf, chat, { authorize })
    const stop = () => DELETE(stopOf('c1'))
    await chunksOf(await POST(post({ id: 'c1', messages: [userMessage('one')] })))
    await stop()
    await chunksOf(await POST(post({ id: 'c1', messages: [userMessage('two')] })))
    const [open] = await hf.as('alice').inbox()
    if (open?.kind !== 'question') throw new Error('nobody was asked')
    await hf.as('alice').answer(open.runId, open.name, { approved: true }, { id: open.id })
    await atWork.promise
    await stop()
    const page = new ChatPage('c1', handle, { headers: alice, messages: await messagesOf(hf.as('alice'), 'c1') })
    const shown = page.messages.map(({ parts }) => parts.map((part) => ('toolCallId' in part ? part.state : part.type)))
    expect(shown).toEqual([['text'], ['step-start', 'output-error'], ['text'], ['step-start', 'output-error']])
    await page.sendMessage({ text: 'three' })
    expect([page.error, page.shown]).toEqual([undefined, '[step-start] Never mind.'])
    expect(heard).toMatchObject([
      { toolCallId: 'c1', output: { type: 'error-text', value: 'Stopped.' } },
      { toolCallId: 'c2', output: { type: 'error-text', value: 'Stopped.' } },
    ])
  })

  it('closing the tab changes nothing; a message that is sent twice is one', async () => {
    const goOn = gate()
    let asked = 0
    const chat = chatWorkflow({
      name: 'slow',
      agent: {
        model: scriptedModel({
          turns: [says('here I am')],
          before: () => {
            asked++
            return goOn.promise
          },
        }),
      },
    })
    const hf = await scene.open()
    const { POST } = chatHandler(hf, chat, { authorize })
    const message = userMessage('are you there?')
    const first = await POST(post({ id: 'c1', messages: [message] }))
    await first.body?.cancel()
    const second = await POST(post({ id: 'c1', messages: [message] }))
    goOn.open()
    expect(await chunksOf(second)).toEqual([
      'start',
      'start-step',
      'text-start',
      'here ',
      'I ',
      'am',
      'text-end',
      'finish-step',
      'finish',
    ])
    expect(asked).toBe(1)
    expect((await messagesOf(hf.as('alice'), 'c1')).length).toBe(2)
  })

  it('replaces what comes after an edited message, and generates an answer again', async () => {
    const hf = await scene.open()
    const { handle } = chatHandler(hf, echo, { authorize })
    const page = new ChatPage('c1', handle, { headers: alice })
    await page.sendMessage({ text: 'one' })
    await page.sendMessage({ text: 'two' })
    await page.sendMessage({ text: 'three', messageId: page.messages[0]?.id ?? '' })
    expect((await messagesOf(hf.as('alice'), 'c1')).map(textOf)).toEqual(['three', 'step-start You said: three'])
    // Back and forth: the same edit once more is not the earlier one.
    for (const text of ['one', 'three']) {
      await page.sendMessage({ text, messageId: page.messages[0]?.id ?? '' })
      expect((await messagesOf(hf.as('alice'), 'c1')).map(textOf)).toEqual([text, `step-start You said: ${text}`])
    }
    const answer = page.messages.at(-1)?.id
    await page.regenerate()
    const stored = await messagesOf(hf.as('alice'), 'c1')
    expect(stored.map(textOf)).toEqual(['three', 'step-start You said: three'])
    expect(stored.at(-1)?.id).not.toBe(answer)
    expect(page.messages.map(textOf)).toEqual(stored.map(textOf))
    // By the question, as by the answer.
    await page.regenerate({ messageId: page.messages[0]?.id ?? '' })
    expect([page.error, page.messages.length]).toEqual([undefined, 2])
    expect((await messagesOf(hf.as('alice'), 'c1')).map(textOf)).toEqual(['three', 'step-start You said: three'])
  })

  it('generates an answer that failed, and keeps the question and the answers before it', async () => {
    let isDown = false
    const chat = chatWorkflow({
      name: 'flaky',
      model: { retry: { attempts: 1 } },
      agent: {
        model: scriptedModel({
          turns: () => {
            if (isDown) throw new Error('The provider is down.')
            return says('yes')
          },
        }),
      },
    })
    const hf = await scene.open()
    const { handle, POST } = chatHandler(hf, chat, { authorize })
    const page = new ChatPage('c1', handle, { headers: alice })
    await page.sendMessage({ text: 'one' })
    isDown = true
    await page.sendMessage({ text: 'two' })
    expect(page.status).toBe('error')
    isDown = false
    await page.regenerate()
    const all = ['one', 'step-start yes', 'two', 'step-start yes']
    expect(page.messages.map(textOf)).toEqual(all)
    expect((await messagesOf(hf.as('alice'), 'c1')).map(textOf)).toEqual(all)
    const unknown = await POST(post({ id: 'c1', messages: [], trigger: 'regenerate-message', messageId: 'unknown' }))
    expect(unknown.status).toBe(400)
  })

  it('takes the answers to two approvals one after the other, all of one request or none, and no other questions', async () => {
    const paid: unknown[] = []
    const ask = withContext(
      tool({
        inputSchema: z.object({}),
        execute: (_, options) => durableCall(options).ctx.ask<string>('which', { question: 'Which one?' }),
      }),
    )
    const pay = tool({
      inputSchema: z.object({ order: z.string() }),
      execute: ({ order }) => {
        paid.push(order)
        return order
      },
    })
    const turns = [calls(['pay', { order: '1' }, 'a'], ['pay', { order: '2' }, 'b'], ['ask', {}]), says('done')]
    const chat = chatWorkflow({
      name: 'support',
      agent: { model: scriptedModel({ turns }), tools: { pay, ask }, toolApproval: { pay: 'user-approval' } },
    })
    const hf = await scene.open()
    const { POST } = chatHandler(hf, chat, { authorize })
    await (await POST(post({ id: 'c1', messages: [userMessage('go')] }))).body?.cancel()
    const client = hf.as('alice')
    await vi.waitUntil(async () => (await client.inbox()).length === 3)
    const questions = (await client.inbox()).filter((item) => item.kind === 'question')
    const idOf = (order: string) =>
      questions
        .map(({ question }) => question as ApprovalQuestion & { input?: { order: string } })
        .find(({ input }) => input?.order === order)?.approvalId ?? ''
    const answers = (...ids: string[]) => ({
      id: 'answer',
      role: 'assistant',
      parts: ids.map((id) => ({
        ...{ type: 'tool-pay', toolCallId: id, state: 'approval-responded', input: {} },
        approval: { id, approved: true },
      })),
    })
    const send = async (...ids: string[]) => {
      const response = await POST(post({ id: 'c1', messages: [answers(...ids)] }))
      await response.body?.cancel()
      return response.status
    }
    expect(await send(questions.find(({ name }) => name.endsWith('which'))?.name ?? '')).toBe(409)
    expect(await send('which')).toBe(409)
    expect(await send(idOf('1'))).toBe(200)
    // As a page sends it that lost its connection before it heard of the first.
    expect(await send(idOf('1'), idOf('2'))).toBe(200)
    expect(await send(idOf('1'), idOf('2'))).toBe(409)
    await vi.waitUntil(() => paid.length === 2)
    expect((await client.inbox()).map((item) => item.kind === 'question' && item.question)).toEqual(['Which one?'])
  })

  it('shows what a tool returned that JSON has no word for, and goes on', async () => {
    const chat = chatWorkflow({
      name: 'shop',
      agent: {
        model: scriptedModel({ turns: [calls(['find', {}]), says('found')] }),
        tools: { find: tool({ inputSchema: z.object({}), execute: () => ({ id: 9007199254740993n }) }) },
      },
    })
    const hf = await scene.open()
    const { handle } = chatHandler(hf, chat, { authorize })
    const page = new ChatPage('c1', handle, { headers: alice })
    await page.sendMessage({ text: 'one' })
    expect([page.error, page.shown]).toEqual([undefined, '[step-start] [tool-find output-available] [step-start] found'])
    const loaded = await handle(new Request('http://page/chat/c1', { headers: alice }))
    const { messages } = (await loaded.json()) as { messages: UIMessage[] }
    expect(messages.at(-1)?.parts[1]).toMatchObject({ output: { id: '9007199254740993' } })
    await page.sendMessage({ text: 'two' })
    expect([page.error, page.shown]).toEqual([undefined, '[step-start] [tool-find output-available] [step-start] found'])
  })

  it('is shortened before an answer, and the originals stay in the history', async () => {
    const prompts: number[] = []
    const chat = chatWorkflow({
      name: 'short',
      compact: keepLast(3),
      agent: {
        model: scriptedModel({
          turns: (prompt) => {
            prompts.push(prompt.length)
            return says('yes')
          },
        }),
      },
    })
    const hf = await scene.open()
    const { POST } = chatHandler(hf, chat, { authorize })
    for (const text of ['a', 'b', 'c', 'd']) await chunksOf(await POST(post({ id: 'c1', messages: [userMessage(text)] })))
    expect(prompts).toEqual([1, 3, 3, 3])
    for (const count of [0, -1, 1.5, Number.NaN])
      expect(() => keepLast(count)).toThrow(expect.objectContaining({ code: 'invalid_input' }))
    const thread = hf.as('alice').thread('c1')
    expect((await messagesOf(hf.as('alice'), 'c1')).map(textOf)).toEqual(['c', 'step-start yes', 'd', 'step-start yes'])
    const [first] = (await thread.checkpoints()).filter(({ step }) => step === 'model')
    expect((await thread.stateAt<ChatState>(first?.checkpoint ?? '')).messages.map(textOf)).toEqual(['a', 'step-start yes'])
  })

  it('takes a message into the answer that is being made', async () => {
    const inCall = gate()
    const goOn = gate()
    const chat = chatWorkflow({
      name: 'steered',
      steering: true,
      agent: {
        model: scriptedModel({
          turns: (prompt) => says(`Answer to ${prompt.filter(({ role }) => role === 'user').length}.`),
          before: async (call) => {
            if (call > 1) return
            inCall.open()
            await goOn.promise
          },
        }),
      },
    })
    const hf = await scene.open()
    const { handle } = chatHandler(hf, chat, { authorize })
    const page = new ChatPage('c1', handle, { headers: alice })
    const sent = page.sendMessage({ text: 'hello' })
    await inCall.promise
    // One that nothing would read is not taken.
    const unread = await chatHandler(hf, echo, { authorize }).handle(
      post({ id: 'c1', message: userMessage('lost'), steer: true }),
    )
    expect([unread.status, await unread.text()]).toEqual([409, expect.stringContaining('takes no messages while it answers')])
    expect((await handle(post({ id: 'c1', message: userMessage('be short'), steer: true }))).status).toBe(202)
    goOn.open()
    await sent
    expect(page.shown).toBe('[step-start] Answer to 1. [steering-message] [step-start] Answer to 2.')
    expect(JSON.parse(JSON.stringify(page.messages))).toEqual(await messagesOf(hf.as('alice'), 'c1'))
    expect((await handle(post({ id: 'c1', message: userMessage('too late'), steer: true }))).status).toBe(409)
  })

  it('refuses strangers, chats of others, and bodies that are none', async () => {
    const hf = await scene.open()
    const { handle, GET, POST, DELETE } = chatHandler(hf, echo, { authorize, maxBodyBytes: 10_000 })
    await chunksOf(await POST(post({ id: 'c1', messages: [userMessage('mine')] })))
    const codeOf = async (response: Promise<Response>) => {
      const { status } = await response
      return [status, ((await (await response).json()) as { error?: { code: string } }).error?.code]
    }
    const mallory = { 'x-user': 'mallory' }
    const at = (path: string, method = 'GET', headers: Record<string, string> = mallory) =>
      new Request(`http://page/chat${path}`, { method, headers })
    expect(await codeOf(handle(at('/c1', 'GET', {})))).toEqual([401, 'access_denied'])
    // A session without a user is nobody, and not the owner of what was given none.
    for (const caller of ['', { owner: '' }]) {
      const open = chatHandler(hf, echo, { authorize: () => caller })
      expect(await codeOf(open.POST(post({ id: 'c1', messages: [userMessage('x')] })))).toEqual([401, 'access_denied'])
    }
    expect((await hf.runs.list()).items).toEqual([])
    expect(await codeOf(GET(at('/%E0%A4%A')))).toEqual([400, 'invalid_input'])
    expect(await codeOf(GET(at('/c1')))).toEqual(await codeOf(GET(at('/missing'))))
    expect(await codeOf(GET(at('/c1')))).toEqual([404, 'run_not_found'])
    expect((await GET(at('/c1/stream'))).status).toBe(204)
    expect(await codeOf(DELETE(at('/c1', 'DELETE')))).toEqual([404, 'run_not_found'])
    expect(await codeOf(handle(at('/c1', 'PUT')))).toEqual([405, 'invalid_input'])
    const bad = [
      [post('{'), 400, 'invalid_input'],
      [post(null), 400, 'invalid_input'],
      [post({ id: 7, messages: [userMessage('x')] }), 400, 'invalid_input'],
      [post({ id: 'c1', messages: 'x' }), 400, 'invalid_input'],
      [post({ id: 'c1', messages: { at: 1 } }), 400, 'invalid_input'],
      [post({ id: 'c1', messages: [] }), 400, 'invalid_input'],
      [post({ id: 'c1', messages: [{ role: 'user' }] }), 400, 'invalid_input'],
      [post({ id: 'c1', messages: [{ ...userMessage('x'), role: 'system' }] }), 400, 'invalid_input'],
      [post({ id: 'c1', messages: [{ ...userMessage('x'), role: 'assistant' }] }), 400, 'invalid_input'],
      [post({ id: '', messages: [userMessage('x')] }), 400, 'invalid_id'],
      [post({ id: 'c1', messages: [userMessage('x'.repeat(20_000))] }), 413, 'value_too_large'],
      [
        new Request('http://page/chat', { method: 'POST', body: '{}', headers: { ...alice, 'content-type': 'text/plain' } }),
        415,
        'invalid_input',
      ],
    ] as const
    for (const [request, status, code] of bad) expect(await codeOf(POST(request))).toEqual([status, code])
    // A body of 100 MB that says nothing of its length is not read to its end.
    let sent = 0
    const endless = new ReadableStream({
      pull: (controller) => {
        sent += 1_000_000
        controller.enqueue(new Uint8Array(1_000_000))
        if (sent >= 100_000_000) controller.close()
      },
    })
    const long = new Request('http://page/chat', {
      method: 'POST',
      body: endless,
      duplex: 'half',
      headers: { ...alice, 'content-type': 'application/json' },
    } as RequestInit)
    expect(await codeOf(POST(long))).toEqual([413, 'value_too_large'])
    expect(sent).toBeLessThan(10_000_000)
    expect((await messagesOf(hf.as('alice'), 'c1')).map(textOf)).toEqual(['mine', 'step-start You said: mine'])
    const invalid = expect.objectContaining({ code: 'invalid_input' })
    expect(() => chatHandler(hf, echo, {} as never)).toThrow(invalid)
    expect(() => chatWorkflow({ name: 'none' } as never)).toThrow(invalid)
    for (const maxBodyBytes of [Number.NaN, 0, -1])
      expect(() => chatHandler(hf, echo, { authorize, maxBodyBytes })).toThrow(invalid)
  })

  it('waits where its budget is used up, and the page that reads gets the rest', async () => {
    const chat = chatWorkflow({
      name: 'dear',
      budget: { tokens: 12 },
      agent: {
        model: scriptedModel({ turns: [calls(['look', {}]), says('seen')] }),
        tools: { look: tool({ inputSchema: z.object({}), execute: () => 'x' }) },
      },
    })
    const hf = await scene.open()
    const { POST } = chatHandler(hf, chat, { authorize })
    const reading = chunksOf(await POST(post({ id: 'c1', messages: [userMessage('hi')] })))
    const [info] = (await hf.as('alice').runs.list()).items
    const run = (await hf.as('alice').runs.get(info?.id ?? '')) as RunHandle
    await becomes(run, 'paused')
    await run.resume({ budget: { tokens: 1_000 } })
    expect((await reading).slice(-6)).toEqual(['start-step', 'text-start', 'seen', 'text-end', 'finish-step', 'finish'])
  })
})
