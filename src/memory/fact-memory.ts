import { type FactPage, type FactWithHistory, type RecalledFact, type RememberedFact, toFact } from '../model/fact.ts'
import type { FactChangeOptions, FactEdit, FactListOptions, RecallOptions, RememberOptions } from '../model/fact-options.ts'
import { type FactAct, type FactOrigin, type FactOutcome, noSuchFact } from './fact-acts.ts'
import { checkFactId, editAct, listAsk, namingAct, recallAsk, rememberAct } from './fact-asks.ts'
import { factQuery, readKept } from './fact-records.ts'
import { listFacts } from './list-facts.ts'
import { type FindNearest, recallFacts } from './recall.ts'
import type { FactReading, SubjectFacts } from './subject-facts.ts'

/** Who asks for facts of a subject, and how acts on them are carried out: at once, or with the result of a step. */
export interface FactCaller {
  readonly reading: FactReading
  readonly origin: FactOrigin
  now(): Promise<number> | number
  do(act: FactAct): Promise<FactOutcome | null>
  /** What it has done and not written yet. */
  own?(): Promise<SubjectFacts>
  readonly findNearest?: FindNearest | undefined
  /** For the log. */
  recalled?(query: string, facts: readonly RecalledFact[]): void
}

/** The calls on the facts of one subject. Functions of their own, so that they can be destructured. */
export function factMemory(caller: FactCaller) {
  const { reading, origin } = caller
  const { threadId } = origin
  const asked = async () => ({ now: await caller.now(), ...(threadId !== undefined && { threadId }) })
  return {
    async remember(text: string, options: RememberOptions = {}): Promise<RememberedFact> {
      return (await caller.do(rememberAct(text, options, origin))) as RememberedFact
    },
    async recall(query: string, options: RecallOptions = {}): Promise<RecalledFact[]> {
      const ask = recallAsk(query, options, await asked())
      const facts = await recallFacts(reading, ask, { own: await caller.own?.(), findNearest: caller.findNearest })
      caller.recalled?.(query, facts)
      return facts
    },
    async get(id: string): Promise<FactWithHistory | undefined> {
      return readFact(caller, checkFactId(id))
    },
    async list(options: FactListOptions = {}): Promise<FactPage> {
      return listFacts(reading, listAsk(options, await asked()), await caller.own?.())
    },
    async edit(id: string, changes: FactEdit, options: FactChangeOptions = {}): Promise<RememberedFact> {
      const outcome = await caller.do(editAct(id, changes, options, origin))
      if (outcome === null) throw noSuchFact(reading.subject, id)
      return outcome
    },
    async forget(id: string, options: FactChangeOptions = {}): Promise<boolean> {
      return (await caller.do(namingAct('forget', id, options, origin))) !== null
    },
    async undo(id: string, options: FactChangeOptions = {}): Promise<boolean> {
      return (await caller.do(namingAct('undo', id, options, origin))) !== null
    },
    async promote(id: string, options: FactChangeOptions = {}): Promise<RememberedFact | undefined> {
      return (await caller.do(namingAct('promote', id, options, origin))) ?? undefined
    },
  }
}

async function readFact(caller: FactCaller, id: string): Promise<FactWithHistory | undefined> {
  const { store, codec, owner, subject } = caller.reading
  const own = (await caller.own?.())?.pendingFacts(await caller.now()).find(({ fact }) => fact.id === id)
  const [record] = own === undefined ? await store.readRecords(factQuery(owner, subject, [id])) : []
  const read = record === undefined ? undefined : readKept(codec, subject, record)
  const fact = own?.fact ?? (read && toFact(id, read.kept, read.record.expiresAt))
  const history = (own ?? read)?.kept.history ?? []
  return fact && { ...fact, history: history.map(({ was: _, count: __, ...change }) => change) }
}
