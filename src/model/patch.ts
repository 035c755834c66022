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
import type { Patch, PatchOperation, Recipe } from './patch-operation.ts'
import { messageOf, runRecipe } from './patch-recipe.ts'

export type { Patch, Recipe } from './patch-operation.ts'

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
  return patchBetween(state, runRecipe(state, recipe), options)
}

/** What changed from one state to another; null where nothing did. For a `History` of your own. Both are plain data that the codec takes. */
export function patchBetween(before: unknown, after: unknown, options: DiffOptions = {}): Patch | null {
  const differ = new Differ((options.maxDepth ?? defaultMaxDepth) - patchDepth)
  try {
    differ.compare(before, after, [])
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
