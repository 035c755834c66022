import type { CollectRequest, CollectVerdict, ThreadKey } from '../../store/store.ts'
import type { Connection } from './connection.ts'
import { pairOf } from './keys.ts'
import { collectThreadsScript, deleteThreadScript } from './scripts/delete-thread.ts'

export async function deleteThread(
  connection: Connection,
  { owner, threadId, at }: ThreadKey & { readonly at: number },
  publication: string,
): Promise<boolean> {
  return (await connection.once(deleteThreadScript, 0, [publication, pairOf(owner, threadId), owner, String(at)])) === 1
}

export async function collectThreads(
  connection: Connection,
  { threads, closedBefore, keepsLabelled, isDryRun, isForced }: CollectRequest,
): Promise<readonly CollectVerdict[]> {
  const flags = [String(closedBefore), keepsLabelled ? '1' : '', isDryRun ? '1' : '', isForced === true ? '1' : '']
  const keys = threads.flatMap(({ owner, threadId, headSeq }) => [pairOf(owner, threadId), owner, String(headSeq)])
  const verdicts = (await connection.once(collectThreadsScript, 0, [...flags, ...keys])) as readonly Buffer[]
  return verdicts.map(String) as CollectVerdict[]
}
