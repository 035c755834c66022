import { createClient } from 'redis'

/** What a Redis server has spent until now. Commands that scripts call count, too. */
export interface ServerUsage {
  readonly cpuUs: number
  readonly commands: number
  readonly bytes: number
}

/** Reads it where the URL names a Redis server; undefined for other stores, whose servers have several processes or none. */
export async function readServerUsage(url: string): Promise<ServerUsage | undefined> {
  if (!url.startsWith('redis:')) return undefined
  const { origin } = new URL(url.replace('redis:', 'http:'))
  const client = await createClient({ url: origin.replace('http:', 'redis:') }).connect()
  const info = String(await client.info('everything'))
  client.destroy()
  const calls = [...info.matchAll(/^cmdstat_[^:]+:calls=(\d+)/gm)].map(([, count]) => Number(count))
  return {
    cpuUs: (numberIn(info, 'used_cpu_user') + numberIn(info, 'used_cpu_sys')) * 1_000_000,
    commands: calls.reduce((sum, count) => sum + count, 0),
    bytes: numberIn(info, 'used_memory'),
  }
}

function numberIn(info: string, name: string): number {
  return Number(new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1])
}
