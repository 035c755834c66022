import { HoldfastError } from '../model/errors.ts'
import {
  type FactActName,
  type FactSource,
  type FactTrust,
  factId,
  factTrusts,
  isCurrent,
  type KeptChange,
  type KeptFact,
  readMarks,
} from '../model/fact.ts'
import type { Due } from '../store/change.ts'

/** What can be done to facts of one subject, each as an act that can be done again over other facts. */
export type FactAct = RememberAct | EditAct | TakeBackAct | NamingAct

interface NamingAct extends FactOrigin {
  readonly act: 'forget' | 'undo' | 'promote'
  readonly id: string
}

/** A thread goes back: what it did to a fact since did not happen, unless somebody else has changed the fact meanwhile. */
interface TakeBackAct extends FactOrigin {
  readonly act: 'take_back'
  readonly id: string
  /** Whether the thread did it since then. */
  readonly isTakenBack: (change: KeptChange) => boolean
}

export interface FactOrigin {
  readonly why?: string
  readonly by?: string
  readonly runId?: string
  readonly threadId?: string
  readonly step?: string
  readonly count?: number
}

export interface RememberAct extends FactOrigin {
  readonly act: 'remember'
  readonly text: string
  readonly factKind?: string
  readonly tags: readonly string[]
  readonly trust: FactTrust
  readonly source: FactSource
  readonly expires?: Due
  readonly validFrom?: number
  readonly validUntil?: number
  readonly supersedes?: string
  readonly fork?: string
}

export interface EditAct extends FactOrigin {
  readonly act: 'edit'
  readonly id: string
  readonly text?: string
  readonly factKind?: string
  readonly tags?: readonly string[]
  readonly trust?: FactTrust
  readonly expires?: Due
  readonly validFrom?: number
  readonly validUntil?: number | null
}

/** The facts of a subject as an act finds and leaves them. */
export interface FactBook {
  readonly subject: string
  readonly now: number
  find(id: string): Promise<KeptFact | null>
  /** When it expires as it is. */
  expiryOf(id: string): Due
  /** Without `expires` it expires when it did. */
  keep(id: string, kept: KeptFact, expires?: Due): void
}

export interface FactOutcome {
  readonly id: string
  readonly isNew: boolean
}

/** Null where there is no such fact, or nothing to do. */
export async function doAct(book: FactBook, act: FactAct): Promise<FactOutcome | null> {
  if (act.act === 'remember') return remember(book, act)
  const found = await book.find(act.id)
  if (found === null) return null
  switch (act.act) {
    case 'edit':
      return edit(book, act, found)
    case 'forget':
      return forget(book, act, found)
    case 'take_back':
      return takeBack(book, act, found)
    case 'undo':
      return undo(book, act, found)
    case 'promote':
      return promote(book, act, found)
  }
}

async function remember(book: FactBook, act: RememberAct): Promise<FactOutcome> {
  const { ids, plain } = readMarks(act.text)
  for (const id of ids) if ((await book.find(id)) !== null) return { id, isNew: false }
  const { factKind, tags, trust, source, fork, expires, supersedes } = act
  const text = plain
  if (text === '')
    throw new HoldfastError('invalid_input', 'The text of memory.remember is only the mark of a fact that does not exist.')
  const sentence = { text, ...(factKind !== undefined && { kind: factKind }) }
  const said = { ...sentence, ...(fork !== undefined && { fork }) }
  const id = factId(said)
  if (fork !== undefined && supersedes === undefined) {
    const known = await book.find(factId(sentence))
    if (known !== null && isKnown(known, book) && tags.every((tag) => known.tags.includes(tag)))
      return { id: factId(sentence), isNew: false }
  }
  const found = await book.find(id)
  const isNew = found === null || !isKnown(found, book)
  if (isNew) {
    const { from, until } = { from: act.validFrom ?? book.now, until: act.validUntil }
    const periods = [...(found?.periods ?? []), { from, ...(until !== undefined && { until }) }]
    const learned = { tags: [...new Set(tags)], trust, source, learnedAt: book.now, periods }
    const replaced = supersedes !== undefined && supersedes !== id ? { supersedes } : {}
    const kept = { ...said, ...learned, ...replaced, history: historyOf(book, 'remembered', act, found) }
    book.keep(id, kept, expires ?? 'never')
  } else confirm(book, act, id, found)
  if (supersedes !== undefined && supersedes !== id) await supersede(book, act, supersedes, { by: id, fork, from: act.validFrom })
  return { id, isNew }
}

