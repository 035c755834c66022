import { isDeepStrictEqual } from 'node:util'
import { hasKey, keysOf, kindOf, read, shownPath } from './container.ts'
import { codeOf, HoldfastError } from './errors.ts'
import { applyPatch } from './patch.ts'
import type { Patch, PatchOperation, Path, PathKey, Segments } from './patch-operation.ts'

/**
 * The state after a patch that was made on another state: `before` is the one that it was made on, `state` the one that it is to
 * change now. Pure.
 *
 * 1. On an equal state it is what applyPatch gives.
 * 2. An append to an array or a text stays an append, wherever the end is now. Elements are found again by what they are.
 * 3. What it sets is set, what it adds is added; what it takes away and is not there need not be taken away.
 * 4. Where a path of it is gone, or an element can't be told from another, it is refused with `conflict`, `details.path`.
 */
export function rebasePatch(patch: Patch, before: unknown, state: unknown): unknown {
  if (isDeepStrictEqual(before, state)) return applyPatch(state, patch)
  let made: unknown = before ?? {}
  let now: unknown = state ?? {}
  for (const operation of patch) {
    for (const part of refined(operation, made)) {
      const moved = moveOperation(part, made, now)
      made = applyPatch(made, [part])
      if (moved !== null) now = applyMoved(now, moved, part)
    }
  }
  return now
}

/** What it leads to may be something else by now. */
function applyMoved(now: unknown, moved: PatchOperation, { 1: path }: PatchOperation): unknown {
  try {
    return applyPatch(now, [moved])
  } catch (error) {
    if (codeOf(error) !== 'corrupt_record') throw error
    throw gone(path)
  }
}

/** A container that was set as a whole, because nothing of it stayed, says what changed in it. */
function refined(operation: PatchOperation, made: unknown): readonly PatchOperation[] {
  if (operation[0] !== '=') return [operation]
  const [, path, value] = operation
  const old = valueAt(made, path)
  return old === absent ? [operation] : (differences(old, value, path) ?? [operation])
}

/** Null where the value as a whole is what was set. */
function differences(old: unknown, value: unknown, path: Path): PatchOperation[] | null {
  const kind = kindOf(value)
  if (kindOf(old) !== kind) return null
  if (kind === 'array') {
    const [from, to] = [old as unknown[], value as unknown[]]
    const isAppend = to.length >= from.length && isDeepStrictEqual(to.slice(0, from.length), from)
    return isAppend ? [['s', path, from.length, 0, to.slice(from.length)]] : null
  }
  if (kind === 'set') {
    const [from, to] = [old as Set<PathKey>, value as Set<PathKey>]
    return [['d', path, [...from].filter((one) => !to.has(one)), [...to].filter((one) => !from.has(one))]]
  }
  if (kind !== 'object' && kind !== 'null-object' && kind !== 'map') return null
  const operations: PatchOperation[] = []
  for (const key of keysOf(old as object, kind)) if (!hasKey(value as object, key)) operations.push(['-', [...path, key]])
  for (const key of keysOf(value as object, kind)) {
    const next = read(value as object, key)
    const at = [...path, key]
    if (!hasKey(old as object, key)) operations.push(['=', at, next])
    else {
      const last = read(old as object, key)
      if (!isDeepStrictEqual(last, next)) operations.push(...(differences(last, next, at) ?? [['=', at, next] as const]))
    }
  }
  return operations
}

/** The operation as it fits the state now; null where there is nothing left to do. */
function moveOperation(operation: PatchOperation, made: unknown, now: unknown): PatchOperation | null {
  const [name, path] = operation
  switch (name) {
    case '=': {
      if (path.length === 0) return operation
      const parent = movePath(path.slice(0, -1), made, now, path)
      const key = path.at(-1)
      const [from, to] = [valueAt(made, path.slice(0, -1)), valueAt(now, parent)]
      if (Array.isArray(from) && Array.isArray(to))
        return ['=', [...parent, elementIn(to, from, key as number, path)], operation[2]]
      return ['=', [...parent, key], operation[2]]
    }
    case '-': {
      const parent = movePath(path.slice(0, -1), made, now, path)
      const container = valueAt(now, parent)
      if (typeof container !== 'object' || container === null || !hasKey(container, path.at(-1))) return null
      return ['-', [...parent, path.at(-1)]]
    }
    case 's': {
      const at = movePath(path, made, now, path)
      const [from, to] = arraysAt(path, at, made, now)
      const [, , start, count, items] = operation
      return ['s', at, rangeIn(to, from, { start, count }, path), count, items]
    }
    case 'a': {
      const at = movePath(path, made, now, path)
      const [from, to] = arraysAt(path, at, made, now)
      if (isDeepStrictEqual(from, to)) return ['a', at, operation[2]]
      return ['=', at, rebuilt(to, from, operation[2], path)]
    }
    case 't': {
      const at = movePath(path, made, now, path)
      const [from, to] = [valueAt(made, path), valueAt(now, at)]
      const [, , start, count, text] = operation
      if (typeof from !== 'string' || typeof to !== 'string') throw gone(path)
      return ['t', at, placeInText(to, from, { start, count }, path), count, text]
    }
    case 'd': {
      const at = movePath(path, made, now, path)
      const members = valueAt(now, at)
      if (!(members instanceof Set)) throw gone(path)
      return ['d', at, operation[2].filter((member) => members.has(member)), operation[3]]
    }
    case 'm': {
      const at = movePath(path, made, now, path)
      const container = valueAt(now, at)
      if (typeof container !== 'object' || container === null) throw gone(path)
      const isThere = (key: PathKey) => (container instanceof Set ? container.has(key) : hasKey(container, key))
      return ['m', at, operation[2].filter(isThere)]
    }
  }
}

