/**
 * Arrays in the binary form of the Postgres protocol. The driver sends a Buffer as binary, so nothing is escaped here and
 * nothing is parsed there: half the time of the same arrays as text, on both sides.
 */

const oids = { boolean: 16, bytea: 17, bigint: 20, integer: 23, text: 25, float8: 701 } as const

export function integerArray(values: readonly (number | null)[]): Buffer {
  return fixedArray(values, oids.integer, 4, (buffer, value, at) => buffer.writeInt32BE(value, at))
}

/** Whole numbers up to 2^53. */
export function bigintArray(values: readonly (number | null)[]): Buffer {
  return fixedArray(values, oids.bigint, 8, (buffer, value, at) => {
    const high = Math.floor(value / 0x1_0000_0000)
    buffer.writeInt32BE(high, at)
    buffer.writeUInt32BE(value - high * 0x1_0000_0000, at + 4)
  })
}

export function floatArray(values: readonly (number | null)[]): Buffer {
  return fixedArray(values, oids.float8, 8, (buffer, value, at) => buffer.writeDoubleBE(value, at))
}

export function booleanArray(values: readonly boolean[]): Buffer {
  return fixedArray(
    values.map((value) => (value ? 1 : 0)),
    oids.boolean,
    1,
    (buffer, value, at) => buffer.writeUInt8(value, at),
  )
}

export function textArray(values: readonly (string | null)[]): Buffer {
  let size = headerSize
  // Three bytes a UTF-16 unit is the most that UTF-8 takes; short texts are not worth being measured.
  for (const value of values) size += 4 + (value === null ? 0 : value.length < 512 ? value.length * 3 : Buffer.byteLength(value))
  const buffer = Buffer.allocUnsafe(size)
  let at = writeHeader(buffer, oids.text, values.length)
  for (const value of values) {
    if (value === null) {
      at = buffer.writeInt32BE(-1, at)
      continue
    }
    const length = buffer.write(value, at + 4)
    buffer.writeInt32BE(length, at)
    at += 4 + length
  }
  return buffer.subarray(0, at)
}

export function bytesArray(values: readonly (Uint8Array | null)[]): Buffer {
  let size = headerSize
  for (const value of values) size += 4 + (value?.byteLength ?? 0)
  const buffer = Buffer.allocUnsafe(size)
  let at = writeHeader(buffer, oids.bytea, values.length)
  for (const value of values) {
    at = buffer.writeInt32BE(value === null ? -1 : value.byteLength, at)
    if (value === null) continue
    buffer.set(value, at)
    at += value.byteLength
  }
  return buffer.subarray(0, at)
}

const headerSize = 20

function fixedArray(
  values: readonly (number | null)[],
  oid: number,
  width: number,
  write: (buffer: Buffer, value: number, at: number) => void,
): Buffer {
  const buffer = Buffer.allocUnsafe(headerSize + values.length * (4 + width))
  let at = writeHeader(buffer, oid, values.length)
  for (const value of values) {
    if (value === null) {
      at = buffer.writeInt32BE(-1, at)
      continue
    }
    at = buffer.writeInt32BE(width, at)
    write(buffer, value, at)
    at += width
  }
  return buffer.subarray(0, at)
}

/** One dimension, which may hold nulls, counted from 1. An empty array has no dimension. */
function writeHeader(buffer: Buffer, oid: number, length: number): number {
  buffer.writeInt32BE(length === 0 ? 0 : 1, 0)
  buffer.writeInt32BE(1, 4)
  let at = buffer.writeInt32BE(oid, 8)
  if (length === 0) return at
  at = buffer.writeInt32BE(length, at)
  return buffer.writeInt32BE(1, at)
}
