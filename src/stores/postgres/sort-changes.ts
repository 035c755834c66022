import { isTerminal } from '../../model/run.ts'
import type { Change, Guard, NewRun, OperationChange, RunChange } from '../../store/change.ts'
import { isStart, namesHead } from '../../store/kinds-of-change.ts'
import type { LeasePlace, Leases } from './leases.ts'

/** Changes under one lease, one after the other. */
export interface LeasedGroup {
  readonly place: LeasePlace
  readonly epoch: number
  readonly leaseId: string
  /** What all of them know of what was written before them. */
  readonly writtenSeq: number | undefined
  /** Of the changes, in order. */
  readonly indexes: number[]
}

/** How a batch is written: commit-sql.ts says what the three kinds are. */
export interface SortedChanges {
  /** By thread. */
  readonly leased: readonly LeasedGroup[]
  /** By owner and thread, so that two processes that start the same runs meet in the same order. */
  readonly starts: readonly { readonly index: number; readonly rank: number }[]
  readonly others: readonly { readonly index: number; readonly rank: number; readonly createRanks: readonly number[] }[]
  /** Ranks that were given out, from 1: one to each place where a thread or run may be created. */
  readonly rankCount: number
}

/**
 * Sorts a batch. Changes of the first two kinds may be written in any order, because no other change names their threads or
 * runs; changes of one lease are taken together. All others are written one by one as they came.
 */
export function sortChanges(changes: readonly Change[], leases: Leases): SortedChanges {
  const hasJudge = changes.some(({ operation }) => operation !== undefined && judged.has(operation.kind))
  const hasStart = changes.some(({ creates }) => creates !== undefined)
  const tokens = changes.map((change, index) => tokenOf(change, { index, leases, hasJudge, hasStart }))
  return sortSteps(changes, tokens) ?? sortAll(changes, tokens)
}

/** A batch of nothing but leased changes, the usual one: row numbers tell which of them share a thread. Null if it is another. */
function sortSteps(changes: readonly Change[], tokens: readonly Token[]): SortedChanges | null {
  const groups = new Map<number, LeasedGroup & { hasEnded: boolean }>()
  for (let index = 0; index < changes.length; index++) {
    const token = tokens[index] as Token
    const { guard, run } = changes[index] as Change
    if (token.kind !== 'leased' || guard.kind !== 'lease') return null
    const { epoch, leaseId, writtenSeq } = guard
    const hasEnded = endsGroup(run)
    const group = groups.get(token.place.thread)
    if (group === undefined) {
      groups.set(token.place.thread, { place: token.place, epoch, leaseId, writtenSeq, indexes: [index], hasEnded })
    } else {
      if (group.leaseId !== leaseId || group.epoch !== epoch || group.writtenSeq !== writtenSeq || group.hasEnded) return null
      group.indexes.push(index)
      group.hasEnded = hasEnded
    }
  }
  return { leased: sortByThread([...groups.values()]), starts: [], others: [], rankCount: 0 }
}

function sortAll(changes: readonly Change[], tokens: readonly Token[]): SortedChanges {
  const users = findUsers(changes, tokens)
  // After a failover numbers may have been given out again: two leases, of which one is lost, then name one thread by number.
  const leaseOfThread = new Map<number, string>()
  const isFirst = (token: Token) => {
    if (token.kind !== 'leased') return true
    const key = leaseOfThread.get(token.place.thread) ?? token.key
    leaseOfThread.set(token.place.thread, key)
    return key === token.key
  }
  const groups = new Map<string, LeasedGroup>()
  const starts: { index: number; rank: number }[] = []
  const others: { index: number; rank: number; createRanks: number[] }[] = []
  let rankCount = 0
  for (let index = 0; index < changes.length; index++) {
    const change = changes[index] as Change
    const token = tokens[index] as Token
    const isAlone = token.kind !== 'other' && namesOf(change).every((name) => users.get(name) === token.key) && isFirst(token)
    if (isAlone && token.kind === 'leased') {
      addLeased(groups, { index, change, place: token.place })
    } else if (isAlone) {
      starts.push({ index, rank: ++rankCount })
    } else {
      const rank = ++rankCount
      others.push({ index, rank, createRanks: (change.creates ?? []).map(() => ++rankCount) })
    }
  }
  if (starts.length > 1) starts.sort((a, b) => compare(createOf(changes, a.index), createOf(changes, b.index)))
  return { leased: sortByThread([...groups.values()]), starts, others, rankCount }
}

/** Whether they are refused depends on the status of the operation. */
const judged: ReadonlySet<OperationChange['kind']> = new Set(['intend', 'ask', 'resolve'])

