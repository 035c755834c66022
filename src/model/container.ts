import { formatPath, type PathStep } from './codec.ts'
import type { Path, PathKey } from './patch-operation.ts'
import { makeReadOnly } from './read-only.ts'

export type Kind = 'object' | 'null-object' | 'array' | 'map' | 'set' | 'leaf' | 'other'

/** Leaves are values with contents that are replaced as a whole: Dates and bytes. Other: primitives, errors, what is not storable. */
export function kindOf(value: unknown): Kind {
  if (typeof value !== 'object' || value === null) return 'other'
  const prototype = Object.getPrototypeOf(value)
  if (prototype === Object.prototype) return 'object'
  if (prototype === Array.prototype) return Array.isArray(value) ? 'array' : 'other'
  if (prototype === null) return 'null-object'
  if (prototype === Map.prototype) return 'map'
  if (prototype === Set.prototype) return 'set'
  return prototype === Date.prototype || ArrayBuffer.isView(value) || value instanceof ArrayBuffer ? 'leaf' : 'other'
}

export function keysOf(container: object, kind: Kind): PathKey[] {
  return kind === 'map' ? [...(container as Map<PathKey, unknown>).keys()] : Object.keys(container)
}

export function hasKey(container: object, key: PathKey): boolean {
  return container instanceof Map ? container.has(key) : Object.hasOwn(container, key as string)
}

export function read(container: object, key: PathKey): unknown {
  return container instanceof Map ? container.get(key) : (container as Record<string, unknown>)[key as string]
}

export function put(container: object, key: unknown, value: unknown): void {
  if (container instanceof Map) container.set(key, value)
  else if (Object.hasOwn(container, key as string) || !((key as string) in container))
    (container as Record<string, unknown>)[key as string] = value
  else Object.defineProperty(container, key as string, { value, writable: true, enumerable: true, configurable: true })
}

export function shallowCopy(container: object, kind: Kind): object {
  switch (kind) {
    case 'array':
      // Not slice(): on a frozen array a spread is fifty times as fast.
      return [...(container as unknown[])]
    case 'map':
      return new Map(container as Map<unknown, unknown>)
    case 'set':
      return new Set(container as Set<unknown>)
    case 'null-object':
      return Object.assign(Object.create(null), container)
    default:
      return { ...container }
  }
}

/** What a value holds besides plain data: nothing, what a recipe could change unseen or what is drafted on request only, bytes of them. */
type Special = 0 | typeof special | typeof bytes
const special = 1
const bytes = 3

/** Makes everything below a value read-only, as far as that can be done, and says what special things it holds. */
export function freezeAll(root: unknown): Special {
  let found: Special = 0
  const open: unknown[] = [root]
  while (open.length > 0) {
    const value = open.pop()
    if (typeof value !== 'object' || value === null) continue
    const kind = kindOf(value)
    if (kind === 'leaf') {
      if (value instanceof Date) makeReadOnly(value)
      found = larger(found, value instanceof Date ? special : bytes)
      continue
    }
    if (Object.isFrozen(value)) {
      if (found !== bytes) found = larger(found, specialIn(value))
      continue
    }
    if (kind === 'null-object') found = larger(found, special)
    if (kind === 'map' || kind === 'set') makeReadOnly(value)
    else Object.freeze(value)
    for (const child of childrenOf(value, kind)) if (typeof child === 'object' && child !== null) open.push(child)
  }
  return found
}

function larger(one: Special, other: Special): Special {
  return one > other ? one : other
}

function specialIn(value: unknown): Special {
  let found: Special = 0
  forEachSpecial(value, [], (met) => {
    found = larger(found, kindOf(met) === 'leaf' && !(met instanceof Date) ? bytes : special)
  })
  return found
}

/** Calls back for every Date, all bytes and every object without a prototype below a value, with its path. */
export function forEachSpecial(
  value: unknown,
  path: PathStep[],
  visit: (value: object, path: readonly PathStep[]) => void,
): void {
  if (typeof value !== 'object' || value === null || path.length > 1000) return
  const kind = kindOf(value)
  if (kind === 'leaf' || kind === 'null-object') visit(value, path)
  if (kind === 'leaf' || kind === 'set') return
  if (kind === 'array') {
    const items = value as unknown[]
    for (let i = 0; i < items.length; i++) {
      if (typeof items[i] !== 'object') continue
      path.push(i)
      forEachSpecial(items[i], path, visit)
      path.pop()
    }
    return
  }
  for (const key of kind === 'map' ? (value as Map<PathKey, unknown>).keys() : namesOf(value, kind)) {
    const child = read(value, key)
    if (typeof child !== 'object' || child === null) continue
    path.push(...stepsOf([key]))
    forEachSpecial(child, path, visit)
    path.pop()
  }
}

function childrenOf(value: object, kind: Kind): Iterable<unknown> {
  if (kind === 'array') return value as unknown[]
  if (kind === 'map' || kind === 'set') return (value as Map<unknown, unknown>).values()
  return namesOf(value, kind).map((key) => (value as Record<string, unknown>)[key])
}

/** The cause and the errors of an error are not enumerable. */
function namesOf(value: object, kind: Kind): string[] {
  return kind === 'other' ? Object.getOwnPropertyNames(value) : Object.keys(value)
}

export function stepsOf(path: Path): PathStep[] {
  return path.map((key) => (typeof key === 'string' || typeof key === 'number' ? key : { call: 'get', key }))
}

export function shownPath(path: Path): string {
  return formatPath(stepsOf(path))
}

/**
 * Makes a value read-only through and through and returns it. What is already frozen is taken to be so all the way down. The contents of
 * bytes can't be frozen: user code is shown copies (`ShownBytes`), and changing them in place in a recipe is refused.
 */
export function deepFreeze<T>(value: T): T {
  const found = freezeAll(value)
  if (typeof value === 'object' && value !== null && Object.isFrozen(value)) watched.set(value, found)
  return value
}

/**
 * Whether a state holds what a recipe could change unseen (bytes), or what is drafted only on request (objects without a prototype). Found
 * once per state and passed on by applyPatch, since watching makes array methods slower.
 */
const watched = new WeakMap<object, Special>()

/** The state after a patch holds what the one before it held, and what was added. */
export function passWatchingOn(before: unknown, after: unknown, added: Special): void {
  const known = typeof before === 'object' && before !== null ? watched.get(before) : undefined
  if (typeof after !== 'object' || after === null || after === before) return
  if (added > 0 || known !== undefined) watched.set(after, larger(added, known ?? 0))
}

export function needsWatching(state: unknown): boolean {
  return specialOf(state) !== 0
}

export function holdsBytes(state: unknown): boolean {
  return specialOf(state) === bytes
}

function specialOf(state: unknown): Special {
  if (typeof state !== 'object' || state === null) return 0
  let found = watched.get(state)
  if (found === undefined) {
    found = specialIn(state)
    if (Object.isFrozen(state)) watched.set(state, found)
  }
  return found
}
