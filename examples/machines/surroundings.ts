// What stands around the machines: a mail provider that counts, and a network that can be cut.

import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

export interface Provider {
  readonly url: string
  /** Key of every mail that was sent, doubles included. */
  readonly mails: readonly string[]
  /** Key of every step whose body began. */
  readonly bodies: readonly string[]
  stop(): void
}

export async function startProvider(): Promise<Provider> {
  const mails: string[] = []
  const bodies: string[] = []
  const server = createHttpServer(async (request, answer) => {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://provider')
    if (request.method === 'GET') {
      const key = searchParams.get('key') ?? ''
      return void answer.writeHead(mails.includes(key) ? 200 : 404).end(`sent ${key}`)
    }
    let text = ''
    for await (const chunk of request) text += chunk
    const { key } = JSON.parse(text) as { key: string }
    if (pathname === '/mails') mails.push(key)
    else bodies.push(key)
    answer.end(`sent ${key}`)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, mails, bodies, stop: () => server.closeAllConnections() ?? server.close() }
}

export interface Cable {
  /** The same database, through this cable. */
  readonly url: string
  /** Pulls it out: connections end, and new ones are refused. */
  cut(): void
  plugIn(): void
  stop(): void
}

/** A way to a server that can be interrupted. */
export async function layCable(serverUrl: string): Promise<Cable> {
  const target = new URL(serverUrl)
  const sockets = new Set<Socket>()
  let isCut = false
  const server = createServer((near) => {
    if (isCut) return void near.destroy()
    const far = connect(Number(target.port || 5432), target.hostname)
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from)
      from.on('error', () => to.destroy())
      from.on('close', () => {
        sockets.delete(from)
        to.destroy()
      })
      from.pipe(to)
    }
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = new URL(serverUrl)
  url.hostname = '127.0.0.1'
  url.port = String((server.address() as AddressInfo).port)
  const dropAll = () => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    url: url.href,
    cut() {
      isCut = true
      dropAll()
    },
    plugIn() {
      isCut = false
    },
    stop() {
      server.close()
      dropAll()
    },
  }
}
