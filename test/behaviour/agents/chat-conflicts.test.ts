import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tool, type UIMessage } from 'ai'
import { type Holdfast, HoldfastError, open, state, workflow } from 'holdfast'
import {
  type ApprovalQuestion,
  chatHandler,
  chatWorkflow,
  durableCall,
  effect,
  keepLast,
  runAgent,
  toNodeHandler,
  withContext,
} from 'holdfast/ai'
import { wrapStore } from 'holdfast/testing'
import { expect, it, onTestFinished, test, vi } from 'vitest'
import { z } from 'zod'
import { gate } from '../runs.ts'
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

const order = z.object({ order: z.string() })
const resume = (chatId: string, query = '') => new Request(`http://page/chat/${chatId}/stream${query}`, { headers: alice })
const codeOf = async (response: Response) => [
  response.status,
  ((await response.json()) as { error?: { code: string } }).error?.code,
]

/** A model that says a story and stops in the middle of it until it is told to give up. */
function hangingModel(text: string, chunkBeforeIt: number) {
  const hangs = gate()
  const model = scriptedModel({
    turns: [says(text)],
    beforeChunk: async (chunk, _, signal) => {
      if (chunk !== chunkBeforeIt) return
      hangs.open()
      await new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)))
    },
  })
  return { model, hangs: hangs.promise }
}

/** What asks for approval, as a page sends the answer to it. */
async function requests(hf: Holdfast, count: number): Promise<ApprovalQuestion[]> {
  await vi.waitUntil(async () => (await hf.inbox()).length === count)
  return (await hf.inbox()).flatMap((item) => (item.kind === 'question' ? [item.question as ApprovalQuestion] : []))
}

const answerTo = ({ approvalId, tool, input }: ApprovalQuestion, approved = true): UIMessage => ({
  id: 'answer',
  role: 'assistant',
  parts: [
    {
      ...{ type: `tool-${tool}`, toolCallId: 'x', input, state: 'approval-responded' },
      approval: { id: approvalId, approved },
    } as UIMessage['parts'][number],
  ],
})

