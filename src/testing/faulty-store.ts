import type { Store } from '../store/store.ts'

/** The acts of a store, by name. */
export type StoreAct = {
  [Name in keyof Store]-?: NonNullable<Store[Name]> extends (...args: never[]) => unknown ? Name : never
}[keyof Store]

/**
 * What happens around the acts of a store. A hook may wait, and it may throw: from `before` the act fails without having
 * been done, from `after` it fails although it was done. A hook that ends the process does so at exactly that point.
 */
export interface StoreHooks {
  /** Before the act is done. `nth` counts the calls of this act through this wrapper, from 1. */
  before?(act: StoreAct, nth: number, args: readonly unknown[]): unknown
  /** After the act was done, before its caller hears of it. Not called for an act that failed by itself. */
  after?(act: StoreAct, nth: number, args: readonly unknown[], answer: unknown): unknown
}

/** A store that does what the given one does, with hooks around every act: for kills, outages, delays and lost answers. */
export function wrapStore(store: Store, hooks: StoreHooks): Store {
  const counts = new Map<StoreAct, number>()

  function begin(act: StoreAct): number {
    const nth = (counts.get(act) ?? 0) + 1
    counts.set(act, nth)
    return nth
  }

  function wrap<Name extends Exclude<StoreAct, 'subscribe'>>(act: Name): Store[Name] {
    const inner = store[act] as ((...args: unknown[]) => Promise<unknown>) | undefined
    if (inner === undefined) return undefined as Store[Name]
    const wrapped = async (...args: unknown[]): Promise<unknown> => {
      const nth = begin(act)
      await hooks.before?.(act, nth, args)
      const answer = await inner.apply(store, args)
      await hooks.after?.(act, nth, args, answer)
      return answer
    }
    return wrapped as Store[Name]
  }

  const { subscribe } = store
  const transact = wrap('transact')
  const commitWithin = wrap('commitWithin')
  return {
    kind: store.kind,
    durability: store.durability,
    ...(store.keepsIntents !== undefined && { keepsIntents: store.keepsIntents }),
    ...(store.canPipeline !== undefined && { canPipeline: store.canPipeline }),
    migrate: wrap('migrate'),
    now: wrap('now'),
    commit: wrap('commit'),
    claim: wrap('claim'),
    setQueue: wrap('setQueue'),
    listQueues: wrap('listQueues'),
    renew: wrap('renew'),
    deliver: wrap('deliver'),
    readInbox: wrap('readInbox'),
    readRun: wrap('readRun'),
    listRuns: wrap('listRuns'),
    readThread: wrap('readThread'),
    listThreads: wrap('listThreads'),
    readLog: wrap('readLog'),
    readLogs: wrap('readLogs'),
    readSnapshot: wrap('readSnapshot'),
    listCheckpoints: wrap('listCheckpoints'),
    tag: wrap('tag'),
    listUnsure: wrap('listUnsure'),
    readChunks: wrap('readChunks'),
    listStreams: wrap('listStreams'),
    dropChunks: wrap('dropChunks'),
    readOperation: wrap('readOperation'),
    readRecords: wrap('readRecords'),
    searchRecords: wrap('searchRecords'),
    scanRecords: wrap('scanRecords'),
    sweepRecords: wrap('sweepRecords'),
    deleteThread: wrap('deleteThread'),
    collectThreads: wrap('collectThreads'),
    scanThreads: wrap('scanThreads'),
    readThreadImage: wrap('readThreadImage'),
    restoreThread: wrap('restoreThread'),
    close: wrap('close'),
    ...(transact !== undefined && { transact }),
    ...(commitWithin !== undefined && { commitWithin }),
    // Not an act that can fail: it answers at once, and what it promises may be lost anyway.
    ...(subscribe !== undefined && { subscribe: (listener) => subscribe.call(store, listener) }),
  }
}
