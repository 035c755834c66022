import { dueBy } from '../../model/due.ts'
import { pairKey } from '../../model/ids.ts'
import {
  amendedOperation,
  judgeOperation,
  type Operation,
  openedOperation,
  opens,
  settledOperation,
  wakesWaiting,
} from '../../model/operation.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { UnsureQuery } from '../../store/store.ts'
import { compareUnsure, readUnsureCursor, unsurePage } from '../../store/unsure-page.ts'
import { copyPayload, type RunRow, type Tables } from './tables.ts'

type Refused = Extract<Committed, { ok: false }>

export function refuseOperation(tables: Tables, { owner, runId, operation: to }: Change): Refused | null {
  if (to === undefined) return null
  const operation = tables.operations.get(pairKey(owner, to.key))
  const refusal = judgeOperation(operation, to, runId)
  if (refusal === null) return null
  return { ok: false, refusal, ...(refusal !== 'conflict' && operation && { operation: copyOperation(operation) }) }
}

/** Returns whether runs were woken. */
export function changeOperation(tables: Tables, change: Change, now: number): boolean {
  const to = change.operation
  if (to === undefined) return false
  const key = pairKey(change.owner, to.key)
  if (opens(to)) {
    tables.operations.set(key, openedOperation(change, to, now))
    tables.runs.get(pairKey(change.owner, change.runId ?? ''))?.openedKeys.add(key)
    return false
  }
  const operation = tables.operations.get(key)
  if (operation === undefined) return false
  tables.operations.set(key, copyOperation(amendedOperation(operation, to, now)))
  return wakesWaiting(to) && wakeWaiting(tables, operation, now)
}

export function settleWhatIsOpen(tables: Tables, row: RunRow, now: number): void {
  for (const key of row.openedKeys) {
    const operation = tables.operations.get(key)
    if (operation?.runId !== row.run.id) continue
    tables.operations.set(key, settledOperation(operation, now) ?? operation)
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
