import { create, current, isDraft, original } from 'mutative'
import { formatPath } from './codec.ts'
import { forEachSpecial, kindOf, needsWatching, put, shallowCopy } from './container.ts'
import { HoldfastError } from './errors.ts'
import type { PathKey, Recipe } from './patch-operation.ts'
import { refusedChangeOf } from './read-only.ts'
import { bytesOf } from './shown-bytes.ts'

/** The state that a recipe makes of this one, by its draft or by what it returns. The state itself is left as it was. */
export function runRecipe(state: unknown, recipe: Recipe): unknown {
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
    const touched = refusedChangeOf(error)
    if (touched instanceof Date) throw changedInPlace(state, touched, error)
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

/** A Date of the state says that it was touched, but not where it stands. */
function changedInPlace(state: unknown, touched: Date, cause: unknown): unknown {
  let found: string | undefined
  forEachSpecial(state, [], (value, path) => {
    if (value === touched) found ??= formatPath(path)
  })
  return found === undefined ? cause : inPlace(found)
}

function inPlace(path: string): HoldfastError {
  return new HoldfastError(
    'value_not_storable',
    `${path} was changed in place, which cannot be followed. Assign a new Date or new bytes instead; the state is as it was.`,
    { details: { path } },
  )
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
    if (path !== undefined) throw inPlace(path)
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
      if (value instanceof Date) Date.prototype.setTime.call(value, (before as Date).getTime())
      else bytesOf(value as ArrayBufferView).set(before as Uint8Array)
    })
    return first
  }
}

function isSameLeaf(value: object, before: Date | Uint8Array): boolean {
  if (value instanceof Date) return Object.is(value.getTime(), (before as Date).getTime())
  return Buffer.compare(bytesOf(value as ArrayBufferView), before as Uint8Array) === 0
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
