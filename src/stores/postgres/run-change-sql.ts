import { dueSql, endedSql } from './sql.ts'

/** What a change says about its run, as expressions. */
export interface RunChangeSql {
  readonly status: string
  readonly setsReason: string
  readonly reason: string
  readonly setsStep: string
  readonly step: string
  readonly hasProgress: string
  readonly uncountsClaim: string
  readonly waitKey: string
  /** The operation that the run would wait for is closed already. */
  readonly isWaitOver: string
  readonly startsTape: string
  readonly tapeSeq: string
  readonly hasNewInput: string
  readonly inputSeq: string
  readonly setsEnd: string
  readonly endSeq: string
  readonly dueKind: string
  readonly due: string
  /** There are messages that the writer does not know. */
  readonly hasMail: string
  /** NULL for a change that is not under a lease. */
  readonly leaseMs: string
}

/** A change that says nothing. */
const noChange: RunChangeSql = {
  ...{ status: 'NULL', setsReason: 'false', reason: 'NULL', setsStep: 'false', step: 'NULL', hasProgress: 'false' },
  ...{ uncountsClaim: 'false', waitKey: 'NULL', isWaitOver: 'false', startsTape: 'false', tapeSeq: 'NULL', hasNewInput: 'false' },
  ...{ inputSeq: 'NULL', setsEnd: 'false', endSeq: 'NULL', dueKind: 'NULL::int', due: 'NULL::bigint', hasMail: 'false' },
  leaseMs: 'NULL::bigint',
}

/** What a change makes of its run's row: the new value of each column, over the row `r` before it. The one place where SQL says so. */
export function runAfterSql(said: Partial<RunChangeSql>) {
  const change = { ...noChange, ...said }
  const { status } = change
  const after = `coalesce(${status}, r.status)`
  const finishedAt = `CASE WHEN ${status} IS NULL THEN r.finished_at WHEN ${status} IN ${endedSql} THEN v_now END`
  const asked = dueSql({ before: 'r.due_at', kind: change.dueKind, due: change.due, status, hasMail: change.hasMail })
  const dueAt = said.isWaitOver === undefined ? asked : `CASE WHEN ${change.isWaitOver} THEN v_now ELSE ${asked} END`
  return {
    status: after,
    reason: `CASE WHEN ${change.setsReason} THEN ${change.reason} ELSE r.reason END`,
    current_step: `CASE WHEN ${change.setsStep} THEN ${change.step} ELSE r.current_step END`,
    claims_without_progress: `CASE WHEN ${change.hasProgress} THEN 0
            WHEN ${change.uncountsClaim} THEN greatest(r.claims_without_progress - 1, 0) ELSE r.claims_without_progress END`,
    wait_key: `CASE WHEN ${change.waitKey} IS NOT NULL THEN ${change.waitKey} WHEN ${status} <> 'waiting' THEN NULL ELSE r.wait_key END`,
    tape_seq: `CASE WHEN ${change.startsTape} THEN ${change.tapeSeq} ELSE r.tape_seq END`,
    started_at: `CASE WHEN ${change.startsTape} THEN coalesce(r.started_at, v_now) ELSE r.started_at END`,
    input_seq: `CASE WHEN ${change.hasNewInput} THEN ${change.inputSeq} ELSE r.input_seq END`,
    end_seq: `CASE WHEN ${change.setsEnd} THEN ${change.endSeq} ELSE r.end_seq END`,
    finished_at: finishedAt,
    is_next: `r.is_next AND ${finishedAt} IS NULL`,
    lease_id: `CASE WHEN ${after} = 'running' THEN r.lease_id END`,
    lease_holder: `CASE WHEN ${after} = 'running' THEN r.lease_holder END`,
    due_at: dueAt,
    wake_at: `CASE WHEN ${after} = 'running' THEN ${extendedSql(change.leaseMs)} WHEN ${after} IN ('pending', 'waiting') THEN ${dueAt} END`,
  } as const
}

type RunColumn = keyof ReturnType<typeof runAfterSql>

export const runColumnNames = Object.keys(runAfterSql({})) as RunColumn[]

/** For UPDATE … SET. */
export function setSql(after: Readonly<Record<RunColumn, string>>, columns = runColumnNames): string {
  return columns.map((column) => `${column} = ${after[column]}`).join(',\n          ')
}

/** The end of a lease: moved only when a third of it has passed, because an unchanged wake_at keeps the update off the indexes. */
function extendedSql(leaseMs: string): string {
  return `CASE WHEN r.wake_at - v_now NOT BETWEEN ${leaseMs} * 2 / 3 AND ${leaseMs} THEN v_now + ${leaseMs} ELSE r.wake_at END`
}

/** Whether a step changes its run's row at all: its step, its claims, or the lease. */
export function isChangedSql({ flags, step, leaseMs }: Record<'flags' | 'step' | 'leaseMs', string>): string {
  return `${flags} & 12 <> 0 OR ${flags} & 1 <> 0 AND r.claims_without_progress <> 0 OR ${flags} & 2 <> 0 AND r.current_step IS DISTINCT FROM ${step}
    OR coalesce(r.wake_at - v_now NOT BETWEEN ${leaseMs} * 2 / 3 AND ${leaseMs}, false)`
}
