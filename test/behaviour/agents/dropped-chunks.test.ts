import { readUIMessageStream, tool, type UIMessage, type UIMessageChunk } from 'ai'
import { type Holdfast, type RunHandle, workflow } from 'holdfast'
import { type ChatState, chatHandler, chatWorkflow, runAgent, uiStream } from 'holdfast/ai'
import { expect, it, vi } from 'vitest'
import { z } from 'zod'
import { gate } from '../runs.ts'
import { onEveryStore } from '../stores.ts'
import { ChatPage } from './chat-page.ts'
import { alice, authorize, chunksOf, eventsOf, messagesOf, type ServerEvent, userMessage } from './chat-requests.ts'
import { calls, says, scriptedModel } from './scripted-model.ts'

const lookUp = tool({ inputSchema: z.object({ order: z.string() }), execute: async ({ order }) => ({ order, amount: 40 }) })
const fails = tool({
  inputSchema: z.object({ why: z.string() }),
  execute: async ({ why }): Promise<string> => {
    throw new Error(why)
  },
})
const chat = chatWorkflow({
  name: 'chat',
  agent: {
    model: scriptedModel({
      turns: [
        { text: 'Let me look.', ...calls(['lookUp', { order: '4711' }], ['fails', { why: 'Out of order.' }]) },
        { text: 'Once more.', ...calls(['lookUp', { order: '1' }, 'again'], ['nothing', {}]) },
        says('It was forty.'),
      ],
    }),
    tools: { lookUp, fails },
  },
  toolOptions: { retry: { attempts: 1 } },
})

const ask = (hf: Holdfast, text: string) => hf.thread('c').start(chat, { message: userMessage(text) })

async function isDropped(run: RunHandle): Promise<boolean> {
  try {
    for await (const _ of run.stream('ui')) return false
    return false
  } catch (error) {
    expect(error).toMatchObject({ code: 'pruned', details: { runId: run.id, stream: 'ui' } })
    return true
  }
}

const dropped = (run: RunHandle) => vi.waitUntil(() => isDropped(run), { timeout: 15_000, interval: 10 })

/** What a page shows that has got these events. */
async function shown(events: readonly ServerEvent[]): Promise<UIMessage | undefined> {
  const stream = ReadableStream.from(events.map(({ chunk }) => chunk)) as ReadableStream<UIMessageChunk>
  let message: UIMessage | undefined
  for await (const next of readUIMessageStream({ stream })) message = next
  return message === undefined ? undefined : (JSON.parse(JSON.stringify(message)) as UIMessage)
}

async function all(response: Response): Promise<ServerEvent[]> {
  const events: ServerEvent[] = []
  for await (const event of eventsOf(response)) events.push(event)
  return events
}

