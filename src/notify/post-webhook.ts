import type { Notification } from '../model/notification.ts'
import { sign } from './webhook-signature.ts'

/** A webhook that is ready to be used. */
export interface CheckedWebhook {
  readonly url: URL
  readonly secrets: readonly Buffer[]
  readonly headers: Headers
  readonly timeoutMs: number
}

/** The receiver will not have this message, however often it is sent. */
export class WebhookRefused extends Error {
  override readonly name = 'WebhookRefused'
  readonly status: number

  constructor(target: string, status: number) {
    super(`Webhook "${target}" answered ${status}: it does not take this message. Mend the receiver, then retry the run.`)
    this.status = status
  }
}

/**
 * Sends a message, signed now. Resolves to the status of a receiver that took it. Errors name neither the URL nor the host, which may be
 * secrets: they are kept in the store.
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
  // A redirect leads to where nobody said that messages may go.
  const response = await fetch(url, { method: 'POST', body, headers, redirect: 'manual', signal }).catch((error: unknown) => {
    throw signal.aborted ? error : new Error(`Webhook "${target}" could not be reached (${reasonOf(error)}).`)
  })
  await response.body?.cancel()
  if (response.ok) return response.status
  if (isFinal(response.status)) throw new WebhookRefused(target, response.status)
  throw new Error(`Webhook "${target}" answered ${response.status}.`)
}

/** Client errors stay, those aside that say: later. */
function isFinal(status: number): boolean {
  return status >= 400 && status < 500 && status !== 408 && status !== 429
}

function reasonOf(error: unknown): string {
  const { code } = ((error as Error).cause ?? error) as { code?: unknown }
  return typeof code === 'string' ? code : 'no answer'
}
