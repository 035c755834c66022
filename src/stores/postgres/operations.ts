import type { Operation } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'
import type { OperationChange } from '../../store/change.ts'
import type { UnsureQuery } from '../../store/store.ts'
import { readUnsureCursor, unsurePage } from '../../store/unsure-page.ts'
import { atLeastZero } from './integers.ts'
import { operationChecksum, toOperation } from './rows.ts'
import type { StatementReader } from './statement-reader.ts'

/** An operation's change by the names of fn_apply. Payloads are sent beside the JSON; `keep` answers with their place there. */
export function operationJson(owner: string, to: OperationChange, keep: (payload: Payload, checksum: number) => number): object {
  const { kind, key } = to
  const at = { owner, key }
  const keepAs = (what: 'result' | 'evidence', payload: Payload | null) =>
    payload === null ? {} : { payload: keep(payload, operationChecksum(at, what, payload)) }
  switch (kind) {
    case 'intend':
    case 'ask':
      return { kind, key, name: to.name }
    case 'complete':
      return { kind, key, ...keepAs('result', to.result) }
    case 'fail':
    case 'doubt':
    case 'undo':
      return { kind, key }
    case 'resolve':
      return { kind, key, has_happened: to.hasHappened, resolved_by: to.by, ...keepAs('result', to.result) }
    case 'note':
      return { kind, key, ...keepAs('evidence', to.evidence) }
  }
}

export function prepareOperationReads(reader: StatementReader) {
  return {
    async readOperation({ owner, key }: { readonly owner: string; readonly key: string }): Promise<Operation | null> {
      const sql = 'SELECT to_jsonb(o) FROM holdfast.operations o WHERE o.owner = $1 AND o.key = $2'
      const [row] = await reader.read(sql, [owner, key])
      return row === undefined ? null : operationOf(row[0])
    },

    async listUnsure({ owner, limit: asked, cursor }: UnsureQuery): Promise<{ items: readonly Operation[]; cursor?: string }> {
      const limit = atLeastZero(asked)
      const { intendedAt, key } = readUnsureCursor(cursor)
      const rows = await reader.read(unsureSql, [owner, intendedAt, key, limit + 1])
      return unsurePage(
        rows.map(([json]) => operationOf(json)),
        limit,
      )
    },
  }
}

const unsureSql = `
  SELECT to_jsonb(o) FROM holdfast.operations o WHERE o.owner = $1 AND o.status = 'unsure' AND (o.intended_at, o.key) > ($2, $3)
  ORDER BY o.intended_at, o.key LIMIT $4`

function operationOf(json: string | null | undefined): Operation {
  return toOperation(JSON.parse(json as string) as Parameters<typeof toOperation>[0])
}
