import { isDeepStrictEqual } from 'node:util'
import { assertStorable, isPrimitive } from './codec.ts'
import { hasKey, type Kind, keysOf, kindOf, read, shownPath, stepsOf } from './container.ts'
import { HoldfastError } from './errors.ts'
import type { PatchOperation, Path, PathKey } from './patch-operation.ts'

/** Elements of a longer array are not checked for properties of its own: listing their names would cost more than all else. */
const namesListed = 100
/** Nodes compared before two elements of an array are taken for different; comparing them part by part finds out the rest. */
const equalityBudget = 500
/** UTF-16 units that a string splice has to save. */
const textGain = 12

export class Differ {
  readonly operations: PatchOperation[] = []
  readonly #maxDepth: number

  constructor(maxDepth: number) {
    this.#maxDepth = maxDepth
  }

  compare(before: unknown, after: unknown, path: Path): void {
    if (!this.#refine(before, after, path, this.operations)) this.set(path, after)
  }

  set(path: Path, value: unknown): void {
    this.operations.push(['=', path, this.#checked(value, path)])
  }

  /** Adds the operations that make `before` into `after`; false, adding none, if the two have nothing in common. */
  #refine(before: unknown, after: unknown, path: Path, into: PatchOperation[]): boolean {
    if (Object.is(before, after)) return true
    if (typeof before === 'string' && typeof after === 'string') return refineText(before, after, path, into)
    const kind = kindOf(after)
    if (kind === 'other' || kindOf(before) !== kind) return false
    switch (kind) {
      case 'leaf':
        return isEqual(before, after, { left: 1 })
      case 'array':
        return this.#refineArray(before as unknown[], after as unknown[], path, into)
      case 'set':
        return this.#refineSet(before as Set<PathKey>, after as Set<PathKey>, path, into)
      default:
        return this.#refineEntries(before as object, after as object, kind, path, into)
    }
  }

  #refineEntries(before: object, after: object, kind: Kind, path: Path, into: PatchOperation[]): boolean {
    if (kind !== 'map') this.#refuseHiddenProperties(after, path)
    const keysBefore = keysOf(before, kind)
    const keysAfter = keysOf(after, kind)
    const found: PatchOperation[] = []
    let kept = 0
    for (const key of keysBefore) if (!hasKey(after, key)) found.push(['-', [...path, key]])
    for (const key of keysAfter) {
      const value = read(after, key)
      if (hasKey(before, key)) {
        if (Object.is(read(before, key), value)) kept += 1
        else if (this.#refine(read(before, key), value, [...path, key], found)) kept += 1
        else found.push(['=', [...path, key], this.#checked(value, [...path, key])])
      } else {
        if (kind === 'map') this.#checkKey(key, path)
        found.push(['=', [...path, key], this.#checked(value, [...path, key])])
      }
    }
    if (kept === 0 && (keysBefore.length > 0 || keysAfter.length > 0)) return false
    const moved = movedToEnd(keysBefore, keysAfter, kind !== 'map')
    if (moved.length > 0) found.push(['m', path, moved])
    for (const operation of found) into.push(operation)
    return true
  }

  #refineSet(before: Set<PathKey>, after: Set<PathKey>, path: Path, into: PatchOperation[]): boolean {
    const membersBefore = [...before]
    const membersAfter = [...after]
    const deleted = membersBefore.filter((member) => !after.has(member))
    const added = membersAfter.filter((member) => !before.has(member))
    for (const member of added) this.#checkKey(member, path)
    if (added.length === after.size && after.size + before.size > 0) return false
    if (deleted.length + added.length > 0) into.push(['d', path, deleted, added])
    const moved = movedToEnd(membersBefore, membersAfter)
    if (moved.length > 0) into.push(['m', path, moved])
    return true
  }

  #refineArray(before: unknown[], after: unknown[], path: Path, into: PatchOperation[]): boolean {
    if (after.length <= namesListed) this.#refuseHiddenProperties(after, path)
    const shorter = Math.min(before.length, after.length)
    let start = 0
    while (start < shorter && isSameElement(before, start, after, start)) start = skipSame(before, start + 1, after, start + 1, 1)
    let endBefore = before.length
    let endAfter = after.length
    while (endBefore > start && endAfter > start && isSameElement(before, endBefore - 1, after, endAfter - 1)) {
      const reached = skipSame(before, endBefore - 2, after, endAfter - 2, -1) + 1
      const skipped = Math.min(endBefore - Math.max(reached, start), endAfter - start)
      endBefore -= skipped
      endAfter -= skipped
    }
    if (start === endBefore && start === endAfter) return true
    const hasCommonEnds = start > 0 || endBefore < before.length
    if (start === endBefore || start === endAfter) {
      if (!hasCommonEnds) return false
      into.push(['s', path, start, endBefore - start, this.#items(after, start, endAfter, path)])
      return true
    }
    if (endBefore === endAfter && hasFewChanges(before, after, start, endAfter)) {
      for (let i = start; i < endAfter; i++) {
        if (Object.is(before[i], after[i]) && i in after) continue
        const at = [...path, i]
        if (!this.#refine(before[i], after[i], at, into)) into.push(['=', at, this.#items(after, i, i + 1, path)[0]])
      }
      return true
    }
    return this.#rebuildArray(before, after, { start, endBefore, endAfter }, path, into)
  }

  /** The general case: says for each element after where it comes from, and refines those that took the place of another. */
  #rebuildArray(
    before: unknown[],
    after: unknown[],
    { start, endBefore, endAfter }: { start: number; endBefore: number; endAfter: number },
    path: Path,
    into: PatchOperation[],
  ): boolean {
    const sources = findSources(before, after, { start, endBefore, endAfter })
    const isUsed = new Uint8Array(before.length)
    for (const source of sources) if (source >= 0) isUsed[source] = 1
    const refined: PatchOperation[] = []
    let follower = start
    for (let i = start; i < endAfter; i++) {
      const source = sources[i - start] as number
      if (source >= 0) {
        follower = source + 1
        continue
      }
      if (follower >= endBefore || isUsed[follower] === 1) continue
      if (isRefinable(after[i]) && this.#refine(before[follower], after[i], [...path, i], refined)) sources[i - start] = follower
      follower += 1
    }
    const segments = new SegmentList()
    segments.copy(0, start)
    for (let i = start; i < endAfter; ) {
      const source = sources[i - start] as number
      let end = i + 1
      if (source < 0) {
        while (end < endAfter && (sources[end - start] as number) < 0) end += 1
        segments.insert(this.#items(after, i, end, path))
      } else {
        while (end < endAfter && sources[end - start] === source + end - i) end += 1
        if (isShort(before, source, source + end - i)) segments.insert(this.#items(after, i, end, path))
        else segments.copy(source, end - i)
      }
      i = end
    }
    segments.copy(endBefore, before.length - endBefore)
    const operation = segments.toOperation(path, before.length)
    if (operation === undefined) return false
    if (operation !== null) into.push(operation)
    for (const nested of refined) into.push(nested)
    return true
  }

  #items(array: unknown[], start: number, end: number, path: Path): unknown[] {
    const items: unknown[] = []
    for (let i = start; i < end; i++) {
      if (!(i in array)) throw notStorable([...path, i], 'is a hole in an array. Fill it, with undefined or null.')
      items.push(this.#checked(array[i], [...path, i]))
    }
    return items
  }

  #checked(value: unknown, path: Path): unknown {
    if (!isPrimitive(value)) assertStorable(value, { at: stepsOf(path), primitiveKeys: true, maxDepth: this.#maxDepth })
    return value
  }

  #checkKey(key: unknown, path: Path): void {
    if (!isPrimitive(key))
      throw notStorable(path, 'has an object as a key or member. In a state, Map keys and Set members are primitives.')
  }

  #refuseHiddenProperties(value: object, path: Path): void {
    // An array has one name more than indexes, and fewer only with holes, which are refused where they are.
    const shown = Array.isArray(value) ? value.length + 1 : Object.keys(value).length
    if (Object.getOwnPropertyNames(value).length > shown || Object.getOwnPropertySymbols(value).length > 0) {
      throw notStorable(
        path,
        'has properties that cannot be stored (symbols, not enumerable, or on an array). Copy it into plain data.',
      )
    }
  }
}

function refineText(before: string, after: string, path: Path, into: PatchOperation[]): boolean {
  let start = before.length
  // Appending is by far the most frequent; comparing a slice is much faster than a loop.
  if (after.length < before.length || after.slice(0, before.length) !== before) {
    start = 0
    const shorter = Math.min(before.length, after.length)
    while (start < shorter && before.charCodeAt(start) === after.charCodeAt(start)) start += 1
  }
  let same = 0
  const most = Math.min(before.length, after.length) - start
  while (same < most && before.charCodeAt(before.length - 1 - same) === after.charCodeAt(after.length - 1 - same)) same += 1
  // Pairs stay whole, so that what is inserted is readable text whenever the whole is.
  if (start > 0 && isHighSurrogate(after.charCodeAt(start - 1))) start -= 1
  if (same > 0 && isLowSurrogate(after.charCodeAt(after.length - same))) same -= 1
  const inserted = after.slice(start, after.length - same)
  if (after.length - inserted.length < textGain) return false
  into.push(['t', path, start, before.length - same - start, inserted])
  return true
}

/** For each element after, the index of the same one before, or -1. The same index may be used more than once. */
function findSources(
  before: unknown[],
  after: unknown[],
  { start, endBefore, endAfter }: { start: number; endBefore: number; endAfter: number },
): number[] {
  let indexes: Map<unknown, number> | undefined
  let searches = 0
  const find = (item: unknown): number => {
    // A few elements are found faster by searching; many are worth an index.
    if (++searches <= 8) {
      const found = before.indexOf(item, start)
      return found < endBefore ? found : -1
    }
    if (indexes === undefined) {
      indexes = new Map()
      for (let i = start; i < endBefore; i++) if (!indexes.has(before[i])) indexes.set(before[i], i)
    }
    return indexes.get(item) ?? -1
  }
  const sources: number[] = []
  let expected = start
  for (let i = start; i < endAfter; i++) {
    let source = expected
    if (!(source < endBefore && Object.is(before[source], after[i]))) source = find(after[i])
    // A Map holds 0 and -0 to be one key.
    if (source >= 0 && (!Object.is(before[source], after[i]) || !(i in after))) source = -1
    sources.push(source)
    if (source >= 0) expected = source + 1
  }
  return sources
}

/** Collects the parts of an array in their shortest form. */
class SegmentList {
  readonly #segments: (number | unknown[])[] = []
  #copied = 0

  copy(start: number, count: number): void {
    if (count === 0) return
    this.#copied += count
    const last = this.#segments.length - 1
    const lastCount = this.#segments[last]
    if (typeof lastCount === 'number' && (this.#segments[last - 1] as number) + lastCount === start)
      this.#segments[last] = lastCount + count
    else this.#segments.push(start, count)
  }

  insert(items: unknown[]): void {
    const last = this.#segments.at(-1)
    if (Array.isArray(last)) for (const item of items) last.push(item)
    else this.#segments.push(items)
  }

  /** Null if the array stays as it is, undefined if nothing of it is left. */
  toOperation(path: Path, lengthBefore: number): PatchOperation | null | undefined {
    if (this.#copied === 0) return undefined
    const parts = [...this.#segments]
    const start = parts[0] === 0 ? (parts.splice(0, 2)[1] as number) : 0
    const items = Array.isArray(parts[0]) ? (parts.shift() as unknown[]) : []
    const [rest, count] = parts as number[]
    const end = parts.length === 0 ? lengthBefore : parts.length === 2 && rest! + count! === lengthBefore ? rest! : -1
    if (end < start) return ['a', path, this.#segments]
    return start === lengthBefore && items.length === 0 ? null : ['s', path, start, end - start, items]
  }
}

/**
 * The keys that have to move to the end, in order, after deletions and additions, to get from one order to the other. In objects,
 * keys like '12' stand first in numeric order, whatever is done.
 */
function movedToEnd(keysBefore: readonly PathKey[], keysAfter: readonly PathKey[], areProperties = false): PathKey[] {
  let i = sameBeginning(keysBefore, keysAfter)
  if (i === keysBefore.length || i === keysAfter.length) return []
  const before = areProperties ? keysBefore.filter(isOrdered) : keysBefore
  const after = areProperties ? keysAfter.filter(isOrdered) : keysAfter
  i = sameBeginning(before, after)
  const inAfter = new Set<unknown>(after)
  const survivors = before.slice(i).filter((key) => inAfter.has(key))
  // The longest beginning of `after` that is in the order of the survivors stays where it is.
  let position = 0
  const rest = new Set<unknown>(survivors)
  while (i < after.length && rest.has(after[i])) {
    while (position < survivors.length && !Object.is(survivors[position], after[i])) position += 1
    if (position === survivors.length) break
    rest.delete(after[i])
    position += 1
    i += 1
  }
  // Additions are appended by themselves; a survivor among them moves, and what follows it moves behind it.
  while (i < after.length && !rest.has(after[i])) i += 1
  return after.slice(i)
}

function sameBeginning(before: readonly PathKey[], after: readonly PathKey[]): number {
  let i = 0
  while (i < before.length && i < after.length && Object.is(before[i], after[i])) i += 1
  return i
}

function hasFewChanges(before: unknown[], after: unknown[], start: number, end: number): boolean {
  const most = (end - start) / 4
  let changed = 0
  for (let i = start; i < end; i++) if (!Object.is(before[i], after[i]) && ++changed > most) return false
  return true
}

/** Where, from here on, the elements are no longer the very same objects. Keeps a walk along a long list as cheap as a copy of it. */
function skipSame(before: unknown[], i: number, after: unknown[], j: number, step: 1 | -1): number {
  let at = i
  for (let other = j; at >= 0 && other >= 0 && at < before.length && other < after.length; other += step) {
    const item = after[other]
    if (before[at] !== item || typeof item !== 'object') break
    at += step
  }
  return at
}

function isSameElement(before: unknown[], i: number, after: unknown[], j: number): boolean {
  const a = before[i]
  const b = after[j]
  if (a === b) return a === 0 ? Object.is(a, b) : b !== undefined || j in after
  if (typeof b !== 'object') return Number.isNaN(a) && Number.isNaN(b)
  return isEqual(a, b, { left: equalityBudget })
}

/** Equal in everything a reader could see, the order of keys included. False also when the budget ends. */
function isEqual(a: unknown, b: unknown, budget: { left: number }): boolean {
  if (Object.is(a, b)) return true
  const kind = kindOf(a)
  if (kind === 'other' || kindOf(b) !== kind || --budget.left < 0) return false
  if (kind === 'leaf') return isDeepStrictEqual(a, b)
  if (kind === 'array') {
    const [left, right] = [a as unknown[], b as unknown[]]
    if (left.length !== right.length || left.length > budget.left || Object.keys(right).length !== right.length) return false
    return left.every((item, i) => isEqual(item, right[i], budget))
  }
  if (kind === 'set') {
    const [left, right] = [[...(a as Set<unknown>)], [...(b as Set<unknown>)]]
    return left.length === right.length && left.every((member, i) => Object.is(member, right[i]))
  }
  const keysA = keysOf(a as object, kind)
  const keysB = keysOf(b as object, kind)
  if (keysA.length !== keysB.length) return false
  if (kind !== 'map' && Reflect.ownKeys(b as object).length !== keysB.length) return false
  return keysA.every((key, i) => Object.is(key, keysB[i]) && isEqual(read(a as object, key), read(b as object, key), budget))
}

/** A few small primitives are shorter written out than as indexes. */
function isShort(array: unknown[], start: number, end: number): boolean {
  let size = 0
  for (let i = start; i < end; i++) {
    const item = array[i]
    if (typeof item === 'string') size += item.length + 3
    else if (typeof item === 'number' || typeof item === 'boolean' || item === null) size += 4
    else return false
    if (size > 16) return false
  }
  return true
}

function isRefinable(value: unknown): boolean {
  return typeof value === 'string' ? value.length >= textGain : typeof value === 'object' && value !== null
}

function isOrdered(key: PathKey): boolean {
  return !/^(0|[1-9]\d{0,9})$/.test(key as string) || Number(key) > 4294967294
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff
}

function isLowSurrogate(code: number): boolean {
  return code >= 0xdc00 && code <= 0xdfff
}

function notStorable(path: Path, what: string): HoldfastError {
  const shown = shownPath(path)
  return new HoldfastError('value_not_storable', `${shown} ${what}`, { details: { path: shown } })
}
