/**
 * Changes of a state as data: what `update` writes to the log instead of the whole state.
 *
 * 1. applyPatch(state, decode(encode(diffUpdate(state, recipe)))) is the state that the recipe made, the order of object keys,
 *    Map entries and Set members included. Another order of keys is a change.
 * 2. A patch costs what changed: what the next state shares with this one, by identity or by an equal value at its place, is
 *    not written. Elements that moved in an array are written as indexes.
 * 3. A recipe that throws, returns a promise or makes something that cannot be stored changes nothing.
 * 4. A patch touches own properties and existing positions only. Anything else is `corrupt_record`.
 *
 * The recipe runs on a mutative draft; the patch is found by comparing the two states, which share all that was not changed.
 */
import { isDeepStrictEqual } from 'node:util'
import { create, current, isDraft, original } from 'mutative'
import { assertStorable, defaultMaxDepth, formatPath, isPrimitive, type PathStep } from './codec.ts'
import { HoldfastError } from './errors.ts'

/** A key of an object, an index of an array, or a key of a Map. */
export type PathKey = string | number | bigint | boolean | null | undefined
export type Path = readonly PathKey[]

/** Part of an array rebuilt from its old elements: `start, count` pairs of numbers to copy, lists of new items. */
export type Segments = readonly (number | readonly unknown[])[]

export type PatchOperation =
  /** Set: the whole state (empty path), a property, an element that exists, a Map entry. */
  | readonly ['=', Path, unknown]
  /** Delete a property or a Map entry. */
  | readonly ['-', Path]
  /** Splice an array: start, how many to delete, items to insert. */
  | readonly ['s', Path, number, number, readonly unknown[]]
  /** Rebuild an array from its old elements and new ones. */
  | readonly ['a', Path, Segments]
  /** Splice a string: start, how many UTF-16 units to delete, text to insert. */
  | readonly ['t', Path, number, number, string]
  /** Delete members of a Set, then add others. */
  | readonly ['d', Path, readonly PathKey[], readonly PathKey[]]
  /** Move keys of an object or Map, or members of a Set, to the end, in this order. */
  | readonly ['m', Path, readonly PathKey[]]

export type Patch = readonly PatchOperation[]

// biome-ignore lint/suspicious/noExplicitAny: the type of a state is known to its definition only
export type Recipe = (draft: any) => unknown

export interface DiffOptions {
  /** Levels of nested containers that the codec takes. Default 200. */
  readonly maxDepth?: number
}

/** A patch nests a value at most this much deeper than the state does. */
const patchDepth = 4

/**
 * Runs a recipe on a draft of the state and returns what it changed, or null. The recipe is synchronous; it changes the draft,
 * or leaves it alone and returns a new object, array, Map or Set. Other results are ignored, so that `draft => draft.list.push(x)`
 * does what it says. Refused with `invalid_input` (a promise, a changed draft and a new state) or `value_not_storable`.
 */
export function diffUpdate(state: unknown, recipe: Recipe, options: DiffOptions = {}): Patch | null {
  const next = runRecipe(state, recipe)
  const differ = new Differ((options.maxDepth ?? defaultMaxDepth) - patchDepth)
  try {
    differ.compare(state, next, [])
  } catch (error) {
    if (error instanceof HoldfastError) throw error
    throw new HoldfastError(
      'value_not_storable',
      `$ could not be read after the update: ${messageOf(error)}. Put plain data into the state.`,
      {
        cause: error,
        details: { path: '$' },
      },
    )
  }
  return differ.operations.length === 0 ? null : differ.operations
}

/** The patch that replaces a whole state, checked as diffUpdate checks what a recipe makes. */
export function replaceState(value: unknown, options: DiffOptions = {}): Patch {
  const differ = new Differ((options.maxDepth ?? defaultMaxDepth) - patchDepth)
  differ.set([], value)
  return differ.operations
}

/**
 * The state after a patch. Pure: untouched parts are shared with `state`, everything new is deeply frozen. Undefined stands for
 * the state of a thread that nobody has written, `{}`. A patch that does not fit the state is `corrupt_record`.
 */
export function applyPatch(state: unknown, patch: Patch): unknown {
  const edit = new Edit(state === undefined ? emptyState : state)
  if (!Array.isArray(patch)) throw misfit('it is not a list')
  for (const operation of patch) {
    if (!Array.isArray(operation) || !Array.isArray(operation[1])) throw misfit('an operation has no path')
    edit.apply(operation as unknown as PatchOperation)
  }
  return edit.finish()
}

