import type { Claim, Store, ThreadKey } from '../store/store.ts'

/** So many records of the log before a run are looked at for the runs before it. */
const lookBack = 32

/**
 * Drops the chunks of the runs of a thread before the one before a claimed one, as far as they are of the same workflow. Those of a run that was
 * cancelled stay: the state need not tell what it had said. Returns how many streams were dropped. What is missed here, because a process died, retention
 * finds.
 */
export async function dropEarlierChunks(store: Store, { run, thread }: Claim): Promise<number> {
  const { owner, threadId, workflow } = run
  const [last] = await runsBefore(store, thread, run.tapeSeq === null ? thread.headSeq : run.tapeSeq - 1, run.id)
  const before = last === undefined ? null : await store.readRun({ owner, runId: last })
  if (before === null) return 0
  const runIds = await runsBefore(store, thread, (before.tapeSeq ?? before.inputSeq) - 1, before.id)
  if (runIds.length === 0) return 0
  const kept = await store.listStreams({ owner, threadId, runIds, limit: 100 })
  const streams = kept.filter((one) => one.workflow === workflow && one.status !== 'cancelled' && one.runId !== run.id)
  return streams.length === 0 ? 0 : store.dropChunks({ owner, threadId, streams })
}

/** The runs that wrote the last records up to a position, this one aside, the latest first. */
async function runsBefore(
  store: Store,
  { owner, threadId, baseSeq }: ThreadKey & { readonly baseSeq: number },
  toSeq: number,
  except: string,
): Promise<string[]> {
  if (toSeq <= baseSeq) return []
  const records = await store.readLog({ owner, threadId, afterSeq: Math.max(baseSeq, toSeq - lookBack), toSeq, bare: true })
  const runIds = [...records].reverse().flatMap(({ runId }) => (runId === null || runId === except ? [] : [runId]))
  return [...new Set(runIds)]
}
