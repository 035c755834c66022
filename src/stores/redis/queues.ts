import { defaultSettings, type Queue, type QueueChange, type QueueSettings } from '../../model/queue.ts'
import type { Connection } from './connection.ts'
import type { Reply } from './link.ts'
import { listQueuesScript, setQueueScript } from './scripts/queues.ts'

export async function setQueue(connection: Connection, change: QueueChange, publication: string): Promise<void> {
  const { name, concurrency, rateLimit, maxQueued, isPaused } = change
  const fields: string[] = []
  const set = (field: string, value: number | null | undefined) => {
    if (value !== undefined) fields.push(field, value === null ? '' : String(value))
  }
  set('concurrency', concurrency)
  set('rate_count', rateLimit === undefined ? undefined : (rateLimit?.count ?? null))
  set('rate_per_ms', rateLimit === undefined ? undefined : (rateLimit?.perMs ?? null))
  set('max_queued', maxQueued)
  set('is_paused', isPaused === undefined ? undefined : isPaused ? 1 : 0)
  await connection.once(setQueueScript, 0, [publication, name, ...fields])
}

export async function listQueues(
  connection: Connection,
  { name }: { readonly name?: string },
  offsetMs: number,
): Promise<Queue[]> {
  const one = name === undefined ? ['0', ''] : ['1', name]
  const found = (await connection.repeat(listQueuesScript, String(offsetMs), ...one)) as readonly (readonly Reply[])[]
  return [...found]
    .sort(([a], [b]) => Buffer.compare(a as Buffer, b as Buffer))
    .map(([queue, settings, due, pending, running, waiting, paused]) => ({
      name: String(queue),
      ...toSettings((settings as readonly Buffer[]).map(String)),
      counts: {
        pending: Number(due),
        delayed: Number(pending) - Number(due),
        running: Number(running),
        waiting: Number(waiting),
        paused: Number(paused),
      },
    }))
}

function toSettings([concurrency, count, perMs, maxQueued, isPaused]: readonly string[]): QueueSettings {
  if (isPaused === undefined) return defaultSettings
  const limit = (text: string | undefined) => (text === undefined || text === '' ? null : Number(text))
  const rate = { count: limit(count), perMs: limit(perMs) }
  return {
    concurrency: limit(concurrency),
    rateLimit: rate.count === null || rate.perMs === null ? null : { count: rate.count, perMs: rate.perMs },
    maxQueued: limit(maxQueued),
    isPaused: isPaused === '1',
  }
}
