/**
 * What differs between two states, for people to read.
 *
 * 1. applyChanges(a, diffStates(a, b)) is b: every kind of value that can be stored, the order of keys, entries and members included.
 * 2. Changes are applied in order. A path leads through the state as it is by then: in a list, `removed` says where the item was
 *    before, everything else where it is now.
 * 3. Items of a list that have an `id` are known by it, others by what they are; an item that only changed is not removed and added.
 *
 * A patch (patch.ts) is the shortest way to write a change down. This is the one to be shown.
 */
import { fingerprint, isPrimitive } from './codec.ts'
import { hasKey, type Kind, keysOf, kindOf, put, read, shallowCopy, shownPath } from './container.ts'
import { HoldfastError } from './errors.ts'
import { alignLists } from './list-alignment.ts'
import type { Path, PathKey } from './patch-operation.ts'

/** One change of a state. The last key of a path is the key, index or Map key that it is about; in a Set, the member. */
export type StateChange =
  | { readonly change: 'added'; readonly path: Path; readonly value: unknown }
  | { readonly change: 'removed'; readonly path: Path; readonly value: unknown }
  | { readonly change: 'replaced'; readonly path: Path; readonly before: unknown; readonly after: unknown }
  /** An object, Map or Set whose keys or members come in another order: `keys` are all of them. */
  | { readonly change: 'reordered'; readonly path: Path; readonly keys: readonly PathKey[] }

/** The changes that lead from one value to another; none where they are the same. */
export function diffStates(before: unknown, after: unknown): StateChange[] {
  const changes: StateChange[] = []
  compare(before, after, [], changes)
  return changes
}

/** The value after these changes. Parts that no change touches are shared with `before`. `invalid_input` where they don't fit it. */
export function applyChanges(before: unknown, changes: Iterable<StateChange>): unknown {
  const edit = new Application(before)
  for (const change of changes) edit.apply(change)
  return edit.root
}

/** Whether two values are the same in everything that is stored, the order of keys included. */
export function isSameValue(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true
  const kind = kindOf(a)
  if (kindOf(b) !== kind || isPrimitive(a) || isPrimitive(b)) return false
  const [left, right] = [a as object, b as object]
  switch (kind) {
    case 'leaf':
      return isSameLeaf(left, right)
    case 'other':
      // An error; what it is stored as tells.
      return fingerprint(left) === fingerprint(right)
    case 'array':
      return isSameList(left as unknown[], right as unknown[])
    case 'set':
      return isSameList([...(left as Set<unknown>)], [...(right as Set<unknown>)])
    default: {
      const [keys, others] = [keysOf(left, kind), keysOf(right, kind)]
      return isSameList(keys, others) && keys.every((key, i) => isSameValue(read(left, key), read(right, others[i])))
    }
  }
}

/** Where in a state is what a path leads to in another: items of lists are found again as `diffStates` finds them. Null where it is not. */
export function findAgain(path: Path, { from, to }: { readonly from: unknown; readonly to: unknown }): Path | null {
  const found: PathKey[] = []
  let [here, there] = [from, to]
  for (const key of path) {
    const kind = kindOf(here)
    if (kind === 'leaf' || kind === 'other' || kindOf(there) !== kind) return null
    const isItem = kind === 'array'
    const own = isItem ? pairItems(there as unknown[], here as unknown[]).find(([, index]) => index === key)?.[0] : key
    if (own === undefined && isItem) return null
    if (kind === 'set') return (there as Set<PathKey>).has(key) ? [...found, key] : null
    if (!hasKey(there as object, own)) return null
    found.push(own)
    here = read(here as object, key)
    there = read(there as object, own)
  }
  return isSameValue(here, there) ? found : null
}

function isSameList(a: readonly unknown[], b: readonly unknown[]): boolean {
  return a.length === b.length && a.every((item, i) => isSameValue(item, b[i]))
}