onEveryStore('the chunks of an answer that is complete', (scene) => {
  it('are dropped once two more answers have begun, and the message is served from the state, the same', async () => {
    const hf = await scene.open({ workflows: [chat] })
    const first = await ask(hf, 'first')
    await first.result()
    const before = await shown(await all(uiStream(first)))
    expect(await isDropped(first)).toBe(false)
    await (await ask(hf, 'second')).result()
    expect(await isDropped(first)).toBe(false)
    await (await ask(hf, 'third')).result()
    await dropped(first)
    const events = await all(uiStream(first))
    expect(events.every(({ id }) => id === undefined)).toBe(true)
    const message = (await messagesOf(hf, 'c')).find(({ id }) => id === first.id)
    expect(message?.parts.length).toBe(10)
    expect(await shown(events)).toEqual(message)
    expect(before).toEqual(message)
    expect(events.map(({ chunk }) => chunk.type).filter((type) => /step|start$|finish/.test(type))).toEqual([
      ...[
        'start',
        'start-step',
        'text-start',
        'finish-step',
        'start-step',
        'text-start',
        'finish-step',
        'start-step',
        'text-start',
      ],
      ...['finish-step', 'finish'],
    ])
  })

  it('are not needed by a page that comes back: it gets the whole message once, also at an offset', async () => {
    const hf = await scene.open({ workflows: [chat] })
    const handle = chatHandler(hf, chat, { authorize })
    const page = new ChatPage('c', (request) => (request.method === 'POST' ? handle.POST(request) : handle.GET(request)), {
      headers: alice,
    })
    await page.sendMessage({ text: 'first' })
    const id = page.messages.at(-1)?.id as string
    await page.sendMessage({ text: 'second' })
    await page.sendMessage({ text: 'third' })
    const first = await hf.as('alice').runs.get(id)
    await dropped(first)
    const message = (await messagesOf(hf.as('alice'), 'c')).find((one) => one.id === id)
    const comeBack = (from: number) =>
      handle.GET(new Request(`http://page/chat/c/stream?message=${id}&from=${from}`, { headers: alice }))
    expect(await shown(await all(await comeBack(0)))).toEqual(message)
    for (const from of [1, 3, 7, 1_000]) {
      const text = await (await comeBack(from)).text()
      const [start, ...rest] = text.split('event: replay\n')
      expect(start).toContain('"type":"start"')
      expect(rest.length).toBe(1)
      // What came before the replay is forgotten.
      expect(await shown(await all(new Response(rest[0])))).toEqual(message)
    }
  })

  it('are complete for a reader that is in the middle of them: no word twice, and none missing', async () => {
    const more = gate()
    const answer = 'one two three four five six seven'
    const told = chatWorkflow({
      name: 'told',
      agent: {
        model: scriptedModel({
          turns: () => says(answer),
          beforeChunk: (chunk, call) => (call === 1 && chunk === 6 ? more.promise : undefined),
        }),
      },
    })
    const hf = await scene.open({ workflows: [told] })
    const first = await hf.thread('c').start(told, { message: userMessage('first') })
    const reader = eventsOf(uiStream(first))
    const events: ServerEvent[] = []
    const read = async () => events.push((await reader.next()).value as ServerEvent)
    // Up to the first word; what it reads no further stays where it is.
    for (let i = 0; i < 4; i++) await read()
    expect(events.at(-1)?.chunk).toMatchObject({ type: 'text-delta', delta: 'one ' })
    more.open()
    await first.result()
    for (const text of ['second', 'third']) await hf.thread('c').run(told, { message: userMessage(text) })
    await dropped(first)
    for await (const event of reader) events.push(event)
    expect(events.map(({ chunk }) => chunk.type)).toContain('reset-step')
    expect(events.at(-1)?.chunk.type).toBe('finish')
    expect(await shown(events)).toMatchObject({ id: first.id, parts: [{ type: 'step-start' }, { type: 'text', text: answer }] })
  })

  it('stay where they are all that there is: of a stopped answer, and of workflows that do not say so', async () => {
    const told = gate()
    const stopped = chatWorkflow({
      name: 'stopped',
      agent: {
        model: scriptedModel({
          turns: () => says('one two three'),
          beforeChunk: (chunk, call) => (call === 1 && chunk === 4 ? told.promise : undefined),
        }),
      },
    })
    const agent = workflow('agent', async (ctx) => {
      const model = scriptedModel({ turns: [says('hello')] })
      return (await runAgent(ctx, { model }, { prompt: 'Speak', stream: 'ui' })).text
    })
    const hf = await scene.open({ workflows: [stopped, agent] })
    const plain = await hf.thread('a').start(agent)
    await plain.result()
    for (let i = 0; i < 3; i++) await hf.thread('a').run(agent)
    const first = await hf.thread('c').start(stopped, { message: userMessage('first') })
    for await (const { chunk } of eventsOf(uiStream(first))) if (chunk.type === 'text-delta') break
    await first.cancel({ undo: false })
    told.open()
    const second = await hf.thread('c').start(stopped, { message: userMessage('second') })
    await second.result()
    for (const text of ['third', 'fourth']) await hf.thread('c').run(stopped, { message: userMessage(text) })
    await dropped(second)
    expect(await isDropped(first)).toBe(false)
    expect(await isDropped(plain)).toBe(false)
    expect(await chunksOf(uiStream(plain))).toContain('hello')
  })

  it('are read on behind what was dropped: an answer at an offset that is no longer there is pruned', async () => {
    const hf = await scene.open({ workflows: [chat] })
    const first = await ask(hf, 'first')
    await first.result()
    const offsets: number[] = []
    for await (const { offset } of first.stream('ui')) offsets.push(offset)
    await (await ask(hf, 'second')).result()
    expect(await isDropped(first)).toBe(false)
    await (await ask(hf, 'third')).result()
    await dropped(first)
    const length = offsets.length
    const readFrom = async (from: number) => {
      for await (const _ of first.stream('ui', { from })) throw new Error('There is a chunk')
    }
    await expect(readFrom(length - 1)).rejects.toMatchObject({ code: 'pruned', details: { from: length } })
    await expect(readFrom(length)).resolves.toBeUndefined()
    expect((await first.state<ChatState>()).messages.map(({ role }) => role)).toEqual(['user', 'assistant'])
    expect((await hf.verify()).isSound).toBe(true)
  })
})
