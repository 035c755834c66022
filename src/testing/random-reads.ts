import { type EventType, eventTypes } from '../model/event.ts'
import { runStatuses } from '../model/run.ts'
import type { LogQuery, RecordQuery, RecordSearch, Store } from '../store/store.ts'
import type { Act } from './act.ts'
import { maybe, type Random } from './random.ts'
import { collections, fieldValues, labels, queues, type RandomValues, recordKeys, streams, workflows } from './random-values.ts'
import { listAllRuns, listAllThreads } from './store-contents.ts'

/** Reads of all kinds. */
export class RandomReads {
  private readonly random: Random
  private readonly values: RandomValues

  constructor(random: Random, values: RandomValues) {
    this.random = random
    this.values = values
  }

  readLogAct(): Act {
    const { random } = this
    const runIds = [...this.values.names.runIds].slice(-40)
    const query: LogQuery = {
      ...{ owner: this.values.owner(), threadId: this.values.threadId() },
      ...maybe(random.chance(0.4), { afterSeq: random.integer(0, 60) }),
      ...maybe(random.chance(0.3), { toSeq: random.integer(0, 90) }),
      ...maybe(random.chance(0.3), { limit: random.integer(0, 12) }),
      ...maybe(random.chance(0.4) && runIds.length > 0, {
        runId: random.pick([...runIds, 'nobody']),
        withEdits: random.chance(0.5),
      }),
      ...maybe(random.chance(0.2), { types: [random.pick(eventTypes), 'run_queued', 'step_completed'] as EventType[] }),
      ...maybe(random.chance(0.2), { patchesOnly: true }),
      ...maybe(random.chance(0.2), { bare: true }),
      ...maybe(random.chance(0.3), { withPatches: true }),
      ...maybe(random.chance(0.2), { payloadsOf: [random.pick(eventTypes), 'run_queued', 'step_failed'] as EventType[] }),
    }
    if (random.chance(0.7)) return { kind: 'read-log', what: query, perform: (store) => store.readLog(query) }
    const queries = [
      query,
      { owner: this.values.owner(), threadId: this.values.threadId() },
      { ...query, threadId: this.values.threadId() },
    ]
    return { kind: 'read-logs', what: queries, perform: (store) => store.readLogs(queries) }
  }

  async readAct(): Promise<Act> {
    const { random } = this
    const threadId = this.values.threadId()
    const { owner, runId } =
      this.values.runKeys.length > 0 ? random.pick(this.values.runKeys.slice(-40)) : { owner: '', runId: 'nobody' }
    const key = this.values.operationKey()
    const snapshotQuery = { owner, threadId, atSeq: random.integer(0, 100) }
    const checkpointQuery = {
      ...{ owner, threadId },
      ...maybe(random.chance(0.3), { afterSeq: random.integer(0, 40) }),
      ...maybe(random.chance(0.3), { limit: random.integer(0, 9) }),
      ...maybe(random.chance(0.3), { label: random.pick(labels) }),
    }
    const chunkQuery = {
      ...{ owner, runId, stream: random.pick(streams), from: random.integer(0, 12), limit: random.integer(0, 9) },
      ...maybe(random.chance(0.3), { abortsOnly: true }),
    }
    return random.pick<Act>([
      { kind: 'read-chunks', what: chunkQuery, perform: (store) => store.readChunks(chunkQuery) },
      { kind: 'read-run', what: { owner, runId }, perform: (store) => store.readRun({ owner, runId }) },
      { kind: 'read-thread', what: { owner, threadId }, perform: (store) => store.readThread({ owner, threadId }) },
      { kind: 'read-inbox', what: { owner, runId }, perform: (store) => store.readInbox({ owner, runId }) },
      { kind: 'read-operation', what: { owner, key }, perform: (store) => store.readOperation({ owner, key }) },
      { kind: 'list-unsure', what: { owner, limit: 7 }, perform: (store) => store.listUnsure({ owner, limit: 7 }) },
      { kind: 'read-snapshot', what: snapshotQuery, perform: (store) => store.readSnapshot(snapshotQuery) },
      { kind: 'list-checkpoints', what: checkpointQuery, perform: (store) => store.listCheckpoints(checkpointQuery) },
    ])
  }

