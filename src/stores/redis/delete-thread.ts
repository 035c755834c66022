import type { ThreadKey } from '../../store/store.ts'
import type { Connection } from './connection.ts'
import { pairOf } from './keys.ts'
import { deleteThreadScript } from './scripts/delete-thread.ts'

export async function deleteThread(
  connection: Connection,
  { owner, threadId, at }: ThreadKey & { readonly at: number },
  publication: string,
): Promise<boolean> {
  return (await connection.once(deleteThreadScript, 0, [publication, pairOf(owner, threadId), owner, String(at)])) === 1
}
