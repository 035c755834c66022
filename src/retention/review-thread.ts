import { readOrigin } from '../engine/writing/run-origin.ts'
import type { Codec } from '../model/codec.ts'
import { isInternal, notifyQueue } from '../model/internal.ts'
import { isTerminal, type Run } from '../model/run.ts'
import type { CollectVerdict, Store, Thread } from '../store/store.ts'
import type { RetentionOptions } from './policies.ts'

/** Which policy a thread is under. */
export type ThreadKind = 'runs' | 'threads' | 'notifications'

/**
 * Why a thread stays that is old enough: a run is unfinished; an operation is open, unsure or was closed within 24 h; a checkpoint is labelled; a run
 * that called one of its runs may still need it; it is among the latest of its workflow; it was written to in this moment; it is damaged.
 */
export type Kept = 'unfinished' | 'operations' | 'tagged' | 'needed' | 'last' | 'changed' | 'damaged'

export function whyKept(verdict: Exclude<CollectVerdict, 'removed' | 'gone'>): Kept {
  return verdict === 'labelled' ? 'tagged' : verdict
}

/** Looks at threads, and remembers which runs are the latest of their workflows. For one pass. */
export class Reviews {
  readonly #store: Store
  readonly #codec: Codec
  readonly #latest = new Map<string, Promise<ReadonlySet<string>>>()

  constructor(store: Store, codec: Codec) {
    this.#store = store
    this.#codec = codec
  }

  /** The kind of a thread that may be removed, or why it stays; undefined where no policy wants it. */
  async review(
    { owner, threadId }: Thread,
    { ageMs, policies }: { readonly ageMs: number; readonly policies: RetentionOptions },
  ): Promise<{ readonly kind: ThreadKind } | { readonly why: Kept } | undefined> {
    const { runs: runPolicy, threads, notifications } = policies
    if (![runPolicy, threads, notifications].some((policy) => policy !== undefined && ageMs >= policy.maxAgeMs)) return undefined
    const { items: runs } = await this.#store.listRuns({ owner, threadId, limit: 2 })
    const kind = kindOf(threadId, runs)
    const policy = kind === undefined ? undefined : policies[kind]
    if (kind === undefined || policy === undefined || ageMs < policy.maxAgeMs) return undefined
    if (runs.some(({ status }) => !isTerminal(status))) return { why: 'unfinished' }
    const [only] = runs
    if (kind === 'runs' && only !== undefined && runPolicy?.keepLast !== undefined) {
      if ((await this.#latestOf(only, runPolicy.keepLast)).has(only.id)) return { why: 'last' }
    }
    return kind !== 'notifications' && (await this.#isNeeded({ owner, threadId })) ? { why: 'needed' } : { kind }
  }

  #latestOf({ owner, workflow }: Run, count: number): Promise<ReadonlySet<string>> {
    const name = JSON.stringify([owner, workflow])
    const latest =
      this.#latest.get(name) ??
      this.#store.listRuns({ owner, workflow, limit: count }).then(({ items }) => new Set(items.map(({ id }) => id)))
    this.#latest.set(name, latest)
    return latest
  }

  /** A run that called one of the thread's runs has not come to its end, or failed and can be retried. */
  async #isNeeded(key: { readonly owner: string; readonly threadId: string }): Promise<boolean> {
    const asked = new Set<string>()
    for (let afterSeq = 0; ; ) {
      const limit = 500
      const records = await this.#store.readLog({ ...key, afterSeq, types: ['run_queued'], limit })
      for (const { payload } of records) {
        const parent = payload === null ? undefined : readOrigin(this.#codec, payload).origin.parent
        if (parent === undefined || asked.has(parent)) continue
        asked.add(parent)
        const run = await this.#store.readRun({ owner: key.owner, runId: parent })
        if (run !== null && run.status !== 'completed' && run.status !== 'cancelled') return true
      }
      if (records.length < limit) return false
      afterSeq = records.at(-1)?.seq ?? 0
    }
  }
}

function kindOf(threadId: string, runs: readonly Run[]): ThreadKind | undefined {
  const [first] = runs
  if (runs.some(({ workflow }) => isInternal(workflow)))
    return runs.length === 1 && first?.workflow.startsWith(`${notifyQueue}/`) === true ? 'notifications' : undefined
  return runs.length === 1 && first?.id === threadId ? 'runs' : 'threads'
}
