import { expect, test } from 'vitest'
import { isSigned, readSecret, sign } from './webhook-signature.ts'

const secret = readSecret('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw')
const signed = { id: 'msg_p5jXN8AQM9LWM0D4loKWxJek', timestamp: '1614265330', body: '{"test": 2432232314}' }
const signature = 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='

test('signatures are those of Standard Webhooks', () => {
  expect(sign(secret, signed)).toBe(signature)
  expect(sign(secret, { ...signed, body: Buffer.from(signed.body) })).toBe(signature)
})

test('one of several signatures by one of several secrets is enough', () => {
  const other = readSecret(`whsec_${Buffer.alloc(32, 1).toString('base64')}`)
  expect(isSigned([other, secret], `v1a,abc ${signature} v1,x`, signed)).toBe(true)
  expect(isSigned([other], signature, signed)).toBe(false)
  expect(isSigned([], signature, signed)).toBe(false)
})

test.each([{ id: 'msg_other' }, { timestamp: '1614265331' }, { body: '{"test": 2432232315}' }])(
  'a signature is of all that was sent: %o',
  (changed) => {
    expect(isSigned([secret], signature, { ...signed, ...changed })).toBe(false)
  },
)

test.each(['', 'whsec_', 'whsec_c2hvcnQ=', 'MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', `whsec_${'!'.repeat(40)}`, 7, undefined])(
  'a secret that is none is refused: %o',
  (given) => {
    expect(() => readSecret(given)).toThrow(expect.objectContaining({ code: 'invalid_input' }))
  },
)
