import type { Codec } from '../model/codec.ts'
import type { KeptChange } from '../model/fact.ts'
import type { RecordChange } from '../model/record.ts'
import type { Store, ThreadKey } from '../store/store.ts'
import { type LoggedValue, rebuildSession } from './rebuild-session.ts'
import { type LoggedAct, SubjectFacts } from './subject-facts.ts'

/** What takes a thread's memory back, and what the log is told of it. */
export interface TakenBack {
  readonly records: readonly RecordChange[]
  readonly logged: readonly (LoggedValue | LoggedAct)[]
}

interface Reading {
  readonly store: Store
  readonly codec: Codec
  /** The store's time. */
  readonly now: number
}

/** Takes a thread's own session, and what the thread did to facts, back to a position of its log. Facts are compared with what they were. */
export async function takeBackMemory(
  reading: Reading,
  thread: ThreadKey,
  place: { readonly to: number; readonly headSeq: number; readonly by?: string | undefined },
): Promise<TakenBack> {
  const [session, facts] = [await rebuildSession(reading, thread, place), await takeBackFacts(reading, thread, place)]
  return { records: [...session.records, ...facts.records], logged: [...session.logged, ...facts.logged] }
}

/**
 * What the thread did to facts after the position, it did not do: what it learned is retracted, what it forgot or replaced is back. A fact that somebody
 * else has changed since stays as it is. Nothing is lost: a fact's history has it, and going forward again brings it back.
 */
async function takeBackFacts(
  { store, codec, now }: Reading,
  { owner, threadId }: ThreadKey,
  { to, headSeq, by }: { readonly to: number; readonly headSeq: number; readonly by?: string | undefined },
): Promise<TakenBack> {
  const log = await store.readLog({ owner, threadId, afterSeq: to, toSeq: headSeq, types: ['memory_written'] })
  const acts = log.flatMap(({ runId, step, count, payload }) => {
    const data = payload === null ? null : (codec.decode(payload) as Partial<LoggedAct>)
    return data?.facts === undefined ? [] : [{ ...(data as LoggedAct), runId, step, count }]
  })
  const made: TakenBack[] = []
  for (const subject of new Set(acts.map((act) => act.subject))) {
    const ofSubject = acts.filter((act) => act.subject === subject)
    const byTime = Map.groupBy(ofSubject, ({ at }) => at)
    // A step before the position may have changed the fact in the same millisecond.
    const isTakenBack = (change: KeptChange) =>
      change.threadId === threadId &&
      byTime.get(change.at)?.some(({ runId, step, count }) => {
        const { runId: ofRun = runId, step: ofStep = step, count: ofCall = count } = change
        return ofRun === runId && ofStep === step && ofCall === count
      }) === true
    // Later than what it takes back, so that going forward again is told from it.
    const at = ofSubject.reduce((latest, act) => Math.max(latest, act.at + 1), now)
    const facts = new SubjectFacts({ store, codec, owner, subject })
    const origin = { threadId, why: 'the thread was taken back', ...(by !== undefined && { by }) }
    for (const id of new Set(ofSubject.flatMap(({ facts: ids }) => ids)))
      await facts.do({ act: 'take_back', id, isTakenBack, ...origin }, at)
    made.push({ records: await facts.records(), logged: facts.logged })
  }
  return { records: made.flatMap(({ records }) => records), logged: made.flatMap(({ logged }) => logged) }
}
