import type { Run } from '../model/run.ts'
import type { Store } from '../store/store.ts'

/** Where all runs of a store stand, at one moment of its clock. */
export interface Survey {
  /** They have not ended. */
  readonly unfinished: readonly Run[]
  /** One is executed, or could be claimed now: something will happen without anybody's doing. */
  readonly isBusy: boolean
  /** When the next run becomes due that is not yet, in ms since 1970. */
  readonly nextDueAt?: number
}

/** Reads where the runs of all owners stand. For stores of tests: it looks at every thread. */
export async function surveyRuns(store: Store): Promise<Survey> {
  const now = await store.now()
  const threads = await everyPage((from) => store.scanThreads({ limit: 1_000, ...from }))
  const unfinished: Run[] = []
  for (const owner of new Set(threads.map((thread) => thread.owner))) {
    const statuses = ['pending', 'running', 'waiting', 'paused'] as const
    unfinished.push(...(await everyPage((from) => store.listRuns({ owner, statuses, limit: 1_000, ...from }))))
  }
  // Of a thread only its earliest run can be claimed; the newest come first.
  const first = [...new Map(unfinished.map((run) => [`${run.owner}\n${run.threadId}`, run])).values()]
  const dueAts = first.flatMap(({ status, dueAt }) =>
    (status === 'pending' || status === 'waiting') && dueAt !== null ? dueAt : [],
  )
  const later = dueAts.filter((dueAt) => dueAt > now)
  return {
    unfinished,
    isBusy: dueAts.length > later.length || unfinished.some(({ status }) => status === 'running'),
    ...(later.length > 0 && { nextDueAt: later.reduce((soonest, dueAt) => Math.min(soonest, dueAt)) }),
  }
}

interface Page<Item> {
  readonly items: readonly Item[]
  readonly cursor?: string
}

async function everyPage<Item>(read: (from: { readonly cursor?: string }) => Promise<Page<Item>>): Promise<Item[]> {
  const items: Item[] = []
  for (let page = await read({}); ; page = await read({ cursor: page.cursor })) {
    items.push(...page.items)
    if (page.cursor === undefined) return items
  }
}
