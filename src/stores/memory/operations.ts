import { isOpen, isOpenQuestion, type Operation } from '../../model/operation.ts'
import type { Change, Committed, OperationChange } from '../../store/change.ts'
import type { UnsureQuery } from '../../store/store.ts'
import { compareUnsure, readUnsureCursor, unsurePage } from '../../store/unsure-page.ts'
import { copyPayload, keyOf, type Mutable, type RunRow, type Tables } from './tables.ts'

type Refused = Extract<Committed, { ok: false }>

export function judgeOperation(tables: Tables, change: Change): Refused | null {
  const to = change.operation
  if (to === undefined) return null
  const operation = tables.operations.get(keyOf(change.owner, to.key))
  switch (to.kind) {
    case 'intend':
    case 'ask':
      if (operation === undefined || operation.status === 'failed' || operation.status === 'undone') return null
      return { ok: false, refusal: 'operation_taken', operation: copyOperation(operation) }
    case 'complete':
    case 'fail':
    case 'doubt':
      if (operation !== undefined && operation.runId === change.runId && isOpen(operation.status)) return null
      return { ok: false, refusal: 'conflict' }
    case 'undo':
      if (operation !== undefined && operation.runId === change.runId && operation.status === 'completed') return null
      return { ok: false, refusal: 'conflict' }
    case 'resolve':
      if (operation === undefined) return { ok: false, refusal: 'already_answered' }
      if (operation.status === 'unsure') return null
      return { ok: false, refusal: 'already_answered', operation: copyOperation(operation) }
    case 'note':
      return null
  }
}

/** Returns whether runs were woken. */
export function changeOperation(tables: Tables, change: Change, now: number): boolean {
  const to = change.operation
  if (to === undefined) return false
  const key = keyOf(change.owner, to.key)
  if (to.kind === 'intend' || to.kind === 'ask') {
    tables.operations.set(key, {
      ...{ owner: change.owner, key: to.key, kind: to.kind === 'ask' ? 'question' : 'effect', name: to.name },
      ...{ runId: change.runId ?? '', threadId: change.threadId, status: to.kind === 'ask' ? 'unsure' : 'intended' },
      ...{ result: null, evidence: null, resolvedBy: null, intendedAt: now, closedAt: null },
    })
    tables.runs.get(keyOf(change.owner, change.runId ?? ''))?.openedKeys.add(key)
    return false
  }
  const operation = tables.operations.get(key)
  if (operation === undefined) return false
  amend(operation, to, now)
  if (to.kind === 'doubt' || to.kind === 'undo' || to.kind === 'note') return false
  return wakeWaiting(tables, operation, now)
}

function amend(operation: Mutable<Operation>, to: Exclude<OperationChange, { kind: 'intend' | 'ask' }>, now: number): void {
  switch (to.kind) {
    case 'complete':
      Object.assign(operation, { status: 'completed', result: copyPayload(to.result), closedAt: now })
      return
    case 'fail':
      Object.assign(operation, { status: 'failed', closedAt: now })
      return
    case 'doubt':
      operation.status = 'unsure'
      return
    case 'resolve': {
      const outcome = to.hasHappened ? { status: 'completed', result: copyPayload(to.result) } : { status: 'failed' }
      Object.assign(operation, outcome, { resolvedBy: to.by, closedAt: now })
      return
    }
    case 'undo':
      Object.assign(operation, { status: 'undone', closedAt: now })
      return
    case 'note':
      if (operation.status !== 'completed') operation.evidence = copyPayload(to.evidence)
  }
}

/** A run or a tape is over: an effect that it left intended only a person can close; a question nobody has to. */
export function settleWhatIsOpen(tables: Tables, row: RunRow, now: number): void {
  for (const key of row.openedKeys) {
    const operation = tables.operations.get(key)
    if (operation?.runId !== row.run.id) continue
    if (isOpenQuestion(operation)) Object.assign(operation, { status: 'failed', closedAt: now })
    else if (operation.status === 'intended') operation.status = 'unsure'
  }
}

function wakeWaiting(tables: Tables, { owner, key }: Operation, now: number): boolean {
  let hasWoken = false
  for (const { run, waitKey } of tables.waitingRuns) {
    if (waitKey !== key || run.owner !== owner || run.status !== 'waiting') continue
    run.dueAt = dueBy(run.dueAt, now)
    hasWoken = true
  }
  return hasWoken
}

/** Due now; what was due already keeps its place in line. */
export function dueBy(dueAt: number | null, now: number): number {
  return dueAt === null ? now : Math.min(dueAt, now)
}

export function listUnsure(
  tables: Tables,
  { owner, limit, cursor }: UnsureQuery,
): {
  items: readonly Operation[]
  cursor?: string
} {
  const last = readUnsureCursor(cursor)
  const rest = [...tables.operations.values()]
    .filter((operation) => operation.owner === owner && operation.status === 'unsure' && compareUnsure(operation, last) > 0)
    .sort(compareUnsure)
  return unsurePage(rest.slice(0, Math.max(0, limit) + 1).map(copyOperation), limit)
}

export function copyOperation(operation: Operation): Operation {
  return { ...operation, result: copyPayload(operation.result), evidence: copyPayload(operation.evidence) }
}