/**
 * Freezes a value through and through and returns it. What is already frozen is taken to be so all the way down. The contents of
 * Dates, Maps, Sets and bytes cannot be frozen; changing them in place in a recipe is refused (Dates, bytes) or drafted (Maps, Sets).
 */
export function deepFreeze<T>(value: T): T {
  const isSpecial = freezeAll(value)
  if (typeof value === 'object' && value !== null && Object.isFrozen(value)) watched.set(value, isSpecial)
  return value
}

const emptyState = Object.freeze({})

function runRecipe(state: unknown, recipe: Recipe): unknown {
  const watch = needsWatching(state) ? new Watch() : undefined
  let returned: unknown
  let hasFinished = false
  const body = (draft: unknown): void => {
    const result = recipe(draft)
    returned = newStateFrom(result, draft)
    hasFinished = true
  }
  try {
    if (kindOf(state) === 'other' || kindOf(state) === 'leaf') {
      body(state)
      return returned ?? state
    }
    const next = create(state as object, body, watch ? { mark: watch.mark as never } : {})
    watch?.verify(state)
    return returned ?? next
  } catch (error) {
    watch?.restore(state)
    // What mutative throws once the recipe is done is about what the recipe left behind.
    if (!hasFinished || error instanceof HoldfastError) throw error
    throw new HoldfastError(
      'value_not_storable',
      `The update could not be read: ${messageOf(error)}. Put plain data into the state.`,
      {
        cause: error,
        details: { path: '$' },
      },
    )
  }
}

/** The new state that a recipe returned, free of drafts; undefined if it returned none. */
function newStateFrom(result: unknown, draft: unknown): unknown {
  if (typeof result !== 'object' || result === null || isDraft(result)) return undefined
  if (typeof (result as { then?: unknown }).then === 'function') {
    // Its drafts are revoked by now: whatever it still does fails, and nobody is there to hear of it.
    Promise.resolve(result).catch(() => {})
    throw new HoldfastError(
      'invalid_input',
      'The recipe of an update returned a promise. Await first, then update synchronously.',
    )
  }
  if (isDraft(draft) && current(draft as object) !== original(draft as object)) {
    throw new HoldfastError(
      'invalid_input',
      'The recipe of an update changed its draft and returned an object too. Do one or the other; with an arrow function, use braces.',
    )
  }
  if (kindOf(result) === 'leaf' || result instanceof Error) {
    throw new HoldfastError('invalid_input', 'The recipe of an update returned no object, array or Map as the new state.')
  }
  return withoutDrafts(result, new Map(), true)
}

/**
 * The value with every draft replaced by the unchanged part of the state that it stands for. What is frozen is taken for a part of
 * the state, which holds no drafts. `seen` ends cycles; the check of the new state refuses them.
 */
function withoutDrafts(value: unknown, seen: Map<object, object>, isRoot = false): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (isDraft(value)) return original(value)
  const kind = kindOf(value)
  if (kind === 'leaf' || kind === 'other' || kind === 'set' || (Object.isFrozen(value) && !isRoot)) return value
  const known = seen.get(value)
  if (known !== undefined) return known
  seen.set(value, value)
  let copy: object | undefined
  for (const [key, item] of kind === 'map' ? (value as Map<PathKey, unknown>).entries() : Object.entries(value)) {
    const clean = withoutDrafts(item, seen)
    if (clean === item) continue
    copy ??= shallowCopy(value, kind)
    put(copy, key, clean)
  }
  if (copy !== undefined) seen.set(value, copy)
  return copy ?? value
}

/** Dates and bytes that a recipe met, with what was in them: mutative does not draft them, so a change would go unnoticed. */
class Watch {
  readonly #met = new Map<object, Date | Uint8Array>()

  readonly mark = (value: unknown): 'immutable' | undefined => {
    if (typeof value !== 'object' || value === null) return undefined
    if (this.#met.has(value)) return undefined
    if (value instanceof Date) this.#met.set(value, new Date(value))
    else if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) this.#met.set(value, new Uint8Array(bytesOf(value)))
    else if (value instanceof Error) forEachSpecial(value, [], (special) => this.mark(special))
    else if (Object.getPrototypeOf(value) === null) return 'immutable'
    return undefined
  }

