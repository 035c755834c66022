import type { Codec } from '../model/codec.ts'
import { deepFreeze, holdsBytes } from '../model/container.ts'
import { codeOf } from '../model/errors.ts'
import { applyPatch, diffUpdate, type Patch, replaceState } from '../model/patch.ts'
import type { Payload } from '../model/payload.ts'
import { ShownBytes } from '../model/shown-bytes.ts'
import { migrateState, type StateDefinition } from '../model/state.ts'
import { isSnapshotDue, nextMeasureAt, patchCost, type StateAt } from './thread-state.ts'

type Recipe = (draft: never) => unknown

/**
 * The state of a run's thread along its log: a line of patches, and the point up to which the function sees them.
 *
 *   L1  The order of patches on the line is the order in which they reach the log.
 *   L2  A step's patch becomes visible when its result is handed out, live and on replay alike.
 *   L3  ctx.update first shows everything on the line, then adds to its end; on replay it moves to where it stood then.
 */
export class StateLine {
  readonly #codec: Codec
  readonly #definition: StateDefinition<unknown> | undefined
  #view: unknown
  #viewVersion: number
  /** Patches beyond the view: those of the tape wait undecoded, live ones bring the value after them. */
  #ahead: Ahead[]
  #next = 0
  #position = 0
  #shown: { of: unknown; value: unknown } | undefined
  #bytes: ShownBytes | undefined
  #loadCost: number
  #measureAt: number

  constructor(options: {
    codec: Codec
    base: StateAt
    patches: readonly { patch: Payload; version: number | null }[]
    definition: StateDefinition<unknown> | undefined
  }) {
    this.#codec = options.codec
    this.#definition = options.definition
    this.#view = options.base.value
    this.#viewVersion = options.base.version
    this.#ahead = options.patches.map((entry) => ({ ...entry }))
    this.#loadCost = options.patches.reduce((sum, { patch }) => sum + patchCost(patch), options.base.loadCost)
    this.#measureAt = options.base.measureAt
  }

  /** What ctx.state shows: under a newer definition, migrated in memory. */
  get state(): unknown {
    const state = this.#current
    if (!holdsBytes(state)) return state
    this.#bytes ??= new ShownBytes()
    return this.#bytes.of(state)
  }

  get #current(): unknown {
    if (this.#definition === undefined || this.#viewVersion >= this.#definition.version) return this.#view ?? noState
    if (this.#shown?.of !== this.#view || this.#shown === undefined) {
      const { value } = migrateState(this.#definition, this.#view, this.#viewVersion)
      this.#shown = { of: this.#view, value: deepFreeze(this.#codec.decode(this.#codec.encode(value))) }
    }
    return this.#shown.value
  }

  get end(): number {
    return this.#position + this.#ahead.length - this.#next
  }

  /** Shows the line up to `position`. Never goes back. */
  advance(position: number): void {
    while (this.#position < position) {
      const entry = this.#ahead[this.#next]
      if (entry === undefined) return
      this.#next++
      this.#view = entry.patch === undefined ? entry.value : applyPatch(this.#view, this.#codec.decode(entry.patch) as Patch)
      this.#viewVersion = entry.version ?? this.#viewVersion
      this.#position++
    }
    if (this.#next === this.#ahead.length) {
      this.#ahead = []
      this.#next = 0
    }
  }

  /** Live: the patch that brings an older (or no) state to the definition's version, if one is needed. */
  migrate(): { patch: Payload; from: number; to: number } | null {
    if (this.#definition === undefined || this.#tipVersion >= this.#definition.version) return null
    const from = this.#tipVersion
    const { value } = migrateState(this.#definition, this.#tip(), from)
    const to = this.#definition.version
    const patch = this.#codec.encode(replaceState(value))
    this.#append(patch, to)
    return { patch, from, to }
  }

  /** Runs a recipe of ctx.update on everything there is. Null when it changed nothing. */
  update(recipe: Recipe): Payload | null {
    this.advance(this.end)
    const patch = this.#change([recipe], this.#view)
    if (patch !== null) this.advance(this.end)
    return patch
  }

  /** Sets the state to a value, at the end of the line. Null when it is that already. */
  replace(value: unknown): Payload | null {
    return this.update(() => value)
  }

  /** Runs a step's recipes on the end of the line, without showing the result yet. */
  stage(recipes: readonly Recipe[]): Payload | null {
    return this.#change(recipes, this.#tip())
  }

  /** The snapshot to write with the patch that was just added, if it is time for one. */
  snapshot(): Payload | undefined {
    if (this.#loadCost < this.#measureAt) return undefined
    // A look before encoding and compressing it all: a state that only grows weighs what its patches do, and every worker
    // that takes it up anew comes by here.
    const roughBytes = roughBytesOf(this.#tip())
    const state = isSnapshotDue(this.#loadCost, roughBytes) ? this.#encodeTip() : undefined
    if (state !== undefined) this.#loadCost = state.length
    this.#measureAt = nextMeasureAt(this.#loadCost, state?.length ?? roughBytes)
    return state
  }

  /** A state that has grown beyond what one value may be still lives in its patches; it just gets no snapshot. */
  #encodeTip(): Payload | undefined {
    try {
      return this.#codec.encode(this.#tip())
    } catch (error) {
      if (codeOf(error) === 'value_too_large') return undefined
      throw error
    }
  }

  /** The whole line as a state at `seq`, for the cache and for the next tape. */
  at(seq: number): StateAt {
    this.advance(this.end)
    return { seq, value: this.#view, version: this.#viewVersion, loadCost: this.#loadCost, measureAt: this.#measureAt }
  }

  /** The value at the end of the line. Patches of the tape that were not shown yet are applied on the way. */
  #tip(): unknown {
    let value = this.#view
    for (let i = this.#next; i < this.#ahead.length; i++) {
      const entry = this.#ahead[i] as Ahead
      if (entry.patch !== undefined) {
        entry.value = applyPatch(value, this.#codec.decode(entry.patch) as Patch)
        delete entry.patch
      }
      value = entry.value
    }
    return value
  }

  get #tipVersion(): number {
    let version = this.#viewVersion
    for (let i = this.#next; i < this.#ahead.length; i++) version = this.#ahead[i]?.version ?? version
    return version
  }

  #change(recipes: readonly Recipe[], from: unknown): Payload | null {
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
    this.#append(payload, null, from)
    return payload
  }

  /** What is applied is what a reader of the log will apply: the decoded patch, sharing nothing with the caller. */
  #append(patch: Payload, version: number | null, from: unknown = this.#tip()): void {
    this.#ahead.push({ value: applyPatch(from, this.#codec.decode(patch) as Patch), version })
    this.#loadCost += patchCost(patch)
  }
}

interface Ahead {
  patch?: Payload
  value?: unknown
  readonly version: number | null
}

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
