import { checkMs } from './duration.ts'
import { HoldfastError } from './errors.ts'
import { type FactTrust, factTrusts, readMarks } from './fact.ts'
import { checkId } from './ids.ts'
import { type OptionNames, refuseUnknownOptions } from './known-options.ts'
import { isMoment, momentAdvice } from './moment.ts'

export interface RememberOptions extends FactChangeOptions {
  /** What sort of fact it is: `preference`, `allergy`. The same text of another kind is another fact. */
  readonly kind?: string
  /** What it is filtered by, and found by as well. */
  readonly tags?: readonly string[]
  /** Where it comes from, besides the run: a document, a call. */
  readonly source?: string
  /** Default `stated`. Quarantined facts are only recalled by who asks for them. */
  readonly trust?: FactTrust
  /** How long it is kept, in ms. Default: until it is forgotten. Said again with it, its time begins anew. */
  readonly ttlMs?: number
  /** Since when it is true, in ms since 1970. Default: now. */
  readonly validFrom?: number
  /** Until when it is true. Default: no end. */
  readonly validUntil?: number
  /** The id of a fact that it takes the place of: that one was true until then. */
  readonly supersedes?: string
}

/** For the history of a fact. */
export interface FactChangeOptions {
  readonly why?: string
  readonly by?: string
}

/** What is to be different. A new text or kind makes it another fact, with an id of its own, in place of this one. */
export interface FactEdit {
  readonly text?: string
  readonly kind?: string
  readonly tags?: readonly string[]
  readonly trust?: FactTrust
  readonly ttlMs?: number
  readonly validFrom?: number
  /** Null: no end. */
  readonly validUntil?: number | null
}

export interface RecallOptions extends FactFilter {
  /** Default 10. */
  readonly limit?: number
  /** Leaves out facts with a lower `score`, from 0 to 1. Default 0. */
  readonly minScore?: number
  /** Facts that were true then, in ms since 1970; those that were replaced since, too. Default: facts that are true now. */
  readonly asOf?: number
  /** Default `['stated', 'inferred']`. */
  readonly trust?: readonly FactTrust[]
}

export interface FactFilter {
  /** Only facts with all of these. */
  readonly tags?: readonly string[]
  /** Only facts of this kind. */
  readonly kind?: string
  /** With the facts that this fork has learned. In a run: its own thread, if that is a fork. */
  readonly fork?: string
}

export interface FactListOptions extends FactFilter {
  /** Also those that were forgotten, taken back or replaced. Default false. */
  readonly includeRetracted?: boolean
  /** 1 to 1,000, default 100. */
  readonly limit?: number
  /** The cursor of the page before; undefined for the first page. */
  readonly cursor?: string | undefined
}

const changeNames: OptionNames<FactChangeOptions> = { why: true, by: true }
const filterNames: OptionNames<FactFilter> = { tags: true, kind: true, fork: true }
const editNames: OptionNames<FactEdit> = {
  ...{ text: true, kind: true, tags: true, trust: true, ttlMs: true, validFrom: true, validUntil: true },
}
const rememberNames: OptionNames<RememberOptions> = {
  ...{ kind: true, tags: true, source: true, trust: true, ttlMs: true, validFrom: true, validUntil: true },
  ...{ supersedes: true, ...changeNames },
}
const recallNames: OptionNames<RecallOptions> = { ...filterNames, limit: true, minScore: true, asOf: true, trust: true }
const listNames: OptionNames<FactListOptions> = { ...filterNames, includeRetracted: true, limit: true, cursor: true }

export function checkRemember(text: unknown, options: RememberOptions): void {
  refuseUnknownOptions('memory.remember', options, rememberNames)
  checkFactText('remember', text)
  checkContent('remember', options)
  checkChange('remember', options)
  if (options.source !== undefined) checkId('source of a fact', options.source)
  if (options.supersedes !== undefined) checkId('id of a fact', options.supersedes)
}

