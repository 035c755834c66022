import type { Codec } from '../../model/codec.ts'
import { codeOf, HoldfastError } from '../../model/errors.ts'
import { applyPatch, diffUpdate, type Patch } from '../../model/patch.ts'
import { rebasePatch } from '../../model/patch-rebase.ts'
import type { Payload } from '../../model/payload.ts'
import { migrateState, type StateDefinition } from '../../model/state.ts'
import type { LinePatch } from '../replay/tape.ts'
import type { StateAt } from './thread-state.ts'

/** The state along a tape of which patches were dropped. */
export interface RebuiltLine {
  /** After each patch of the tape, from the first one that was dropped on. */
  readonly from: number
  readonly values: readonly unknown[]
  /** What brings the thread's state to where the line ends; null where it is there. */
  readonly patch: Payload | null
  /** How many patches are taken out, and where the first of them stands. */
  readonly dropped: { readonly from: number; readonly count: number }
}

/**
 * The state that another attempt starts from: as the log has it, without the patches that are to be made again. The others are kept
 * in their old order. Null where nothing was dropped. Refused with `nondeterminism` where a kept patch does not fit without them.
 *
 *   R1  The log's own state (`head`) is what every other reader sees. Where it differs from the line's, the next commit writes a patch
 *       that makes them equal (`isRebuild`).
 *   R2  Each load comes to the same line, whether that patch was written or not: it takes nothing from the line and adds nothing.
 */
export function rebuildLine(options: {
  runId: string
  codec: Codec
  base: StateAt
  patches: readonly LinePatch[]
  definition: StateDefinition<unknown> | undefined
}): RebuiltLine | null {
  const { runId, codec, base, patches, definition } = options
  const from = patches.findIndex(({ droppedAt }) => droppedAt !== undefined)
  if (from < 0) return null
  const heads: unknown[] = [base.value]
  const values: unknown[] = [base.value]
  const versions: number[] = [base.version]
  let { version } = base
  for (const [index, entry] of patches.entries()) {
    const [head, line] = [heads[index], values[index]]
    const patch = codec.decode(entry.patch) as Patch
    const nextHead = applyPatch(head, patch)
    heads.push(nextHead)
    if (entry.isRebuild) values.push(isComplete(patches, index) ? nextHead : line)
    else if (entry.droppedAt !== undefined) values.push(line)
    else if (entry.backTo !== undefined) {
      const [then, from = 0] = [values[entry.backTo], versions[entry.backTo]]
      const isSame = heads[entry.backTo] === then
      values.push(isSame ? nextHead : from === version ? then : (migrated(definition, then, from, version) ?? nextHead))
    } else if (head === line) values.push(nextHead)
    else if (entry.version !== null) values.push(migrated(definition, line, version, entry.version) ?? nextHead)
    else values.push(keep(runId, entry, () => rebasePatch(patch, head, line)))
    version = entry.version ?? version
    versions.push(version)
  }
  const [head, line] = [heads.at(-1), values.at(-1)]
  const patch = head === line ? null : diffUpdate(head ?? {}, () => line ?? {})
  const dropped = patches.filter(({ droppedAt }) => droppedAt !== undefined)
  return {
    ...{ from, values: values.slice(from + 1) },
    patch: patch === null ? null : codec.encode(patch),
    dropped: { from: dropped[0]?.seq ?? 0, count: dropped.length },
  }
}

/** Everything that is dropped before it was dropped by then: the log's state after it is the line's. */
function isComplete(patches: readonly LinePatch[], index: number): boolean {
  const { seq } = patches[index] as LinePatch
  return patches.slice(0, index).every(({ droppedAt = 0 }) => droppedAt < seq)
}

/** What the migration makes of the line's own state. Null where this code can't say. */
function migrated(definition: StateDefinition<unknown> | undefined, line: unknown, from: number, to: number): unknown {
  return definition?.version === to ? migrateState(definition, line, from).value : null
}

function keep(runId: string, { seq, step }: LinePatch, make: () => unknown): unknown {
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
