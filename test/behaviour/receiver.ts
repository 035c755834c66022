import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { onTestFinished } from 'vitest'

export interface Received {
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

/** A webhook's receiver on this machine, which answers with these statuses, the last one for ever; 0: not at all. */
export async function startReceiver(...statuses: number[]): Promise<{ readonly url: string; readonly received: Received[] }> {
  const received: Received[] = []
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const status = statuses[Math.min(received.length, statuses.length - 1)] ?? 200
    received.push({ headers: request.headers, body: Buffer.concat(chunks).toString() })
    if (status > 0) response.writeHead(status, { location: '/elsewhere' }).end('noted')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook?token=hush`, received }
}
