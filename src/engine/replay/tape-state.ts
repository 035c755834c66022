import type { LogRecord } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import { keyOfRecord, updateKey } from './call-key.ts'
import type { StatePatch } from './tape.ts'
import type { TapeBuilder, TapeHandlers } from './tape-builder.ts'

/** Updates of the state by the function, and values that it recorded. */
export const onState = {
  state_updated(tape, record) {
    const { error, rebuilt, shown } = tape.data<{ error?: Error; rebuilt?: unknown; shown?: true }>(record)
    if (shown === true) tape.settle('value', record)
    if (rebuilt !== undefined || shown === true) return
    tape.updates.set(updateKey(record.step, record.count), {
      ...{ position: tape.patches.length, patch: tape.patchOf(record), seq: record.seq },
      ...(error !== undefined && { error }),
    })
  },
  value_recorded(tape, record) {
    if (record.step?.endsWith('checkpoint')) return tape.settle('value', record)
    const key = keyOfRecord('value', record)
    tape.values.set(key, tape.data<{ value: unknown }>(record).value)
    tape.valuesAt.set(key, record.seq)
  },
} satisfies TapeHandlers

/** Adds what any record does to the thread's state. `isForeign`: not by what is left of this run. */
export function addPatch(tape: TapeBuilder, record: LogRecord, patch: Payload, isForeign: boolean): void {
  const { type, seq, step } = record
  const isMigration = type === 'state_migrated'
  const isRebuild = type === 'state_updated' && tape.data<{ rebuilt?: unknown }>(record).rebuilt !== undefined
  const isRollback = type === 'run_rolled_back' && !isForeign
  const added: StatePatch = {
    ...{ patch, version: isMigration ? tape.data<{ to: number }>(record).to : null, seq, step },
    isPassedBy: isForeign || isMigration || isRebuild || isRollback,
    ...(isRebuild && { isRebuild }),
    ...(record.runId === null && { isEdit: true as const }),
    ...(isRollback && { backTo: patchesUpTo(tape, tape.data<{ to: number }>(record).to) }),
  }
  tape.patches.push(added)
}

function patchesUpTo({ patches }: TapeBuilder, to: number): number {
  return patches.filter(({ seq }) => seq <= to).length
}
