import { createHash } from 'node:crypto'

/** A sha256 of data as JSON, with bytes in it; undefined for undefined. */
export function digest(value: unknown): string | undefined {
  if (value === undefined) return undefined
  return createHash('sha256').update(JSON.stringify(value, withBytes)).digest('base64url')
}

function withBytes(_: string, value: unknown): unknown {
  return value instanceof Uint8Array ? { bytes: Buffer.from(value).toString('base64') } : value
}