export function checkEdit(changes: FactEdit, options: FactChangeOptions): void {
  refuseUnknownOptions('the changes of memory.edit', changes, editNames)
  refuseUnknownOptions('memory.edit', options, changeNames)
  const { text } = changes
  if (text !== undefined) checkFactText('edit', typeof text === 'string' ? readMarks(text).plain : text)
  checkContent('edit', { ...changes, validUntil: changes.validUntil ?? undefined })
  checkChange('edit', options)
}

export function checkChange(what: string, options: FactChangeOptions): void {
  if (what !== 'remember') refuseUnknownOptions(`memory.${what}`, options, changeNames)
  for (const name of ['why', 'by'] as const)
    if (options[name] !== undefined && typeof options[name] !== 'string') throw invalid(`${name} of memory.${what}`, 'a string')
}

export function checkRecall(query: unknown, options: RecallOptions): void {
  refuseUnknownOptions('memory.recall', options, recallNames)
  if (typeof query !== 'string') throw invalid('The question of memory.recall', 'a string')
  checkFilter('recall', options)
  checkLimit('recall', options.limit, { least: 0, most: 1_000 })
  const { minScore, trust } = options
  if (minScore !== undefined && !(minScore >= 0 && minScore <= 1))
    throw invalid('minScore of memory.recall', 'a number from 0 to 1')
  checkMoment('asOf of memory.recall', options.asOf)
  if (trust !== undefined && !(Array.isArray(trust) && trust.every((one) => factTrusts.includes(one))))
    throw invalid('trust of memory.recall', `a list of ${factTrusts.join(', ')}`)
}

export function checkList(options: FactListOptions): void {
  refuseUnknownOptions('memory.list', options, listNames)
  checkFilter('list', options)
  checkLimit('list', options.limit, { least: 1, most: 1_000 })
  if (options.cursor !== undefined) checkId('cursor of memory.list', options.cursor)
}

function checkFactText(what: string, text: unknown): void {
  if (typeof text === 'string' && text.trim() !== '' && text.length <= maxTextChars) return
  throw invalid(`The text of memory.${what}`, `a string of 1 to ${maxTextChars.toLocaleString('en')} characters`)
}

const maxTextChars = 20_000

function checkContent(
  what: string,
  options: Omit<RememberOptions, 'validUntil'> & { readonly validUntil?: number | undefined },
): void {
  const { kind, tags, trust, ttlMs, validFrom, validUntil } = options
  checkFilter(what, { ...(kind !== undefined && { kind }), ...(tags !== undefined && { tags }) })
  if (trust !== undefined && !factTrusts.includes(trust))
    throw invalid(`trust of memory.${what}`, `one of ${factTrusts.join(', ')}`)
  checkMs(`ttlMs of memory.${what}`, ttlMs, 1)
  checkMoment(`validFrom of memory.${what}`, validFrom)
  checkMoment(`validUntil of memory.${what}`, validUntil)
  if (validFrom !== undefined && validUntil !== undefined && validUntil <= validFrom)
    throw invalid(`validUntil of memory.${what}`, 'later than validFrom')
}

function checkFilter(what: string, { tags, kind, fork }: FactFilter): void {
  if (tags !== undefined && !(Array.isArray(tags) && tags.length <= maxTags))
    throw invalid(`tags of memory.${what}`, `a list of up to ${maxTags} strings`)
  for (const tag of tags ?? []) checkId('tag of a fact', tag)
  if (kind !== undefined) checkId('kind of a fact', kind)
  if (fork !== undefined) checkId('thread id of a fork', fork)
}

const maxTags = 50

function checkLimit(what: string, limit: unknown, { least, most }: { readonly least: number; readonly most: number }): void {
  if (limit === undefined || (Number.isInteger(limit) && (limit as number) >= least && (limit as number) <= most)) return
  throw invalid(`limit of memory.${what}`, `a whole number from ${least} to ${most.toLocaleString('en')}`)
}

function checkMoment(what: string, value: unknown): void {
  if (value !== undefined && !isMoment(value)) throw invalid(what, momentAdvice(value))
}

function invalid(what: string, must: string): HoldfastError {
  return new HoldfastError('invalid_input', `${what} must be ${must}.`)
}