/** Saying it again adds nothing: it was neither replaced nor retracted, and its time is not over. */
function isKnown(found: KeptFact, { now }: FactBook): boolean {
  return isCurrent(found) && (found.periods.at(-1)?.until ?? Number.POSITIVE_INFINITY) > now
}

/** It is said again: what is new about it is added, and that another thread says it, too: it stays when the first one is taken back. */
function confirm(book: FactBook, act: RememberAct, id: string, found: KeptFact): void {
  const tags = [...new Set([...found.tags, ...act.tags])]
  const trust = factTrusts[Math.max(factTrusts.indexOf(found.trust), factTrusts.indexOf(act.trust))] as FactTrust
  const changes = periodChanges(act, found)
  const isKnownHere = found.history.some(({ threadId }) => threadId === act.threadId)
  const isSame = tags.length === found.tags.length && trust === found.trust && changes === null && act.expires === undefined
  if (isSame && isKnownHere) return
  const history = historyOf(book, 'confirmed', act, found)
  book.keep(id, { ...found, tags, trust, ...changes, history }, act.expires)
}

function periodChanges(
  { validFrom, validUntil }: { readonly validFrom?: number; readonly validUntil?: number | null },
  { periods }: KeptFact,
): Pick<KeptFact, 'periods'> | null {
  if (validFrom === undefined && validUntil === undefined) return null
  const last = periods.at(-1) as KeptFact['periods'][number]
  const until = validUntil === undefined ? last.until : (validUntil ?? undefined)
  const period = { from: validFrom ?? last.from, ...(until !== undefined && { until }) }
  return { periods: [...periods.slice(0, -1), period] }
}

/** `by` takes the place of a fact: it was true until then. */
async function supersede(
  book: FactBook,
  act: FactAct,
  id: string,
  { by, fork, from = book.now }: { readonly by: string; readonly fork?: string | undefined; readonly from?: number | undefined },
): Promise<void> {
  const found = await book.find(id)
  if (found === null) throw noSuchFact(book.subject, id)
  // What others recall stays until the fork's fact is promoted.
  if (fork !== found.fork) return
  const last = found.periods.at(-1) as KeptFact['periods'][number]
  const until = Math.max(last.from, from)
  const periods = [...found.periods.slice(0, -1), { from: last.from, until: Math.min(until, last.until ?? until) }]
  book.keep(id, { ...found, periods, supersededBy: by, history: historyOf(book, 'superseded', act, found) })
}

/** A correction: with another text or kind it is another fact, which takes its place as if it had always been there. */
async function edit(book: FactBook, act: EditAct, found: KeptFact): Promise<FactOutcome> {
  const { id, text, factKind, tags, trust, expires } = act
  const changes = {
    ...(text !== undefined && { text }),
    ...(factKind !== undefined && { kind: factKind }),
    ...(tags !== undefined && { tags: [...new Set(tags)] }),
    ...(trust !== undefined && { trust }),
    ...periodChanges(act, found),
  }
  const edited = { ...found, ...changes, history: historyOf(book, 'edited', act, found) }
  const newId = factId(edited)
  if (newId === id) {
    book.keep(id, edited, expires)
    return { id, isNew: false }
  }
  const there = await book.find(newId)
  const { supersededBy: _, retracted: __, ...corrected } = edited
  book.keep(newId, { ...corrected, supersedes: id, history: historyOf(book, 'edited', act, there) }, expires ?? book.expiryOf(id))
  const retracted = retractionOf(book, act)
  book.keep(id, { ...found, retracted, supersededBy: newId, history: historyOf(book, 'edited', act, found) })
  return { id: newId, isNew: there === null || !isCurrent(there) }
}

function forget(book: FactBook, act: NamingAct, found: KeptFact): FactOutcome | null {
  if (found.retracted !== undefined) return null
  book.keep(act.id, { ...found, retracted: retractionOf(book, act), history: historyOf(book, 'forgotten', act, found) })
  return { id: act.id, isNew: false }
}

