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
import { defaultMaxDepth } from './codec.ts'
import { deepFreeze } from './container.ts'
import { HoldfastError } from './errors.ts'
import { Differ } from './patch-differ.ts'
import { Edit, misfit } from './patch-edit.ts'
import { messageOf, runRecipe } from './patch-recipe.ts'

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
  return applyPatches(state, [patch])
}

/** The state after several patches: what one after the other gives, but each container is copied once for all of them. */
export function applyPatches(state: unknown, patches: Iterable<Patch>): unknown {
  const edit = new Edit(state === undefined ? emptyState : state)
  for (const patch of patches) {
    if (!Array.isArray(patch)) throw misfit('it is not a list')
    for (const operation of patch) {
      if (!Array.isArray(operation) || !Array.isArray(operation[1])) throw misfit('an operation has no path')
      edit.apply(operation as unknown as PatchOperation)
    }
  }
  return edit.finish()
}

const emptyState = deepFreeze({})
