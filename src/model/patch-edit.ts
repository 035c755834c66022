import { isPrimitive } from './codec.ts'
import { freezeAll, hasKey, type Kind, kindOf, passWatchingOn, put, read, shallowCopy, shownPath } from './container.ts'
import { HoldfastError } from './errors.ts'
import type { PatchOperation, Path, PathKey } from './patch-operation.ts'
import { makeReadOnly } from './read-only.ts'

/** One application of a patch: copies what it touches, once, and freezes it at the end. */
export class Edit {
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
    let added: ReturnType<typeof freezeAll> = 0
    for (const value of this.#added) {
      const found = freezeAll(value)
      if (found > added) added = found
    }
    this.#close()
    passWatchingOn(this.#before, this.#root, added)
    return this.#root
  }

  #close(): void {
    for (const copy of this.#copies) makeReadOnly(copy)
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

export function misfit(why: string): HoldfastError {
  return new HoldfastError('corrupt_record', `A stored patch does not fit its state: ${why}. Nothing of it was used.`)
}
