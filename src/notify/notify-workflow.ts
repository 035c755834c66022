import { type AnyWorkflow, makeWorkflow } from '../define/workflow.ts'
import { notifyWorkflowName } from '../engine/writing/outbox.ts'
import type { Logger } from '../model/logger.ts'
import type { Notification } from '../model/notification.ts'
import { postWebhook, WebhookRefused } from './post-webhook.ts'
import type { CheckedTarget } from './targets.ts'

/** How long a function of the user's may take. */
const callTimeoutMs = 60_000

/** Delivers one message to a target, with the target's retry policy. */
export function notifyWorkflow({ name, retry, receiver }: CheckedTarget, log: Logger): AnyWorkflow {
  const send = async (message: Notification, handle: { attempt: number; signal: AbortSignal }) => {
    if (typeof receiver !== 'function') return { status: await postWebhook(name, receiver, message, handle.signal) }
    return void (await receiver(message, handle))
  }
  const retryIf = (error: unknown) => !(error instanceof WebhookRefused) && (retry.retryIf?.(error) ?? true)
  const timeoutMs = typeof receiver === 'function' ? callTimeoutMs : receiver.timeoutMs
  return makeWorkflow({ name: notifyWorkflowName(name) }, async (ctx, message: Notification) => {
    try {
      await ctx.step('deliver', ({ attempt, signal }) => send(message, { attempt, signal }), {
        retry: { ...retry, retryIf },
        timeoutMs,
      })
    } catch (error) {
      log.error('a notification could not be delivered; the run that delivers it has failed', {
        ...{ runId: ctx.runId, target: name, messageId: message.id, error },
      })
      throw error
    }
  })
}
