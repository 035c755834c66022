import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { type Notification, open, verifyWebhook, workflow } from 'holdfast'

const secret = `whsec_${randomBytes(32).toString('base64')}`
const mails: string[] = []
const sendMail = async (subject: string) => void mails.push(subject)
const seen = new Set<string>()
const handled: Notification[] = []

// #region receive
const receiver = createServer(async (request, response) => {
  try {
    const body = await text(request) // of node:stream/consumers: what came, byte for byte
    const message = verifyWebhook(request.headers, body, secret) // throws unless it was signed in the last 5 minutes
    if (!seen.has(message.id)) handled.push(message) // a message may come twice, with one id
    seen.add(message.id)
    response.writeHead(204).end()
  } catch {
    response.writeHead(401).end()
  }
})
// #endregion
receiver.listen(0, '127.0.0.1')
await once(receiver, 'listening')
const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/holdfast`

const refund = workflow('refund', (ctx, order: string) =>
  ctx.ask('approve', { question: `Refund order ${order}?`, to: 'finance' }),
)
const broken = workflow({ name: 'broken', retry: { attempts: 1 } }, (ctx) =>
  ctx.step('load', () => Promise.reject(new Error('no such file'))),
)

// #region targets
const hf = await open('memory:', {
  workflows: [refund, broken],
  notify: [
    { name: 'desk', on: ['waiting_for_person', 'failed'], webhook: { url, secret } },
    {
      name: 'mail',
      on: ['failed', 'poisoned'],
      deliver: (message) => sendMail(`${message.workflow} ${message.kind} at ${message.step}`),
    },
  ],
})
// #endregion
const run = await hf.start(refund, '4711', { id: 'refund-4711' })
await hf.start(broken)
while (handled.length < 2 || mails.length < 1) await new Promise((resolve) => setTimeout(resolve, 10))

const message = handled.find(({ kind }) => kind === 'waiting_for_person')
assert.ok(message?.step !== undefined && message.questionId !== undefined)
assert.deepEqual([message.question, message.to, message.actions], ['Refund order 4711?', 'finance', ['answer', 'cancel']])
// #region answer
await hf.answer(message.runId, message.step, true, { id: message.questionId, by: 'dana' })
// #endregion
assert.equal(await run.result(), true)
assert.deepEqual(mails, ['broken failed at load'])

// #region undelivered
const { items } = await hf.runs.list({ workflow: 'holdfast.notify/desk', status: 'failed' })
for (const { id } of items) await (await hf.runs.get(id)).retry()
// #endregion
assert.equal(items.length, 0)
await hf.close()
receiver.closeAllConnections()
receiver.close()