  /** Puts back what was changed in place in the state, and refuses the update. */
  verify(state: unknown): void {
    const path = this.restore(state)
    if (path === undefined) return
    throw new HoldfastError(
      'value_not_storable',
      `${path} was changed in place, which cannot be followed. Assign a new Date or new bytes instead; the state is as it was.`,
      { details: { path } },
    )
  }

  /** The path of something of the state that had to be put back. What the recipe brought itself is its own to change. */
  restore(state: unknown): string | undefined {
    const changed = new Map([...this.#met].filter(([value, before]) => !isSameLeaf(value, before)))
    if (changed.size === 0) return undefined
    let first: string | undefined
    forEachSpecial(state, [], (value, path) => {
      const before = changed.get(value)
      if (before === undefined) return
      first ??= formatPath(path)
      if (value instanceof Date) value.setTime((before as Date).getTime())
      else bytesOf(value as ArrayBufferView).set(before as Uint8Array)
    })
    return first
  }
}

function isSameLeaf(value: object, before: Date | Uint8Array): boolean {
  if (value instanceof Date) return Object.is(value.getTime(), (before as Date).getTime())
  return Buffer.compare(bytesOf(value as ArrayBufferView), before as Uint8Array) === 0
}

function bytesOf(value: ArrayBufferView | ArrayBuffer): Uint8Array {
  return ArrayBuffer.isView(value) ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : new Uint8Array(value)
}

/**
 * Whether a state holds what a recipe could change unseen (Dates, bytes), or what is drafted only on request (objects without a
 * prototype). Found once per state and passed on by applyPatch, since watching makes array methods slower.
 */
const watched = new WeakMap<object, boolean>()

function needsWatching(state: unknown): boolean {
  if (typeof state !== 'object' || state === null) return false
  let found = watched.get(state)
  if (found === undefined) {
    found = holdsSpecial(state)
    if (Object.isFrozen(state)) watched.set(state, found)
  }
  return found
}

/** Elements of a longer array are not checked for properties of its own: listing their names would cost more than all else. */
const namesListed = 100
/** Nodes compared before two elements of an array are taken for different; comparing them part by part finds out the rest. */
const equalityBudget = 500
/** UTF-16 units that a string splice has to save. */
const textGain = 12

class Differ {
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

/** One application of a patch: copies what it touches, once, and freezes it at the end. */
class Edit {
  readonly #before: unknown
  #root: unknown
  /** Copies made here, still open to change. */
  readonly #copies = new Set<object>()
  readonly #added: unknown[] = []

  constructor(state: unknown) {
    this.#before = state
    this.#root = state
  }

  apply(operation: PatchOperation): void {
    const [name, path] = operation
    switch (name) {
      case '=':
        this.#added.push(operation[2])
        if (operation.length !== 3) throw misfit('a value is missing')
        if (path.length === 0) this.#root = operation[2]
        else this.#assign(path, operation[2])
        break
      case '-':
        this.#delete(path)
        break
      case 's':
        this.#splice(this.#open(path, 'array') as unknown[], operation[2], operation[3], operation[4])
        break
      case 'a':
        this.#rebuild(this.#open(path, 'array') as unknown[], operation[2])
        break
      case 't':
        this.#spliceText(path, operation[2], operation[3], operation[4])
        break
      case 'd':
        this.#changeMembers(this.#open(path, 'set') as Set<unknown>, operation[2], operation[3])
        break
      case 'm':
        this.#move(this.#open(path), operation[2])
        break
      default:
        throw misfit(`it has the unknown operation ${JSON.stringify(String(name).slice(0, 20))}`)
    }
  }

  finish(): unknown {
    let addedSpecial = false
    for (const value of this.#added) addedSpecial = freezeAll(value) || addedSpecial
    this.#close()
    const known = typeof this.#before === 'object' && this.#before !== null ? watched.get(this.#before) : undefined
    if (typeof this.#root === 'object' && this.#root !== null && this.#root !== this.#before) {
      if (addedSpecial || known !== undefined) watched.set(this.#root, addedSpecial || known === true)
    }
    return this.#root
  }

  #close(): void {
    for (const copy of this.#copies) Object.freeze(copy)
    this.#copies.clear()
  }

  /** The container at a path, as a copy that may be changed. */
  #open(path: Path, kind?: Kind): object {
    this.#root = this.#copy(this.#root)
    let node = this.#root as object
    for (const key of path) {
      const child = ownChild(node, key)
      const copy = this.#copy(child)
      if (copy !== child) put(node, key, copy)
      node = copy
    }
    if (kind !== undefined && kindOf(node) !== kind) throw misfit(`there is no ${kind} at ${shownPath(path)}`)
    return node
  }

  #copy(value: unknown): object {
    if (this.#copies.has(value as object)) return value as object
    const kind = kindOf(value)
    if (kind === 'other' || kind === 'leaf') throw misfit('its path leads into something that has no parts')
    const copy = shallowCopy(value as object, kind)
    this.#copies.add(copy)
    return copy
  }

  #assign(path: Path, value: unknown): void {
    const parent = this.#open(path.slice(0, -1))
    const key = path.at(-1)
    checkKeyOf(parent, key, path)
    if (Array.isArray(parent)) checkRange(key as number, 0, parent.length - 1, path)
    put(parent, key, value)
  }

  #delete(path: Path): void {
    if (path.length === 0) throw misfit('it deletes the whole state')
    const parent = this.#open(path.slice(0, -1))
    const key = path.at(-1)
    ownChild(parent, key)
    if (Array.isArray(parent)) throw misfit('it deletes an element without moving the others')
    if (parent instanceof Map) parent.delete(key)
    else delete (parent as Record<string, unknown>)[key as string]
  }

  #splice(array: unknown[], start: unknown, deleteCount: unknown, items: unknown): void {
    checkRange(start, 0, array.length)
    checkRange(deleteCount, 0, array.length - (start as number))
    if (!Array.isArray(items)) throw misfit('a splice has no items')
    this.#added.push(...(items.length < 1000 ? items : [items]))
    if (items.length < 1000) array.splice(start as number, deleteCount as number, ...items)
    else {
      const rest = array.splice(start as number)
      for (const item of items) array.push(item)
      for (let i = deleteCount as number; i < rest.length; i++) array.push(rest[i])
    }
  }

  #rebuild(array: unknown[], segments: unknown): void {
    if (!Array.isArray(segments)) throw misfit('a list of segments is missing')
    const before = [...array]
    const copied = new Uint8Array(before.length)
    let isShared = false
    array.length = 0
    for (let i = 0; i < segments.length; i++) {
      const segment: unknown = segments[i]
      if (Array.isArray(segment)) {
        this.#added.push(segment)
        for (const item of segment) array.push(item)
        continue
      }
      i += 1
      const count: unknown = segments[i]
      checkRange(segment, 0, before.length)
      checkRange(count, 0, before.length - (segment as number))
      for (let j = segment as number; j < (segment as number) + (count as number); j++) {
        array.push(before[j])
        if (copied[j] === 1) isShared = true
        copied[j] = 1
      }
    }
    // What stands at two places now must not be changed at both: from here on everything is copied anew.
    if (isShared) this.#close()
  }

