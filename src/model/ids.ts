import { HoldfastError } from './errors.ts'

/** Longest id, in bytes of UTF-8. */
export const maxIdBytes = 512

/**
 * Returns the value if it can be an id: 1 to 512 bytes of UTF-8, no control characters, no lone surrogates. Everything
 * else in it is plain data, compared bytewise. Refused with `invalid_id`, naming the kind ("run id", "signal name").
 */
export function checkId(kind: string, value: unknown): string {
  if (value === '') throw refused(kind, value, 'it is empty')
  return checkText(kind, value)
}

/** Like checkId for the name of a step, which must also keep clear of scopes (`a/b`) and items (`a[0]`). */
export function checkStepName(value: unknown): string {
  const name = checkId('step name', value)
  if (name.includes('/')) throw refused('step name', value, 'it contains "/", which separates scopes: use ctx.scope')
  if (name.includes('[')) throw refused('step name', value, 'it contains "[", which numbers the items of ctx.map')
  return name
}

/** Like checkId for an owner. The empty string is the owner of everything that was given none. */
export function checkOwner(value: unknown): string {
  return checkText('owner', value)
}

/** One string for (owner, id), different for different pairs: the length says where the owner ends. */
export function pairKey(owner: string, id: string): string {
  return `${owner.length}:${owner}${id}`
}

export interface Checkpoint {
  readonly threadId: string
  readonly seq: number
}

export function formatCheckpoint(threadId: string, seq: number): string {
  return `${threadId}@${seq}`
}

/** Reads `threadId@seq`, splitting at the last `@`, since a thread id may contain one. Refused with `invalid_id`. */
export function parseCheckpoint(text: unknown): Checkpoint {
  if (typeof text !== 'string') throw refused('checkpoint', text, 'it is not a string', checkpointForm)
  const at = text.lastIndexOf('@')
  const digits = text.slice(at + 1)
  const seq = Number(digits)
  if (at === -1 || !Number.isSafeInteger(seq) || String(seq) !== digits || seq < 0) {
    throw refused('checkpoint', text, 'it does not end in "@" and a log position', checkpointForm)
  }
  return { threadId: checkId('thread id of a checkpoint', text.slice(0, at)), seq }
}

const checkpointForm = 'A checkpoint is written threadId@seq, as checkpoints() returns it.'
const idForm = `Allowed are 1 to ${maxIdBytes} bytes of UTF-8 without control characters and lone surrogates.`

function checkText(kind: string, value: unknown): string {
  if (typeof value !== 'string')
    throw refused(kind, value, `it is ${value === null ? 'null' : `of type ${typeof value}`}, not a string`)
  if (value.length > maxIdBytes) throw refused(kind, value, `it is longer than ${maxIdBytes} bytes`)
  let bytes = 0
  for (let i = 0; i < value.length; i++) {
    const code = value.charCodeAt(i)
    if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) throw refused(kind, value, `it has a control character at position ${i}`)
    if (code < 0x80) bytes += 1
    else if (code < 0x800) bytes += 2
    else if (code < 0xd800 || code > 0xdfff) bytes += 3
    else {
      const low = value.charCodeAt(i + 1)
      if (code > 0xdbff || !(low >= 0xdc00 && low <= 0xdfff))
        throw refused(kind, value, `it has a lone surrogate at position ${i}`)
      bytes += 4
      i += 1
    }
  }
  if (bytes > maxIdBytes) throw refused(kind, value, `it is ${bytes} bytes long`)
  return value
}

function refused(kind: string, value: unknown, why: string, allowed = idForm): HoldfastError {
  const shown = typeof value === 'string' ? ` ${JSON.stringify(value.length > 64 ? `${value.slice(0, 64)}…` : value)}` : ''
  return new HoldfastError('invalid_id', `The ${kind}${shown} is not valid: ${why}. ${allowed}`, { details: { kind } })
}
