import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { open, workflow } from 'holdfast'
import OpenAI from 'openai'
import { model } from '../plain-sdk/model.ts'

// Stands for the provider.
const server = createServer((_, response) => {
  const message = { role: 'assistant', content: 'Hello Alice.' }
  const answer = { id: '1', object: 'chat.completion', choices: [{ index: 0, finish_reason: 'stop', message }] }
  response.writeHead(200, { 'content-type': 'application/json' })
  response.end(JSON.stringify({ ...answer, usage: { prompt_tokens: 7, completion_tokens: 3 } }))
})
await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
const baseURL = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`

// #region loop
const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 }) // the step retries

const greet = workflow('greet', async (ctx, name: string) => {
  const request = { model: 'gpt-6-astra', messages: [{ role: 'user' as const, content: `I am ${name}.` }] }
  const answer = await model(ctx, 'model', request, (request, step) =>
    client.chat.completions.create(request, { signal: step.signal }),
  )
  return answer.choices[0]?.message.content
})
// #endregion

const hf = await open('sqlite:plain.db', { workflows: [greet] })
const run = await hf.start(greet, 'Alice')
assert.equal(await run.result(), 'Hello Alice.')
assert.equal((await run.info()).usage.tokens, 10)
await hf.close()
server.close()
