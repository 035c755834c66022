import { HoldfastError } from '../model/errors.ts'
import type { Notification } from '../model/notification.ts'
import { isSigned, readSecret } from './webhook-signature.ts'

/** How old, or how far ahead of this machine's clock, a request may be. */
const toleranceMs = 5 * 60_000

/** The headers of a request: of `node:http`, or as `fetch` has them. */
export type WebhookHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>

/**
 * For the receiver of a webhook: verifies the signature of a request and returns its message. `body` is the request's body, byte for byte.
 * Throws `access_denied` unless it was signed with one of the secrets in the last 5 minutes.
 */
export function verifyWebhook(
  headers: WebhookHeaders,
  body: string | Uint8Array,
  secret: string | readonly string[],
): Notification {
  const secrets = (typeof secret === 'string' ? [secret] : secret).map(readSecret)
  const id = headerOf(headers, 'webhook-id')
  const timestamp = headerOf(headers, 'webhook-timestamp')
  const signatures = headerOf(headers, 'webhook-signature')
  if (id === undefined || timestamp === undefined || signatures === undefined)
    throw denied('it lacks webhook-id, webhook-timestamp or webhook-signature')
  if (!/^\d{1,12}$/.test(timestamp) || Math.abs(Date.now() - Number(timestamp) * 1_000) > toleranceMs)
    throw denied('it is older than 5 minutes, or the clocks differ')
  if (!isSigned(secrets, signatures, { id, timestamp, body })) throw denied('its signature is not that of the secret')
  return JSON.parse(typeof body === 'string' ? body : Buffer.from(body).toString('utf8')) as Notification
}

function headerOf(headers: WebhookHeaders, name: string): string | undefined {
  if (typeof headers.get === 'function') return (headers as Headers).get(name) ?? undefined
  const found = Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1]
  return Array.isArray(found) ? found.join(' ') : (found as string | undefined)
}

function denied(why: string): HoldfastError {
  return new HoldfastError('access_denied', `This webhook request can't be trusted: ${why}. Respond with 401 and do nothing.`)
}
