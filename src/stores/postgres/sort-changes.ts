import { isTerminal } from '../../model/run.ts'
import type { Change, NewRun } from '../../store/change.ts'
import type { LeasePlace, Leases } from './leases.ts'

/** Changes under one lease, one after the other. */
export interface HeldGroup {
  readonly place: LeasePlace
  readonly epoch: number
  readonly leaseId: string
  /** Of the changes, in order. */
  readonly indexes: number[]
}

/** How a batch is written: commit-sql.ts says what the three kinds are. */
export interface SortedChanges {
  /** By thread. */
  readonly held: readonly HeldGroup[]
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
  const hasJudge = changes.some(({ operation }) => operation?.kind === 'intend' || operation?.kind === 'resolve')
  const tokens = changes.map((change, index) => tokenOf(change, { index, leases, hasJudge }))
  const users = changes.length === 1 ? null : findUsers(changes, tokens)
  const groups = new Map<string, HeldGroup>()
  const starts: { index: number; rank: number }[] = []
  const others: { index: number; rank: number; createRanks: number[] }[] = []
  let rankCount = 0
  for (let index = 0; index < changes.length; index++) {
    const change = changes[index] as Change
    const token = tokens[index] as Token
    const isAlone = users === null || namesOf(change).every((name) => users.get(name) === token.key)
    if (isAlone && token.kind === 'held') {
      addHeld(groups, index, change, token.place)
    } else if (isAlone && token.kind === 'start') {
      starts.push({ index, rank: ++rankCount })
    } else {
      const createRanks: number[] = []
      const rank = ++rankCount
      for (let count = change.creates?.length ?? 0; count > 0; count--) createRanks.push(++rankCount)
      others.push({ index, rank, createRanks })
    }
  }
  const held = [...groups.values()].sort((a, b) => a.place.thread - b.place.thread)
  if (starts.length > 1) starts.sort((a, b) => compare(createOf(changes, a.index), createOf(changes, b.index)))
  return { held, starts, others, rankCount }
}

type Token = { readonly kind: 'held'; readonly key: string; readonly place: LeasePlace } | { readonly kind: 'start' | 'other'; readonly key: string }

/**
 * Changes with one key may be written together; a name that two keys use makes `others` of both. The end of a run turns its
 * intended operations into unsure ones, so beside a change that judges an operation it has to be written in its turn.
 */
function tokenOf(change: Change, { index, leases, hasJudge }: { index: number; leases: Leases; hasJudge: boolean }): Token {
  const { guard } = change
  const isEndBesideJudge = hasJudge && change.run?.status !== undefined && isTerminal(change.run.status)
  if (guard.kind === 'lease' && !isEndBesideJudge) {
    const place = leases.find(guard.leaseId)
    if (place !== undefined && isOf(place, change) && isHeldKind(change)) return { kind: 'held', key: `${guard.epoch} ${guard.leaseId}`, place }
  }
  return { kind: isStart(change) ? 'start' : 'other', key: `#${index}` }
}

/** For every name in the batch who uses it; null where several do. */
function findUsers(changes: readonly Change[], tokens: readonly Token[]): Map<string, string | null> {
  const users = new Map<string, string | null>()
  const ended = new Set<string>()
  for (let index = 0; index < changes.length; index++) {
    const change = changes[index] as Change
    const { key } = tokens[index] as Token
    // What follows the end of a lease has to be refused, and what follows an uncounted claim depends on the count: one by one.
    const user = ended.has(key) ? null : key
    for (const name of namesOf(change)) {
      const known = users.get(name)
      users.set(name, known === undefined || known === user ? user : null)
    }
    const { status, uncountClaim } = change.run ?? {}
    if ((status !== undefined && status !== 'running') || uncountClaim === true) ended.add(key)
  }
  return users
}

/** The threads and runs that a change is about. */
function namesOf(change: Change): string[] {
  const names = [`t${change.owner.length}:${change.owner}${change.threadId}`]
  if (change.runId !== null) names.push(`r${change.owner.length}:${change.owner}${change.runId}`)
  for (const { owner, threadId, id } of change.creates ?? []) names.push(`t${owner.length}:${owner}${threadId}`, `r${owner.length}:${owner}${id}`)
  return names
}

function addHeld(groups: Map<string, HeldGroup>, index: number, { guard }: Change, place: LeasePlace): void {
  if (guard.kind !== 'lease') return
  const { epoch, leaseId } = guard
  const key = `${epoch} ${leaseId}`
  const group = groups.get(key)
  if (group === undefined) groups.set(key, { place, epoch, leaseId, indexes: [index] })
  else group.indexes.push(index)
}

function isOf(place: LeasePlace, { owner, threadId, runId }: Change): boolean {
  return place.runId === runId && place.threadId === threadId && place.owner === owner
}

function isHeldKind({ creates, operation, label, readMessages, run, guard }: Change): boolean {
  if (creates !== undefined || operation !== undefined || label !== undefined || readMessages !== undefined) return false
  return run?.waitKey === undefined && guard.kind === 'lease' && Number.isSafeInteger(guard.epoch)
}

function isStart({ owner, threadId, runId, guard, events, run, creates, operation, snapshot, stateVersion, readMessages }: Change): boolean {
  if (guard.kind !== 'none' || runId !== null || events.length > 0 || creates?.length !== 1) return false
  if (run !== undefined || operation !== undefined || snapshot !== undefined || stateVersion !== undefined || readMessages !== undefined) return false
  const [create] = creates
  return create?.owner === owner && create.threadId === threadId
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
