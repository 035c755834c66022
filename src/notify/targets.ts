import type { OutboxTarget } from '../engine/writing/outbox.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'
import { type Notification, type NotificationKind, notificationKinds } from '../model/notification.ts'
import { type RetryOptions, retryPolicy } from '../model/retry.ts'
import type { CheckedWebhook } from './post-webhook.ts'
import { readSecret } from './webhook-signature.ts'

/** Receives a message. If it throws or rejects, it is called again later. `signal` aborts after 60 s. */
export type NotifyFunction = (
  message: Notification,
  delivery: { readonly attempt: number; readonly signal: AbortSignal },
) => Promise<void> | void

/** Where messages are posted. None of this is stored. */
export interface Webhook {
  readonly url: string
  /** `whsec_` and at least 24 random bytes in base64. Two of them during a rotation: both sign every message. */
  readonly secret?: string | readonly string[]
  /** Additional headers, such as `authorization`. */
  readonly headers?: Readonly<Record<string, string>>
  /** Time limit for the receiver's response, in ms. Default 10,000. */
  readonly timeoutMs?: number
}

/** A receiver of notifications, and which of them it gets. */
export interface NotifyTarget {
  /** Must be the same in every process. */
  readonly name: string
  /** Which notifications it gets. Default all. */
  readonly on?: readonly NotificationKind[]
  readonly webhook?: Webhook
  readonly deliver?: NotifyFunction
  /** When a failed delivery is retried. Default 200 attempts, 1 s × 2 up to 30 min: about two days. */
  readonly retry?: RetryOptions
}

const webhookNames: OptionNames<Webhook> = { url: true, secret: true, headers: true, timeoutMs: true }
const targetNames: OptionNames<NotifyTarget> = { name: true, on: true, webhook: true, deliver: true, retry: true }

/** One target, several, or just a function: a target named `default` that gets all notifications. */
export type NotifyOption = NotifyFunction | NotifyTarget | readonly (NotifyFunction | NotifyTarget)[]

/** A target whose options were checked. */
export interface CheckedTarget extends OutboxTarget {
  readonly retry: RetryOptions
  readonly receiver: CheckedWebhook | NotifyFunction
}

const defaultRetry: RetryOptions = { attempts: 200, minMs: 1_000, maxMs: 30 * 60_000, factor: 2, jitter: true }
/** It is part of ids, which are at most 512 bytes. */
const maxNameBytes = 256

/** The targets in an option of `open`. Refused with `invalid_input`, without repeating URLs and secrets. */
export function readTargets(option: NotifyOption | undefined): CheckedTarget[] {
  const given =
    option === undefined ? [] : Array.isArray(option) ? (option as readonly (NotifyFunction | NotifyTarget)[]) : [option]
  const targets = given.map((one) =>
    readTarget(typeof one === 'function' ? { name: 'default', deliver: one } : (one as NotifyTarget)),
  )
  const names = targets.map(({ name }) => name)
  const doubled = names.find((name, index) => names.indexOf(name) !== index)
  if (doubled !== undefined) throw refused(`there are two targets "${doubled}"`, 'Give each a different name')
  return targets
}

function readTarget(target: NotifyTarget): CheckedTarget {
  const name = checkId('name of a notify target', target?.name)
  if (Buffer.byteLength(name) > maxNameBytes)
    throw refused(`the name of a target is longer than ${maxNameBytes} bytes`, 'Shorten it')
  refuseUnknownOptions(`notify target "${name}"`, target, targetNames)
  const { on = notificationKinds, webhook, deliver } = target
  const unknown = Array.isArray(on) ? on.find((kind) => !notificationKinds.includes(kind)) : on
  if (unknown !== undefined)
    throw refused(`target "${name}" asks for ${JSON.stringify(unknown)}`, `on is a list of ${notificationKinds.join(', ')}`)
  if ((webhook == null) === (deliver == null) || (deliver != null && typeof deliver !== 'function'))
    throw refused(`target "${name}" must have either a webhook or a function deliver`, 'Give it one of them')
  const retry = { ...defaultRetry, ...target.retry }
  retryPolicy(retry)
  return { name, on: new Set(on), retry, receiver: deliver ?? readWebhook(name, webhook as Webhook) }
}

function readWebhook(name: string, webhook: Webhook): CheckedWebhook {
  refuseUnknownOptions(`The webhook of notify target "${name}"`, webhook, webhookNames)
  const { url: address, secret, headers: given, timeoutMs = 10_000 } = webhook
  const url = URL.canParse(address) ? new URL(address) : null
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '') {
    throw refused(
      `the webhook of target "${name}" has no URL that can be used`,
      'It begins with https:// or http://; a name and password go into headers.authorization',
    )
  }
  if (!(timeoutMs > 0 && timeoutMs <= 600_000))
    throw refused(`timeoutMs of target "${name}" is ${String(timeoutMs)}`, 'It is a number of ms from 1 to 600,000')
  const secrets = (secret === undefined ? [] : [secret].flat()).map(readSecret)
  try {
    return { url, secrets, headers: new Headers(given), timeoutMs }
  } catch {
    throw refused(`the webhook of target "${name}" has headers that can't be sent`, 'Names and values are plain text')
  }
}

function refused(what: string, must: string): HoldfastError {
  return new HoldfastError('invalid_input', `open() can't use its option notify: ${what}. ${must}.`)
}
