import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

/** A handler of Requests as one for `node:http` and Express, there also behind `express.json()`. */
export function toNodeHandler(
  handle: (request: Request) => Promise<Response>,
): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  return async (incoming, outgoing) => {
    try {
      const response = await handle(toRequest(incoming))
      outgoing.writeHead(response.status, Object.fromEntries(response.headers))
      if (response.body === null) outgoing.end()
      else {
        // The page learns at once that it is connected.
        outgoing.flushHeaders()
        await pipeline(Readable.fromWeb(response.body as never), outgoing)
      }
    } catch {
      // The page has gone, or the stream broke off: either way, the page sees a connection that ended early, and can resume.
      if (outgoing.headersSent) outgoing.destroy()
      else outgoing.writeHead(500).end()
    }
  }
}

function toRequest(incoming: IncomingMessage): Request {
  const { method = 'GET', url = '/', headers } = incoming
  const hasBody = method !== 'GET' && method !== 'HEAD'
  const { body: parsed } = incoming as { body?: unknown }
  // A parser before this handler has read the body, and left what it made of it.
  const bodyOf = () =>
    incoming.readableEnded && parsed !== undefined ? JSON.stringify(parsed) : (Readable.toWeb(incoming) as never)
  const pairs = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)] as [string, string]],
  )
  return new Request(new URL(url, `http://${headers.host ?? 'localhost'}`), {
    method,
    headers: pairs.filter(([name]) => !name.startsWith(':')),
    ...(hasBody && { body: bodyOf(), duplex: 'half' }),
  })
}
