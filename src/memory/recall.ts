import {
  type Fact,
  type FactTrust,
  isCurrent,
  type KeptFact,
  markFact,
  type RecalledFact,
  toFact,
  wasTrueAt,
} from '../model/fact.ts'
import { wordsOf } from '../model/words.ts'
import type { RecordHit } from '../store/store.ts'
import { factCollection, factQuery, fieldsFor, idOfKey, readKept, searchedWords } from './fact-records.ts'
import type { FactReading, PendingFact, SubjectFacts } from './subject-facts.ts'

export interface RecallAsk {
  readonly query: string
  readonly limit: number
  readonly tags: readonly string[]
  readonly kind?: string
  readonly minScore: number
  /** Facts that were true then, those that were replaced since among them. */
  readonly asOf?: number
  readonly trust: readonly FactTrust[]
  /** The thread that asks: if it is a fork, its own facts are among them. */
  readonly threadId?: string
  readonly now: number
}

/** What finds the facts that are nearest to a question, the nearest first. */
export type FindNearest = (
  query: string,
) => (limit: number) => Promise<readonly { readonly id: string; readonly similarity: number }[]>

/** Facts that answer a question, the best first. */
export async function recallFacts(
  reading: FactReading,
  ask: RecallAsk,
  { own, findNearest }: { readonly own?: SubjectFacts | undefined; readonly findNearest?: FindNearest | undefined } = {},
): Promise<RecalledFact[]> {
  if (ask.limit === 0) return []
  const pending = new Map(own?.pendingFacts(ask.now).map((one) => [one.fact.id, one]))
  const wanted = findNearest === undefined ? ask.limit : Math.max(ask.limit, fusedFrom)
  const [lexical, nearest] = await Promise.all([
    findByWords(reading, ask, pending, wanted),
    findNearest === undefined ? [] : findByMeaning(reading, ask, pending, { findNearest, wanted }),
  ])
  const lists = findNearest === undefined ? [lexical] : [lexical, nearest]
  return fuse(lists)
    .filter(({ score }) => score >= ask.minScore)
    .slice(0, ask.limit)
}

/** How many of each list are fused at least. */
const fusedFrom = 50
/** Of reciprocal rank fusion: how little the first places differ. */
const rankConstant = 60

interface Found {
  readonly fact: Fact
  readonly lexical?: number
  readonly vector?: number
}

function fuse(lists: readonly (readonly Found[])[]): RecalledFact[] {
  const fused = new Map<string, Found & { rank: number }>()
  for (const list of lists) {
    for (const [place, found] of list.entries()) {
      const before = fused.get(found.fact.id)
      const share = (rankConstant + 1) / (rankConstant + 1 + place) / lists.length
      fused.set(found.fact.id, { ...before, ...found, rank: (before?.rank ?? 0) + share })
    }
  }
  return [...fused.values()]
    .sort((a, b) => b.rank - a.rank)
    .map(({ fact, lexical, vector, rank }) => ({
      ...{ ...fact, marked: markFact(fact), score: round(Math.max(lexical ?? 0, vector ?? 0)) },
      scores: {
        ...(lexical !== undefined && { lexical: round(lexical) }),
        ...(vector !== undefined && { vector: round(vector) }),
        rank: round(rank),
      },
    }))
}

function round(score: number): number {
  return Math.round(score * 10_000) / 10_000
}

type Pending = ReadonlyMap<string, PendingFact>

/** The more it has of the words asked for, the better, rare ones counting more; of the same, the shorter text. */
async function findByWords(reading: FactReading, ask: RecallAsk, pending: Pending, wanted: number): Promise<Found[]> {
  const { store, owner } = reading
  const words = wordsOf(ask.query, mostWords)
  if (words.length === 0) return []
  const field = fieldsFor(reading.subject)
  const withHidden = ask.asOf !== undefined || ask.trust.includes('quarantined')
  const fields = [...words.map(field.word), ...(withHidden ? words.map(field.hiddenWord) : [])]
  const having = [...ask.tags.map(field.tag), ...(ask.kind === undefined ? [] : [field.kind(ask.kind)])]
  for (let limit = Math.max(40, wanted * 4); ; limit *= 4) {
    const { weights, hits } = await store.searchRecords({ owner, collection: factCollection, fields, having, limit })
    const weightOf = new Map(
      words.map((word, index) => [word, Math.min(...weights.filter((_, i) => i % words.length === index))]),
    )
    const found = await readHits(reading, ask, hits, pending)
    for (const { fact, kept } of pending.values()) {
      if (!isAskedFor(kept, ask)) continue
      const weight = searchedWords(kept).reduce((sum, word) => sum + (weightOf.get(word) ?? 0), 0)
      if (weight > 0) found.push({ fact, weight, length: kept.text.length })
    }
    if (found.length < wanted && hits.length === limit) continue
    const all = [...weightOf.values()].reduce((sum, weight) => sum + weight, 0)
    return found
      .sort((a, b) => b.weight - a.weight || a.length - b.length)
      .slice(0, wanted)
      .map(({ fact, weight }) => ({ fact, lexical: weight / all }))
  }
}

const mostWords = 32

interface Weighed {
  readonly fact: Fact
  readonly weight: number
  readonly length: number
}

async function readHits(reading: FactReading, ask: RecallAsk, hits: readonly RecordHit[], pending: Pending): Promise<Weighed[]> {
  const { subject } = reading
  const weights = new Map(hits.map(({ key, weight }) => [idOfKey(subject, key), weight]))
  const facts = await readFacts(
    reading,
    ask,
    [...weights.keys()].filter((id) => !pending.has(id)),
  )
  return facts.map((fact) => ({ fact, weight: weights.get(fact.id) as number, length: fact.text.length }))
}

async function findByMeaning(
  reading: FactReading,
  ask: RecallAsk,
  pending: Pending,
  { findNearest, wanted }: { readonly findNearest: FindNearest; readonly wanted: number },
): Promise<Found[]> {
  const find = findNearest(ask.query)
  for (let limit = wanted * 2; ; limit *= 4) {
    const nearest = await find(limit)
    const facts = await readFacts(
      reading,
      ask,
      nearest.map(({ id }) => id).filter((id) => !pending.has(id)),
    )
    if (facts.length < wanted && nearest.length === limit) continue
    const byId = new Map(facts.map((fact) => [fact.id, fact]))
    return nearest
      .flatMap(({ id, similarity }) => {
        const fact = byId.get(id)
        return fact === undefined ? [] : [{ fact, vector: Math.max(0, similarity) }]
      })
      .slice(0, wanted)
  }
}

/** Those among them that are asked for. */
async function readFacts({ store, codec, owner, subject }: FactReading, ask: RecallAsk, ids: readonly string[]): Promise<Fact[]> {
  if (ids.length === 0) return []
  const records = await store.readRecords(factQuery(owner, subject, ids))
  return records.flatMap((record) => {
    const read = readKept(codec, subject, record)
    return read === undefined || !isAskedFor(read.kept, ask) ? [] : [toFact(read.id, read.kept, record.expiresAt)]
  })
}

function isAskedFor(kept: KeptFact, { tags, kind, asOf, trust, threadId, now }: RecallAsk): boolean {
  if (kept.retracted !== undefined || !trust.includes(kept.trust)) return false
  if (kept.fork !== undefined && kept.fork !== threadId) return false
  if (kind !== undefined && kept.kind !== kind) return false
  if (!tags.every((tag) => kept.tags.includes(tag))) return false
  return asOf === undefined ? isCurrent(kept) && wasTrueAt(kept, now) : wasTrueAt(kept, asOf)
}
