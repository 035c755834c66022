import type { CheckpointTuple } from '@langchain/langgraph-checkpoint'

/** Several lists that are newest first as one, by the ids of their checkpoints. */
export async function* mergeNewestFirst(
  lists: readonly AsyncGenerator<CheckpointTuple>[],
  limit = Number.POSITIVE_INFINITY,
): AsyncGenerator<CheckpointTuple> {
  if (lists.length === 1) return yield* lists[0] as AsyncGenerator<CheckpointTuple>
  const firsts = await Promise.all(lists.map(async (list) => ({ list, next: await list.next() })))
  let open = firsts.filter(({ next }) => next.done !== true)
  for (let left = limit; left > 0 && open.length > 0; left -= 1) {
    const newest = open.reduce((a, b) => (idOf(b.next) > idOf(a.next) ? b : a))
    yield newest.next.value as CheckpointTuple
    newest.next = await newest.list.next()
    open = open.filter(({ next }) => next.done !== true)
  }
}

function idOf(next: IteratorResult<CheckpointTuple>): string {
  return (next.value as CheckpointTuple).checkpoint.id
}
