import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { startPostgres } from './postgres.ts'
import { startRedis } from './redis.ts'

interface Server {
  stop(): Promise<void>
}

/** Servers that all tests of a run share. Each is started by the first test that asks for it, so that others do not wait. */
const starters: Readonly<Record<string, () => Promise<Server>>> = {
  '/postgres': () => startPostgres(),
  '/redis': () => startRedis(),
}

/** Called by vitest before any test: opens the desk at which tests ask for servers, and returns what to do after the last. */
export default async function openDesk(): Promise<() => Promise<void>> {
  const started = new Map<string, Promise<Server>>()
  const desk = createServer(async ({ url = '' }, answer) => {
    const start = starters[url]
    if (start === undefined) return void answer.writeHead(404).end()
    const server = started.get(url) ?? start()
    started.set(url, server)
    try {
      answer.end(JSON.stringify(await server))
    } catch (error) {
      answer.writeHead(500).end(String(error))
    }
  }).listen(0, '127.0.0.1')
  await once(desk, 'listening')
  process.env['HOLDFAST_TEST_SERVERS'] = `http://127.0.0.1:${(desk.address() as AddressInfo).port}`

  return async () => {
    desk.close()
    const servers = await Promise.allSettled(started.values())
    for (const server of servers) if (server.status === 'fulfilled') await server.value.stop()
  }
}
