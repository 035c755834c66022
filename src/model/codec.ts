/**
 * The one codec in front of every store: a value comes back exactly, or was refused with its path.
 *
 * Plain JSON stays readable JSON text. What JSON lacks is written as a tag, an object with the single key "$hf":
 *
 *   {"$hf":["undefined"]}  {"$hf":["number","-0"]}  {"$hf":["bigint","12"]}  {"$hf":["date","2026-11-05T08:00:00.000Z"]}
 *   {"$hf":["map",key,value,…]}  {"$hf":["set",member,…]}  {"$hf":["bytes","Uint8Array","base64"]}
 *   {"$hf":["error",{"name":…,"message":…,"stack":…,"cause":…,"props":{…}}]}
 *   {"$hf":["null-object",{…}]}  an object without a prototype
 *   {"$hf":["object",{"$hf":…}]} user data that has the key itself
 *   {"$hf":["object",[key,value,…]]} also for the two above and for props: an object with a key that JSON escapes. JSON.parse of V8 13 mixes
 *   such keys up: after {"x":1,"\\":2} it reads {"x":1,"\n":2} as the same.
 *
 * 1. Each property of the user's value is read once; what is written is made from that one reading. toJSON is never called.
 * 2. Nothing stored chooses code: the tags are a closed list, an error is always rebuilt as a plain Error.
 * 3. Depth is counted in the user's containers, the same way in both directions. A value that was accepted can be read.
 * 4. Errors are the one exception to exactness: the class becomes Error (the name is kept), and properties that cannot be
 *    stored are left out, so that a failure can always be recorded.
 */
