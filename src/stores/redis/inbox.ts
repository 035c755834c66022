import type { Delivery, Message, RunKey } from '../../store/store.ts'
import type { Connection } from './connection.ts'
import { pairOf, splitPair } from './keys.ts'
import { messageChecksum, packMessage, toMessage } from './message-entry.ts'
import { deliverScript, readInboxScript } from './scripts/inbox.ts'

/** Delivered with the thread of the run, and whether the run was waiting. */
export type Delivered =
  | { readonly ok: true; readonly threadId: string; readonly isClaimable: boolean }
  | { readonly ok: false; readonly refusal: 'run_not_found' | 'conflict' }

export async function deliver(
  connection: Connection,
  message: Delivery,
  { offsetMs, publication }: { readonly offsetMs: number; readonly publication: string },
): Promise<Delivered> {
  const run = pairOf(message.owner, message.runId)
  const once = message.dedupeId === undefined ? [] : [message.dedupeId]
  const args = [publication, run, String(messageChecksum(message)), packMessage(message), ...once]
  const answer = (await connection.once(deliverScript, offsetMs, args)) as Buffer | readonly [Buffer, number]
  if (answer instanceof Buffer) return { ok: false, refusal: String(answer) as 'run_not_found' | 'conflict' }
  return { ok: true, threadId: splitPair(String(answer[0])).id, isClaimable: answer[1] === 1 }
}

export async function readInbox(connection: Connection, key: RunKey): Promise<Message[]> {
  const reply = await connection.repeat(readInboxScript, pairOf(key.owner, key.runId))
  return toMessages(reply as readonly Buffer[], key)
}

/** From id, entry, id, entry, … in no order. */
export function toMessages(reply: readonly Buffer[], { owner, runId }: RunKey): Message[] {
  const messages: Message[] = []
  for (let i = 0; i < reply.length; i += 2) messages.push(toMessage(Number(reply[i]), reply[i + 1] as Buffer, { owner, runId }))
  return messages.sort((a, b) => a.id - b.id)
}
