import { corrupt, define, errorFields, hide, isJsonObject, tagInText, tagKey, typedArrays, viewAs } from './codec-tags.ts'

/** Reads encoded text back: plain JSON as it is, tags as what they stand for. Anything else is `corrupt_record`. */
export function parse(text: string, maxDepth: number): unknown {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (cause) {
    throw corrupt('it is not JSON', cause)
  }
  if (text.includes(tagInText)) return revive(value, 0, maxDepth)
  if (mayExceed(text, maxDepth)) checkDepth(value, 0, maxDepth)
  return value
}

/** False if the text has no more opening brackets than levels are allowed: then nothing in it is too deep. */
function mayExceed(text: string, maxDepth: number): boolean {
  if (text.length < maxDepth * 2) return false
  let count = 0
  for (const bracket of ['{', '[']) {
    for (let at = text.indexOf(bracket); at !== -1; at = text.indexOf(bracket, at + 1)) {
      count += 1
      if (count > maxDepth) return true
    }
  }
  return false
}

function checkDepth(value: unknown, depth: number, maxDepth: number): void {
  if (typeof value !== 'object' || value === null) return
  if (depth >= maxDepth) throw corrupt(`it is nested more than ${maxDepth} levels deep`)
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) checkDepth(value[i], depth + 1, maxDepth)
  } else {
    for (const key in value) checkDepth((value as Record<string, unknown>)[key], depth + 1, maxDepth)
  }
}

/** Replaces the tags in what JSON.parse just made. The counterpart of Snapshot.read, counting depth the same way. */
function revive(value: unknown, depth: number, maxDepth: number): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return reviveItems(value, 0, depth, maxDepth)
  if (!Object.hasOwn(value, tagKey)) return reviveProperties(value as Record<string, unknown>, depth, maxDepth)
  const body = (value as Record<string, unknown>)[tagKey]
  if (!Array.isArray(body) || Object.keys(value).length !== 1) throw corrupt('it has a malformed tag')
  return reviveTag(body, depth, maxDepth)
}

function reviveItems(items: unknown[], from: number, depth: number, maxDepth: number): unknown[] {
  if (depth >= maxDepth) throw corrupt(`it is nested more than ${maxDepth} levels deep`)
  for (let i = from; i < items.length; i++) {
    const item = items[i]
    if (typeof item === 'object' && item !== null) items[i] = revive(item, depth + 1, maxDepth)
  }
  return items
}

function reviveProperties(object: Record<string, unknown>, depth: number, maxDepth: number): Record<string, unknown> {
  if (depth >= maxDepth) throw corrupt(`it is nested more than ${maxDepth} levels deep`)
  for (const key of Object.keys(object)) {
    const item = object[key]
    // An own key __proto__ is assigned like any other: the own property hides the accessor.
    if (typeof item === 'object' && item !== null) object[key] = revive(item, depth + 1, maxDepth)
  }
  return object
}

/** An object, or its keys and values in turn. */
type Fields = Record<string, unknown> | unknown[]

function isFields(value: unknown): value is Fields {
  if (!Array.isArray(value)) return isJsonObject(value)
  return value.length % 2 === 0 && value.every((item, index) => index % 2 === 1 || typeof item === 'string')
}

function reviveFields(fields: Fields, depth: number, maxDepth: number): Record<string, unknown> {
  if (!Array.isArray(fields)) return reviveProperties(fields, depth, maxDepth)
  reviveItems(fields, 0, depth, maxDepth)
  const object: Record<string, unknown> = {}
  for (let i = 0; i < fields.length; i += 2) define(object, fields[i] as string, fields[i + 1])
  return object
}

function reviveTag(body: unknown[], depth: number, maxDepth: number): unknown {
  const [name, first, second] = body
  switch (name) {
    case 'undefined':
      return undefined
    case 'number':
      if (typeof first === 'string' && Object.hasOwn(numbers, first)) return numbers[first]
      break
    case 'bigint':
      if (typeof first === 'string' && /^-?\d+$/.test(first)) return BigInt(first)
      break
    case 'date': {
      if (first === null) return new Date(Number.NaN)
      const date = new Date(typeof first === 'string' ? first : Number.NaN)
      if (!Number.isNaN(date.getTime())) return date
      break
    }
    case 'map': {
      if (body.length % 2 === 0) break
      reviveItems(body, 1, depth, maxDepth)
      const map = new Map<unknown, unknown>()
      for (let i = 1; i < body.length; i += 2) map.set(body[i], body[i + 1])
      return map
    }
    case 'set': {
      reviveItems(body, 1, depth, maxDepth)
      const set = new Set<unknown>()
      for (let i = 1; i < body.length; i++) set.add(body[i])
      return set
    }
    case 'bytes':
      if (typeof first === 'string' && typeof second === 'string') return reviveBytes(first, second)
      break
    case 'error':
      if (isJsonObject(first)) return reviveError(first, depth, maxDepth)
      break
    case 'object':
      if (isFields(first)) return reviveFields(first, depth, maxDepth)
      break
    case 'null-object': {
      if (!isFields(first)) break
      const object: Record<string, unknown> = Object.create(null)
      for (const [key, item] of Object.entries(reviveFields(first, depth, maxDepth))) object[key] = item
      return object
    }
  }
  throw corrupt(`it has an unknown or malformed tag ${JSON.stringify(String(name).slice(0, 40))}`)
}

const numbers: Record<string, number> = {
  NaN: Number.NaN,
  Infinity: Number.POSITIVE_INFINITY,
  '-Infinity': Number.NEGATIVE_INFINITY,
  '-0': -0,
}

function reviveBytes(name: string, base64: string): unknown {
  const bytes = Buffer.from(base64, 'base64')
  if (Math.ceil(bytes.length / 3) * 4 !== base64.length) throw corrupt('its bytes are not base64')
  if (name === 'Buffer') return bytes
  // A copy of its own: Buffer.from may have cut its bytes out of a shared pool, at any offset.
  const copy = Buffer.from(new Uint8Array(bytes).buffer)
  if (name === 'ArrayBuffer') return copy.buffer
  if (!Object.hasOwn(typedArrays, name)) throw corrupt('its bytes are of an unknown kind')
  if (bytes.length % typedArrays[name as keyof typeof typedArrays].BYTES_PER_ELEMENT !== 0) throw corrupt('its bytes are cut off')
  return viewAs(name, copy)
}

function reviveError(body: Record<string, unknown>, depth: number, maxDepth: number): Error {
  const { name, message, stack, cause, props } = reviveErrorBody(body, depth, maxDepth)
  const error = new Error(typeof message === 'string' ? message : '')
  if (typeof name === 'string' && name !== 'Error') hide(error, 'name', name)
  hide(error, 'stack', typeof stack === 'string' ? stack : undefined)
  if (Object.hasOwn(body, 'cause')) hide(error, 'cause', cause)
  if (isJsonObject(props)) for (const [key, item] of Object.entries(props)) if (!errorFields.has(key)) define(error, key, item)
  return error
}

function reviveErrorBody(body: Record<string, unknown>, depth: number, maxDepth: number): Record<string, unknown> {
  if (depth >= maxDepth) throw corrupt(`it is nested more than ${maxDepth} levels deep`)
  const revived: Record<string, unknown> = { name: body['name'], message: body['message'], stack: body['stack'] }
  if (Object.hasOwn(body, 'cause')) revived['cause'] = revive(body['cause'], depth + 1, maxDepth)
  // The props stand in an object of their own, which the user's value does not have: not a level.
  if (isFields(body['props'])) revived['props'] = reviveFields(body['props'], depth, maxDepth)
  return revived
}