  #spliceText(path: Path, start: unknown, deleteCount: unknown, text: unknown): void {
    const parent = path.length === 0 ? undefined : this.#open(path.slice(0, -1))
    const before = parent === undefined ? this.#root : ownChild(parent, path.at(-1))
    if (typeof before !== 'string' || typeof text !== 'string') throw misfit(`there is no text at ${shownPath(path)}`)
    checkRange(start, 0, before.length)
    checkRange(deleteCount, 0, before.length - (start as number))
    const after = before.slice(0, start as number) + text + before.slice((start as number) + (deleteCount as number))
    if (parent === undefined) this.#root = after
    else put(parent, path.at(-1), after)
  }

  #changeMembers(set: Set<unknown>, deleted: unknown, added: unknown): void {
    if (!Array.isArray(deleted) || !Array.isArray(added)) throw misfit('members of a Set are missing')
    for (const member of deleted) if (!set.delete(member)) throw misfit('it deletes a member that is not there')
    for (const member of added) {
      if (!isPrimitive(member)) throw misfit('it adds an object to a Set')
      set.add(member)
    }
  }

  #move(container: object, keys: unknown): void {
    if (!Array.isArray(keys) || Array.isArray(container)) throw misfit('it moves the keys of something that has none')
    for (const key of keys) {
      if (container instanceof Set) {
        if (!container.delete(key)) throw misfit('it moves a member that is not there')
        container.add(key)
        continue
      }
      const value = ownChild(container, key)
      if (container instanceof Map) container.delete(key)
      else delete (container as Record<string, unknown>)[key]
      put(container, key, value)
    }
  }
}