onEveryStore('a chat with several pages', (scene) => {
  it('keeps what was said once where two pages stop it at once, and one once more', async () => {
    const { model, hangs } = hangingModel('once upon a time', 5)
    const chat = chatWorkflow({ name: 'story', agent: { model } })
    const hf = await scene.open()
    const { POST, DELETE } = chatHandler(hf, chat, { authorize })
    const reading = await POST(post({ id: 'c1', messages: [userMessage('one')] }))
    await hangs
    const stopped = await Promise.all([DELETE(stopOf('c1')), DELETE(stopOf('c1')), DELETE(stopOf('c1'))])
    expect(stopped.map(({ status }) => status)).toEqual([204, 204, 204])
    expect((await DELETE(stopOf('c1'))).status).toBe(204)
    await reading.text()
    expect((await messagesOf(hf.as('alice'), 'c1')).map(textOf)).toEqual(['one', 'step-start once upon '])
  })

  it('keeps what was said where the process that stopped it has died before it could', async () => {
    const { model, hangs } = hangingModel('once upon a time', 5)
    const chat = chatWorkflow({ name: 'story', agent: { model } })
    const hf = await scene.open()
    const { POST, DELETE } = chatHandler(hf, chat, { authorize })
    await (await POST(post({ id: 'c1', messages: [userMessage('one')] }))).body?.cancel()
    await hangs
    const [run] = (await hf.as('alice').runs.list()).items
    await (await hf.as('alice').runs.get(run?.id ?? '')).cancel({ undo: false })
    expect((await messagesOf(hf.as('alice'), 'c1')).map(textOf)).toEqual(['one'])
    expect((await DELETE(stopOf('c1'))).status).toBe(204)
    expect((await messagesOf(hf.as('alice'), 'c1')).map(textOf)).toEqual(['one', 'step-start once upon '])
  })

  it('continues each page with its own answer, at whatever offset, also after its end and while the next one is made', async () => {
    const second = gate()
    const chat = chatWorkflow({
      name: 'story',
      agent: {
        model: scriptedModel({
          turns: (prompt) => says(prompt.length === 1 ? 'once upon a time' : 'quite another answer'),
          before: (call) => (call > 1 ? second.promise : undefined),
        }),
      },
    })
    const hf = await scene.open()
    const { POST, GET } = chatHandler(hf, chat, { authorize })
    const all: ServerEvent[] = []
    for await (const event of eventsOf(await POST(post({ id: 'c1', messages: [userMessage('one')] })))) all.push(event)
    const message = all[0]?.chunk['messageId']
    const next = await POST(post({ id: 'c1', messages: [userMessage('two')] }))
    for (const from of [0, ...all.flatMap(({ id }) => (id === undefined ? [] : [id + 1]))]) {
      const rest: ServerEvent[] = []
      for await (const event of eventsOf(await GET(resume('c1', `?from=${from}&message=${message}`)))) rest.push(event)
      expect(rest.filter(({ id }) => id !== undefined)).toEqual(all.filter(({ id }) => id !== undefined && id >= from))
      expect([rest[0], rest.at(-1)]).toEqual([all[0], all.at(-1)])
    }
    const foreign = new Request(`http://page/chat/c1/stream?message=${message}`, { headers: { 'x-user': 'mallory' } })
    expect(await codeOf(await GET(foreign))).toEqual([404, 'run_not_found'])
    expect(await codeOf(await GET(resume('c2', `?message=${message}`)))).toEqual([404, 'run_not_found'])
    second.open()
    expect((await chunksOf(next)).join('')).toContain('quite another answer')
  })

  it('shows a page that comes while the answer is made the same words, from every offset', async () => {
    const steps = Array.from({ length: 12 }, () => gate())
    const chat = chatWorkflow({
      name: 'story',
      agent: {
        model: scriptedModel({
          turns: [says('one two three four five six')],
          beforeChunk: (chunk) => steps[chunk - 1]?.promise,
        }),
      },
    })
    const hf = await scene.open()
    const { POST, GET } = chatHandler(hf, chat, { authorize })
    const first = await POST(post({ id: 'c1', messages: [userMessage('count')] }))
    const all: ServerEvent[] = []
    const late: { from: number; rest: Promise<ServerEvent[]> }[] = []
    const read = async (response: Response) => {
      const events: ServerEvent[] = []
      for await (const event of eventsOf(response)) events.push(event)
      return events
    }
    steps[0]?.open()
    let opened = 1
    for await (const event of eventsOf(first)) {
      all.push(event)
      if (event.id !== undefined) late.push({ from: event.id + 1, rest: read(await GET(resume('c1', `?from=${event.id + 1}`))) })
      if (event.id !== undefined || event.chunk.type === 'start') steps[opened++]?.open()
    }
    expect(late.length).toBe(9)
    for (const { from, rest } of late)
      expect((await rest).filter(({ id }) => id !== undefined)).toEqual(all.filter(({ id }) => id !== undefined && id >= from))
  })

  it('takes one of two answers to an approval that are given at once on the page and in the inbox', async () => {
    const paid: string[] = []
    const pay = effect(
      tool({
        inputSchema: order,
        execute: ({ order }) => {
          paid.push(order)
          return order
        },
      }),
      { key: ({ order }) => `pay:${order}`, idempotent: true },
    )
    const model = scriptedModel({ turns: [calls(['pay', { order: '1' }]), says('done')] })
    const chat = chatWorkflow({ name: 'support', agent: { model, tools: { pay }, toolApproval: { pay: 'user-approval' } } })
    const hf = await scene.open()
    const { POST } = chatHandler(hf, chat, { authorize })
    await chunksOf(await POST(post({ id: 'c1', messages: [userMessage('go')] })))
    const client = hf.as('alice')
    const [request] = await requests(client, 1)
    const [item] = await client.inbox()
    if (request === undefined || item?.kind !== 'question') throw new Error('nobody was asked')
    const send = () => POST(post({ id: 'c1', messages: [answerTo(request)] }))
    const given = await Promise.all([
      send(),
      send(),
      client.answer(item.runId, item.name, { approved: true }, { id: item.id }).then(
        () => 200,
        ({ code }) => code,
      ),
    ])
    const outcomes = await Promise.all(
      given.map(async (one) => (one instanceof Response ? (one.ok ? 200 : (await codeOf(one))[1]) : one)),
    )
    expect(outcomes.toSorted()).toEqual([200, 'already_answered', 'already_answered'])
    await vi.waitUntil(async () => textOf((await messagesOf(client, 'c1')).at(-1)).endsWith('done'))
    expect(paid).toEqual(['1'])
  })

  it('either refunds or is stopped where both are asked for at once, and says which', async () => {
    const paid: string[] = []
    const pay = effect(
      tool({
        inputSchema: order,
        execute: ({ order }) => {
          paid.push(order)
          return `paid ${order}`
        },
      }),
      { key: ({ order }) => `pay:${order}`, idempotent: true },
    )
    const model = scriptedModel({
      turns: (prompt) => (prompt.at(-1)?.role === 'tool' ? says('done') : calls(['pay', { order: '1' }])),
    })
    const chat = chatWorkflow({ name: 'support', agent: { model, tools: { pay }, toolApproval: { pay: 'user-approval' } } })
    const hf = await scene.open()
    const { POST, DELETE } = chatHandler(hf, chat, { authorize })
    await chunksOf(await POST(post({ id: 'c1', messages: [userMessage('go')] })))
    const [request] = await requests(hf.as('alice'), 1)
    if (request === undefined) throw new Error('nobody was asked')
    const [answered, stopped] = await Promise.all([POST(post({ id: 'c1', messages: [answerTo(request)] })), DELETE(stopOf('c1'))])
    await answered.text()
    expect([[200, 409].includes(answered.status), stopped.status]).toEqual([true, 204])
    const [run] = (await hf.as('alice').runs.list()).items
    const answer = (await messagesOf(hf.as('alice'), 'c1')).at(-1)
    expect(run?.status).toMatch(/cancelled|completed/)
    expect(answer?.metadata).toEqual(run?.status === 'cancelled' ? { aborted: true } : undefined)
    const part = answer?.parts.find((one) => 'toolCallId' in one)
    expect(part).toMatchObject({ state: expect.stringMatching(paid.length === 1 ? /output-(available|error)/ : /output-error/) })
    expect(await hf.as('alice').inbox()).toEqual([])
  })
})

