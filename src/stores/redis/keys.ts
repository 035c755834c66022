import { HoldfastError } from '../../model/errors.ts'

/**
 * The keys of a namespace. All begin with `holdfast:{NAMESPACE}:`. The part in braces decides the slot of a cluster, so all keys are on one
 * node, and one script can read and write them together. Ids are plain data: a pair (owner, id) is written
 * `<length of owner>:<owner><id>`, which is unambiguous, and keys are never searched by pattern.
 *
 *   life                    string  the namespace id, `<schema version>:<random>`: proves that the data is still there, and still the same
 *   number                  string  counts threads and runs in order of creation, and messages in order of arrival
 *   thread:<thread>         hash    its row (rows.ts)
 *   log:<thread>            list    entry n is position base + n: without gaps by construction, a stretch is one LRANGE
 *   runs:<thread>           zset    all runs of this incarnation, by number; a thread's only run is named in its row instead
 *   line:<thread>           zset    of these the unfinished ones, the thread's queue, by number: only the first can be claimed (S6)
 *   snapshots:<thread>      zset    by position
 *   operations:<thread>     set     operations that its runs opened last, in any incarnation
 *   labels:<thread>         hash    `L<label>` → position, `S<position>` → label, `R<label>` → run of the record there
 *   run:<run>               hash    its row (rows.ts)
 *   inbox:<run>             hash    message id → message
 *   delivered:<run>         set     ids of messages that are delivered once
 *   streams:<run>           hash    stream → its length
 *   chunks:<stream>         zset    records by their first offset (chunks.ts); a stream is `<bytes of run>:<run><name>`
 *   voids:<stream>          zset    those among them that declare others void
 *   intents:<run>           set     operations that it has open: intended effects, questions
 *   operation:<operation>   hash    its row (rows.ts)
 *   record:<record>         hash    its row (record-row.ts); a record is `<bytes of collection>:<collection><key>`, a collection a pair of owner and name
 *   records:<collection>    zset    keys of its records, bytewise
 *   index:<index>           zset    keys of the records of one parent or with one field, bytewise (record-row.ts)
 *   collections             zset    collections of all owners that have records
 *   thread-records:<thread> zset    records that belong to it, bytewise
 *   expiring                zset    records that expire, by when
 *   unsure                  zset    operations that a person has to decide about, of all owners, by when they were opened
 *   waiting:<operation>     set     runs that wait for it
 *   lane:<lane>             zset    runs that are the next of their thread, by the time from which they can be claimed: when they are due, or the end of a lease
 *   turns:<lane>            zset    of a lane of due runs: their owners, bytewise
 *   ready:<bytes>:<owner><lane>  zset  due runs of one owner in a lane, by the time since which they are due
 *   groups                  set     names of the groups of lanes that hold runs
 *   sleeping:<group>        zset    its lanes of runs that are due later, by the time of their first run or earlier
 *   apart:<group>           zset    its lanes of suspects and of runs under a lease, in the same way
 *   owners:<kind>:<group>   zset    owners of due runs, bytewise
 *   heads:<bytes>:<owner><kind>:<group>  zset  of one such owner: lanes, by the time since which its first run is due
 *   limited:<group>         set     its lanes of due runs with too many owners for that
 *   parked:<queue>          set     its lanes of due runs, while the queue is full or paused
 *   queues                  set     names of the queues with settings
 *   queue:<queue>           hash    its settings
 *   starts:<queue>          hash    under a rate limit: time → how many runs were claimed for the first time
 *   in-queues               hash    queue → number of its unfinished runs
 *   counts:<queue>          hash    status → number of its runs
 *   delayed:<queue>         zset    its pending runs that were not due when they were created, by the time when they are
 *   listed:<owner>          zset    its runs except internal ones, by time of creation; members are `<number, 16 digits><run>`
 *   buckets:<owner>         set     names of the buckets that its runs are in or were in
 *   bucket:<bytes>:<owner><bucket>  zset  its runs of one status, workflow and queue (`<status>:<bytes of workflow>:<workflow><queue>`), as `listed`
 *   labelled:<bytes>:<owner><label>  zset  its runs to whose records a label points, as `listed`
 *   owner-threads:<owner>   zset    by number, without tombstones
 *   threads                 zset    of all owners, by number, with tombstones
 *   answer:<sender>:<slot>  string  the last write of a sender and its answer; expires (connection.ts)
 *   restoring:<random>:…    list, zset  staged logs, snapshots and streams; expire (thread-image.ts)
 *
 * A lane is one workflow, version, queue and priority, over threads of one state version, for runs of one kind:
 * `<state version>:<kind>:<priority>:<version>:<bytes of workflow>:<workflow><queue>`. Kinds are `-` for runs that are due later, `s` for
 * suspects, `h` for runs under a lease and `t` for suspects under one; of due runs, `b` for those that were claimed before and `n` for those
 * that never were. A run's row holds the part after the kind, which never changes. The lanes of one workflow, version and
 * priority, of any queue, are a group: `<priority>:<version>:<bytes of workflow>:<workflow>`.
 *
 * Version 1 had the names of all lanes in the set `lanes`, without an index, and listed runs in `owner-runs:<owner>` by number. While the key
 * `unlisted` exists, the migration is unfinished: lanes in `lanes` are still to be indexed, `indexing` says how far one of them is, and runs of
 * threads with a greater number than `unlisted` says are still to be listed.
 */

/** Raised when the form of the data changes. Every script refuses a process of another version, because the namespace id contains it. */
export const schemaVersion = 3

/** The one key that scripts are given. They derive the others from it. */
export function namespaceKey(namespace: string): string {
  return `holdfast:{${namespace}}:life`
}

/** Where changes are published. */
export function channelOf(namespace: string): string {
  return `holdfast:{${namespace}}:changes`
}

/** Returns the value if it can name a namespace. It becomes part of a hash tag, so braces are not allowed. */
export function checkNamespace(value: string): string {
  if (/^[A-Za-z0-9_.:-]{1,64}$/.test(value)) return value
  throw new HoldfastError(
    'invalid_url',
    `${JSON.stringify(value)} cannot name a namespace of Redis. Use 1 to 64 letters, digits, "_", ".", ":" or "-".`,
  )
}

export function pairOf(owner: string, id: string): string {
  return `${owner.length}:${owner}${id}`
}

export function splitPair(pair: string): { readonly owner: string; readonly id: string } {
  const colon = pair.indexOf(':')
  const end = colon + 1 + Number(pair.slice(0, colon))
  return { owner: pair.slice(colon + 1, end), id: pair.slice(end) }
}

export interface Lane {
  readonly workflow: string
  readonly version: number
  readonly queue: string
  readonly priority: number
}

export function laneOf({ workflow, version, queue, priority }: Lane): string {
  return `${priority}:${version}:${Buffer.byteLength(workflow)}:${workflow}${queue}`
}

export function parseLane(lane: string): Lane {
  const [priority, version, length] = lane.split(':', 3) as [string, string, string]
  const names = Buffer.from(lane.slice(priority.length + version.length + length.length + 3))
  return {
    workflow: names.toString('utf8', 0, Number(length)),
    version: Number(version),
    queue: names.toString('utf8', Number(length)),
    priority: Number(priority),
  }
}
