import { countLimit, noCounts, type Queue, type QueueChange, type QueueCounts } from '../../model/queue.ts'
import { type Row, toNumber } from './rows.ts'
import { durableSql, nowSql } from './sql.ts'
import type { StoreParts } from './store-parts.ts'

/** Changes settings of a queue. A row with nothing but defaults is deleted. */
export const setQueueFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_set_queue(p_writer bigint, p_batch bigint, p_sync boolean, p_name text, p_change jsonb) RETURNS text
LANGUAGE plpgsql VOLATILE SET lock_timeout = '10s' AS $$
BEGIN
  ${durableSql}
  INSERT INTO holdfast.queues AS q (name, concurrency, rate_count, rate_per_ms, max_queued, is_paused)
    VALUES (p_name, (p_change->>'concurrency')::bigint, (p_change->>'rate_count')::bigint, (p_change->>'rate_per_ms')::bigint,
      (p_change->>'max_queued')::bigint, coalesce((p_change->>'is_paused')::boolean, false))
    ON CONFLICT (name) DO UPDATE SET
      concurrency = CASE WHEN p_change ? 'concurrency' THEN excluded.concurrency ELSE q.concurrency END,
      rate_count = CASE WHEN p_change ? 'rate_count' THEN excluded.rate_count ELSE q.rate_count END,
      rate_per_ms = CASE WHEN p_change ? 'rate_count' THEN excluded.rate_per_ms ELSE q.rate_per_ms END,
      max_queued = CASE WHEN p_change ? 'max_queued' THEN excluded.max_queued ELSE q.max_queued END,
      is_paused = CASE WHEN p_change ? 'is_paused' THEN excluded.is_paused ELSE q.is_paused END;
  DELETE FROM holdfast.queues q WHERE q.name = p_name AND num_nonnulls(q.concurrency, q.rate_count, q.max_queued) = 0 AND NOT q.is_paused;
  IF p_change ? 'rate_count' THEN DELETE FROM holdfast.queue_starts s WHERE s.queue = p_name; END IF;
  PERFORM holdfast.fn_record(p_writer, p_batch, 'true');
  RETURN 'true';
END $$;
`
const setQueueSql = 'SELECT holdfast.fn_set_queue($1, $2, $3, $4, $5)'

export function prepareSetQueue({ writes, watch, prepare, isFull }: StoreParts) {
  const statement = prepare(setQueueSql)
  return async ({ name, concurrency, rateLimit, maxQueued, isPaused }: QueueChange): Promise<void> => {
    const rate = rateLimit === undefined ? {} : { rate_count: rateLimit?.count ?? null, rate_per_ms: rateLimit?.perMs ?? null }
    const change = JSON.stringify({ concurrency, ...rate, max_queued: maxQueued, is_paused: isPaused })
    await writes.call(statement, [isFull, name, change])
    watch.tell([{ owner: '', threadId: '', isClaimable: true }])
  }
}

/** As the index of queues has it. */
const isUnfinished = "r.status IN ('pending', 'running', 'waiting', 'paused')"

/** Runs of queue `n.name`: up to the limit, so that a crowded queue costs no more. In the order of the index of queues, so that no other way to them looks shorter. */
const counted = (what: string) =>
  `(SELECT count(*) FROM (SELECT FROM holdfast.runs r WHERE r.queue = n.name AND ${what} ORDER BY r.due_at LIMIT ${countLimit}) x)`
/** Read once: an index can look for no time that may be another for each row. */
const now = '(SELECT k.now FROM clock k)'

/** Settings and counts of the queues that `names` selects. */
const queuesSql = (names: string, before = '') => `
  WITH RECURSIVE ${before} clock AS MATERIALIZED (SELECT ${nowSql.replace('p_offset', '$1')} AS now)
  SELECT n.name, q.concurrency, q.rate_count, q.rate_per_ms, q.max_queued, coalesce(q.is_paused, false), c.counts, q.name
    FROM (${names}) n
    LEFT JOIN holdfast.queues q ON q.name = n.name
    CROSS JOIN LATERAL (SELECT json_build_object('pending', ${counted(`r.status = 'pending' AND r.due_at <= ${now}`)},
      'delayed', least(${countLimit}, ${counted(`r.status = 'pending' AND r.due_at > ${now}`)} + ${counted("r.status = 'pending' AND r.due_at IS NULL")}),
      ${(['running', 'waiting', 'paused'] as const).map((status) => `'${status}', ${counted(`r.status = '${status}'`)}`).join(', ')}) AS counts) c
    ORDER BY n.name COLLATE "C"`

const oneSql = queuesSql('SELECT $2::text AS name')

/** Those with settings or unfinished runs. The names of the latter are found by hopping through their index. */
const allSql = queuesSql(
  'SELECT u.queue AS name FROM used u WHERE u.queue IS NOT NULL UNION SELECT q.name FROM holdfast.queues q',
  `used AS (
    (SELECT r.queue FROM holdfast.runs r WHERE ${isUnfinished} ORDER BY r.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT r.queue FROM holdfast.runs r WHERE ${isUnfinished} AND r.queue > u.queue ORDER BY r.queue LIMIT 1)
      FROM used u WHERE u.queue IS NOT NULL
  ),`,
)

export function prepareListQueues({ connections, prepare, clock }: StoreParts) {
  const [one, all] = [prepare(oneSql), prepare(allSql)]
  return async ({ name }: { readonly name?: string }): Promise<Queue[]> => {
    const rows = await (name === undefined
      ? connections.read(all, [clock.offset()])
      : connections.read(one, [clock.offset(), name]))
    // One that was asked for by its name is there if it has settings or runs.
    return rows.flatMap((row) => {
      const queue = toQueue(row)
      return row[7] === null && Object.values(queue.counts).every((count) => count === 0) ? [] : [queue]
    })
  }
}

function toQueue(row: Row): Queue {
  const [name, concurrency, count, perMs, maxQueued, isPaused, counts] = row
  return {
    name: name as string,
    concurrency: toNumber(concurrency),
    rateLimit: count === null || perMs === null ? null : { count: Number(count), perMs: Number(perMs) },
    maxQueued: toNumber(maxQueued),
    isPaused: isPaused === 't',
    counts: { ...noCounts, ...(JSON.parse(counts ?? '{}') as Partial<QueueCounts>) },
  }
}
