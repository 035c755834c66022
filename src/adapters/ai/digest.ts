import { createHash } from 'node:crypto'
import { HoldfastError } from '../../index.ts'

/** Half a sha256 of data as JSON, with bytes in it; undefined for undefined. */
export function digest(value: unknown): string | undefined {
  if (value === undefined) return undefined
  return createHash('sha256').update(jsonOf(value)).digest().subarray(0, 16).toString('base64url')
}

function jsonOf(value: unknown): string {
  try {
    return JSON.stringify(value, withBytes)
  } catch (cause) {
    throw new HoldfastError('value_not_storable', `A value can't be written as JSON: ${String(cause)}`, { cause })
  }
}

function withBytes(_: string, value: unknown): unknown {
  return value instanceof Uint8Array ? { bytes: Buffer.from(value).toString('base64') } : value
}