import { hash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { deflateRawSync, inflateRawSync } from 'node:zlib'
import { parse } from './codec-reader.ts'
import { corrupt, define, errorFields, tagKey, typedArrayNames, viewAs } from './codec-tags.ts'
import { HoldfastError } from './errors.ts'
import type { Payload } from './payload.ts'
import { isReadOnly } from './read-only.ts'

export interface CodecOptions {
  /** Levels of nested containers. Default 200. */
  readonly maxDepth?: number
  /** Bytes of encoded text, before compression. Default 32 MiB. */
  readonly maxBytes?: number
  /** Bytes of encoded text above which it is compressed, if that saves a tenth. Default 16 KiB. */
  readonly compressAbove?: number
}

export interface Codec {
  /** The payload of a value. Refused with `value_not_storable` (details: path) or `value_too_large`. */
  encode(value: unknown): Payload
  /** The value of a payload, freshly built. Damaged or foreign bytes are `corrupt_record`. */
  decode(payload: Payload): unknown
}

export const defaultMaxDepth = 200
const defaultMaxBytes = 32 * 1024 * 1024
const defaultCompressAbove = 16 * 1024

export function createCodec(options: CodecOptions = {}): Codec {
  const maxDepth = positive(options.maxDepth ?? defaultMaxDepth, 'maxDepth')
  const maxBytes = positive(options.maxBytes ?? defaultMaxBytes, 'maxBytes')
  const compressAbove = positive(options.compressAbove ?? defaultCompressAbove, 'compressAbove')
  return {
    encode(value) {
      const text = textOf(value, new Snapshot(maxDepth, maxBytes), maxBytes)
      return text.length > compressAbove ? compress(text) : text
    },
    decode(payload) {
      if (typeof payload !== 'string' && !(payload instanceof Uint8Array))
        throw corrupt(`it is ${payload === null ? 'null' : typeof payload}`)
      return parse(typeof payload === 'string' ? payload : inflate(payload, maxBytes), maxDepth)
    },
  }
}

/**
 * A name for what a value says: sha256 in base64url (43 characters) over its encoded form with object keys sorted. The order
 * of Map entries and Set members counts. Refuses what `encode` refuses.
 */
export function fingerprint(value: unknown): string {
  const text = textOf(value, new Snapshot(defaultMaxDepth, defaultMaxBytes, { sortKeys: true }), defaultMaxBytes)
  return hash('sha256', text, 'base64url')
}

/** One step of a path into a value: a key, an index, or a call on a Map or Set. */
export type PathStep = string | number | { readonly call: 'get' | 'keys' | 'values'; readonly key: unknown }

/** A path for people: `$.items[3].fn`. */
export function formatPath(steps: readonly PathStep[]): string {
  let path = '$'
  for (const step of steps) {
    if (typeof step === 'number') path += `[${step}]`
    else if (typeof step === 'object') path += formatCall(step.call, step.key)
    else path += /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`
  }
  return path.length > 500 ? `${path.slice(0, 300)}…${path.slice(-150)}` : path
}

function formatCall(call: string, key: unknown): string {
  if (call !== 'get') return `.${call}()[${String(key)}]`
  return `.get(${typeof key === 'string' ? JSON.stringify(key) : isPrimitive(key) ? String(key) : '…'})`
}

export interface StorableOptions {
  /** Where in a larger value this one stands: part of the path in an error, and counted as depth. */
  readonly at?: readonly PathStep[]
  /** Refuse objects as Map keys and Set members. Default false. */
  readonly primitiveKeys?: boolean
  readonly maxDepth?: number
}

/** Throws what `encode` would throw about the value, with a path that starts at `at`. */
export function assertStorable(
  value: unknown,
  { at = [], primitiveKeys = false, maxDepth = defaultMaxDepth }: StorableOptions = {},
): void {
  new Snapshot(maxDepth, Number.POSITIVE_INFINITY, { at, primitiveKeys }).of(value)
}

interface SnapshotOptions {
  readonly at?: readonly PathStep[]
  readonly primitiveKeys?: boolean
  readonly sortKeys?: boolean
}

/** One reading of a value into plain, tagged JSON data. */
class Snapshot {
  private readonly maxDepth: number
  private readonly maxBytes: number
  private readonly primitiveKeys: boolean
  private readonly sortKeys: boolean
  /** The path to what is being read: step i leads from ancestor i into its child. Valid up to `length`. */
  private readonly steps: PathStep[]
  private readonly ancestors: unknown[]
  private length: number
  /** A lower bound of the text's bytes, so that a value far too large is refused before it is copied. */
  private bytes = 0

  constructor(maxDepth: number, maxBytes: number, options: SnapshotOptions = noOptions) {
    this.maxDepth = maxDepth
    this.maxBytes = maxBytes
    this.primitiveKeys = options.primitiveKeys ?? false
    this.sortKeys = options.sortKeys ?? false
    this.steps = options.at ? [...options.at] : []
    this.ancestors = []
    this.length = this.steps.length
    for (let i = 0; i < this.length; i++) this.ancestors.push(undefined)
  }

  of(value: unknown): unknown {
    try {
      return this.read(value, this.length)
    } catch (error) {
      if (error instanceof HoldfastError) throw error
      // A getter, a proxy or a forged prototype threw while it was read.
      throw this.refuse(
        `could not be read: ${error instanceof Error ? error.message : String(error)}`,
        'Store plain data.',
        error,
      )
    }
  }

  /** `depth` is the number of containers around the value. */
  private read(value: unknown, depth: number): unknown {
    switch (typeof value) {
      case 'string':
        this.count(value.length + 2)
        return value
      case 'number':
        this.count(1)
        // Only NaN and the infinities are not 0 when subtracted from themselves.
        if (value - value === 0 && (value !== 0 || 1 / value > 0)) return value
        return tag('number', Object.is(value, -0) ? '-0' : String(value))
      case 'boolean':
        this.count(4)
        return value
      case 'undefined':
        this.count(20)
        return tag('undefined')
      case 'bigint': {
        const digits = value.toString()
        this.count(digits.length + 18)
        return tag('bigint', digits)
      }
      case 'object':
        if (value !== null) return this.readObject(value, depth)
        this.count(4)
        return null
      case 'function':
        throw this.refuse(`is a function${value.name ? ` (${value.name})` : ''}`, 'Store data, and keep code in the workflow.')
      default:
        throw this.refuse(`is a symbol`, 'Use a string.')
    }
  }

  private readObject(value: object, depth: number): unknown {
    if (Array.isArray(value)) {
      this.enter(value, depth)
      return this.readArray(value, depth)
    }
    const prototype: unknown = Object.getPrototypeOf(value)
    if (prototype === Object.prototype || prototype === null) {
      this.enter(value, depth)
      const copy = this.readProperties(value as Record<string, unknown>, depth)
      const fields = withoutEscapedKeys(copy)
      if (prototype === null) return tag('null-object', fields)
      return fields !== copy || Object.hasOwn(copy, tagKey) ? tag('object', fields) : copy
    }
    if (prototype === Date.prototype) return this.readDate(value as Date)
    if (prototype === Map.prototype) {
      this.enter(value, depth)
      return this.readMap(value as Map<unknown, unknown>, depth)
    }
    if (prototype === Set.prototype) {
      this.enter(value, depth)
      return this.readSet(value as Set<unknown>, depth)
    }
    const bytesName = typedArrayNames.get(prototype as object)
    if (bytesName !== undefined) return this.readBytes(value as Uint8Array, bytesName)
    if (prototype === ArrayBuffer.prototype) {
      this.refuseOwnProperties(value, 'ArrayBuffer')
      if ((value as { resizable?: boolean }).resizable)
        throw this.refuse('is a resizable ArrayBuffer', 'Copy it: buffer.slice().')
      return this.readBytes(new Uint8Array(value as ArrayBuffer), 'ArrayBuffer')
    }
    if (isError(value)) {
      this.enter(value, depth)
      return this.readError(value, depth)
    }
    throw this.refuse(...describeInstance(value, prototype as object))
  }

  private readArray(value: unknown[], depth: number): unknown[] {
    const { length } = value
    if (Object.getPrototypeOf(value) !== Array.prototype)
      throw this.refuse('is an instance of a class that extends Array', 'Use a plain array.')
    const copy: unknown[] = []
    for (let i = 0; i < length; i++) {
      this.steps[depth] = i
      this.length = depth + 1
      const item = value[i]
      if (item === undefined && !Object.hasOwn(value, i))
        throw this.refuse('is a hole in an array', 'Fill it, with undefined or null.')
      copy.push(this.read(item, depth + 1))
    }
    this.count(length + 1)
    this.length = depth
    // One name more than indexes: `length`.
    if (Object.getOwnPropertyNames(value).length !== length + 1 || Object.getOwnPropertySymbols(value).length > 0) {
      throw this.refuse('is an array with additional properties', 'Copy its items into a plain array: [...array].')
    }
    return copy
  }

  private readProperties(value: Record<string, unknown>, depth: number): Record<string, unknown> {
    const keys = Object.getOwnPropertyNames(value)
    let enumerable = 0
    // The cheapest count of enumerable keys. Inherited ones would only make it larger, then they are counted properly.
    for (const _ in value) enumerable += 1
    if (enumerable !== keys.length && Object.keys(value).length !== keys.length) {
      throw this.refuse('has properties that are not enumerable', 'Copy it into a plain object: { ...object }.')
    }
    if (Object.getOwnPropertySymbols(value).length > 0) throw this.refuse('has a symbol as a key', 'Use strings as keys.')
    if (this.sortKeys) keys.sort()
    this.count(1)
    const copy: Record<string, unknown> = {}
    for (const key of keys) {
      this.steps[depth] = key
      this.length = depth + 1
      this.count(key.length + 4)
      const clean = this.read(value[key], depth + 1)
      if (key in Object.prototype) define(copy, key, clean)
      else copy[key] = clean
    }
    this.length = depth
    return copy
  }

  private readMap(value: Map<unknown, unknown>, depth: number): unknown {
    this.refuseOwnProperties(value, 'Map')
    this.count(15)
    const body: unknown[] = ['map']
    for (const [key, item] of mapEntries.call(value)) {
      this.steps[depth] = { call: 'keys', key: (body.length - 1) / 2 }
      this.length = depth + 1
      if (this.primitiveKeys && !isPrimitive(key))
        throw this.refuse('is an object as a Map key', 'In a state, Map keys are primitives.')
      body.push(this.read(key, depth + 1))
      this.steps[depth] = { call: 'get', key }
      this.length = depth + 1
      body.push(this.read(item, depth + 1))
    }
    this.length = depth
    return { [tagKey]: body }
  }

  private readSet(value: Set<unknown>, depth: number): unknown {
    this.refuseOwnProperties(value, 'Set')
    this.count(15)
    const body: unknown[] = ['set']
    for (const member of setValues.call(value)) {
      this.steps[depth] = { call: 'values', key: body.length - 1 }
      this.length = depth + 1
      if (this.primitiveKeys && !isPrimitive(member))
        throw this.refuse('is an object in a Set', 'In a state, Set members are primitives.')
      body.push(this.read(member, depth + 1))
    }
    this.length = depth
    return { [tagKey]: body }
  }

  private readDate(value: Date): unknown {
    this.refuseOwnProperties(value, 'Date')
    this.count(21)
    const time = getTime.call(value)
    return tag('date', Number.isNaN(time) ? null : toISOString.call(value))
  }

  private readBytes(value: Uint8Array, name: string): unknown {
    this.count((value.byteLength * 4) / 3)
    const view = Buffer.from(value.buffer, value.byteOffset, value.byteLength)
    // Compared with itself without its own properties: listing the names of a typed array would list every index.
    if (!isDeepStrictEqual(value, name === 'Buffer' ? view : viewAs(name, view))) {
      throw this.refuse(`is a ${name} with additional properties`, `Copy it: new ${name}(value).`)
    }
    return tag('bytes', name, view.toString('base64'))
  }

  private readError(error: Error, depth: number): unknown {
    const body: Record<string, unknown> = {}
    for (const field of ['name', 'message', 'stack'] as const) {
      const text = readOr(() => error[field], undefined)
      if (typeof text === 'string') body[field] = this.read(text, depth + 1)
    }
    if (Object.hasOwn(error, 'cause')) this.readStorable(body, error, 'cause', depth)
    const props: Record<string, unknown> = {}
    const names = new Set(Object.keys(error))
    if (readOr(() => (error as { code?: unknown }).code, undefined) !== undefined) names.add('code')
    if (Object.hasOwn(error, 'errors')) names.add('errors')
    for (const name of this.sortKeys ? [...names].sort() : names) {
      if (!errorFields.has(name)) this.readStorable(props, error, name, depth)
    }
    if (Object.keys(props).length > 0) body['props'] = withoutEscapedKeys(props)
    this.length = depth
    return tag('error', body)
  }

  /** Adds a property of an error, unless it cannot be stored: a failure is recorded with what can be kept of it. */
  private readStorable(into: Record<string, unknown>, error: Error, name: string, depth: number): void {
    const { bytes } = this
    this.steps[depth] = name
    this.length = depth + 1
    try {
      define(into, name, this.read((error as unknown as Record<string, unknown>)[name], depth + 1))
    } catch {
      this.bytes = bytes
    }
  }

  private enter(value: object, depth: number): void {
    if (depth >= this.maxDepth) throw this.refuse(`is nested more than ${this.maxDepth} levels deep`, 'Flatten it.')
    for (let i = depth - 1; i >= 0; i--) {
      if (this.ancestors[i] === value) {
        throw this.refuse(`is a cycle: it points back to ${formatPath(this.steps.slice(0, i))}`, 'Store an id instead.')
      }
    }
    this.ancestors[depth] = value
  }

  private refuseOwnProperties(value: object, name: string): void {
    if (Reflect.ownKeys(value).length > 0 && !isReadOnly(value))
      throw this.refuse(`is a ${name} with additional properties`, `Copy it: new ${name}(value).`)
  }

  private count(bytes: number): void {
    this.bytes += bytes
    if (this.bytes > this.maxBytes) throw tooLarge(this.bytes, this.maxBytes, 'at least ')
  }

  private refuse(what: string, advice: string, cause?: unknown): HoldfastError {
    const path = formatPath(this.steps.slice(0, this.length))
    return new HoldfastError('value_not_storable', `${path} ${what}. ${advice}`, {
      details: { path },
      ...(cause === undefined ? {} : { cause }),
    })
  }
}

const noOptions: SnapshotOptions = {}
const getTime = Date.prototype.getTime
const toISOString = Date.prototype.toISOString
const mapEntries = Map.prototype.entries
const setValues = Set.prototype.values

/** The object, or where JSON would escape one of its keys, its keys and values in turn. */
function withoutEscapedKeys(object: Record<string, unknown>): Record<string, unknown> | unknown[] {
  for (const key in object) if (escaped.test(key)) return Object.entries(object).flat(1)
  return object
}

const escaped = /["\\\p{Cc}\p{Cs}]/u

function textOf(value: unknown, snapshot: Snapshot, maxBytes: number): string {
  const clean = snapshot.of(value)
  if ('toJSON' in Array.prototype) throw notWritable('some code has set toJSON on a built-in prototype. Remove it.')
  let text: string
  try {
    text = JSON.stringify(clean)
  } catch (cause) {
    throw notWritable((cause as Error).message, cause)
  }
  // A UTF-16 unit takes 3 bytes at most: short texts need no counting.
  if (text.length * 3 > maxBytes) {
    const bytes = Buffer.byteLength(text)
    if (bytes > maxBytes) throw tooLarge(bytes, maxBytes)
  }
  return text
}

function notWritable(why: string, cause?: unknown): HoldfastError {
  return new HoldfastError('value_not_storable', `$ could not be written: ${why}`, {
    details: { path: '$' },
    ...(cause === undefined ? {} : { cause }),
  })
}

function compress(text: string): Payload {
  const bytes = Buffer.from(text)
  const deflated = deflateRawSync(bytes, { level: 1 })
  if (deflated.length + 1 > bytes.length * 0.9) return text
  const payload = new Uint8Array(deflated.length + 1)
  payload[0] = deflatedFormat
  payload.set(deflated, 1)
  return payload
}

/** The first byte of a payload of bytes says how to read the rest: 1, deflated JSON in UTF-8. */
const deflatedFormat = 1
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function inflate(payload: Uint8Array, maxBytes: number): string {
  if (payload[0] !== deflatedFormat)
    throw corrupt(payload.length === 0 ? 'it is empty' : `it has the unknown format ${payload[0]}`)
  try {
    return utf8.decode(inflateRawSync(payload.subarray(1), { maxOutputLength: maxBytes }))
  } catch (cause) {
    throw corrupt((cause as Error).message, cause)
  }
}

function describeInstance(value: object, prototype: object): [what: string, advice: string] {
  const maker = (prototype as { constructor?: unknown }).constructor
  const name = typeof maker === 'function' && maker.name !== '' ? maker.name : 'a class without a name'
  if (value instanceof Promise) return ['is a Promise', 'Await it first.']
  if (value instanceof RegExp) return ['is a RegExp', 'Store its source and flags.']
  if (value instanceof URL) return ['is a URL', 'Store its href.']
  return [`is an instance of ${name}`, 'Store plain data, for example { ...object } or what its own toJSON returns.']
}

function isError(value: object): value is Error {
  return value instanceof Error || Object.prototype.toString.call(value) === '[object Error]'
}

export function isPrimitive(value: unknown): boolean {
  return (typeof value !== 'object' || value === null) && typeof value !== 'function' && typeof value !== 'symbol'
}

function tag(...body: unknown[]): unknown {
  return { [tagKey]: body }
}

function readOr<T>(get: () => T, otherwise: T): T {
  try {
    return get()
  } catch {
    return otherwise
  }
}

function positive(value: number, name: string): number {
  if (Number.isSafeInteger(value) && value > 0) return value
  throw new HoldfastError('invalid_input', `${name} of the codec is a whole number above 0; got ${String(value)}.`)
}

function tooLarge(bytes: number, maxBytes: number, atLeast = ''): HoldfastError {
  return new HoldfastError(
    'value_too_large',
    `The value takes ${atLeast}${Math.ceil(bytes)} bytes, ${maxBytes} are allowed. Store it elsewhere, and a reference to it here.`,
    { details: { bytes: Math.ceil(bytes), maxBytes } },
  )
}
