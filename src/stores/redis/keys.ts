import { HoldfastError } from '../../model/errors.ts'

/**
 * The keys of a namespace. All begin with `holdfast:{NAMESPACE}:`; what is in braces decides the slot of a cluster, so all
 * of them live on one node and one script can read and write them together. Ids are plain data: a pair (owner, id) is
 * written `<length of owner>:<owner><id>`, which is different for different pairs, and no key is ever searched by pattern.
 *
 *   life                    string  `<schema version>:<random>`: says that the data is there, and that it is still the same data
 *   number                  string  counts threads and runs in order of creation, and messages in order of arrival
 *   thread:<thread>         hash    its row (rows.ts)
 *   log:<thread>            list    entry n is position base + n: gapless by its very shape, a stretch is one LRANGE
 *   runs:<thread>           zset    all runs of this life, by number; one alone stands in the thread's row instead
 *   line:<thread>           zset    of these the unfinished ones, by number: only the first can be claimed (S6)
 *   snapshots:<thread>      zset    by position
 *   operations:<thread>     set     operations that runs of it opened last, in any of its lives
 *   labels:<thread>         hash    `L<label>` → position, `S<position>` → label, `R<label>` → run of the record there
 *   run:<run>               hash    its row (rows.ts)
 *   inbox:<run>             hash    message id → message
 *   delivered:<run>         set     ids of messages that are delivered once
 *   streams:<run>           hash    stream → its length
 *   chunks:<stream>         zset    records by their first offset (chunks.ts); a stream is `<bytes of run>:<run><name>`
 *   voids:<stream>          zset    those among them that say that others are void
 *   intents:<run>           set     operations that it has left open: effects that are intended, questions
 *   operation:<operation>   hash    its row (rows.ts)
 *   unsure                  zset    operations that a person has to decide about, of all owners, by when they were opened
 *   waiting:<operation>     set     runs that wait for it
 *   lane:<lane>             zset    heads of lines, by the time from which they may be taken: a due time to come, or the end of a lease
 *   turns:<lane>            zset    of a lane of runs that are due: owners that have one, bytewise
 *   ready:<bytes>:<owner><lane>  zset  those of one owner, by the time since which they are due
 *   groups                  set     names of the groups of lanes that hold a run
 *   sleeping:<group>        zset    its lanes of runs that sleep, by the time of their first run or earlier
 *   apart:<group>           zset    its lanes of suspects and of runs that somebody holds, in the same way
 *   owners:<kind>:<group>   zset    owners of runs that are due, bytewise
 *   heads:<bytes>:<owner><kind>:<group>  zset  of one such owner: lanes, by the time since which the first run is due
 *   limited:<group>         set     its lanes of runs that are due, for which that would be too much
 *   parked:<queue>          set     its lanes of runs that are due, while the queue is full or paused
 *   queues                  set     names of the queues with settings of their own
 *   queue:<queue>           hash    its settings
 *   starts:<queue>          hash    under a rate limit: time → how many runs were claimed for the first time
 *   in-queues               hash    queue → number of its unfinished runs
 *   counts:<queue>          hash    status → number of its runs
 *   delayed:<queue>         zset    its pending runs that were not due when they were created, by the time when they are
 *   listed:<owner>          zset    its runs, Holdfast's own aside, by the time of creation; members are `<number, 16 digits><run>`
 *   buckets:<owner>         set     names of the buckets that its runs are or were in
 *   bucket:<bytes>:<owner><bucket>  zset  its runs of one status, workflow and queue (`<status>:<bytes of workflow>:<workflow><queue>`), as `listed`
 *   labelled:<bytes>:<owner><label>  zset  its runs to whose records a label points, as `listed`
 *   owner-threads:<owner>   zset    by number, without tombstones
 *   threads                 zset    of all owners, by number, with tombstones
 *   answer:<sender>:<slot>  string  the last write of a sender and its answer; expires (connection.ts)
 *   restoring:<random>:…    list, zset  log, snapshots and streams on their way in; expire (moving.ts)
 *
 * A lane is one workflow, version, queue and priority, over threads of one state version, for runs of one kind:
 * `<state version>:<kind>:<priority>:<version>:<bytes of workflow>:<workflow><queue>`. Kinds are `-` for runs that sleep, `s` for suspects, of runs that
 * somebody holds `h` and `t`, and of runs that are due `b` for those that were claimed before and `n` for those that never were. A run's row holds what never changes of it.
 * Lanes of one workflow, version and priority, of whichever queue, are a group: `<priority>:<version>:<bytes of workflow>:<workflow>`.
 *
 * Version 1 had the names of all lanes in the set `lanes`, and no index of them; runs were listed in `owner-runs:<owner>` by number. While
 * `unlisted` is there, lanes in `lanes` are still to be indexed, `indexing` says how far one of them is, and runs of threads with a greater number than
 * `unlisted` says are still to be put where lists find them.
 */

/** Later libraries that keep their data in another form raise it. A process of another version is refused by every script: see `life`. */
export const schemaVersion = 2

/** The one key that scripts are given; the others are made from it. */
export function lifeKey(namespace: string): string {
  return `holdfast:{${namespace}}:life`
}

/** Where subscribers hear of changes. */
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
