import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * A port for a server. Not one of those that systems give to outgoing connections: such a connection could have it by the time the server
 * listens, or while the server is down.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 12_000 + Math.floor(Math.random() * 20_000)
    const probe = createServer().listen(port, '127.0.0.1')
    const isFree = await once(probe, 'listening').then(
      () => true,
      () => false,
    )
    if (!isFree) continue
    probe.close()
    await once(probe, 'close')
    return port
  }
}