type Token =
  | { readonly kind: 'leased'; readonly key: string; readonly place: LeasePlace }
  | { readonly kind: 'start' | 'other'; readonly key: string }

/**
 * Changes with one key may be written together; a name that two keys use makes `others` of both. The end of a run or of a tape settles
 * the operations that it left open, so beside a change that judges an operation it has to be written in its turn. So has one that
 * puts its run back into the queue beside starts, which a full queue refuses.
 */
function tokenOf(change: Change, { index, leases, hasJudge, hasStart }: Batchmates): Token {
  const { guard } = change
  const status = change.run?.status
  const endsTape = change.run?.hasNewInput === true || (status !== undefined && isTerminal(status))
  const isInItsTurn = (hasJudge && endsTape) || (hasStart && status === 'pending')
  if (guard.kind === 'lease' && !isInItsTurn) {
    const place = leases.placeOf(change)
    if (place !== undefined && isLeasedKind(change)) return { kind: 'leased', key: keyOf(guard), place }
  }
  const isPlainStart = isStart(change) && change.creates[0].queued.patch === null
  return { kind: isPlainStart ? 'start' : 'other', key: `#${index}` }
}

/** Changes of one lease that were stamped differently are judged one by one. */
function keyOf({ epoch, leaseId, writtenSeq }: Extract<Guard, { kind: 'lease' }>): string {
  return `${epoch} ${writtenSeq ?? ''} ${leaseId}`
}

interface Batchmates {
  readonly index: number
  readonly leases: Leases
  /** Some change judges an operation. */
  readonly hasJudge: boolean
  /** Some change creates a run. */
  readonly hasStart: boolean
}

/** For every name in the batch the key that uses it; null where several do. */
function findUsers(changes: readonly Change[], tokens: readonly Token[]): Map<string, string | null> {
  const users = new Map<string, string | null>()
  const ended = new Set<string>()
  for (let index = 0; index < changes.length; index++) {
    const change = changes[index] as Change
    const { key } = tokens[index] as Token
    const user = ended.has(key) ? null : key
    for (const name of namesOf(change)) {
      const known = users.get(name)
      users.set(name, known === undefined || known === user ? user : null)
    }
    if (endsGroup(change.run)) ended.add(key)
  }
  return users
}

/** What follows the end of a lease has to be refused, and what follows an uncounted claim depends on the count: one by one. */
function endsGroup(run: RunChange | undefined): boolean {
  return run !== undefined && ((run.status !== undefined && run.status !== 'running') || run.uncountClaim === true)
}

/** The threads and runs that a change is about, and the runs that it delivers to. */
function namesOf(change: Change): string[] {
  const names = [`t${change.owner.length}:${change.owner}${change.threadId}`]
  if (change.runId !== null) names.push(`r${change.owner.length}:${change.owner}${change.runId}`)
  for (const { owner, threadId, id } of change.creates ?? [])
    names.push(`t${owner.length}:${owner}${threadId}`, `r${owner.length}:${owner}${id}`)
  for (const { owner, runId } of change.delivers ?? []) names.push(`r${owner.length}:${owner}${runId}`)
  return names
}

function addLeased(
  groups: Map<string, LeasedGroup>,
  { index, change, place }: { index: number; change: Change; place: LeasePlace },
): void {
  if (change.guard.kind !== 'lease') return
  const { epoch, leaseId, writtenSeq } = change.guard
  const key = keyOf(change.guard)
  const group = groups.get(key)
  if (group === undefined) groups.set(key, { place, epoch, leaseId, writtenSeq, indexes: [index] })
  else group.indexes.push(index)
}

function sortByThread(groups: LeasedGroup[]): LeasedGroup[] {
  return groups.sort((a, b) => a.place.thread - b.place.thread)
}

/** Nothing in it needs to be judged beside its lease. */
export function isLeasedKind({ creates, operation, records, label, readMessages, delivers, run, guard }: Change): boolean {
  if (creates !== undefined || operation !== undefined || records !== undefined || label !== undefined) return false
  if (readMessages !== undefined || delivers !== undefined) return false
  if (run?.waitKey !== undefined || guard.kind !== 'lease' || namesHead(guard)) return false
  return Number.isSafeInteger(guard.epoch) && Number.isSafeInteger(guard.writtenSeq ?? 0)
}

function createOf(changes: readonly Change[], index: number): NewRun {
  return changes[index]?.creates?.[0] as NewRun
}

function compare(a: NewRun, b: NewRun): number {
  return compareText(a.owner, b.owner) || compareText(a.threadId, b.threadId)
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