/** Where the container of a path stands now: elements of arrays may have moved. */
function movePath(path: Path, made: unknown, now: unknown, shown: Path): PathKey[] {
  const moved: PathKey[] = []
  let [from, to] = [made, now]
  for (const key of path) {
    if (kindOf(from) !== kindOf(to)) throw gone(shown)
    const at = Array.isArray(from) ? elementIn(to as unknown[], from, key as number, shown) : key
    if (!hasKey(to as object, at)) throw gone(shown)
    moved.push(at)
    from = read(from as object, key)
    to = read(to as object, at)
  }
  return moved
}

function arraysAt(path: Path, at: Path, made: unknown, now: unknown): [unknown[], unknown[]] {
  const [from, to] = [valueAt(made, path), valueAt(now, at)]
  if (!Array.isArray(from) || !Array.isArray(to)) throw gone(path)
  return [from, to]
}

function elementIn(to: unknown[], from: unknown[], index: number, path: Path): number {
  return rangeIn(to, from, { start: index, count: 1 }, path)
}

/** Where a range of elements stands in an array now. An empty one stands at an end, or behind the element that it followed. */
function rangeIn(to: unknown[], from: unknown[], range: { start: number; count: number }, path: Path): number {
  const { start, count } = range
  if (count === 0) {
    if (start === from.length) return to.length
    return start === 0 ? 0 : rangeIn(to, from, { start: start - 1, count: 1 }, path) + 1
  }
  const wanted = from.slice(start, start + count)
  const isAt = (index: number) => index >= 0 && isDeepStrictEqual(to.slice(index, index + count), wanted)
  const fromEnd = to.length - (from.length - start)
  if (isAt(start) && isDeepStrictEqual(to.slice(0, start), from.slice(0, start))) return start
  if (isAt(fromEnd) && isDeepStrictEqual(to.slice(fromEnd), from.slice(start))) return fromEnd
  const found = to.flatMap((_, index) => (isAt(index) ? [index] : []))
  if (found.length !== 1) throw gone(path)
  return found[0] as number
}

function rebuilt(to: unknown[], from: unknown[], segments: Segments, path: Path): unknown[] {
  const places = from.map((_, index) => index)
  const known = new Set<number>()
  const placeOf = (index: number): number => {
    const place = elementIn(to, from, places[index] as number, path)
    known.add(place)
    return place
  }
  const made: unknown[] = []
  const kept = new Set<number>()
  for (let i = 0; i < segments.length; i++) {
    const segment = segments[i]
    if (Array.isArray(segment)) made.push(...segment)
    else {
      i += 1
      for (let index = segment as number; index < (segment as number) + (segments[i] as number); index++) {
        kept.add(index)
        made.push(to[placeOf(index)])
      }
    }
  }
  // What was taken out need not be there; what it did not know of can't be given a place.
  for (const index of places) {
    if (kept.has(index)) continue
    const place = to.findIndex((element, at) => !known.has(at) && isDeepStrictEqual(element, from[index]))
    if (place >= 0) known.add(place)
  }
  if (known.size < to.length) throw gone(path)
  return made
}

function placeInText(to: string, from: string, { start, count }: { start: number; count: number }, path: Path): number {
  if (start === from.length) return to.length
  if (to.startsWith(from.slice(0, start + count))) return start
  if (to.endsWith(from.slice(start))) return to.length - (from.length - start)
  throw gone(path)
}

const absent = Symbol('absent')

function valueAt(state: unknown, path: Path): unknown {
  let value = state
  for (const key of path) {
    if (typeof value !== 'object' || value === null || !hasKey(value, key)) return absent
    value = read(value, key)
  }
  return value
}

function gone(path: Path): HoldfastError {
  const shown = shownPath(path)
  return new HoldfastError('conflict', `A patch no longer fits the state: ${shown} has changed.`, {
    details: { path: shown },
  })
}
