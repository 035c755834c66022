import { createHash } from 'node:crypto'
import { comparableText } from './words.ts'

/** How far a fact is believed: said by somebody, concluded by a model, or kept aside until somebody has looked at it. */
export type FactTrust = 'stated' | 'inferred' | 'quarantined'
export const factTrusts: readonly FactTrust[] = ['quarantined', 'inferred', 'stated']

/** Where a fact comes from: of a run, its thread and the step that learned it. */
export interface FactSource {
  readonly threadId?: string
  readonly runId?: string
  readonly step?: string
  /** As you named it: a document, a call, an address. */
  readonly name?: string
}

/** What is known about a subject, in a sentence. */
export interface Fact {
  /** The same for the same text and kind of the same subject. */
  readonly id: string
  readonly text: string
  readonly kind?: string
  readonly tags: readonly string[]
  readonly trust: FactTrust
  readonly source: FactSource
  /** When it was remembered, in ms since 1970 by the store's clock. */
  readonly learnedAt: number
  /** Since when it is true: when it was learned, unless you said something else. */
  readonly validFrom: number
  /** From then on it is not true any more. Absent: no end is known. */
  readonly validUntil?: number
  /** The fact that it replaced. */
  readonly supersedes?: string
  /** The fact that replaced it. */
  readonly supersededBy?: string
  /** It was forgotten, or the thread that learned it was taken back. */
  readonly retracted?: FactRetraction
  /** The fork that learned it: nobody else recalls it until it is promoted. */
  readonly fork?: string
  /** When it expires; absent where it does not. */
  readonly expiresAt?: number
}

export interface RecalledFact extends Fact {
  /** The text with the mark of a recalled fact, for a prompt: `⟦memory ID⟧ text`. `remember` recognizes it. */
  readonly marked: string
  /** How well it answers, from 0 to 1: the greater one of `lexical` and `vector`. */
  readonly score: number
  readonly scores: {
    /** Which share of the words asked for it has, rare words counting more. Absent: none. */
    readonly lexical?: number
    /** How near it is in meaning: the cosine of the vectors, not below 0. Absent: without `embed`, or not among the nearest. */
    readonly vector?: number
    /** What the order is by: the ranks in both lists, fused. 1 is the first of every list. */
    readonly rank: number
  }
}

export interface FactPage {
  readonly items: readonly Fact[]
  /** Continues where this page ends; absent at the end. */
  readonly cursor?: string
}

/** What came of remembering. */
export interface RememberedFact {
  readonly id: string
  /** False: it was known. */
  readonly isNew: boolean
}

/** A fact with its latest changes, oldest first. */
export interface FactWithHistory extends Fact {
  readonly history: readonly FactChange[]
}

export interface FactRetraction {
  readonly at: number
  readonly why?: string
  readonly by?: string
}

/** Who changed a fact and why. */
export interface FactChange {
  readonly at: number
  readonly act: FactActName
  readonly why?: string
  readonly by?: string
  readonly runId?: string
  readonly threadId?: string
  readonly step?: string
}

export type FactActName =
  | ('remembered' | 'confirmed' | 'edited' | 'superseded' | 'forgotten')
  | ('taken_back' | 'promoted' | 'undone')

/** A fact as its record holds it. */
export interface KeptFact {
  readonly text: string
  readonly kind?: string
  readonly tags: readonly string[]
  readonly trust: FactTrust
  readonly source: FactSource
  readonly learnedAt: number
  /** When it was true; the last one is that of now. One that was replaced and is said again has several. */
  readonly periods: readonly FactPeriod[]
  readonly supersedes?: string
  readonly supersededBy?: string
  readonly retracted?: FactRetraction
  readonly fork?: string
  /** The latest changes, oldest first, each with what was there before. */
  readonly history: readonly KeptChange[]
}

export interface FactPeriod {
  readonly from: number
  readonly until?: number
}

export interface KeptChange extends FactChange {
  /** Which call of the step. */
  readonly count?: number
  /** Null: nothing. */
  readonly was: Omit<KeptFact, 'history'> | null
}

/** Neither replaced nor retracted. */
export function isCurrent({ retracted, supersededBy }: Pick<KeptFact, 'retracted' | 'supersededBy'>): boolean {
  return retracted === undefined && supersededBy === undefined
}

/** Whether a fact was true at a time. */
export function wasTrueAt({ periods }: Pick<KeptFact, 'periods'>, at: number): boolean {
  return periods.some(({ from, until }) => from <= at && (until === undefined || at < until))
}

/** One that a fork learned is another one than the same text elsewhere. */
export function factId({ text, kind, fork }: Pick<KeptFact, 'text' | 'kind' | 'fork'>): string {
  return shortHash(JSON.stringify([comparableText(text), kind ?? null, fork ?? null]))
}

/** 96 bits: enough that no two are the same by chance. */
export function shortHash(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 16)
}

/** A recalled fact as a model reads it. What carries the mark is recognized when it is to be remembered again. */
export function markFact({ id, text }: Pick<Fact, 'id' | 'text'>): string {
  return `⟦memory ${id}⟧ ${text}`
}

/** The facts whose marks a text carries, and the text without them. */
export function readMarks(text: string): { readonly ids: readonly string[]; readonly plain: string } {
  const ids = [...text.matchAll(mark)].map(([, id]) => id as string)
  return { ids, plain: ids.length === 0 ? text : text.replaceAll(mark, '').trim() }
}

const mark = /⟦memory ([\w-]{16})⟧ ?/g

export function toFact(id: string, kept: KeptFact, expiresAt: number | null): Fact {
  const { periods, history: _, ...rest } = kept
  const { from: validFrom, until: validUntil } = periods.at(-1) as FactPeriod
  return { id, ...rest, validFrom, ...(validUntil !== undefined && { validUntil }), ...(expiresAt !== null && { expiresAt }) }
}
