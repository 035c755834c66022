import type { Run } from '../model/run.ts'
import { type Damage, damageTo } from './damage.ts'
import { attempt, type Source } from './findings.ts'

/** What an owner's lists show that belongs to no thread: runs and unsure operations. `known` is what was found in threads. */
export async function verifyOwner(source: Source, owner: string, known: readonly Damage[]): Promise<Damage[]> {
  return [...(await checkRunList(source, owner, known)), ...(await checkUnsureList(source, owner, known))]
}

async function checkRunList({ store, signal }: Source, owner: string, known: readonly Damage[]): Promise<Damage[]> {
  const damaged: Damage[] = []
  for (let cursor: string | undefined; ; ) {
    signal?.throwIfAborted()
    const query = { owner, limit: 100, ...(cursor !== undefined && { cursor }) }
    const page = await attempt(store, () => store.listRuns(query))
    if ('damage' in page) {
      // A run that makes the list unreadable was named with its thread, if it has one.
      if (!known.some((one) => one.owner === owner && (one.what === 'run' || one.what === 'thread')))
        damaged.push(damageTo({ owner, threadId: '' }, 'run', page.damage.message))
      return damaged
    }
    const { items } = page.value
    const lost = await Promise.all([...Map.groupBy(items, ({ threadId }) => threadId)].map((one) => isLost(one, owner)))
    for (const { id, threadId } of lost.flat())
      damaged.push(
        damageTo({ owner, threadId }, 'run', `Run "${id}" belongs to thread "${threadId}", which is not there.`, { runId: id }),
      )
    cursor = page.value.cursor
    if (cursor === undefined) return damaged
  }

  async function isLost([threadId, runs]: readonly [string, readonly Run[]], of: string): Promise<readonly Run[]> {
    const thread = await attempt(store, () => store.readThread({ owner: of, threadId }))
    if ('damage' in thread || (thread.value !== null && thread.value.deletedAt === null)) return []
    // Those that were deleted since the list was read are not there either.
    const again = await Promise.all(runs.map(({ id }) => attempt(store, () => store.readRun({ owner: of, runId: id }))))
    return runs.filter((_, index) => {
      const one = again[index]
      return one !== undefined && !('damage' in one) && one.value?.threadId === threadId
    })
  }
}

async function checkUnsureList({ store, signal }: Source, owner: string, known: readonly Damage[]): Promise<Damage[]> {
  for (let cursor: string | undefined; ; ) {
    signal?.throwIfAborted()
    const query = { owner, limit: 100, ...(cursor !== undefined && { cursor }) }
    const page = await attempt(store, () => store.listUnsure(query))
    if ('damage' in page)
      return known.some((one) => one.owner === owner && one.what === 'operation')
        ? []
        : [damageTo({ owner, threadId: '' }, 'operation', page.damage.message)]
    cursor = page.value.cursor
    if (cursor === undefined) return []
  }
}
