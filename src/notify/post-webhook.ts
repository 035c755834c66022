import type { Notification } from '../model/notification.ts'
import { sign } from './webhook-signature.ts'

/** A webhook that is ready to be used. */
export interface CheckedWebhook {
  readonly url: URL
  readonly secrets: readonly Buffer[]
  readonly headers: Headers
  readonly timeoutMs: number
}

/** The receiver refuses this message for good. */
export class WebhookRefused extends Error {
  override readonly name = 'WebhookRefused'
  readonly status: number

  constructor(target: string, status: number) {
    super(`Webhook "${target}" answered ${status}: it refuses this message. Fix the receiver, then retry the run.`)
    this.status = status
  }
}

/**
 * Sends a message with a fresh signature. Resolves to the status of a receiver that accepted it. Errors contain neither the URL nor the
 * host, because these may be secrets and errors are stored.
 */
export async function postWebhook(
  target: string,
  { url, secrets, headers: given }: CheckedWebhook,
  message: Notification,
  signal: AbortSignal,
): Promise<number> {
  const body = JSON.stringify(message)
  const timestamp = String(Math.floor(Date.now() / 1_000))
  const headers = new Headers(given)
  headers.set('content-type', 'application/json')
  headers.set('webhook-id', message.id)
  headers.set('webhook-timestamp', timestamp)
  if (secrets.length > 0) {
    const signed = { id: message.id, timestamp, body }
    headers.set('webhook-signature', secrets.map((secret) => sign(secret, signed)).join(' '))
  }
  // A redirect could lead to a receiver that was not configured.
  const response = await fetch(url, { method: 'POST', body, headers, redirect: 'manual', signal }).catch((error: unknown) => {
    throw signal.aborted ? error : new Error(`Webhook "${target}" could not be reached (${reasonOf(error)}).`)
  })
  await response.body?.cancel()
  if (response.ok) return response.status
  if (isFinal(response.status)) throw new WebhookRefused(target, response.status)
  throw new Error(`Webhook "${target}" answered ${response.status}.`)
}

/** Client errors are final, except those that mean: later. */
function isFinal(status: number): boolean {
  return status >= 400 && status < 500 && status !== 408 && status !== 429
}

function reasonOf(error: unknown): string {
  const { code } = ((error as Error).cause ?? error) as { code?: unknown }
  return typeof code === 'string' ? code : 'no answer'
}
