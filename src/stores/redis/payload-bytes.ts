import type { Payload } from '../../model/payload.ts'
import type { Packer } from './pack.ts'

export function lengthOf(payload: Payload | null): number | null {
  if (payload === null) return null
  return typeof payload === 'string' ? Buffer.byteLength(payload) : -payload.byteLength - 1
}

export function bytesOf(length: number | null): number {
  return length === null ? 0 : length < 0 ? -length - 1 : length
}

export function readPayload(entry: Buffer, start: number, length: number | null): Payload | null {
  if (length === null) return null
  const end = start + bytesOf(length)
  return length < 0 ? copyBytes(entry, start, end) : entry.toString('utf8', start, end)
}

/** A copy: bytes belong to the caller, and must not keep the whole reply of the server alive. */
function copyBytes(buffer: Buffer, start: number, end = buffer.length): Uint8Array {
  return new Uint8Array(buffer.subarray(start, end))
}

export function addPayload(packer: Packer, payload: Payload): void {
  if (typeof payload === 'string') packer.addText(payload)
  else packer.addBytes(payload)
}

/** A payload is `s` and its text or `b` and its bytes. */
export function packPayload(packer: Packer, payload: Payload): void {
  packer.beginString()
  packer.addText(typeof payload === 'string' ? 's' : 'b')
  addPayload(packer, payload)
  packer.endString()
}

export function unpackPayload(buffer: Buffer, start: number): Payload {
  return buffer[start] === 0x62 ? copyBytes(buffer, start + 1) : buffer.toString('utf8', start + 1)
}
