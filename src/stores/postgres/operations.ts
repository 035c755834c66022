import type { Payload } from '../../model/payload.ts'
import type { OperationChange } from '../../store/change.ts'
import { operationChecksum } from './rows.ts'

/** An operation's change by the names of fn_apply. Payloads travel beside the JSON; `keep` answers with their place there. */
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
