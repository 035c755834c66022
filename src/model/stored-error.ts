import { codeOf, HoldfastError } from './errors.ts'

const maxMessage = 16_000
const maxStack = 4_000
const maxCauses = 5
const maxProperties = 50

/**
 * Any thrown value as an Error that every store can keep: name, message, stack, code, causes, and own properties that are
 * plain text, numbers or booleans. What an error drags along besides (requests, sockets) is left behind, and what is too
 * long is cut. Whatever was thrown, this does not throw: a failure can always be recorded.
 */
export function toStorableError(thrown: unknown): Error {
  try {
    return storable(thrown, 0)
  } catch {
    return nonError('something that can not be read')
  }
}

function storable(thrown: unknown, depth: number): Error {
  if (!(thrown instanceof Error)) return nonError(describe(thrown))
  const error = new Error(cut(readOnce(thrown, 'message'), maxMessage))
  error.name = cut(readOnce(thrown, 'name'), maxMessage)
  error.stack = cut(readOnce(thrown, 'stack'), maxStack)
  for (const key of Object.keys(thrown).slice(0, maxProperties)) {
    if (key === 'name' || key === 'message' || key === 'stack' || key === 'cause' || key === '__proto__') continue
    const value = readOnce(thrown, key)
    if (typeof value === 'string' ? value.length <= maxStack : typeof value === 'number' || typeof value === 'boolean') {
      Object.defineProperty(error, key, { value, enumerable: true, writable: true, configurable: true })
    }
  }
  if (codeOf(thrown) !== undefined) Object.assign(error, { details: storableDetails((thrown as HoldfastError).details) })
  const cause = readOnce(thrown, 'cause')
  if (cause !== undefined && depth < maxCauses) error.cause = storable(cause, depth + 1)
  return error
}

function nonError(message: string): Error {
  return Object.assign(new Error(cut(message, maxMessage)), { name: 'NonError', stack: undefined })
}

function cut(value: unknown, max: number): string {
  const text = typeof value === 'string' ? value : value === undefined ? '' : describe(value)
  return text.length <= max ? text : `${text.slice(0, max)}…`
}

/** The error as user code sees it, the same live and on replay. Only our own class is rebuilt, by its known codes. */
export function reviveError(stored: Error): Error {
  const code = codeOf(stored)
  if (stored.name !== 'HoldfastError' || code === undefined) return stored
  const { details, retryable } = stored as Partial<HoldfastError>
  const error = new HoldfastError(code, stored.message, {
    cause: stored.cause instanceof Error ? reviveError(stored.cause) : stored.cause,
    retryable: retryable === true,
    details: details ?? {},
  })
  if (stored.stack !== undefined) error.stack = stored.stack
  return error
}

function storableDetails(details: unknown): Record<string, unknown> {
  const kept: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(details ?? {})) {
    if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') kept[key] = value
    else if (Array.isArray(value) && value.every((item) => typeof item === 'string')) kept[key] = value
  }
  return kept
}

function readOnce(error: Error, key: string): unknown {
  try {
    return (error as unknown as Record<string, unknown>)[key]
  } catch {
    return undefined
  }
}

function describe(thrown: unknown): string {
  try {
    return typeof thrown === 'object' && thrown !== null ? (JSON.stringify(thrown) ?? String(thrown)) : String(thrown)
  } catch {
    return Object.prototype.toString.call(thrown)
  }
}
