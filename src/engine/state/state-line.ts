import type { Codec } from '../../model/codec.ts'
import { deepFreeze, holdsBytes } from '../../model/container.ts'
import { codeOf } from '../../model/errors.ts'
import { applyPatch, diffUpdate, type Patch, replaceState } from '../../model/patch.ts'
import type { Payload } from '../../model/payload.ts'
import { ShownBytes } from '../../model/shown-bytes.ts'
import { migrateState, type StateDefinition } from '../../model/state.ts'
import type { LinePatch } from '../replay/tape.ts'
import { isSnapshotDue, nextMeasureAt, patchCost, type StateAt } from './thread-state.ts'

type Recipe = (draft: never) => unknown

/**
 * The state of a run's thread along its log: a line of patches. What a function sees of it is a view, one for the function of the run
 * and one for each attempt of a section.
 *
 *   L1  The order of patches on the line is the order in which they reach the log.
 *   L2  A step's patch becomes visible when its result is handed out, live and on replay alike, to the function that gets it.
 *   L3  ctx.update first shows everything on the line, then adds to its end; on replay it moves to where it stood then.
 *   L4  A view moves by what is handed to its own function and by what that function does: whether a section beside it is entered
 *       again does not show.
 */
export class StateLine {
  readonly #codec: Codec
  readonly #definition: StateDefinition<unknown> | undefined
  readonly #base: At
  readonly #patches: readonly LinePatch[]
  /** States after patches of the tape that had to be computed otherwise than by applying them; from this position on. */
  readonly #rebuilt: { readonly from: number; readonly values: readonly unknown[] } | undefined
  /** How far patches of the tape were applied; the last few states on the way are kept, for views that are behind. */
  #applied: At
  #recent: At[] = []
  /** The end of the line; undefined until the tape's patches are all applied. */
  #tip: At | undefined
  /** What the function of the run sees. */
  readonly view: StateView
  #shown: { of: unknown; value: unknown } | undefined
  #bytes: ShownBytes | undefined
  #loadCost: number
  #measureAt: number

