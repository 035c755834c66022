import type { Codec } from '../model/codec.ts'
import { isCurrent, type KeptFact, shortHash } from '../model/fact.ts'
import { pairKey } from '../model/ids.ts'
import type { KeyedRecord, RecordChange, RecordField } from '../model/record.ts'
import { wordsOf } from '../model/words.ts'
import type { Due } from '../store/change.ts'
import type { RecordQuery } from '../store/store.ts'

/**
 * Facts as records: one for each, whose parent is the subject. A fact is found by its words, which are fields of its record. Those of facts that a plain
 * recall leaves out have another name, so they cost it nothing.
 */
export const factCollection = 'fact'

export function factKey(subject: string, id: string): string {
  return pairKey(subject, id)
}

export function idOfKey(subject: string, key: string): string {
  return key.slice(pairKey(subject, '').length)
}

export function factQuery(owner: string, subject: string, ids: readonly string[]): RecordQuery {
  const keys = ids.map((id) => factKey(subject, id))
  return { owner, collection: factCollection, where: { keys }, limit: keys.length }
}

export interface KeptRecord {
  readonly id: string
  readonly kept: KeptFact
  readonly record: KeyedRecord
}

/** Of another subject whose fields happen to be the same: undefined. */
export function readKept(codec: Codec, subject: string, record: KeyedRecord): KeptRecord | undefined {
  if (record.parent !== subject) return undefined
  return { id: idOfKey(subject, record.key), kept: codec.decode(record.payload) as KeptFact, record }
}

export function putFact(codec: Codec, { subject, id, kept, expires, over }: PutFact): Extract<RecordChange, { kind: 'put' }> {
  return {
    ...{ kind: 'put', collection: factCollection, key: factKey(subject, id), parent: subject, threadId: null },
    ...{ fields: fieldsOf(subject, kept), payload: codec.encode(kept), expires, ifVersion: over?.version ?? 0 },
    // One that expired and was remembered again meanwhile has the same version.
    ...(over !== null && { ifUpdatedAt: over.updatedAt }),
  }
}

interface PutFact {
  readonly subject: string
  readonly id: string
  readonly kept: KeptFact
  readonly expires: Due
  /** What is there, as it was read. */
  readonly over: Pick<KeyedRecord, 'version' | 'updatedAt'> | null
}

/** A plain recall may return it, as far as its words say. */
function isShown(kept: KeptFact): boolean {
  return isCurrent(kept) && kept.trust !== 'quarantined'
}

function fieldsOf(subject: string, kept: KeptFact): RecordField[] {
  const field = fieldsFor(subject)
  const words = searchedWords(kept).map((word) => (isShown(kept) ? field.word(word) : field.hiddenWord(word)))
  return [...words, ...kept.tags.map(field.tag), ...(kept.kind === undefined ? [] : [field.kind(kept.kind)])]
}

/** Its tags are among them. */
export function searchedWords({ text, tags }: Pick<KeptFact, 'text' | 'tags'>): string[] {
  return [...new Set([...wordsOf(text), ...tags.flatMap((tag) => wordsOf(tag))])]
}

/** Fields of facts of one subject. */
export function fieldsFor(subject: string) {
  const scope = `${shortHash(subject)} `
  const field = (name: string) => (value: string) => ({ name, value: scope + value })
  return { word: field('word'), hiddenWord: field('hidden'), tag: field('tag'), kind: field('kind') }
}
