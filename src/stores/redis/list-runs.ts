import { internalPrefix } from '../../model/internal.ts'
import type { Run } from '../../model/run.ts'
import { compareAge, type RunPlace, readRunCursor, runCursor } from '../../store/run-cursor.ts'
import type { RunQuery } from '../../store/store.ts'
import type { Connection } from './connection.ts'
import { pairOf } from './keys.ts'
import type { Reply } from './link.ts'
import { Packer } from './pack.ts'
import { readRow, type StoredRun, toRun } from './rows.ts'
import { listRunsScript, listThreadRunsScript } from './scripts/list-runs.ts'

export async function listRuns(connection: Connection, query: RunQuery): Promise<{ items: Run[]; cursor?: string }> {
  const before = boundOf(query)
  if (query.limit <= 0) return { items: [] }
  const found =
    query.threadId === undefined ? await readListed(connection, query, before) : await readOfThread(connection, query, before)
  const shown = found.slice(0, query.limit)
  const items = shown.map(({ run }) => run)
  const last = shown.at(-1)
  return last !== undefined && found.length > shown.length ? { items, cursor: runCursor(placeOf(last)) } : { items }
}

/** Where a list begins: after the last page, or with what was created before a time. */
function boundOf({ cursor, createdBefore }: RunQuery): RunPlace | undefined {
  const last = readRunCursor(cursor)
  if (createdBefore === undefined) return last
  const newest = { createdAt: createdBefore, number: 0 }
  return last === undefined || compareAge(newest, last) > 0 ? newest : last
}

function placeOf({ run, number }: StoredRun): RunPlace {
  return { createdAt: run.createdAt, number }
}

/** A page of runs and one more, if there is one: it says whether there is a next page. */
async function readListed(connection: Connection, query: RunQuery, before: RunPlace | undefined): Promise<StoredRun[]> {
  const { owner, workflow, queue, statuses, label, withoutPrefix, limit } = query
  const isPlain = workflow === undefined && queue === undefined && statuses === undefined && withoutPrefix === internalPrefix
  const index = label !== undefined ? 'label' : isPlain ? 'listed' : 'buckets'
  const found: StoredRun[] = []
  let [time, number] = before === undefined ? ['+inf', '0'] : [String(before.createdAt), String(before.number)]
  for (;;) {
    const missing = String(limit + 1 - found.length)
    const reply = await connection.repeat(listRunsScript, packFilter(query), time, number, missing, owner, index, label ?? '')
    const [stoppedAt, stoppedBelow, ...rows] = reply as readonly Reply[]
    found.push(...toRuns(rows))
    if (String(stoppedAt) === '') return found
    ;[time, number] = [String(stoppedAt), String(stoppedBelow)]
  }
}

/** All runs of a thread that are wanted, newest first. */
async function readOfThread(connection: Connection, query: RunQuery, before: RunPlace | undefined): Promise<StoredRun[]> {
  const { owner, threadId = '', label = '' } = query
  const found: StoredRun[] = []
  for (let after = '0'; after !== ''; ) {
    const reply = await connection.repeat(listThreadRunsScript, packFilter(query), pairOf(owner, threadId), after, label)
    const [stoppedAt, ...rows] = reply as readonly Reply[]
    found.push(...toRuns(rows))
    after = String(stoppedAt)
  }
  const rest = before === undefined ? found : found.filter((one) => compareAge(placeOf(one), before) > 0)
  return rest.toSorted((a, b) => compareAge(placeOf(a), placeOf(b)))
}

function toRuns(rows: readonly Reply[]): StoredRun[] {
  const runs: StoredRun[] = []
  for (let i = 0; i < rows.length; i += 2) {
    const row = readRow(rows[i + 1] as Reply)
    if (row !== null) runs.push(toRun(String(rows[i]), row))
  }
  return runs
}

function packFilter({ workflow, queue, statuses, withoutPrefix, createdAfter }: RunQuery): Buffer {
  const packer = new Packer(128).array(5)
  const text = (value: string | undefined) => (value === undefined ? packer.boolean(false) : packer.text(value))
  text(workflow)
  text(queue)
  if (statuses === undefined) packer.boolean(false)
  else {
    packer.array(statuses.length)
    for (const status of statuses) packer.text(status)
  }
  text(withoutPrefix)
  text(createdAfter === undefined ? undefined : String(createdAfter))
  return packer.end()
}