function isSameLeaf(a: object, b: object): boolean {
  if (Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false
  if (a instanceof Date) return Object.is(a.getTime(), (b as Date).getTime())
  return bytesOf(a).equals(bytesOf(b))
}

function bytesOf(value: object): Buffer {
  return ArrayBuffer.isView(value)
    ? Buffer.from(value.buffer, value.byteOffset, value.byteLength)
    : Buffer.from(value as ArrayBuffer)
}

function compare(before: unknown, after: unknown, path: Path, into: StateChange[]): void {
  if (Object.is(before, after)) return
  const kind = kindOf(after)
  if (kindOf(before) === kind && hasParts(kind, before, after)) {
    if (kind === 'array') compareLists(before as unknown[], after as unknown[], path, into)
    else if (kind === 'set') compareSets(before as Set<PathKey>, after as Set<PathKey>, path, into)
    else compareEntries(before as object, after as object, kind, path, into)
  } else if (!isSameValue(before, after)) into.push({ change: 'replaced', path, before, after })
}

/** Whether both consist of parts that a path can name. */
function hasParts(kind: Kind, before: unknown, after: unknown): boolean {
  if (kind === 'leaf' || kind === 'other') return false
  if (kind !== 'map' && kind !== 'set') return true
  return [before, after].every((one) => [...(one as Map<unknown, unknown>).keys()].every(isPrimitive))
}

function compareEntries(before: object, after: object, kind: Kind, path: Path, into: StateChange[]): void {
  const [keysBefore, keysAfter] = [keysOf(before, kind), keysOf(after, kind)]
  for (const key of keysBefore)
    if (!hasKey(after, key)) into.push({ change: 'removed', path: [...path, key], value: read(before, key) })
  for (const key of keysAfter) {
    const at = [...path, key]
    if (hasKey(before, key)) compare(read(before, key), read(after, key), at, into)
    else into.push({ change: 'added', path: at, value: read(after, key) })
  }
  const kept = keysBefore.filter((key) => hasKey(after, key))
  const added = keysAfter.filter((key) => !hasKey(before, key))
  // In an object, keys like '12' come first by themselves: what it makes of the order is what counts.
  const made = kind === 'map' ? [...kept, ...added] : Object.keys(Object.fromEntries([...kept, ...added].map((key) => [key, 0])))
  if (!isSameList(made, keysAfter)) into.push({ change: 'reordered', path, keys: keysAfter })
}

function compareSets(before: Set<PathKey>, after: Set<PathKey>, path: Path, into: StateChange[]): void {
  const kept = [...before].filter((member) => after.has(member))
  const added = [...after].filter((member) => !before.has(member))
  for (const member of before) if (!after.has(member)) into.push({ change: 'removed', path: [...path, member], value: member })
  for (const member of added) into.push({ change: 'added', path: [...path, member], value: member })
  if (!isSameList([...kept, ...added], [...after])) into.push({ change: 'reordered', path, keys: [...after] })
}

function compareLists(before: readonly unknown[], after: readonly unknown[], path: Path, into: StateChange[]): void {
  const pairs = pairItems(before, after)
  const [known, found] = [new Set(pairs.map(([i]) => i)), new Set(pairs.map(([, j]) => j))]
  // From the end, so that each stands where it did when its turn comes.
  for (let i = before.length - 1; i >= 0; i--)
    if (!known.has(i)) into.push({ change: 'removed', path: [...path, i], value: before[i] })
  for (const [j, value] of after.entries()) if (!found.has(j)) into.push({ change: 'added', path: [...path, j], value })
  for (const [i, j] of pairs) compare(before[i], after[j], [...path, j], into)
}

/** Items that are the same, and between these the ones that took the place of another. */
function pairItems(before: readonly unknown[], after: readonly unknown[]): (readonly [number, number])[] {
  let start = 0
  while (start < before.length && start < after.length && isSameValue(before[start], after[start])) start += 1
  const [restBefore, restAfter] = [before.slice(start), after.slice(start)]
  const aligned = alignLists(restBefore.map(nameOf), restAfter.map(nameOf))
  const pairs: (readonly [number, number])[] = []
  for (let i = 0; i < start; i++) pairs.push([i, i])
  let [nextBefore, nextAfter] = [0, 0]
  for (const [i, j] of [...aligned, [restBefore.length, restAfter.length] as const]) {
    while (nextBefore < i && nextAfter < j) {
      if (canReplace(restBefore[nextBefore], restAfter[nextAfter])) pairs.push([start + nextBefore, start + nextAfter])
      nextBefore += 1
      nextAfter += 1
    }
    if (i < restBefore.length || j < restAfter.length) pairs.push([start + i, start + j])
    nextBefore = i + 1
    nextAfter = j + 1
  }
  return pairs
}

/** Two items with an `id` are two things. Otherwise one that stands where another stood is that one, changed. */
function canReplace(before: unknown, after: unknown): boolean {
  return idOf(before) === undefined && idOf(after) === undefined
}

function nameOf(item: unknown): string {
  const id = idOf(item)
  if (id !== undefined) return `id ${typeof id} ${String(id)}`
  if (!isPrimitive(item)) return `value ${fingerprint(item)}`
  return `${typeof item} ${Object.is(item, -0) ? '-0' : String(item)}`
}

function idOf(item: unknown): string | number | bigint | undefined {
  if (kindOf(item) !== 'object' || !Object.hasOwn(item as object, 'id')) return undefined
  const { id } = item as { id: unknown }
  return typeof id === 'string' || typeof id === 'number' || typeof id === 'bigint' ? id : undefined
}

/** Copies what the changes touch, once. */
class Application {
  root: unknown
  readonly #copies = new Set<object>()

  constructor(root: unknown) {
    this.root = root
  }

  apply(change: StateChange): void {
    const { path } = change
    if (change.change === 'reordered') this.#reorder(path, change.keys)
    else if (path.length > 0) this.#applyTo(this.#open(path.slice(0, -1)), path.at(-1), change)
    else if (change.change === 'replaced') this.root = change.after
    else throw misfit(path)
  }

  #applyTo(parent: object, key: PathKey, change: Exclude<StateChange, { change: 'reordered' }>): void {
    const { path } = change
    if (Array.isArray(parent)) {
      const most = change.change === 'added' ? parent.length : parent.length - 1
      if (!Number.isInteger(key) || (key as number) < 0 || (key as number) > most) throw misfit(path)
      if (change.change === 'added') parent.splice(key as number, 0, change.value)
      else if (change.change === 'removed') parent.splice(key as number, 1)
      else parent[key as number] = change.after
    } else if (parent instanceof Set) {
      if (change.change === 'added') parent.add(key)
      else if (change.change !== 'removed' || !parent.delete(key)) throw misfit(path)
    } else {
      if (hasKey(parent, key) === (change.change === 'added')) throw misfit(path)
      if (change.change === 'removed') remove(parent, key)
      else put(parent, key, change.change === 'added' ? change.value : change.after)
    }
  }

  #reorder(path: Path, keys: readonly PathKey[]): void {
    const container = this.#open(path)
    if (Array.isArray(container)) throw misfit(path)
    for (const key of keys) {
      if (container instanceof Set) {
        if (!container.delete(key)) throw misfit(path)
        container.add(key)
        continue
      }
      if (!hasKey(container, key)) throw misfit(path)
      const value = read(container, key)
      remove(container, key)
      put(container, key, value)
    }
  }

  /** The container at a path, as a copy that may be changed. */
  #open(path: Path): object {
    this.root = this.#copy(this.root, [])
    let node = this.root as object
    for (const [index, key] of path.entries()) {
      if (node instanceof Set || !hasKey(node, key)) throw misfit(path)
      const copy = this.#copy(read(node, key), path.slice(0, index + 1))
      put(node, key, copy)
      node = copy
    }
    return node
  }

  #copy(value: unknown, path: Path): object {
    if (this.#copies.has(value as object)) return value as object
    const kind = kindOf(value)
    if (kind === 'leaf' || kind === 'other') throw misfit(path)
    const copy = shallowCopy(value as object, kind)
    this.#copies.add(copy)
    return copy
  }
}

function remove(container: object, key: PathKey): void {
  if (container instanceof Map) container.delete(key)
  else delete (container as Record<string, unknown>)[key as string]
}

function misfit(path: Path): HoldfastError {
  const shown = shownPath(path)
  return new HoldfastError(
    'invalid_input',
    `A change does not fit the state that it is applied to: ${shown} is not there, or is something else.`,
    {
      details: { path: shown },
    },
  )
}
