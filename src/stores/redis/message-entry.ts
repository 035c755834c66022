import { payloadChecksum, verifyChecksum } from '../../model/checksum.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { Message, NewMessage } from '../../store/store.ts'
import { lengthOf, readPayload } from './payload-bytes.ts'

/** A message is `<sealed checksum> <time of arrival> <header>\n<payload>`; the seal holds the time. */
export function packMessage({ kind, name, payload }: NewMessage): Buffer {
  const head = Buffer.from(`${JSON.stringify([kind, name, lengthOf(payload)])}\n`)
  if (payload === null) return head
  return Buffer.concat([head, typeof payload === 'string' ? Buffer.from(payload) : payload])
}

/** A message as it is kept, for one that has arrived already. */
export function messageEntryOf(message: Message): Buffer {
  const sealed = sealMessage(message, message.at)
  return Buffer.concat([Buffer.from(`${sealed} ${message.at} `), packMessage(message)])
}

function sealMessage(message: NewMessage, at: number): number {
  return (messageChecksum(message) + at) % 2 ** 32
}

export function messageChecksum({ owner, runId, kind, name, payload }: NewMessage): number {
  return payloadChecksum(['message', owner, runId, kind, name], payload)
}

export function toMessage(id: number, entry: Buffer, key: { readonly owner: string; readonly runId: string }): Message {
  const what = `Message ${id} to run ${key.runId}`
  const afterSum = entry.indexOf(32)
  const afterAt = entry.indexOf(32, afterSum + 1)
  const end = entry.indexOf(10, afterAt)
  const at = Number(entry.toString('latin1', afterSum + 1, afterAt))
  const [kind, name, length] = parseMessageHeader(entry.toString('utf8', afterAt + 1, end), what)
  const message = { ...key, id, kind, name, payload: readPayload(entry, end + 1, length), at }
  verifyChecksum(Number(entry.toString('latin1', 0, afterSum)), sealMessage(message, at), what)
  return message
}

function parseMessageHeader(text: string, what: string): readonly [kind: string, name: string | null, length: number | null] {
  try {
    const header = JSON.parse(text) as unknown
    if (Array.isArray(header) && header.length === 3) return header as unknown as [string, string | null, number | null]
  } catch {
    // No longer JSON: damaged like the rest.
  }
  verifyChecksum(0, 1, what)
  throw new HoldfastError('corrupt_record', `${what} is damaged.`)
}
