import { isDeepStrictEqual } from 'node:util'
import { HoldfastError } from '../../index.ts'
import { fieldsOf, nameOf, revive } from './closed-list.ts'

/**
 * Values as Holdfast's codec takes them. Objects of the classes of the closed list become `{"$lc":[name,fields]}`; an object of the user that
 * has this key becomes `{"$lc":["object",{…}]}`. What neither the list nor the codec knows stays as it is, and the codec refuses it by its path.
 */
export type Packed = unknown

const tag = '$lc'
/** Deeper values are the codec's to refuse; so are circles. */
const deepest = 200

/** A copy: what the caller does to the value afterwards changes nothing. */
export function pack(value: unknown, depth = 0): Packed {
  if (typeof value !== 'object' || value === null || depth > deepest) return value
  if (Array.isArray(value)) return isOrdinary(value, value.length + 1) ? packItems(value, depth) : value
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype === Object.prototype || prototype === null) return packObject(value as Record<string, unknown>, prototype, depth)
  if (prototype === Map.prototype) {
    return isOrdinary(value, 0)
      ? new Map([...(value as Map<unknown, unknown>)].map(([key, item]) => [pack(key, depth + 1), pack(item, depth + 1)]))
      : value
  }
  if (prototype === Set.prototype) {
    return isOrdinary(value, 0) ? new Set([...(value as Set<unknown>)].map((item) => pack(item, depth + 1))) : value
  }
  if (prototype === Date.prototype) return isOrdinary(value, 0) ? new Date((value as Date).getTime()) : value
  if (ArrayBuffer.isView(value)) return isBuffer(value) ? Buffer.from(value as Uint8Array) : copyOfView(value)
  const name = nameOf(value)
  return name === undefined ? value : { [tag]: [name, packFields(fieldsOf(name, value), depth + 1)] }
}

/** Freshly built: nothing of it is shared with what was packed. */
export function unpack(packed: Packed): unknown {
  if (typeof packed !== 'object' || packed === null) return packed
  if (Array.isArray(packed)) return packed.map(unpack)
  const prototype: unknown = Object.getPrototypeOf(packed)
  if (prototype === Map.prototype)
    return new Map([...(packed as Map<unknown, unknown>)].map(([key, item]) => [unpack(key), unpack(item)]))
  if (prototype === Set.prototype) return new Set([...(packed as Set<unknown>)].map(unpack))
  if (prototype === Date.prototype) return new Date((packed as Date).getTime())
  if (ArrayBuffer.isView(packed)) return isBuffer(packed) ? Buffer.from(packed as Uint8Array) : copyOfView(packed)
  if (prototype !== Object.prototype && prototype !== null) return packed
  const object = packed as Record<string, unknown>
  if (prototype === null || !Object.hasOwn(object, tag)) return unpackFields(object, prototype)
  const [name, fields] = object[tag] as [string, Record<string, unknown>]
  if (name === 'object') return unpackFields(fields, Object.prototype)
  const made = revive(name, unpackFields(fields, Object.prototype))
  if (made !== undefined) return made
  throw new HoldfastError(
    'corrupt_record',
    `A stored value is an object of ${JSON.stringify(name)}, which is not on the list of what is made again. Was it written by a later version?`,
  )
}

/**
 * As plain data for a debugger: objects of the closed list are `{ ...fields, type }`. Read-only, and the same object for the same part of what is
 * packed, by `shown`.
 */
export function show(packed: Packed, shown: WeakMap<object, unknown>): unknown {
  if (typeof packed !== 'object' || packed === null) return packed
  const known = shown.get(packed)
  if (known !== undefined) return known
  const made = showContainer(packed, shown)
  shown.set(packed, made)
  return made
}

