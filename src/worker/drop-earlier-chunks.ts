import type { Claim, Store } from '../store/store.ts'

/** So many records of the log before a run are looked at for the runs before it. */
const lookBack = 32

/**
 * Drops the chunks of the runs before a claimed one, of the same workflow on its thread. Those of a run that was cancelled stay: its state need not tell
 * what it had said. Returns how many streams were dropped. What is missed here, because a process died, retention finds.
 */
export async function dropEarlierChunks(store: Store, { run, thread }: Claim): Promise<number> {
  const { owner, threadId, workflow } = run
  const toSeq = run.tapeSeq === null ? thread.headSeq : run.tapeSeq - 1
  const records = await store.readLog({
    owner,
    threadId,
    afterSeq: Math.max(thread.baseSeq, toSeq - lookBack),
    toSeq,
    bare: true,
  })
  const runIds = [...new Set(records.map(({ runId }) => runId))].filter((runId) => runId !== null && runId !== run.id) as string[]
  if (runIds.length === 0) return 0
  const kept = await store.listStreams({ owner, threadId, runIds, limit: 100 })
  const streams = kept.filter((one) => one.workflow === workflow && one.status !== 'cancelled')
  return streams.length === 0 ? 0 : store.dropChunks({ owner, threadId, streams })
}
