import type { Core } from '../control/core.ts'
import { loadState } from '../engine/state/thread-state.ts'
import { migrateState, type StateDefinition } from '../model/state.ts'

/** What a dry run of migrations found. */
export interface MigrationCheck {
  /** Threads with a state of an older version. */
  readonly checked: number
  /** Threads already at this version, or without a versioned state. */
  readonly current: number
  readonly failed: readonly { readonly threadId: string; readonly fromVersion: number; readonly error: Error }[]
}

/** Runs the migrations of a definition on every thread of an owner, in memory only. */
export async function checkMigration(core: Core, owner: string, definition: StateDefinition<unknown>): Promise<MigrationCheck> {
  const failed: { threadId: string; fromVersion: number; error: Error }[] = []
  let checked = 0
  let current = 0
  let cursor: string | undefined
  do {
    const page = await core.store.listThreads({ owner, limit: 200, ...(cursor !== undefined && { cursor }) })
    for (const thread of page.items) {
      if (thread.deletedAt !== null || thread.stateVersion === 0 || thread.stateVersion === definition.version) {
        if (thread.deletedAt === null) current++
        continue
      }
      checked++
      try {
        const { value, version } = await loadState(core.store, core.codec, thread, thread.headSeq)
        core.codec.encode(migrateState(definition, value, version).value)
      } catch (error) {
        failed.push({ threadId: thread.threadId, fromVersion: thread.stateVersion, error: error as Error })
      }
    }
    cursor = page.cursor
  } while (cursor !== undefined)
  return { checked, current, failed }
}
