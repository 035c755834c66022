import { eventColumns } from './event-columns.ts'
import { extraColumns } from './extra-payloads.ts'
import { leasedColumns, snapshotColumns } from './leased-columns.ts'
import { type Parameter, ParameterList, writerParameters } from './parameters.ts'
import { startColumns } from './start-columns.ts'

/** JSON for what has many shapes, the rest about the batch as a whole. */
const singles = new ParameterList({
  ...({
    p_offset: 'bigint',
    p_sync: 'boolean',
    p_ranks: 'int',
    p_records: 'boolean',
    p_others: 'jsonb',
    p_chunks: 'jsonb',
  } as const),
})
const lists = {
  ...{ leased: leasedColumns, snapshots: snapshotColumns, starts: startColumns },
  ...{ extras: extraColumns, events: eventColumns },
} as const
const listNames = Object.keys(lists) as (keyof typeof lists)[]

/** The parameters of fn_commit. */
export const commitParameters: readonly Parameter[] = [
  ...writerParameters,
  ...singles.parameters,
  ...listNames.flatMap((name) => lists[name].parameters),
]

/** Their values, without those of the writer. */
export function commitValues(
  single: Readonly<Record<keyof typeof singles.types, unknown>>,
  encoded: Readonly<Record<keyof typeof lists, readonly unknown[]>>,
): unknown[] {
  const values = singles.values(single)
  for (const name of listNames) values.push(...encoded[name])
  return values
}