function showContainer(packed: object, shown: WeakMap<object, unknown>): unknown {
  if (Array.isArray(packed)) return Object.freeze(packed.map((item) => show(item, shown)))
  const prototype: unknown = Object.getPrototypeOf(packed)
  if (prototype === Map.prototype)
    return new Map([...(packed as Map<unknown, unknown>)].map(([key, item]) => [show(key, shown), show(item, shown)]))
  if (prototype === Set.prototype) return new Set([...(packed as Set<unknown>)].map((item) => show(item, shown)))
  if (prototype !== Object.prototype && prototype !== null) return packed
  const [type, fields] =
    Object.hasOwn(packed, tag) && prototype !== null ? ((packed as Fields)[tag] as [string, Fields]) : ['object', packed]
  const plain = Object.create(prototype as object | null) as Fields
  for (const [key, value] of Object.entries(fields)) set(plain, key, show(value, shown))
  if (type !== 'object') set(plain, 'type', type)
  return Object.freeze(plain)
}

/** Whether packing the value would give this. Does not build it, because it is asked for every item of a list at every checkpoint. */
export function isPackedAs(value: unknown, packed: Packed): boolean {
  if (typeof value !== 'object' || value === null) return Object.is(value, packed)
  if (typeof packed !== 'object' || packed === null) return false
  if (Array.isArray(value)) {
    if (!Array.isArray(packed) || packed.length !== value.length) return false
    return value.every((item, index) => isPackedAs(item, packed[index]))
  }
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype === Object.prototype) {
    return !Object.hasOwn(value, tag) && !Object.hasOwn(packed, tag) && areFieldsPackedAs(value as Fields, packed)
  }
  const name = prototype === null ? undefined : nameOf(value)
  if (name === undefined) return isDeepStrictEqual(pack(value), packed)
  const [packedName, fields] = Object.hasOwn(packed, tag) ? ((packed as Fields)[tag] as [string, object]) : ['', {}]
  return name === packedName && areFieldsPackedAs(fieldsOf(name, value), fields)
}

type Fields = Record<string, unknown>

function areFieldsPackedAs(value: Fields, packed: object): boolean {
  if (Object.getPrototypeOf(packed) !== Object.prototype) return false
  const keys = Object.keys(value)
  const packedKeys = Object.keys(packed)
  // Their order, too, is part of the value.
  if (keys.length !== packedKeys.length || Object.getOwnPropertySymbols(value).length > 0) return false
  return keys.every((key, index) => key === packedKeys[index] && isPackedAs(value[key], (packed as Fields)[key]))
}

function packItems(items: readonly unknown[], depth: number): Packed {
  return items.map((item) => pack(item, depth + 1))
}

function packObject(value: Fields, prototype: object | null, depth: number): Packed {
  if (!isOrdinary(value, Object.keys(value).length)) return value
  const packed = packFields(value, depth, prototype)
  return prototype !== null && Object.hasOwn(value, tag) ? { [tag]: ['object', packed] } : packed
}

function packFields(fields: Fields, depth: number, prototype: object | null = Object.prototype): Fields {
  const packed = Object.create(prototype) as Fields
  for (const key of Object.keys(fields)) set(packed, key, pack(fields[key], depth + 1))
  return packed
}

function unpackFields(fields: Fields, prototype: object | null): Fields {
  const object = Object.create(prototype) as Fields
  for (const key of Object.keys(fields)) set(object, key, unpack(fields[key]))
  return object
}

/** An own property, also where the key is `__proto__`. */
function set(object: Fields, key: string, value: unknown): void {
  if (key in Object.prototype) Object.defineProperty(object, key, { value, writable: true, enumerable: true, configurable: true })
  else object[key] = value
}

/** No hidden properties, no symbols, no holes: nothing that a copy would lose without a word. */
function isOrdinary(value: object, names: number): boolean {
  if (Object.getOwnPropertyNames(value).length !== names || Object.getOwnPropertySymbols(value).length > 0) return false
  return !Array.isArray(value) || Object.getPrototypeOf(value) === Array.prototype
}

function isBuffer(value: object): boolean {
  return Object.getPrototypeOf(value) === Buffer.prototype
}

function copyOfView(view: object): object {
  const Maker = view.constructor as new (from: object) => object
  return view instanceof DataView ? view : new Maker(view)
}
