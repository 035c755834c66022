import type { StateAt } from '../engine/state/thread-state.ts'
import { HoldfastError } from '../model/errors.ts'
import type { NewEvent } from '../model/event.ts'
import { applyPatch, diffUpdate, type Patch, type Recipe, replaceState } from '../model/patch.ts'
import { migrateState, type StateDefinition } from '../model/state.ts'
import type { ThreadKey } from '../store/store.ts'
import type { Core } from './core.ts'
import { newEvent } from './new-event.ts'

/** An edit of a thread's state by hand, as its log gets it. */
export interface StateEdit {
  readonly event: NewEvent
  /** The version that the state has from then on, where the edit has migrated it. */
  readonly stateVersion?: number
}

/** What a recipe makes of a state, migrated first where the code knows a newer version of it. Null where it changes nothing. */
export async function editState(
  core: Core,
  head: StateAt | undefined,
  definition: StateDefinition<unknown> | undefined,
  { recipe, by }: { readonly recipe: Recipe; readonly by: string | undefined },
): Promise<StateEdit | null> {
  if (typeof recipe !== 'function') {
    const what = recipe === null ? 'null' : `of type ${typeof recipe}`
    throw new HoldfastError('invalid_input', `The edit is ${what}; it must be a function that changes a draft of the state.`)
  }
  const current = stateFor(head, definition) ?? {}
  const patch = diffUpdate(current, recipe)
  if (patch === null) return null
  const { codec } = core
  const who = by === undefined ? {} : { by }
  if (definition === undefined || head === undefined || head.version >= definition.version) {
    const event = await newEvent(core, 'state_updated', who)
    return { event: { ...event, patch: codec.encode(patch) } }
  }
  const { version: to } = definition
  const event = await newEvent(core, 'state_migrated', { from: head.version, to, ...who })
  const whole = replaceState(applyPatch(current, codec.decode(codec.encode(patch)) as Patch))
  return { event: { ...event, patch: codec.encode(whole) }, stateVersion: to }
}

/** A state as a definition has it; without one, as it is stored. */
export function stateFor<State>(at: StateAt | undefined, definition: StateDefinition<State> | undefined): State {
  if (definition === undefined || (at !== undefined && at.version >= definition.version)) return at?.value as State
  return migrateState(definition, at?.value, at?.version ?? 0).value as State
}

/** For a versioned state: the definition of the workflow that ran last on the thread, if this process has it. */
export async function definitionFor(
  { store, registry }: Core,
  key: ThreadKey,
  at: StateAt | undefined,
): Promise<StateDefinition<unknown> | undefined> {
  if (at === undefined || at.version === 0) return undefined
  const { items } = await store.listRuns({ ...key, limit: 1 })
  return items[0] === undefined ? undefined : registry.latest(items[0].workflow)?.options.state
}