onEveryStore('a server of pages whose store is out of reach for a while', (scene) => {
  it('goes on reading where it can, and a page that was cut off gets the rest', async () => {
    let isDown = false
    const before = () => {
      if (isDown) throw new HoldfastError('store_unavailable', 'Down.', { retryable: true })
    }
    const chunkSeen = gate()
    const pay = tool({ inputSchema: order, execute: ({ order }) => order })
    const model = scriptedModel({
      turns: [{ text: 'one two three', ...calls(['pay', { order: '1' }]) }, says('four five')],
      beforeChunk: (chunk, call) => (chunk === 4 && call === 1 ? chunkSeen.promise : undefined),
    })
    const chat = chatWorkflow({ name: 'support', agent: { model, tools: { pay }, toolApproval: { pay: 'user-approval' } } })
    await scene.open({ workflows: [chat] })
    const front = await scene.openWrapped((store) => wrapStore(store, { before }), { worker: false })
    const { POST, GET } = chatHandler(front, chat, { authorize })
    const outage = async () => {
      isDown = true
      await new Promise((resolve) => setTimeout(resolve, 150))
      isDown = false
    }
    const seen: ServerEvent[] = []
    let response = await POST(post({ id: 'c1', messages: [userMessage('go')] }))
    for (let cuts = 0; cuts < 20; cuts++) {
      try {
        for await (const event of eventsOf(response)) {
          seen.push(event)
          if (event.chunk['delta'] === 'one ') {
            await outage()
            chunkSeen.open()
          }
          if (event.chunk.type === 'tool-approval-request') await outage()
        }
        break
      } catch {
        const from = (seen.findLast(({ id }) => id !== undefined)?.id ?? -1) + 1
        response = await GET(resume('c1', `?from=${from}&message=${seen[0]?.chunk['messageId']}`))
      }
    }
    const words = seen.flatMap(({ chunk }) => (chunk.type === 'text-delta' ? [chunk['delta']] : []))
    expect(words).toEqual(['one ', 'two ', 'three'])
    expect(seen.at(-1)?.chunk).toMatchObject({ type: 'finish', finishReason: 'tool-calls' })
    isDown = true
    expect(await codeOf(await GET(resume('c1')))).toEqual([503, 'store_unavailable'])
    isDown = false
    const [request] = await requests(front.as('alice'), 1)
    if (request === undefined) throw new Error('nobody was asked')
    expect((await chunksOf(await POST(post({ id: 'c1', messages: [answerTo(request)] })))).join('')).toContain('four five')
  })
})

