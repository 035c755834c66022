import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { open, type StreamItem, workflow } from 'holdfast'

let calls = 0
/** Stands for a model: it hangs up in the middle the first time. */
async function* askModel(question: string, signal: AbortSignal): AsyncGenerator<string> {
  calls++
  for (const token of `You asked: ${question} The answer is 42.`.split(/(?<= )/)) {
    if (calls === 1 && token === 'answer ') throw new Error('connection reset')
    await sleep(10, undefined, { signal })
    yield token
  }
}

// #region write
const chat = workflow('chat', async (ctx, question: string) => {
  return await ctx.step(
    'answer',
    async (step) => {
      const tokens = step.stream('tokens')
      let answer = ''
      for await (const token of askModel(question, step.signal)) {
        await tokens.write(token)
        answer += token
      }
      return answer
    },
    { retry: { minMs: 100 } },
  )
})
// #endregion

const hf = await open('sqlite:streaming.db', { workflows: [chat] })

// #region serve
async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const gone = new AbortController()
  response.on('close', () => gone.abort())
  const run = await hf.runs.get((request.url ?? '').slice('/runs/'.length))
  const last = request.headers['last-event-id'] // a browser sends it when it comes back
  const from = last === undefined ? 0 : Number(last) + 1
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  for await (const item of run.stream<string>('tokens', { from, signal: gone.signal })) {
    response.write(`id: ${item.offset}\ndata: ${JSON.stringify(item)}\n\n`)
  }
  response.end('event: end\ndata: {}\n\n')
}
const server = createServer((request, response) => {
  serve(request, response).catch(() => response.destroy())
})
// #endregion

// #region show
const parts = new Map<string, string>()

/** The text to show after the next item. */
function show({ part, chunk = '', isAborted }: StreamItem<string>): string {
  if (isAborted) parts.delete(part)
  else parts.set(part, (parts.get(part) ?? '') + chunk)
  return [...parts.values()].join('')
}
// #endregion

// A page that loses its connection after three tokens and comes back, as an EventSource does.
server.listen(0)
await once(server, 'listening')
const { port } = server.address() as AddressInfo
const run = await hf.start(chat, 'why?', { id: 'why' })

const seen: StreamItem<string>[] = []
let shown = ''
async function listen(until: number): Promise<void> {
  const last = seen.at(-1)
  const headers: Record<string, string> = last === undefined ? {} : { 'last-event-id': String(last.offset) }
  const response = await fetch(`http://localhost:${port}/runs/why`, { headers })
  let text = ''
  for await (const bytes of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += Buffer.from(bytes).toString()
    const events = text.split('\n\n')
    text = events.pop() ?? ''
    for (const event of events) {
      const data = event.split('\n').find((line) => line.startsWith('data: '))
      if (event.startsWith('event: end') || data === undefined) return
      const item = JSON.parse(data.slice('data: '.length)) as StreamItem<string>
      seen.push(item)
      shown = show(item)
      if (seen.length >= until) return
    }
  }
}
await listen(3)
await listen(Number.POSITIVE_INFINITY)

assert.equal(shown, await run.result())
assert.equal(shown, 'You asked: why? The answer is 42.')
assert.deepEqual(
  seen.map(({ offset }) => offset),
  seen.map((_, index) => index),
)
assert.ok(seen.some(({ isAborted }) => isAborted))
server.closeAllConnections()
server.close()
await hf.close()
