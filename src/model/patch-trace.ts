import { hasKey, kindOf, read } from './container.ts'
import type { Patch, PatchOperation, Path, PathKey, Segments } from './patch-operation.ts'

/** What a patch did to what a path leads to after it. */
export interface Trace {
  /** `set`: made it what it is; `removed`: took it away; `changed`: changed a part of it; null: left it alone. */
  readonly how: 'set' | 'removed' | 'changed' | null
  /** Where it was before the patch; null where the patch put it there as something new: an item of a list. */
  readonly before: Path | null
}

/** Follows a path back through a patch: items of a list are found where they were. */
export function traceBack(path: Path, patch: Patch): Trace {
  let how: Trace['how'] = null
  let before: Path | null = path
  for (const operation of patch.toReversed()) {
    const trace = traceOperation(before, operation)
    // The last operation on it decides: what was set before that is overwritten, or a part of it.
    how ??= trace.how
    before = trace.before
    if (before === null) return { how: how === 'changed' ? 'set' : how, before }
  }
  return { how, before }
}

const untouched = (before: Path): Trace => ({ how: null, before })

function traceOperation(path: Path, operation: PatchOperation): Trace {
  const [name, target] = operation
  // Whatever is done to something inside it, or to itself, changes it.
  const isAround = isPrefix(path, target)
  switch (name) {
    case '=':
      if (isPrefix(target, path)) return traceInto(operation[2], path.slice(target.length), path)
      return { how: isAround ? 'changed' : null, before: path }
    case '-':
      if (isPrefix(target, path)) return { how: 'removed', before: path }
      return { how: isAround ? 'changed' : null, before: path }
    case 'd': {
      if (isAround || !isPrefix(target, path)) return { how: isAround ? 'changed' : null, before: path }
      const member = path[target.length]
      const isAmong = (members: readonly PathKey[]) => members.some((one) => Object.is(one, member))
      return { how: isAmong(operation[3]) ? 'set' : isAmong(operation[2]) ? 'removed' : null, before: path }
    }
    case 's':
    case 'a': {
      if (isAround || !isPrefix(target, path)) return { how: isAround ? 'changed' : null, before: path }
      const index = path[target.length]
      if (typeof index !== 'number') return untouched(path)
      const source =
        name === 's'
          ? sourceInSplice(index, operation[2], operation[3], operation[4].length)
          : sourceInSegments(index, operation[2])
      if (source === null) return { how: 'set', before: null }
      return untouched([...target, source, ...path.slice(target.length + 1)])
    }
    default:
      // A text was edited, or keys were put in another order.
      return { how: isAround ? 'changed' : null, before: path }
  }
}

/** A whole value was set: what the rest of the path leads to in it is new, and an item of a list in it is another than before. */
function traceInto(value: unknown, rest: Path, path: Path): Trace {
  let inside = value
  let isItem = false
  for (const key of rest) {
    const kind = kindOf(inside)
    if (kind === 'set') return { how: (inside as Set<PathKey>).has(key) ? 'set' : 'removed', before: path }
    if (kind === 'leaf' || kind === 'other' || !hasKey(inside as object, key)) return { how: 'removed', before: path }
    if (kind === 'array') isItem = true
    inside = read(inside as object, key)
  }
  return { how: 'set', before: isItem ? null : path }
}

function sourceInSplice(index: number, start: number, deleted: number, inserted: number): number | null {
  if (index < start) return index
  return index < start + inserted ? null : index - inserted + deleted
}

/** Where the item at an index comes from; null: it is new. Past the end, where nothing is, it stays. */
function sourceInSegments(index: number, segments: Segments): number | null {
  let end = 0
  for (let i = 0; i < segments.length; i++) {
    const segment = segments[i] as number | readonly unknown[]
    const length = typeof segment === 'number' ? (segments[++i] as number) : segment.length
    if (index < end + length) return typeof segment === 'number' ? segment + index - end : null
    end += length
  }
  return index
}

/** Whether a path leads to or into what another leads to. */
function isPrefix(prefix: Path, path: Path): boolean {
  return prefix.length <= path.length && prefix.every((key, i) => Object.is(key, path[i]))
}
