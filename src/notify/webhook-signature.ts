import { createHmac, timingSafeEqual } from 'node:crypto'
import { HoldfastError } from '../model/errors.ts'

/** Signatures as in Standard Webhooks 1.0: HMAC-SHA256 over id, time and body. */
const version = 'v1'
const secretPrefix = 'whsec_'
/** The shortest secret that can't be guessed. */
const minSecretBytes = 24

export interface Signed {
  readonly id: string
  /** Seconds since 1970. */
  readonly timestamp: string
  readonly body: string | Uint8Array
}

/** The bytes of a secret. Refused with `invalid_input`, without repeating it. */
export function readSecret(secret: unknown): Buffer {
  const text = typeof secret === 'string' && secret.startsWith(secretPrefix) ? secret.slice(secretPrefix.length) : ''
  const bytes = Buffer.from(text, 'base64')
  if (bytes.length >= minSecretBytes && /^[A-Za-z0-9+/]+={0,2}$/.test(text)) return bytes
  throw new HoldfastError(
    'invalid_input',
    `The secret of a webhook is "${secretPrefix}" and then at least ${minSecretBytes} random bytes in base64: ` +
      `'${secretPrefix}' + randomBytes(32).toString('base64').`,
  )
}

export function sign(secret: Buffer, { id, timestamp, body }: Signed): string {
  return `${version},${createHmac('sha256', secret).update(`${id}.${timestamp}.`).update(body).digest('base64')}`
}

/** Whether one of the signatures in the header was made with one of the secrets. In constant time. */
export function isSigned(secrets: readonly Buffer[], signatures: string, signed: Signed): boolean {
  const given = signatures.split(' ').map((signature) => Buffer.from(signature))
  return secrets.some((secret) => {
    const expected = Buffer.from(sign(secret, signed))
    return given.some((signature) => signature.length === expected.length && timingSafeEqual(signature, expected))
  })
}
