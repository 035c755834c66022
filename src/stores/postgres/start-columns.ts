import type { Change, NewRun } from '../../store/change.ts'
import { ColumnList } from './column-list.ts'
import type { EventEncoder } from './event-columns.ts'
import { dueOf, whole } from './integers.ts'
import type { SortedChanges } from './sort-changes.ts'

/** New runs on threads that no other change of the batch names. */
export const startColumns = new ColumnList('start', {
  ...({ index: 'int', rank: 'int', owner: 'text', thread: 'text', run: 'text', workflow: 'text', version: 'bigint' } as const),
  ...({ queue: 'text', priority: 'bigint', fingerprint: 'text', due_kind: 'int', due: 'bigint', reject: 'boolean' } as const),
})

export function encodeStarts(
  changes: readonly Change[],
  { leased, starts }: SortedChanges,
  events: EventEncoder,
): readonly unknown[] {
  if (starts.length === 0) return startColumns.noRows
  const columns = startColumns.createEncoders(starts.length)
  for (const [at, { index, rank }] of starts.entries()) {
    const create = (changes[index] as Change).creates?.[0] as NewRun
    events.addQueued(leased.length + at + 1, create)
    const [dueKind, due] = dueOf(create.due)
    columns.index.push(index)
    columns.rank.push(rank)
    columns.owner.push(create.owner)
    columns.thread.push(create.threadId)
    columns.run.push(create.id)
    columns.workflow.push(create.workflow)
    columns.version.push(whole(create.version, 'workflow version'))
    columns.queue.push(create.queue)
    columns.priority.push(whole(create.priority, 'priority'))
    columns.fingerprint.push(create.fingerprint)
    columns.due_kind.push(dueKind)
    columns.due.push(due)
    columns.reject.push(create.ifBusy === 'reject')
  }
  return startColumns.encode(columns)
}
