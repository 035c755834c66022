import type { Run } from '../../model/run.ts'
import { ReadBatcher } from '../../store/read-batcher.ts'
import { runCursor } from '../../store/run-cursor.ts'
import type { RunKey, RunQuery } from '../../store/store.ts'
import { textArray } from './columns.ts'
import { atLeastZero } from './integers.ts'
import { moreLabelledQuery, runsQuery } from './list-runs.ts'
import { runColumns, selectRunColumns, toRun } from './rows.ts'
import type { StatementReader } from './statement-reader.ts'

const createdAt = runColumns.indexOf('created_at')

export function prepareRunReads(reader: StatementReader) {
  const runs = new ReadBatcher<RunKey, Run | null>(async (keys) => {
    const values = [textArray(keys.map(({ owner }) => owner)), textArray(keys.map(({ runId }) => runId))]
    const rows = await reader.read(runsSql, values)
    const found = new Map(rows.map((row) => [Number(row[0]), toRun(row, 1)]))
    return keys.map((_, at) => found.get(at + 1) ?? null)
  })

  return {
    readRun: (key: RunKey): Promise<Run | null> => runs.read(key),

    async listRuns(query: RunQuery): Promise<{ items: Run[]; cursor?: string }> {
      const limit = atLeastZero(query.limit)
      const asked = runsQuery({ ...query, limit })
      if (asked === null || limit === 0) return { items: [] }
      let rows = await reader.read(asked.sql, asked.values)
      if (query.label !== undefined && query.threadId === undefined && rows.length <= limit) {
        const more = moreLabelledQuery(query)
        const rest = (await reader.read(more.sql, more.values)).length === 0 ? null : runsQuery({ ...query, limit }, 'others')
        if (rest !== null) rows = await reader.read(rest.sql, rest.values)
      }
      const shown = rows.slice(0, limit)
      const last = shown.at(-1)
      const items = shown.map((row) => toRun(row))
      if (last === undefined || rows.length === shown.length) return { items }
      return { items, cursor: runCursor({ createdAt: Number(last[createdAt]), number: Number(last[0]) }) }
    },
  }
}

/** LIMIT keeps these look-ups from becoming joins, which on small tables are planned as full scans. */
const runsSql = `
  SELECT a.n, ${selectRunColumns} FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS a(owner, run, n)
    CROSS JOIN LATERAL (SELECT * FROM holdfast.runs r WHERE r.owner = a.owner AND r.run_id = a.run LIMIT 1) r
    CROSS JOIN LATERAL (SELECT * FROM holdfast.threads t WHERE t.id = r.thread LIMIT 1) t`
