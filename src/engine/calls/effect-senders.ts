import type { CallHost } from '../execution/call-host.ts'
import type { Call } from './calls.ts'

/** Which call of an execution sends under a key: others wait for it. */
const senders = new WeakMap<CallHost, Map<string, Sender>>()

interface Sender {
  readonly call: Call
  /** It waits for its next attempt, which does not come once its section is over. */
  readonly isBetweenAttempts?: boolean
}

/** Whether this call is the one that sends under the key. The first to ask is. */
export function holdKey(host: CallHost, call: Call, key: string): boolean {
  const keys = senders.get(host) ?? new Map<string, Sender>()
  senders.set(host, keys)
  const sender = keys.get(key)
  const isFree = sender === undefined || (sender.isBetweenAttempts === true && sender.call.within?.isOver === true)
  if (isFree) keys.set(key, { call })
  return isFree || sender.call.key === call.key
}

export function releaseKey(host: CallHost, call: Call, key: string): void {
  const keys = senders.get(host)
  if (keys?.get(key)?.call.key === call.key) keys.delete(key)
}

/** The call waits for its next attempt under the key that it holds, or has waited. */
export function setBetweenAttempts(host: CallHost, call: Call, key: string, isBetweenAttempts: boolean): void {
  const keys = senders.get(host)
  if (keys?.get(key)?.call.key !== call.key) return
  keys.set(key, isBetweenAttempts ? { call, isBetweenAttempts } : { call })
}
