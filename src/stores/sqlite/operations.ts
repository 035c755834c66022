import { isOpen, isOpenQuestion, type Operation } from '../../model/operation.ts'
import type { Change, Committed, OperationChange } from '../../store/change.ts'
import { type Database, prepare } from './connection.ts'
import type { Line } from './line.ts'
import { type OperationRow, operationChecksum, type RunRow, toOperation } from './rows.ts'
import { isLeftOpen } from './schema.ts'

type Refused = Extract<Committed, { ok: false }>

/** The account of effects: judged before a change is written, changed with it. */
export function prepareOperations(db: Database, line: Line) {
  const find = prepare(db, 'SELECT * FROM holdfast_operations WHERE owner = ? AND key = ?')
  const save = prepare(
    db,
    `INSERT OR REPLACE INTO holdfast_operations
       (id, owner, key, kind, name, run_id, thread_id, status, result, evidence, resolved_by, intended_at, closed_at, checksum)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  )
  const findWaiting = prepare(
    db,
    `SELECT * FROM holdfast_runs INDEXED BY holdfast_runs_by_wait_key WHERE wait_key = ? AND owner = ? AND status = 'waiting'`,
  )
  const findLeftOpen = prepare(
    db,
    `SELECT * FROM holdfast_operations INDEXED BY holdfast_operations_intended WHERE owner = ? AND run_id = ? AND ${isLeftOpen}`,
  )
  const wake = prepare(db, 'UPDATE holdfast_runs SET due_at = ?, claim_at = ? WHERE id = ?')

  const readRow = (owner: string, key: string) => find.get(owner, key) as OperationRow | undefined

  function judge(change: Change): Refused | null {
    const to = change.operation
    if (to === undefined) return null
    const row = readRow(change.owner, to.key)
    switch (to.kind) {
      case 'intend':
      case 'ask':
        if (row === undefined || row.status === 'failed' || row.status === 'undone') return null
        return { ok: false, refusal: 'operation_taken', operation: toOperation(row) }
      case 'complete':
      case 'fail':
      case 'doubt':
        return row !== undefined && row.run_id === change.runId && isOpen(row.status) ? null : { ok: false, refusal: 'conflict' }
      case 'undo':
        return row?.status === 'completed' && row.run_id === change.runId ? null : { ok: false, refusal: 'conflict' }
      case 'resolve':
        if (row === undefined) return { ok: false, refusal: 'already_answered' }
        return row.status === 'unsure' ? null : { ok: false, refusal: 'already_answered', operation: toOperation(row) }
      case 'note':
        return null
    }
  }

  /** Returns whether runs were woken. */
  function apply(change: Change, now: number): boolean {
    const to = change.operation
    if (to === undefined) return false
    const row = readRow(change.owner, to.key)
    if (to.kind === 'intend' || to.kind === 'ask') {
      write(row?.id ?? null, opened(change, to, now))
      return false
    }
    if (row === undefined) return false
    write(row.id, amended(toOperation(row), to, now))
    return to.kind === 'doubt' || to.kind === 'undo' || to.kind === 'note' ? false : wakeWaiting(change.owner, to.key, now)
  }

  function write(id: number | null, operation: Operation): void {
    const { owner, key, kind, name, runId, threadId, status, result, evidence, resolvedBy, intendedAt, closedAt } = operation
    const account = [owner, key, kind, name, runId, threadId, status, result, evidence, resolvedBy, intendedAt, closedAt]
    save.run(id, ...account, operationChecksum(operation))
  }

  /** A run or a tape is over: an effect that it left intended only a person can close; a question nobody has to. */
  function settleWhatIsOpen(owner: string, runId: string, now: number): void {
    for (const row of findLeftOpen.all(owner, runId) as OperationRow[]) {
      const operation = toOperation(row)
      if (isOpenQuestion(operation)) write(row.id, { ...operation, status: 'failed', closedAt: now })
      else write(row.id, { ...operation, status: 'unsure' })
    }
  }

  function wakeWaiting(owner: string, key: string, now: number): boolean {
    const waiting = findWaiting.all(key, owner) as RunRow[]
    for (const run of waiting) {
      const due_at = dueBy(run.due_at, now)
      wake.run(due_at, line.claimAtOf({ ...run, due_at }), run.id)
    }
    return waiting.length > 0
  }

  return {
    judge,
    apply,
    settleWhatIsOpen,
    has: (owner: string, key: string) => readRow(owner, key) !== undefined,
    insert: (operation: Operation) => write(null, operation),
    isOpen: (owner: string, key: string) => {
      const row = readRow(owner, key)
      return row !== undefined && isOpen(row.status)
    },
  }
}

export type Operations = ReturnType<typeof prepareOperations>

/** Due now; what was due already keeps its place in line. */
export function dueBy(dueAt: number | null, now: number): number {
  return dueAt === null ? now : Math.min(dueAt, now)
}

function opened(change: Change, to: Extract<OperationChange, { kind: 'intend' | 'ask' }>, now: number): Operation {
  const { key, name } = to
  const how =
    to.kind === 'ask' ? ({ kind: 'question', status: 'unsure' } as const) : ({ kind: 'effect', status: 'intended' } as const)
  return {
    ...{ owner: change.owner, key, name, runId: change.runId ?? '', threadId: change.threadId, ...how },
    ...{ result: null, evidence: null, resolvedBy: null, intendedAt: now, closedAt: null },
  }
}

function amended(operation: Operation, to: Exclude<OperationChange, { kind: 'intend' | 'ask' }>, now: number): Operation {
  switch (to.kind) {
    case 'complete':
      return { ...operation, status: 'completed', result: to.result, closedAt: now }
    case 'fail':
      return { ...operation, status: 'failed', closedAt: now }
    case 'doubt':
      return { ...operation, status: 'unsure' }
    case 'resolve':
      return to.hasHappened
        ? { ...operation, status: 'completed', result: to.result, resolvedBy: to.by, closedAt: now }
        : { ...operation, status: 'failed', resolvedBy: to.by, closedAt: now }
    case 'undo':
      return { ...operation, status: 'undone', closedAt: now }
    case 'note':
      return operation.status === 'completed' ? operation : { ...operation, evidence: to.evidence }
  }
}