function takeBack(book: FactBook, act: TakeBackAct, found: KeptFact): FactOutcome | null {
  let first: KeptChange | undefined
  for (const change of found.history.toReversed()) {
    if (!act.isTakenBack(change)) break
    first = change
  }
  if (first === undefined) return null
  const history = historyOf(book, 'taken_back', act, found)
  const before = (isLearnedSince(act, found) ? null : first.was) ?? { ...found, retracted: retractionOf(book, act) }
  book.keep(act.id, { ...before, history })
  return { id: act.id, isNew: false }
}

/** With more changes than a history keeps, it does not say any more that there was nothing before. */
function isLearnedSince({ isTakenBack }: TakeBackAct, { history, learnedAt, source }: KeptFact): boolean {
  return history.length === mostChanges && isTakenBack({ at: learnedAt, act: 'remembered', was: null, ...source })
}

/** What was replaced by a fact that is undone is true again. */
async function reopen(book: FactBook, act: NamingAct, id: string | undefined): Promise<void> {
  const replaced = id === undefined ? null : await book.find(id)
  if (id === undefined || replaced?.supersededBy !== act.id) return
  const { was } = replaced.history.findLast(({ act: name }) => name === 'superseded' || name === 'edited') ?? { was: null }
  if (was !== null) book.keep(id, { ...was, history: historyOf(book, 'undone', act, replaced) })
}

/** Takes the last change of a fact back; once more, and it is made again. */
async function undo(book: FactBook, act: NamingAct, found: KeptFact): Promise<FactOutcome | null> {
  const last = found.history.at(-1)
  if (last === undefined) return null
  const history = historyOf(book, 'undone', act, found)
  if (last.was === null) {
    book.keep(act.id, { ...found, retracted: retractionOf(book, act), history })
    await reopen(book, act, found.supersedes)
  } else {
    book.keep(act.id, { ...last.was, history })
    const { supersedes, fork } = last.was
    // It was said again in place of another fact, or that one was corrected to it.
    const isUnsaid = last.act === 'remembered' || last.act === 'edited' || last.was.supersededBy !== undefined
    if (isUnsaid && isCurrent(found) && !isCurrent(last.was)) await reopen(book, act, found.supersedes)
    if (isCurrent(last.was) && !isCurrent(found) && supersedes !== undefined && (await book.find(supersedes)) !== null)
      await supersede(book, act, supersedes, { by: act.id, fork })
  }
  return { id: act.id, isNew: false }
}

/** What a fork has learned is known to all. */
async function promote(book: FactBook, act: NamingAct, found: KeptFact): Promise<FactOutcome | null> {
  const { fork, history: _, ...rest } = found
  if (fork === undefined || !isCurrent(found)) return null
  const id = factId(rest)
  const there = await book.find(id)
  const isNew = there === null || !isCurrent(there)
  if (isNew) book.keep(id, { ...rest, history: historyOf(book, 'promoted', act, there) }, book.expiryOf(act.id))
  const retracted = retractionOf(book, act)
  book.keep(act.id, { ...found, retracted, supersededBy: id, history: historyOf(book, 'promoted', act, found) })
  const replaced = rest.supersedes === undefined ? null : await book.find(rest.supersedes)
  if (rest.supersedes !== undefined && replaced !== null && isCurrent(replaced))
    await supersede(book, act, rest.supersedes, { by: id, from: rest.periods.at(-1)?.from })
  return { id, isNew }
}

function retractionOf({ now }: FactBook, { why, by }: FactOrigin) {
  return { at: now, ...(why !== undefined && { why }), ...(by !== undefined && { by }) }
}

/** Earlier changes are dropped: a fact stays small. */
const mostChanges = 20

function historyOf({ now }: FactBook, name: FactActName, origin: FactOrigin, found: KeptFact | null): KeptChange[] {
  const { why, by, runId, threadId, step, count } = origin
  const { history = [], ...was } = found ?? {}
  const change: KeptChange = {
    ...{ at: now, act: name, ...(why !== undefined && { why }), ...(by !== undefined && { by }) },
    ...(runId !== undefined && { runId }),
    ...(threadId !== undefined && { threadId }),
    ...(step !== undefined && { step }),
    ...(count !== undefined && { count }),
    was: found === null ? null : (was as Omit<KeptFact, 'history'>),
  }
  return [...history, change].slice(-mostChanges)
}

export function noSuchFact(subject: string, id: string): HoldfastError {
  const message = `There is no fact ${JSON.stringify(id)} of "${subject}". Facts have the ids that remember, recall and list return.`
  return new HoldfastError('invalid_input', message, { details: { subject, id } })
}