  readRecordsAct(): Act {
    const { random } = this
    const pickKeys = () => Array.from({ length: random.integer(0, 6) }, () => random.pick([...recordKeys, 'missing']))
    const query: RecordQuery = {
      ...{ owner: this.values.owner(), collection: random.pick(collections), limit: random.integer(0, 8) },
      ...maybe(random.chance(0.6), {
        where: random.pick<NonNullable<RecordQuery['where']>>([
          { parent: random.pick(['p', 'p:1', '%', '']) },
          { field: { name: random.pick(['tag', 'a']), value: random.pick(fieldValues) } },
          { keys: pickKeys() },
        ]),
      }),
      ...maybe(random.chance(0.3), { afterKey: random.pick([...recordKeys, '']) }),
      ...maybe(random.chance(0.3), { beforeKey: random.pick([...recordKeys, '~']) }),
      ...maybe(random.chance(0.4), { isDescending: random.chance(0.8) }),
    }
    return { kind: 'read-records', what: query, perform: (store) => store.readRecords(query) }
  }

  searchRecordsAct(): Act {
    const { random } = this
    const place = { owner: this.values.owner(), collection: random.pick(collections) }
    const fields = [...new Set(Array.from({ length: random.integer(0, 5) }, () => random.pick(fieldValues)))].map((value) => ({
      name: 'tag',
      value,
    }))
    const having = Array.from({ length: random.integer(0, 2) }, () => ({ name: 'a', value: random.pick(fieldValues) }))
    const search: RecordSearch = {
      ...{ ...place, fields, limit: 1_000 },
      ...maybe(random.chance(0.3), { having }),
    }
    // A store may have swept what another one has not.
    const perform = async (store: Store) => {
      const { hits } = await store.searchRecords(search)
      const where = { keys: hits.map(({ key }) => key) }
      return (await store.readRecords({ ...place, where, limit: 1_000 })).map(({ key }) => key)
    }
    return { kind: 'search-records', what: search, perform }
  }

  listAct(): Act {
    const { random } = this
    const owner = this.values.owner()
    const limit = random.integer(1, 20)
    const query = {
      ...{ owner, limit },
      ...maybe(random.chance(0.3), { threadId: this.values.threadId() }),
      ...maybe(random.chance(0.3), { workflow: random.pick(workflows) }),
      ...maybe(random.chance(0.3), { queue: random.pick(queues) }),
      ...maybe(random.chance(0.2), { withoutPrefix: random.pick(['c', 'report', 'reports', 'port']) }),
      ...maybe(random.chance(0.3), { statuses: runStatuses.filter(() => random.chance(0.5)) }),
      ...maybe(random.chance(0.15), { label: random.pick(labels) }),
      // The clock is moved by ten seconds at least, so no run was created near these instants.
      ...maybe(random.chance(0.15), { createdAfter: this.values.clock.now() - random.integer(1, 60) * 10_000 + 5_000 }),
      ...maybe(random.chance(0.15), { createdBefore: this.values.clock.now() - random.integer(1, 60) * 10_000 + 5_000 }),
    }
    return random.pickWeighted<Act>([
      [5, { kind: 'list-runs', what: query, perform: (store) => listAllRuns(store, query) }],
      [1, { kind: 'list-runs', what: 'limit 0', perform: (store) => store.listRuns({ ...query, limit: 0 }) }],
      [1, { kind: 'list-runs', what: 'bad cursor', perform: (store) => store.listRuns({ ...query, cursor: 'no cursor!' }) }],
      [3, { kind: 'list-threads', what: { owner, limit }, perform: (store) => listLiveThreads(store, owner, limit) }],
    ])
  }
}

/** Tombstones may be listed or not. */
async function listLiveThreads(store: Store, owner: string, limit: number) {
  return (await listAllThreads(store, { owner, limit })).filter(({ deletedAt }) => deletedAt === null)
}