onEveryStore('an approval', (scene) => {
  it('is for one call, also where a provider gives every call the same id', async () => {
    const paid: string[] = []
    const heard: unknown[] = []
    const model = scriptedModel({
      turns: (prompt) => {
        const results = prompt.flatMap(({ role, content }) => (role === 'tool' ? content : []))
        heard.splice(0, heard.length, ...results.map((part) => (part.type === 'tool-result' ? part.output.type : part.type)))
        return results.length === 2 ? says('done') : calls(['pay', { order: String(results.length + 1) }, 'call_0'])
      },
    })
    const pay = tool({
      inputSchema: order,
      execute: ({ order }) => {
        paid.push(order)
        return order
      },
    })
    const chat = chatWorkflow({ name: 'support', agent: { model, tools: { pay }, toolApproval: { pay: 'user-approval' } } })
    const hf = await scene.open()
    const { handle, POST } = chatHandler(hf, chat, { authorize })
    await chunksOf(await POST(post({ id: 'c1', messages: [userMessage('go')] })))
    const [first] = await requests(hf.as('alice'), 1)
    if (first === undefined) throw new Error('nobody was asked')
    const after = await POST(post({ id: 'c1', messages: [answerTo(first, false)] }))
    expect((await chunksOf(after)).slice(-3)).toEqual(['tool-approval-request', 'finish-step', 'finish'])
    // A page that shows the first request still can't approve the second.
    expect(await codeOf(await POST(post({ id: 'c1', messages: [answerTo(first)] })))).toEqual([409, 'already_answered'])
    const page = new ChatPage('c1', handle, { headers: alice, messages: [userMessage('go')] })
    await page.resumeStream()
    expect(page.shown).toBe('[step-start] [tool-pay output-denied] [step-start] [tool-pay approval-requested]')
    const [second] = await requests(hf.as('alice'), 1)
    if (second === undefined) throw new Error('nobody was asked')
    // Carried out is what was asked about, and not what the page makes of it.
    await chunksOf(await POST(post({ id: 'c1', messages: [answerTo({ ...second, input: { order: '99' } })] })))
    expect(paid).toEqual(['2'])
    expect(heard).toEqual(['execution-denied', 'text'])
  })

  it('does not end the stream of a page while a sub-agent still speaks into it', async () => {
    const [speaks, asked] = [gate(), gate()]
    const beforeChunk = (chunk: number) => {
      if (chunk === 4) speaks.open()
      return chunk === 4 ? asked.promise : undefined
    }
    const research = withContext(
      tool({
        inputSchema: z.object({}),
        execute: async (_, options) => {
          const model = scriptedModel({ turns: [says('a long story')], beforeChunk })
          return (await runAgent(durableCall(options).ctx, { model }, { prompt: 'Research', stream: 'ui' })).text
        },
      }),
    )
    const pay = tool({ inputSchema: order, execute: ({ order }) => order })
    const model = scriptedModel({ turns: [calls(['research', {}], ['pay', { order: '1' }]), says('done')] })
    const toolApproval = { pay: () => speaks.promise.then(() => 'user-approval' as const) }
    const hf = await scene.open()
    const chat = chatWorkflow({ name: 'support', agent: { model, tools: { research, pay }, toolApproval } })
    const { POST } = chatHandler(hf, chat, { authorize })
    const seen: unknown[] = []
    for await (const { chunk } of eventsOf(await POST(post({ id: 'c1', messages: [userMessage('go')] })))) {
      seen.push(chunk['delta'] ?? chunk.type)
      if (chunk.type !== 'tool-approval-request') continue
      await requests(hf.as('alice'), 1)
      asked.open()
    }
    expect(seen.join(' ')).toMatch(/tool-approval-request.*story.*finish$/)
  })

  it('is for the agent that asked, where two agents of one run ask about calls with one id', async () => {
    const paid: string[] = []
    const research = withContext(
      tool({
        inputSchema: order,
        execute: async ({ order: which }, options) => {
          const model = scriptedModel({ turns: [calls(['pay', { order: which }, 'call_0']), says('paid')] })
          const pay = tool({
            inputSchema: order,
            execute: ({ order }) => {
              paid.push(order)
              return order
            },
          })
          const settings = { model, tools: { pay }, toolApproval: { pay: 'user-approval' as const } }
          return (await runAgent(durableCall(options).ctx, settings, { prompt: `Pay ${which}`, stream: 'ui' })).text
        },
      }),
    )
    const model = scriptedModel({ turns: [calls(['research', { order: '1' }], ['research', { order: '2' }]), says('done')] })
    const chat = chatWorkflow({ name: 'support', agent: { model, tools: { research } } })
    const hf = await scene.open()
    const { POST } = chatHandler(hf, chat, { authorize })
    const reading = await POST(post({ id: 'c1', messages: [userMessage('go')] }))
    const asked = await requests(hf.as('alice'), 2)
    const second = asked.find(({ input }) => (input as { order: string }).order === '2')
    if (second === undefined) throw new Error('nobody was asked')
    await (await POST(post({ id: 'c1', messages: [answerTo(second)] }))).body?.cancel()
    await vi.waitUntil(() => paid.length === 1)
    expect(paid).toEqual(['2'])
    const [first] = await requests(hf.as('alice'), 1)
    if (first === undefined) throw new Error('nobody was asked')
    await (await POST(post({ id: 'c1', messages: [answerTo(first)] }))).body?.cancel()
    await vi.waitUntil(async () => (await hf.as('alice').runs.list({ status: 'completed' })).items.length === 1)
    expect((await chunksOf(reading)).at(-1)).toBe('finish')
    expect(paid).toEqual(['2', '1'])
  })
})

