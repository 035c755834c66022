import { isPrimitive } from './codec.ts'
import { hasKey, kindOf, read } from './container.ts'
import { HoldfastError } from './errors.ts'
import type { Path, PathKey } from './patch-operation.ts'

/**
 * Where in a state something is: keys one after the other, or as text. `messages[3].text`, `messages.3.text` and
 * `$.messages[3].text` are the same; a key that is no plain word is quoted, `["two words"]`, and `.get(1)` is a key of a Map.
 */
export type StatePath = string | Path

/** The keys of a path. `invalid_input` where it is none. */
export function parsePath(path: StatePath): Path {
  if (Array.isArray(path)) {
    const bad = path.find((key) => !isPrimitive(key))
    if (bad === undefined) return path as Path
    throw badPath(`a key is of type ${typeof bad}`)
  }
  if (typeof path !== 'string') throw badPath(`it is ${path === null ? 'null' : `of type ${typeof path}`}`)
  const keys: PathKey[] = []
  let rest = path.startsWith('$') ? path.slice(1) : /^[.[]/.test(path) || path === '' ? path : `.${path}`
  while (rest !== '') {
    const [part, index, quoted, got, name] = parts.exec(rest) ?? []
    if (part === undefined) throw badPath(`"${rest.slice(0, 40)}" in it is not understood`)
    if (index !== undefined) keys.push(Number(index))
    else if (name !== undefined) keys.push(name)
    else keys.push(literal((quoted ?? got) as string))
    rest = rest.slice(part.length)
  }
  return keys
}

const parts = /^(?:\[(\d{1,15})\]|\[("(?:[^"\\]|\\.)*")\]|\.get\(("(?:[^"\\]|\\.)*"|[^()"]+)\)|\.([^.[\]]+))/

function literal(text: string): PathKey {
  if (text === 'undefined') return undefined
  if (text === 'NaN') return Number.NaN
  if (/^-?\d+n$/.test(text)) return BigInt(text.slice(0, -1))
  try {
    const value: unknown = JSON.parse(text)
    if (isPrimitive(value)) return value as PathKey
  } catch {
    // It is refused below.
  }
  throw badPath(`${text.slice(0, 40)} is not a key`)
}

/** What a path leads to. Its keys as the containers have them (`'3'` is the index 3 of a list), as far as they are there. */
export interface Found {
  readonly path: Path
  readonly isThere: boolean
  readonly value: unknown
}

export function followPath(state: unknown, path: Path): Found {
  const keys: PathKey[] = []
  let value = state
  for (const [index, asked] of path.entries()) {
    const key = ownKey(value, asked)
    if (key === missing) return { path: [...keys, ...path.slice(index)], isThere: false, value: undefined }
    keys.push(key as PathKey)
    value = value instanceof Set ? key : read(value as object, key as PathKey)
  }
  return { path: keys, isThere: true, value }
}

const missing = Symbol('missing')

/** The key of a container that was meant; `missing` where it has none. */
function ownKey(container: unknown, asked: PathKey): PathKey | typeof missing {
  const kind = kindOf(container)
  if (kind === 'leaf' || kind === 'other') return missing
  const numeric = typeof asked === 'string' && /^(0|[1-9]\d{0,14})$/.test(asked) ? Number(asked) : undefined
  if (kind === 'set' || kind === 'map') {
    const has = (key: PathKey) => (container as Set<PathKey>).has(key)
    return has(asked) ? asked : numeric !== undefined && has(numeric) ? numeric : missing
  }
  const key = kind === 'array' ? (numeric ?? asked) : typeof asked === 'number' ? String(asked) : asked
  if (kind === 'array' ? !Number.isInteger(key) : typeof key !== 'string') return missing
  return hasKey(container as object, key) ? key : missing
}

function badPath(why: string): HoldfastError {
  return new HoldfastError(
    'invalid_input',
    `That is not a path into a state: ${why}. Write it like messages[3].text, or give its keys: ['messages', 3, 'text'].`,
  )
}
