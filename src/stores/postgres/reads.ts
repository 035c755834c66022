import type { LogQuery } from '../../store/store.ts'
import { prepareReadInbox } from './inbox.ts'
import { prepareOperationReads } from './operations.ts'
import { LogReader } from './read-log.ts'
import { prepareRunReads } from './read-runs.ts'
import { prepareRecordReads } from './records.ts'
import { StatementReader } from './statement-reader.ts'
import type { StoreParts } from './store-parts.ts'
import { prepareThreadReads } from './threads.ts'

/** Everything that only reads. Each act is one statement, so it sees one state of the tables. */
export function prepareReads({ connections, prepare, clock }: StoreParts) {
  const reader = new StatementReader(connections, prepare)
  const log = new LogReader(reader)
  return {
    async now(): Promise<number> {
      connections.refuseClosed()
      const estimate = clock.estimate()
      if (estimate !== null) return estimate
      const offset = clock.offset()
      const [row] = await reader.read('SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::bigint', [offset])
      const now = Number(row?.[0])
      clock.learn(now, offset)
      return now
    },
    ...prepareRunReads(reader),
    ...prepareThreadReads(reader),
    ...prepareOperationReads(reader),
    ...prepareRecordReads(reader, clock),
    readInbox: prepareReadInbox(reader),
    readLog: (query: LogQuery) => log.readLog(query),
    readLogs: (queries: readonly LogQuery[]) => log.readLogs(queries),
  }
}
