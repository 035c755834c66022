import type { LogRecord } from '../model/event.ts'
import type { LogQuery } from './store.ts'

/** Whether a query brings records without payloads and patches, `payloadsOf` and `withPatches` excepted. */
export function isBare({ bare, payloadsOf }: LogQuery): boolean {
  return bare === true || payloadsOf !== undefined
}

/** Whether a bare query brings something of what a record contains: then the record has to be read, and verified, as a whole. */
export function isWanted({ type }: Pick<LogRecord, 'type'>, hasPatch: boolean, { payloadsOf, withPatches }: LogQuery): boolean {
  return payloadsOf?.includes(type) === true || (withPatches === true && hasPatch)
}

/** Whether a record is among those that the query asks for. `hasPatch` is given apart: a record that was read bare does not show it. */
export function isAskedFor(
  record: Pick<LogRecord, 'runId' | 'type'>,
  hasPatch: boolean,
  { runId, withEdits, types, patchesOnly }: LogQuery,
): boolean {
  if (runId !== undefined && record.runId !== runId && !(withEdits === true && hasPatch)) return false
  if (types !== undefined && !types.includes(record.type)) return false
  return patchesOnly !== true || hasPatch
}

/** A record that is asked for, without what the query does not ask for. */
export function shownRecord(record: LogRecord, query: LogQuery): LogRecord {
  if (isBare(query)) {
    const payload = query.payloadsOf?.includes(record.type) === true ? record.payload : null
    const patch = query.withPatches === true ? record.patch : null
    return record.patch === patch && record.payload === payload ? record : { ...record, payload, patch }
  }
  const isWhole = (query.runId === undefined || record.runId === query.runId) && query.patchesOnly !== true
  return isWhole || record.type === 'state_migrated' || record.payload === null ? record : { ...record, payload: null }
}
