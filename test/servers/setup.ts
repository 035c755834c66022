import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { bundle } from '../crash/bed/program-bundle.ts'
import { sharedSettings, startPostgres } from './postgres.ts'
import { startRedis } from './redis.ts'

interface Server {
  stop(): Promise<void>
}

/** Servers that all tests of a run share. Each is started by the first test that asks for it, so that others do not wait. */
const starters: Readonly<Record<string, () => Promise<Server>>> = {
  '/postgres': () => startPostgres({ settings: sharedSettings }),
  '/redis': () => startRedis(),
}

/** Called by vitest before any test: opens the desk at which tests ask for servers and bundles, and returns what to do after the last. */
export default async function openDesk(): Promise<() => Promise<void>> {
  const started = new Map<string, Promise<Server>>()
  const bundles = new Map<string, Promise<string>>()
  const answerTo = async (url: string): Promise<string> => {
    const { pathname, searchParams } = new URL(url, 'http://desk')
    const source = searchParams.get('source')
    if (pathname === '/bundle' && source !== null) return onceFor(bundles, source, () => bundle(source))
    const start = starters[pathname]
    if (start === undefined) throw new Error(`nobody has ${url}`)
    return JSON.stringify(await onceFor(started, pathname, start))
  }
  const desk = createServer(({ url = '' }, answer) => {
    answerTo(url).then(
      (text) => answer.end(text),
      (error) => answer.writeHead(500).end(String(error)),
    )
  }).listen(0, '127.0.0.1')
  await once(desk, 'listening')
  process.env['HOLDFAST_TEST_SERVERS'] = `http://127.0.0.1:${(desk.address() as AddressInfo).port}`

  return async () => {
    desk.close()
    const servers = await Promise.allSettled(started.values())
    for (const server of servers) if (server.status === 'fulfilled') await server.value.stop()
  }
}

function onceFor<Made>(made: Map<string, Promise<Made>>, name: string, make: () => Promise<Made>): Promise<Made> {
  const one = made.get(name) ?? make()
  made.set(name, one)
  return one
}
