import type { Codec } from '../../model/codec.ts'
import { deepFreeze, holdsBytes } from '../../model/container.ts'
import { codeOf } from '../../model/errors.ts'
import { applyPatch, diffUpdate, type Patch, replaceState } from '../../model/patch.ts'
import type { Payload } from '../../model/payload.ts'
import { ShownBytes } from '../../model/shown-bytes.ts'
import { migrateState, type StateDefinition } from '../../model/state.ts'
import type { StatePatch } from '../replay/tape.ts'
import { isSnapshotDue, nextMeasureAt, patchCost, type StateAt } from './thread-state.ts'

type Recipe = (draft: never) => unknown

/**
 * The state of a run's thread: where its tape began, and every patch since. A position is a number of patches. What a function sees of it is a
 * view, one for the function of the run and one for each attempt of a section.
 *
 *   L1  The order of the patches is the order in which they reach the log.
 *   L2  A step's patch becomes visible when its result is handed out, live and on replay alike, to the function that gets it.
 *   L3  ctx.update first shows all patches, then adds one at the end; on replay it moves to its recorded position.
 *   L4  A view moves by what is handed to its own function and by what that function does. It does not show whether a section in parallel is
 *       entered again.
 */
export class StateTimeline {
  readonly #codec: Codec
  readonly #definition: StateDefinition<unknown> | undefined
  readonly #base: StatePoint
  readonly #patches: readonly StatePatch[]
  /** States from this position on, if they are not what applying the tape's patches leads to. */
  readonly #rebuilt: { readonly from: number; readonly values: readonly unknown[] } | undefined
  /** How far the tape's patches were applied. The last few states before that are kept, for views that are behind. */
  #applied: StatePoint
  #recent: StatePoint[] = []
  /** The state after all patches; undefined until those of the tape are all applied. */
  #tip: StatePoint | undefined
  /** What the function of the run sees. */
  readonly view: StateView
  #shown: { of: unknown; value: unknown } | undefined
  #bytes: ShownBytes | undefined
  #loadCost: number
  #measureAt: number