function ownChild(container: object, key: unknown): unknown {
  checkKeyOf(container, key)
  if (!hasKey(container, key as PathKey)) throw misfit(`${JSON.stringify(String(key).slice(0, 100))} is not there`)
  return read(container, key as PathKey)
}

function checkKeyOf(container: object, key: unknown, path: Path = []): void {
  const fits = Array.isArray(container)
    ? Number.isSafeInteger(key)
    : container instanceof Map
      ? isPrimitive(key)
      : !(container instanceof Set) && typeof key === 'string'
  if (!fits) throw misfit(`a key of the wrong type is in its path ${shownPath(path)}`)
}

function checkRange(value: unknown, least: number, most: number, path: Path = []): void {
  if (Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most) return
  throw misfit(`${JSON.stringify(value) ?? 'undefined'} is outside ${least} to ${most} ${shownPath(path)}`)
}

type Kind = 'object' | 'null-object' | 'array' | 'map' | 'set' | 'leaf' | 'other'

/** Leaves are values with contents that are replaced as a whole: Dates and bytes. Other: primitives, errors, what is not storable. */
function kindOf(value: unknown): Kind {
  if (typeof value !== 'object' || value === null) return 'other'
  const prototype = Object.getPrototypeOf(value)
  if (prototype === Object.prototype) return 'object'
  if (prototype === Array.prototype) return Array.isArray(value) ? 'array' : 'other'
  if (prototype === null) return 'null-object'
  if (prototype === Map.prototype) return 'map'
  if (prototype === Set.prototype) return 'set'
  return prototype === Date.prototype || ArrayBuffer.isView(value) || value instanceof ArrayBuffer ? 'leaf' : 'other'
}

function keysOf(container: object, kind: Kind): PathKey[] {
  return kind === 'map' ? [...(container as Map<PathKey, unknown>).keys()] : Object.keys(container)
}

function hasKey(container: object, key: PathKey): boolean {
  return container instanceof Map ? container.has(key) : Object.hasOwn(container, key as string)
}

function read(container: object, key: PathKey): unknown {
  return container instanceof Map ? container.get(key) : (container as Record<string, unknown>)[key as string]
}

function put(container: object, key: unknown, value: unknown): void {
  if (container instanceof Map) container.set(key, value)
  else if (Object.hasOwn(container, key as string) || !((key as string) in container))
    (container as Record<string, unknown>)[key as string] = value
  else Object.defineProperty(container, key as string, { value, writable: true, enumerable: true, configurable: true })
}

function shallowCopy(container: object, kind: Kind): object {
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

/** Freezes everything below a value. True if it holds what a recipe could change unseen, or what is drafted on request only. */
function freezeAll(root: unknown): boolean {
  let isSpecial = false
  const open: unknown[] = [root]
  while (open.length > 0) {
    const value = open.pop()
    if (typeof value !== 'object' || value === null) continue
    const kind = kindOf(value)
    if (kind === 'leaf') {
      isSpecial = true
      continue
    }
    if (Object.isFrozen(value)) {
      if (!isSpecial) isSpecial = holdsSpecial(value)
      continue
    }
    if (kind === 'null-object') isSpecial = true
    Object.freeze(value)
    for (const child of childrenOf(value, kind)) if (typeof child === 'object' && child !== null) open.push(child)
  }
  return isSpecial
}

function holdsSpecial(value: unknown): boolean {
  let found = false
  forEachSpecial(value, [], () => {
    found = true
  })
  return found
}

/** Calls back for every Date, all bytes and every object without a prototype below a value, with its path. */
function forEachSpecial(value: unknown, path: PathStep[], visit: (value: object, path: readonly PathStep[]) => void): void {
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

function stepsOf(path: Path): PathStep[] {
  return path.map((key) => (typeof key === 'string' || typeof key === 'number' ? key : { call: 'get', key }))
}

function shownPath(path: Path): string {
  return formatPath(stepsOf(path))
}

function notStorable(path: Path, what: string): HoldfastError {
  const shown = shownPath(path)
  return new HoldfastError('value_not_storable', `${shown} ${what}`, { details: { path: shown } })
}

function misfit(why: string): HoldfastError {
  return new HoldfastError('corrupt_record', `A stored patch does not fit its state: ${why}. Nothing of it was used.`)
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
