import { dueBy } from '../../model/due.ts'
import {
  amendedOperation,
  isOpen,
  judgeOperation,
  type Operation,
  openedOperation,
  opens,
  settledOperation,
  wakesWaiting,
} from '../../model/operation.ts'
import type { Change, Committed } from '../../store/change.ts'
import { type Database, prepare } from './connection.ts'
import { type OperationRow, operationChecksum, toOperation } from './rows.ts'
import { isLeftOpen } from './schema.ts'
import type { ThreadQueue, UnfinishedRun } from './thread-queue.ts'

type Refused = Extract<Committed, { ok: false }>

/** The account of effects: judged before a change is written, changed with it. */
export function prepareOperations(db: Database, queue: ThreadQueue) {
  const { find, save, findWaiting, findLeftOpen } = prepareStatements(db)

  const readRow = (owner: string, key: string) => find.get(owner, key) as OperationRow | undefined

  function refuse({ owner, runId, operation: to }: Change): Refused | null {
    if (to === undefined) return null
    const row = readRow(owner, to.key)
    const refusal = judgeOperation(row && { status: row.status, runId: row.run_id }, to, runId)
    if (refusal === null) return null
    return { ok: false, refusal, ...(refusal !== 'conflict' && row && { operation: toOperation(row) }) }
  }

  /** Returns whether runs were woken. */
  function apply(change: Change, now: number): boolean {
    const to = change.operation
    if (to === undefined) return false
    const row = readRow(change.owner, to.key)
    if (opens(to)) {
      write(row?.id ?? null, openedOperation(change, to, now))
      return false
    }
    if (row === undefined) return false
    write(row.id, amendedOperation(toOperation(row), to, now))
    return wakesWaiting(to) && wakeWaiting(change.owner, to.key, now)
  }

  function write(id: number | null, operation: Operation): void {
    const { owner, key, kind, name, runId, threadId, status, result, evidence, resolvedBy, intendedAt, closedAt } = operation
    const account = [owner, key, kind, name, runId, threadId, status, result, evidence, resolvedBy, intendedAt, closedAt]
    save.run(id, ...account, operationChecksum(operation))
  }

  function settleWhatIsOpen(owner: string, runId: string, now: number): void {
    for (const row of findLeftOpen.all(owner, runId) as OperationRow[]) {
      const settled = settledOperation(toOperation(row), now)
      if (settled !== null) write(row.id, settled)
    }
  }

  function wakeWaiting(owner: string, key: string, now: number): boolean {
    const waiting = findWaiting.all(key, owner) as UnfinishedRun[]
    for (const run of waiting) queue.makeDue(run, dueBy(run.dueAt, now))
    return waiting.length > 0
  }

  return {
    refuse,
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

function prepareStatements(db: Database) {
  return {
    find: prepare(db, 'SELECT * FROM holdfast_operations WHERE owner = ? AND key = ?'),
    save: prepare(
      db,
      `INSERT OR REPLACE INTO holdfast_operations
         (id, owner, key, kind, name, run_id, thread_id, status, result, evidence, resolved_by, intended_at, closed_at, checksum)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ),
    findWaiting: prepare(
      db,
      `SELECT id AS run, thread, status, due_at AS dueAt, lease_until AS leaseUntil
       FROM holdfast_runs INDEXED BY holdfast_runs_by_wait_key WHERE wait_key = ? AND owner = ? AND status = 'waiting'`,
    ),
    findLeftOpen: prepare(
      db,
      `SELECT * FROM holdfast_operations INDEXED BY holdfast_operations_intended WHERE owner = ? AND run_id = ? AND ${isLeftOpen}`,
    ),
  }
}
