import { dueBy } from '../../model/due.ts'
import { isTerminal } from '../../model/run.ts'
import { hintOfMail } from '../../store/hints.ts'
import type { Delivery, Message, RunKey } from '../../store/store.ts'
import { copyPayload, findRun, type Tables, tellListeners } from './tables.ts'

export function deliver(tables: Tables, message: Delivery, now: number) {
  const { owner, runId, kind, name } = message
  const row = findRun(tables, owner, runId)
  if (row === undefined) return { ok: false, refusal: 'run_not_found' } as const
  if (message.dedupeId !== undefined && row.deliveredIds.has(message.dedupeId)) return { ok: true } as const
  if (isTerminal(row.run.status)) return { ok: false, refusal: 'conflict' } as const
  if (message.dedupeId !== undefined) row.deliveredIds.add(message.dedupeId)
  row.inbox.push({ id: ++tables.lastNumber, owner, runId, kind, name, payload: copyPayload(message.payload), at: now })
  if (row.run.status === 'waiting') row.run.dueAt = dueBy(row.run.dueAt, now)
  tellListeners(tables, hintOfMail(message, row.run))
  return { ok: true } as const
}

export function readInbox(tables: Tables, { owner, runId }: RunKey): Message[] {
  return (findRun(tables, owner, runId)?.inbox ?? []).map((message) => ({ ...message, payload: copyPayload(message.payload) }))
}
