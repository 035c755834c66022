import { type Fact, type FactPage, isCurrent, type KeptFact, toFact } from '../model/fact.ts'
import { compareKeys } from '../store/record-query.ts'
import { factCollection, factKey, fieldsFor, readKept } from './fact-records.ts'
import type { FactReading, SubjectFacts } from './subject-facts.ts'

export interface ListAsk {
  readonly tags: readonly string[]
  readonly kind?: string
  readonly includeRetracted: boolean
  readonly limit: number
  /** The last id of the page before. */
  readonly cursor?: string
  /** The thread that asks: if it is a fork, its own facts are among them. */
  readonly threadId?: string
  readonly now: number
}

/** Facts of a subject in the order of their ids, which says nothing about time. */
export async function listFacts(
  { store, codec, owner, subject }: FactReading,
  ask: ListAsk,
  own?: SubjectFacts | undefined,
): Promise<FactPage> {
  const { limit, cursor, tags, kind, now } = ask
  const field = fieldsFor(subject)
  const [first] = [...tags.map(field.tag), ...(kind === undefined ? [] : [field.kind(kind)])]
  const where = first === undefined ? { parent: subject } : { field: first }
  const pending = own?.pendingFacts(now) ?? []
  const isPending = new Set(pending.map(({ fact }) => fact.id))
  const items: Fact[] = []
  let after = cursor === undefined ? undefined : factKey(subject, cursor)
  for (let isLast = false; !isLast && items.length <= limit; ) {
    const bound = after === undefined ? {} : { afterKey: after }
    const page = await store.readRecords({ owner, collection: factCollection, where, limit: pageSize, ...bound })
    for (const record of page) {
      const read = readKept(codec, subject, record)
      if (read === undefined || isPending.has(read.id) || !isWanted(read.kept, ask)) continue
      items.push(toFact(read.id, read.kept, record.expiresAt))
    }
    after = page.at(-1)?.key
    isLast = page.length < pageSize
  }
  const mine = pending.filter(
    ({ fact, kept }) => isWanted(kept, ask) && (cursor === undefined || compareKeys(fact.id, cursor) > 0),
  )
  const all = [...items, ...mine.map(({ fact }) => fact)].sort((a, b) => compareKeys(a.id, b.id))
  const shown = all.slice(0, limit)
  const last = shown.at(-1)
  return { items: shown, ...(all.length > shown.length && last !== undefined && { cursor: last.id }) }
}

const pageSize = 200

function isWanted(kept: KeptFact, { tags, kind, includeRetracted, threadId }: ListAsk): boolean {
  if (!includeRetracted && !isCurrent(kept)) return false
  if (kept.fork !== undefined && kept.fork !== threadId) return false
  return (kind === undefined || kept.kind === kind) && tags.every((tag) => kept.tags.includes(tag))
}