  constructor(options: {
    codec: Codec
    base: StateAt
    patches: readonly LinePatch[]
    rebuilt?: { readonly from: number; readonly values: readonly unknown[] } | undefined
    definition: StateDefinition<unknown> | undefined
  }) {
    this.#codec = options.codec
    this.#definition = options.definition
    this.#base = { position: 0, value: options.base.value, version: options.base.version }
    this.#applied = this.#base
    this.#patches = options.patches
    this.#rebuilt = options.rebuilt
    this.#loadCost = options.patches.reduce((sum, { patch }) => sum + patchCost(patch), options.base.loadCost)
    this.#measureAt = options.base.measureAt
    this.view = new StateView(this, this.#base)
  }

  /** A view that shows the line up to `at`. */
  viewAt(at: At | number): StateView {
    const view = new StateView(this, this.#base)
    view.advance(at)
    return view
  }

  get end(): number {
    return this.#tip?.position ?? this.#patches.length
  }

  /** The end of the line as it is now: what comes later is not in it. */
  get mark(): At | number {
    return this.#tip ?? this.#patches.length
  }

  /**
   * Shows what stands next on the line and nothing that a replay comes by would show: edits by hand, migrations. Says whether there was
   * an edit: a replay has to be told where it was shown.
   */
  showEdits(): boolean {
    let { position } = this.view
    let hasEdit = false
    while (position < this.#patches.length) {
      const { isPassedBy, droppedAt, isEdit } = this.#patches[position] as LinePatch
      if (!isPassedBy && droppedAt === undefined) break
      hasEdit ||= isEdit === true
      position++
    }
    this.view.advance(position < this.#patches.length ? position : this.mark)
    return hasEdit
  }

  /** What ctx.state shows at a position: under a newer definition, migrated in memory. */
  shown(at: At): unknown {
    const state = this.#current(at)
    if (!holdsBytes(state)) return state
    this.#bytes ??= new ShownBytes()
    return this.#bytes.of(state)
  }

  #current({ value, version }: At): unknown {
    if (this.#definition === undefined || version >= this.#definition.version) return value ?? noState
    if (this.#shown?.of !== value || this.#shown === undefined) {
      const migrated = migrateState(this.#definition, value, version).value
      this.#shown = { of: value, value: deepFreeze(this.#codec.decode(this.#codec.encode(migrated))) }
    }
    return this.#shown.value
  }

  /** The line up to a position of the tape. */
  at(position: number): At {
    const wanted = Math.min(position, this.#patches.length)
    if (wanted === this.#applied.position) return this.#applied
    if (wanted < this.#applied.position) {
      const known = this.#recent.find((one) => one.position === wanted)
      return known ?? this.#apply(this.#base, wanted)
    }
    this.#applied = this.#apply(this.#applied, wanted, (passed) => {
      if (this.#recent.push(passed) > keptStates) this.#recent.shift()
    })
    return this.#applied
  }

  #apply(from: At, to: number, onPassed?: (at: At) => void): At {
    let at = from
    while (at.position < to) {
      const { patch, version } = this.#patches[at.position] as LinePatch
      onPassed?.(at)
      const isRebuilt = this.#rebuilt !== undefined && at.position >= this.#rebuilt.from
      at = {
        position: at.position + 1,
        value: isRebuilt
          ? this.#rebuilt?.values[at.position - this.#rebuilt.from]
          : applyPatch(at.value, this.#codec.decode(patch) as Patch),
        version: version ?? at.version,
      }
    }
    return at
  }

  /** Live: the patch that brings an older (or no) state to the definition's version, if one is needed. */
  migrate(): { patch: Payload; from: number; to: number } | null {
    if (this.#definition === undefined || this.#end().version >= this.#definition.version) return null
    const { value: old, version: from } = this.#end()
    const { value } = migrateState(this.#definition, old, from)
    const to = this.#definition.version
    const patch = this.#codec.encode(replaceState(value))
    this.#append(patch, to)
    return { patch, from, to }
  }

  /** Sets the state to a value, at the end of the line. Null when it is that already. */
  replace(value: unknown): Payload | null {
    return this.stage([() => value])
  }

  /** Runs recipes on the end of the line, without showing the result yet. Null when they changed nothing. */
  stage(recipes: readonly Recipe[]): Payload | null {
    const from = this.#end().value
    let state: unknown = from ?? {}
    const patch: unknown[] = []
    for (const recipe of recipes) {
      const part = diffUpdate(state, recipe as (draft: unknown) => unknown)
      if (part === null) continue
      patch.push(...part)
      if (recipes.length > 1) state = applyPatch(state, this.#codec.decode(this.#codec.encode(part)) as Patch)
    }
    // What a recipe took from the state that it was shown must be in it.
    this.#bytes?.verify()
    if (patch.length === 0) return null
    const payload = this.#codec.encode(patch)
    this.#append(payload, null)
    return payload
  }

  /** The snapshot to write with the patch that was just added, if it is time for one. */
  snapshot(): Payload | undefined {
    if (this.#loadCost < this.#measureAt) return undefined
    // A look before encoding and compressing it all: a state that only grows weighs what its patches do, and every worker
    // that takes it up anew comes by here.
    const roughBytes = roughBytesOf(this.#end().value)
    const state = isSnapshotDue(this.#loadCost, roughBytes) ? this.#encodeTip() : undefined
    if (state !== undefined) this.#loadCost = state.length
    this.#measureAt = nextMeasureAt(this.#loadCost, state?.length ?? roughBytes)
    return state
  }

  /** A state that has grown beyond what one value may be still lives in its patches; it just gets no snapshot. */
  #encodeTip(): Payload | undefined {
    try {
      return this.#codec.encode(this.#end().value)
    } catch (error) {
      if (codeOf(error) === 'value_too_large') return undefined
      throw error
    }
  }

  /** The whole line as a state at `seq`, for the cache and for the next tape. */
  whole(seq: number): StateAt {
    const { value, version } = this.#end()
    return { seq, value, version, loadCost: this.#loadCost, measureAt: this.#measureAt }
  }

  #end(): At {
    this.#tip ??= this.at(this.#patches.length)
    return this.#tip
  }

  /** What is applied is what a reader of the log will apply: the decoded patch, sharing nothing with the caller. */
  #append(patch: Payload, version: number | null): void {
    const end = this.#end()
    const value = applyPatch(end.value, this.#codec.decode(patch) as Patch)
    this.#tip = { position: end.position + 1, value, version: version ?? end.version }
    this.#loadCost += patchCost(patch)
  }
}

/** The state as one function sees it: the line up to a position. Never goes back. */
export class StateView {
  readonly #line: StateLine
  #at: At

  constructor(line: StateLine, at: At) {
    this.#line = line
    this.#at = at
  }

  get position(): number {
    return this.#at.position
  }

  /** What ctx.state shows. */
  get state(): unknown {
    return this.#line.shown(this.#at)
  }

  advance(to: At | number): void {
    if (typeof to !== 'number') {
      if (to.position > this.#at.position) this.#at = to
    } else if (to > this.#at.position) this.#at = this.#line.at(to)
  }
}

/** The state after so many patches of the line. */
export interface At {
  readonly position: number
  readonly value: unknown
  readonly version: number
}

/** Results are handed out in log order, so that a view is a few patches behind at the most; what is further back is computed again. */
const keptStates = 64

const noState = Object.freeze({})

/** About what the value takes as text, found by one walk over it. */
function roughBytesOf(root: unknown): number {
  let bytes = 0
  const open: unknown[] = [root]
  while (open.length > 0) {
    const value = open.pop()
    if (typeof value === 'string') bytes += value.length + 3
    else if (typeof value !== 'object' || value === null) bytes += 5
    else if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) bytes += (value.byteLength * 4) / 3
    else if (Array.isArray(value) || value instanceof Set) for (const item of value) open.push(item)
    else if (value instanceof Map) for (const [key, item] of value) open.push(key, item)
    else {
      for (const key of Object.keys(value)) {
        bytes += key.length + 4
        open.push((value as Record<string, unknown>)[key])
      }
    }
  }
  return bytes
}
