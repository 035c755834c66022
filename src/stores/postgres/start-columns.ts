import type { Change, NewRun } from '../../store/change.ts'
import { BigintColumn, BooleanColumn, IntegerColumn, TextColumn } from './columns.ts'
import type { EventColumns } from './event-columns.ts'
import type { SortedChanges } from './sort-changes.ts'
import { dueOf, whole } from './whole-numbers.ts'

/** New runs on threads of their own as parallel arrays. */
export function encodeStarts(
  changes: readonly Change[],
  { held, starts }: SortedChanges,
  events: EventColumns,
): readonly unknown[] {
  if (starts.length === 0) return noStarts
  const count = starts.length
  const [indexes, ranks, owners, threads] = [
    new IntegerColumn(count),
    new IntegerColumn(count),
    new TextColumn(count),
    new TextColumn(count, 36),
  ]
  const [ids, workflows, versions, queues] = [
    new TextColumn(count, 36),
    new TextColumn(count),
    new BigintColumn(count),
    new TextColumn(count),
  ]
  const [priorities, fingerprints, dueKinds] = [new BigintColumn(count), new TextColumn(count, 44), new IntegerColumn(count)]
  const [dues, rejects] = [new BigintColumn(count), new BooleanColumn(count)]
  for (const [at, { index, rank }] of starts.entries()) {
    const create = (changes[index] as Change).creates?.[0] as NewRun
    events.addQueued(held.length + at + 1, create)
    const [dueKind, due] = dueOf(create.due)
    indexes.push(index)
    ranks.push(rank)
    owners.push(create.owner)
    threads.push(create.threadId)
    ids.push(create.id)
    workflows.push(create.workflow)
    versions.push(whole(create.version, 'workflow version'))
    queues.push(create.queue)
    priorities.push(whole(create.priority, 'priority'))
    fingerprints.push(create.fingerprint)
    dueKinds.push(dueKind)
    dues.push(due)
    rejects.push(create.ifBusy === 'reject')
  }
  const columns = [
    indexes,
    ranks,
    owners,
    threads,
    ids,
    workflows,
    versions,
    queues,
    priorities,
    fingerprints,
    dueKinds,
    dues,
    rejects,
  ]
  return columns.map((column) => column.encode())
}

const noStarts: readonly null[] = Array(13).fill(null)