onEveryStore('a chat', (scene) => {
  it('is stopped while a tool is at work that never ends', async () => {
    let asked = 0
    const atWork = gate()
    const wait = tool({
      inputSchema: z.object({}),
      execute: () => {
        atWork.open()
        return new Promise<string>(() => {})
      },
    })
    const model = scriptedModel({ turns: [{ text: 'Wait.', ...calls(['wait', {}]) }, says('never')], before: () => asked++ })
    const hf = await scene.open()
    const { POST, DELETE } = chatHandler(hf, chatWorkflow({ name: 'slow', agent: { model, tools: { wait } } }), { authorize })
    const reading = await POST(post({ id: 'c1', messages: [userMessage('go')] }))
    await atWork.promise
    expect((await DELETE(stopOf('c1'))).status).toBe(204)
    expect((await chunksOf(reading)).at(-1)).toBe('abort')
    const answer = (await messagesOf(hf.as('alice'), 'c1')).at(-1)
    expect([answer?.metadata, answer?.parts.at(-1)]).toMatchObject([{ aborted: true }, { state: 'output-error' }])
    expect(asked).toBe(1)
  })

  it('replaces what follows an edited message, also where that was compacted away or stopped before its turn', async () => {
    const model = scriptedModel({
      turns: (prompt) => says(`answer ${prompt.map(({ content }) => (content[0] as { text: string }).text).join(' ')}`),
    })
    const chat = chatWorkflow({ name: 'short', compact: keepLast(3), agent: { model } })
    const hf = await scene.open()
    const { handle } = chatHandler(hf, chat, { authorize })
    const page = new ChatPage('c1', handle, { headers: alice })
    for (const text of ['one', 'two', 'three', 'four']) await page.sendMessage({ text })
    expect((await messagesOf(hf.as('alice'), 'c1')).length).toBe(4)
    const [, , second] = page.messages
    await page.sendMessage({ text: 'another two', messageId: second?.id ?? '' })
    expect(page.shown).toBe('[step-start] answer another two')
    expect((await messagesOf(hf.as('alice'), 'c1')).map(textOf)).toEqual(['another two', 'step-start answer another two'])
    page.messages = [...page.messages, userMessage('stopped')]
    await page.sendMessage({ text: 'said again', messageId: 'stopped' })
    expect((await messagesOf(hf.as('alice'), 'c1')).length).toBe(4)
  })

  it('does not reach what another workflow keeps under an id of the same owner', async () => {
    const profile = workflow(
      { name: 'profile', state: state({ version: 1, initial: () => ({ name: 'Alice' }) }) },
      async (ctx) => ctx.state.name,
    )
    const plain = workflow('plain', async () => 1)
    const hf = await scene.open({ workflows: [profile, plain] })
    const client = hf.as('alice')
    await client.thread('p').run(profile)
    await client.run(plain, undefined, { id: 'r' })
    const chat = chatWorkflow({ name: 'support', agent: { model: scriptedModel({ turns: [says('Hello.')] }) } })
    const { POST, GET, DELETE } = chatHandler(hf, chat, { authorize })
    for (const id of ['p', 'r']) {
      expect(await codeOf(await POST(post({ id, messages: [userMessage('hi')] })))).toEqual([409, 'conflict'])
      expect(await codeOf(await GET(new Request(`http://page/chat/${id}`, { headers: alice })))).toEqual([404, 'run_not_found'])
      expect(await codeOf(await DELETE(stopOf(id)))).toEqual([404, 'run_not_found'])
    }
    expect(await codeOf(await GET(resume('p', '?message=r')))).toEqual([404, 'run_not_found'])
    expect(await client.thread('p').state()).toEqual({ name: 'Alice' })
    expect((await client.runs.list()).items.length).toBe(2)
  })

  it('refuses a message that could not be kept, or would fail every later answer', async () => {
    const chat = chatWorkflow({ name: 'support', agent: { model: scriptedModel({ turns: [says('Hello.')] }) } })
    const hf = await scene.open()
    const { POST } = chatHandler(hf, chat, { authorize })
    const nested = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`
    const sent = (metadata: string) =>
      `{"id":"c1","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"x"}],"metadata":${metadata}}]}`
    const request = (body: string) =>
      new Request('http://page/chat', { method: 'POST', body, headers: { ...alice, 'content-type': 'application/json' } })
    for (const levels of [2_000, 100_000])
      expect(await codeOf(await POST(request(sent(nested(levels)))))).toEqual([400, 'value_not_storable'])
    for (const url of ['none', 'data:image/png', 'file:///etc/passwd', 'http://[']) {
      const message = { id: 'm', role: 'user', parts: [{ type: 'file', mediaType: 'image/png', url }] }
      expect(await codeOf(await POST(post({ id: 'c1', messages: [message] })))).toEqual([400, 'invalid_input'])
    }
    expect((await hf.as('alice').runs.list()).items).toEqual([])
    for (const messages of [{}, [null, 1], 'x']) {
      const edit = post({ id: 'c2', message: userMessage('hi', `m${typeof messages}`), messages, messageId: 'none' })
      expect((await chunksOf(await POST(edit))).at(-1)).toBe('finish')
    }
    // Odd, and kept as it is.
    const odd = 'a\u0000b \ud83d\ude00 \ud800'
    expect((await chunksOf(await POST(post({ id: 'c1', messages: [userMessage(odd, 'm')] })))).at(-1)).toBe('finish')
    expect(textOf((await messagesOf(hf.as('alice'), 'c1'))[0])).toBe(odd)
  })
})

test.each([['that says how long it is'], ['that does not say how long it is']])(
  'a body of 100 MB %s is refused over a socket, and the server goes on',
  async (which) => {
    const chat = chatWorkflow({ name: 'support', agent: { model: scriptedModel({ turns: [says('Hello.')] }) } })
    await using hf = await open('memory:', { workflows: [chat], logger: false })
    const server = createServer(toNodeHandler(chatHandler(hf, chat, { authorize }).handle))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => {
      server.closeAllConnections()
      server.close()
    })
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/chat`
    const headers = { ...alice, 'content-type': 'application/json' }
    const megabyte = Buffer.alloc(1_000_000, ' ')
    const stream = ReadableStream.from(Array.from({ length: 100 }, () => megabyte))
    const body = which === 'that says how long it is' ? Buffer.alloc(100_000_000, ' ') : stream
    const refused = await fetch(url, { method: 'POST', headers, body, duplex: 'half' } as RequestInit)
    expect(await codeOf(refused)).toEqual([413, 'value_too_large'])
    const taken = await fetch(url, {
      method: 'POST',
      headers,
      body: JSON.stringify({ id: 'c1', messages: [userMessage('hi')] }),
    })
    expect(await taken.text()).toContain('Hello.')
  },
)

test('a handler for node:http takes the body that a parser before it has read', async () => {
  const chat = chatWorkflow({ name: 'support', agent: { model: scriptedModel({ turns: [says('Hello.')] }) } })
  await using hf = await open('memory:', { workflows: [chat], logger: false })
  const handle = toNodeHandler(chatHandler(hf, chat, { authorize }).handle)
  const server = createServer(async (request, response) => {
    // What express.json() does.
    const pieces: Uint8Array[] = []
    for await (const piece of request) pieces.push(piece)
    Object.assign(request, { body: JSON.parse(Buffer.concat(pieces).toString()) })
    await handle(request, response)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/chat`
  const body = JSON.stringify({ id: 'c1', messages: [userMessage('hi')] })
  const answer = await fetch(url, { method: 'POST', headers: { ...alice, 'content-type': 'application/json' }, body })
  expect(await answer.text()).toContain('Hello.')
})
