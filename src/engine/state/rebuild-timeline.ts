import type { Codec } from '../../model/codec.ts'
import { codeOf, HoldfastError } from '../../model/errors.ts'
import { applyPatch, diffUpdate, type Patch } from '../../model/patch.ts'
import { rebasePatch } from '../../model/patch-rebase.ts'
import type { Payload } from '../../model/payload.ts'
import { migrateState, type StateDefinition } from '../../model/state.ts'
import type { StatePatch } from '../replay/tape.ts'
import type { StateAt } from './thread-state.ts'

/** The state along a tape without the patches that were dropped. */
export interface RebuiltTimeline {
  /** After each patch of the tape, from the first one that was dropped on. */
  readonly from: number
  readonly values: readonly unknown[]
  /** What brings the log's state to the last of them; null if they are equal. */
  readonly patch: Payload | null
  /** How many patches are left out, and the position of the first of them. */
  readonly dropped: { readonly from: number; readonly count: number }
}

/**
 * The state that another attempt starts from: as the log has it, without the patches that are to be made again. The others are kept
 * in their old order. Null if nothing was dropped. Refused with `nondeterminism` if a kept patch does not fit without them.
 *
 *   R1  The log's own state (`head`) is what every other reader sees. If the rebuilt state differs from it, the next commit writes a patch
 *       that makes them equal (`isRebuild`).
 *   R2  Each load leads to the same rebuilt states, whether that patch was written or not: it changes none of them.
 */
export function rebuildTimeline(options: {
  runId: string
  codec: Codec
  base: StateAt
  patches: readonly StatePatch[]
  definition: StateDefinition<unknown> | undefined
}): RebuiltTimeline | null {
  const { runId, codec, base, patches, definition } = options
  const from = patches.findIndex(({ droppedAt }) => droppedAt !== undefined)
  if (from < 0) return null
  const heads: unknown[] = [base.value]
  const values: unknown[] = [base.value]
  const versions: number[] = [base.version]
  let { version } = base
  for (const [index, entry] of patches.entries()) {
    const [head, value] = [heads[index], values[index]]
    const patch = codec.decode(entry.patch) as Patch
    const nextHead = applyPatch(head, patch)
    heads.push(nextHead)
    if (entry.isRebuild) values.push(isComplete(patches, index) ? nextHead : value)
    else if (entry.droppedAt !== undefined) values.push(value)
    else if (entry.backTo !== undefined) {
      const [then, from = 0] = [values[entry.backTo], versions[entry.backTo]]
      const isSame = heads[entry.backTo] === then
      values.push(isSame ? nextHead : from === version ? then : (migrated(definition, then, from, version) ?? nextHead))
    } else if (head === value) values.push(nextHead)
    else if (entry.version !== null) values.push(migrated(definition, value, version, entry.version) ?? nextHead)
    else values.push(keep(runId, entry, () => rebasePatch(patch, head, value)))
    version = entry.version ?? version
    versions.push(version)
  }
  const [head, value] = [heads.at(-1), values.at(-1)]
  const patch = head === value ? null : diffUpdate(head ?? {}, () => value ?? {})
  const dropped = patches.filter(({ droppedAt }) => droppedAt !== undefined)
  return {
    ...{ from, values: values.slice(from + 1) },
    patch: patch === null ? null : codec.encode(patch),
    dropped: { from: dropped[0]?.seq ?? 0, count: dropped.length },
  }
}

/** All patches before it that are dropped were dropped by then: the log's state after it is the rebuilt one. */
function isComplete(patches: readonly StatePatch[], index: number): boolean {
  const { seq } = patches[index] as StatePatch
  return patches.slice(0, index).every(({ droppedAt = 0 }) => droppedAt < seq)
}

/** What the migration makes of a rebuilt state. Null if this code does not have that migration. */
function migrated(definition: StateDefinition<unknown> | undefined, value: unknown, from: number, to: number): unknown {
  return definition?.version === to ? migrateState(definition, value, from).value : null
}

function keep(runId: string, { seq, step }: StatePatch, make: () => unknown): unknown {
  try {
    return make()
  } catch (error) {
    const code = codeOf(error)
    if (code !== 'conflict' && code !== 'corrupt_record') throw error
    const { path = '$' } = (error as HoldfastError).details as { path?: string }
    const what = step === null ? `The edit of the state at ${seq}` : `What "${step}" changed in the state`
    throw new HoldfastError(
      'nondeterminism',
      `${what} in run "${runId}" does not fit the state without what is to be done again: ${path} is not there or is something else. ` +
        'Roll the run back to a checkpoint before it (run.rollback), then resume it.',
      { cause: error, details: { runId, path, seq, ...(step !== null && { step }) } },
    )
  }
}
