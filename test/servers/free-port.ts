import { once } from 'node:events'
import { rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/**
 * A port for a server. Not one of those that systems give to outgoing connections: such a connection could have it by the time the server
 * listens, or while the server is down. Nor one that another test was given: its server may be down at the moment. The files that say so are
 * removed when the process ends; one that is left over costs a port.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 12_000 + Math.floor(Math.random() * 20_000)
    if (!reserve(port)) continue
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

const reservations: string[] = []

function reserve(port: number): boolean {
  const file = join(tmpdir(), `holdfast-port-${port}`)
  try {
    writeFileSync(file, String(process.pid), { flag: 'wx' })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
  if (reservations.length === 0) {
    process.once('exit', () => {
      for (const reservation of reservations) rmSync(reservation, { force: true })
    })
  }
  reservations.push(file)
  return true
}