  constructor(options: {
    codec: Codec
    base: StateAt
    patches: readonly StatePatch[]
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

  /** A view of the state at a position. */
  viewAt(at: StatePoint | number): StateView {
    const view = new StateView(this, this.#base)
    view.advance(at)
    return view
  }

  get end(): number {
    return this.#tip?.position ?? this.#patches.length
  }

  /** The end as it is now: what comes later is not in it. */
  get mark(): StatePoint | number {
    return this.#tip ?? this.#patches.length
  }

  /**
   * Shows the next patches that no call of the function shows on replay: edits by hand, migrations. Returns whether there was an edit: where
   * it was shown has to be recorded for the replay.
   */
  showEdits(): boolean {
    let { position } = this.view
    let hasEdit = false
    while (position < this.#patches.length) {
      const { isPassedBy, droppedAt, isEdit } = this.#patches[position] as StatePatch
      if (!isPassedBy && droppedAt === undefined) break
      hasEdit ||= isEdit === true
      position++
    }
    this.view.advance(position < this.#patches.length ? position : this.mark)
    return hasEdit
  }

  /** What ctx.state shows: under a newer definition, the state migrated in memory. */
  shown(at: StatePoint): unknown {
    const state = this.#current(at)
    if (!holdsBytes(state)) return state
    this.#bytes ??= new ShownBytes()
    return this.#bytes.of(state)
  }

  #current({ value, version }: StatePoint): unknown {
    if (this.#definition === undefined || version >= this.#definition.version) return value ?? noState
    if (this.#shown?.of !== value || this.#shown === undefined) {
      const migrated = migrateState(this.#definition, value, version).value
      this.#shown = { of: value, value: deepFreeze(this.#codec.decode(this.#codec.encode(migrated))) }
    }
    return this.#shown.value
  }

  /** The state at a position of the tape. */
  at(position: number): StatePoint {
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

  #apply(from: StatePoint, to: number, onPassed?: (at: StatePoint) => void): StatePoint {
    let at = from
    while (at.position < to) {
      const { patch, version } = this.#patches[at.position] as StatePatch
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

  /** Of the state after all that is written or will be with the next commit. */
  get version(): number {
    return this.#end().version
  }

  /** Live: adds the patch that brings an older (or no) state to the definition's version, if one is needed. */
  migrate(): { patch: Payload; from: number; to: number } | null {
    if (this.#definition === undefined || this.#end().version >= this.#definition.version) return null
    const { value: old, version: from } = this.#end()
    const { value } = migrateState(this.#definition, old, from)
    const to = this.#definition.version
    const patch = this.#codec.encode(replaceState(value))
    this.#append(patch, to)
    return { patch, from, to }
  }

  /** Throws what `migrate` would throw: before the function is called, which must not get it. */
  checkMigration(): void {
    const { value, version } = this.#end()
    if (this.#definition !== undefined && version < this.#definition.version) migrateState(this.#definition, value, version)
  }

  /** Adds a patch that sets the state to a value. Null if it has that value already. */
  replace(value: unknown): Payload | null {
    return this.stage([() => value])
  }

  /** Runs recipes on the state at the end and adds their patch, without showing it yet. Null if they changed nothing. */
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
    // Bytes that a recipe took from the state must be as they were shown.
    this.#bytes?.verify()
    if (patch.length === 0) return null
    const payload = this.#codec.encode(patch)
    this.#append(payload, null)
    return payload
  }

  /** The snapshot to write with the patch that was just added, if it is time for one. */
  snapshot(): Payload | undefined {
    if (this.#loadCost < this.#measureAt) return undefined
    // An estimate first, before encoding and compressing all of it: a state that only grows is as large as its patches, and every worker
    // that loads it gets here.
    const roughBytes = roughBytesOf(this.#end().value)
    const state = isSnapshotDue(this.#loadCost, roughBytes) ? this.#encodeTip() : undefined
    if (state !== undefined) this.#loadCost = state.length
    this.#measureAt = nextMeasureAt(this.#loadCost, state?.length ?? roughBytes)
    return state
  }

  /** A state that has outgrown the limit of a single value still exists as patches; it just gets no snapshot. */
  #encodeTip(): Payload | undefined {
    try {
      return this.#codec.encode(this.#end().value)
    } catch (error) {
      if (codeOf(error) === 'value_too_large') return undefined
      throw error
    }
  }

  /** The state after all patches, as that at `seq`: for the cache and for the next tape. */
  whole(seq: number): StateAt {
    const { value, version } = this.#end()
    return { seq, value, version, loadCost: this.#loadCost, measureAt: this.#measureAt }
  }

  #end(): StatePoint {
    this.#tip ??= this.at(this.#patches.length)
    return this.#tip
  }

  /** Applies what a reader of the log will apply: the decoded patch, which shares nothing with the caller. */
  #append(patch: Payload, version: number | null): void {
    const end = this.#end()
    const value = applyPatch(end.value, this.#codec.decode(patch) as Patch)
    this.#tip = { position: end.position + 1, value, version: version ?? end.version }
    this.#loadCost += patchCost(patch)
  }
}

/** The state as one function sees it, at a position that never goes back. */
export class StateView {
  readonly #timeline: StateTimeline
  #at: StatePoint

  constructor(timeline: StateTimeline, at: StatePoint) {
    this.#timeline = timeline
    this.#at = at
  }

  get position(): number {
    return this.#at.position
  }

  /** What ctx.state shows. */
  get state(): unknown {
    return this.#timeline.shown(this.#at)
  }

  advance(to: StatePoint | number): void {
    if (typeof to !== 'number') {
      if (to.position > this.#at.position) this.#at = to
    } else if (to > this.#at.position) this.#at = this.#timeline.at(to)
  }
}

/** The state after a number of patches. */
export interface StatePoint {
  readonly position: number
  readonly value: unknown
  readonly version: number
}

/** Results are handed out in log order, so a view is usually only a few patches behind; what is further back is computed again. */
const keptStates = 64

const noState = Object.freeze({})

/** The approximate size of a value as text, from one walk over it. */
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
