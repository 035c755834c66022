import { expect, test } from 'vitest'
import { verifyWebhook } from './verify-webhook.ts'
import { readSecret, sign } from './webhook-signature.ts'

const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`
const body = '{"id":"msg_1","kind":"failed"}'

function headersAt(ageMs: number) {
  const timestamp = String(Math.floor((Date.now() - ageMs) / 1_000))
  return {
    'webhook-id': 'msg_1',
    'webhook-timestamp': timestamp,
    'webhook-signature': sign(readSecret(secret), { id: 'msg_1', timestamp, body }),
  }
}

test('a request that was signed is read, whatever holds its headers and body', () => {
  const message = { id: 'msg_1', kind: 'failed' }
  expect(verifyWebhook(headersAt(0), body, secret)).toEqual(message)
  expect(verifyWebhook(new Headers(headersAt(0)), Buffer.from(body), secret)).toEqual(message)
  const capitals = Object.fromEntries(Object.entries(headersAt(240_000)).map(([name, value]) => [name.toUpperCase(), [value]]))
  expect(verifyWebhook(capitals, body, [`whsec_${'A'.repeat(32)}`, secret])).toEqual(message)
})

test.each([
  ['more than 5 minutes old', headersAt(310_000), body],
  ['more than 5 minutes ahead', headersAt(-310_000), body],
  ['with another body', headersAt(0), `${body} `],
  ['with another id', { ...headersAt(0), 'webhook-id': 'msg_2' }, body],
  ['with a time that is none', { ...headersAt(0), 'webhook-timestamp': 'now' }, body],
  ['without a signature', { ...headersAt(0), 'webhook-signature': undefined }, body],
  ['with an empty signature', { ...headersAt(0), 'webhook-signature': '' }, body],
])('a request %s is access_denied', (_, headers, given) => {
  expect(() => verifyWebhook(headers, given, secret)).toThrow(expect.objectContaining({ code: 'access_denied' }))
})

test('without a secret that can be one nothing is verified', () => {
  expect(() => verifyWebhook(headersAt(0), body, '')).toThrow(expect.objectContaining({ code: 'invalid_input' }))
  expect(() => verifyWebhook(headersAt(0), body, [])).toThrow(expect.objectContaining({ code: 'access_denied' }))
})
