import type { AnyWorkflow } from '../define/workflow.ts'
import { codeOf, type HoldfastError } from '../model/errors.ts'
import type { Run } from '../model/run.ts'
import type { Claim, Store } from '../store/store.ts'
import type { Engine } from './engine.ts'
import { readTape } from './replay/read-tape.ts'
import { countDeath, emptyTape, runningCalls, type Tape } from './replay/tape.ts'
import { forgiveOutlived } from './reports/outlived-holders.ts'
import { type RebuiltTimeline, rebuildTimeline } from './state/rebuild-timeline.ts'
import { continueFrom, emptyState, loadState, type StateAt } from './state/thread-state.ts'
import { type RunOrigin, readOrigin } from './writing/run-origin.ts'

/** The run as it stands now, under the lease that is held. Null if it is held no more. */
export async function readAgain({ store }: Engine, claim: Claim): Promise<Claim | null> {
  const { owner, id: runId, threadId, epoch } = claim.run
  const [run, thread, now] = await Promise.all([
    store.readRun({ owner, runId }),
    store.readThread({ owner, threadId }),
    store.now(),
  ])
  if (run === null || thread === null || run.epoch !== epoch || run.leaseId !== claim.leaseId) return null
  // A tape that began since the claim has an input of its own.
  const { inputSeq } = run
  const [record] =
    inputSeq === claim.run.inputSeq ? [] : await store.readLog({ owner, threadId, afterSeq: inputSeq - 1, toSeq: inputSeq })
  return { ...claim, run, thread, input: record?.payload ?? claim.input, takenFrom: null, hasMail: true, now }
}

export interface Loaded {
  readonly tape: Tape
  readonly base: StateAt
  readonly input: unknown
  readonly origin: RunOrigin
  readonly rebuilt?: RebuiltTimeline
  /** A change of the state that must be kept, and does not fit. */
  readonly misfit?: HoldfastError
  /** How long a holder of the run was silent and lived on, at most. */
  readonly silentMs?: number
  /** How many chunks the function has written in this tape, by stream. */
  readonly written: ReadonlyMap<string, number>
}

export const nothingWritten: ReadonlyMap<string, number> = new Map()

/** The tape in one read; the state from the cache, or from the nearest snapshot. */
export async function loadRun(engine: Engine, workflow: AnyWorkflow, claim: Claim): Promise<Loaded> {
  const { store, codec, cache } = engine
  const { run, thread } = claim
  const { input, origin } = readOrigin(codec, claim.input)
  if (run.tapeSeq === null) {
    const isNew = run.inputSeq === thread.baseSeq + 1 && thread.headSeq === run.inputSeq
    const silentMs = claim.takenFrom === null ? 0 : await forgiveOutlived(store, claim, emptyTape)
    const begun = (base: StateAt) => ({ tape: emptyTape, base, input, origin, silentMs, written: nothingWritten })
    if (isNew) return begun({ ...emptyState, seq: thread.headSeq })
    const cached = cache.get(thread)
    const base = cached === undefined ? null : await continueFrom(store, codec, thread, cached)
    return begun(base ?? (await loadState(store, codec, thread, thread.headSeq)))
  }
  const records = await store.readLog({
    owner: run.owner,
    threadId: run.threadId,
    afterSeq: run.tapeSeq - 1,
    runId: run.id,
    withEdits: true,
  })
  const isNew = run.tapeSeq === thread.baseSeq + 2
  const base = isNew ? { ...emptyState, seq: run.tapeSeq - 1 } : await loadState(store, codec, thread, run.tapeSeq - 1)
  const tape = readTape(records, codec, run.id)
  const rebuilt = rebuild(engine, workflow, run, base, tape)
  // This takeover is a death too, for what was running.
  if (claim.takenFrom !== null) for (const key of runningCalls(tape)) countDeath(tape, key)
  const silentMs = await forgiveOutlived(store, claim, tape)
  return { tape, base, input, origin, silentMs, written: await countWritten(store, run, tape), ...rebuilt }
}

/** The state without what is to be done again; a change that does not fit without it is told once the run is executed. */
function rebuild(
  { codec }: Engine,
  workflow: AnyWorkflow,
  run: Run,
  base: StateAt,
  { patches }: Tape,
): { readonly rebuilt?: RebuiltTimeline; readonly misfit?: HoldfastError } {
  try {
    const rebuilt = rebuildTimeline({ runId: run.id, codec, base, patches, definition: workflow.options.state })
    return rebuilt === null ? {} : { rebuilt }
  } catch (error) {
    if (codeOf(error) !== 'nondeterminism') throw error
    return { misfit: error as HoldfastError }
  }
}

/** Asked for only where the function itself writes to streams. */
async function countWritten(store: Store, { owner, id: runId }: Run, { streams, number }: Tape): Promise<Map<string, number>> {
  const written = new Map<string, number>()
  for (const [stream, { isStale }] of streams) {
    let count = 0
    if (isStale) continue
    for (let from = 0; ; ) {
      const records = await store.readChunks({ owner, runId, stream, from, limit: 100 })
      for (const { tape, step, size, payload } of records) {
        if (tape === number && step === null) count = payload === null ? 0 : count + size
      }
      const last = records.at(-1)
      if (last === undefined) break
      from = last.offset + last.size
    }
    written.set(stream, count)
  }
  return written
}
