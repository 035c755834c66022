import { HoldfastError } from './errors.ts'

/** What writing and reading share: the tag, the kinds of bytes, how damage is reported. */
export const tagKey = '$hf'
export const tagInText = '"$hf":'
export const typedArrays = {
  Uint8Array,
  Uint8ClampedArray,
  Int8Array,
  Uint16Array,
  Int16Array,
  Uint32Array,
  Int32Array,
  Float32Array,
  Float64Array,
  BigUint64Array,
  BigInt64Array,
} as const
export const typedArrayNames = new Map<object, string>(Object.entries(typedArrays).map(([name, type]) => [type.prototype, name]))
typedArrayNames.set(Buffer.prototype, 'Buffer')

export const errorFields = new Set(['name', 'message', 'stack', 'cause'])

export function viewAs(name: string, bytes: Buffer): ArrayBufferView | ArrayBuffer {
  const type = typedArrays[(name === 'ArrayBuffer' ? 'Uint8Array' : name) as keyof typeof typedArrays]
  return new type(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength / type.BYTES_PER_ELEMENT)
}

export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function define(object: object, key: string, value: unknown): void {
  Object.defineProperty(object, key, { value, writable: true, enumerable: true, configurable: true })
}

export function hide(object: object, key: string, value: unknown): void {
  Object.defineProperty(object, key, { value, writable: true, enumerable: false, configurable: true })
}

export function corrupt(why: string, cause?: unknown): HoldfastError {
  return new HoldfastError(
    'corrupt_record',
    `A stored value cannot be read: ${why}. Restore it from a backup; nothing of it was used.`,
    {
      ...(cause === undefined ? {} : { cause }),
    },
  )
}
