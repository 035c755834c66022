import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { type AddressInfo, connect as connectTo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface RedisServerOptions {
  /** Default `always`. `off`: no append-only file at all. */
  readonly fsync?: 'always' | 'everysec' | 'no' | 'off'
  /** More settings, as in redis.conf: `{ maxmemory: '10mb' }`. */
  readonly settings?: Readonly<Record<string, string>>
  /** Puts its files on a disk of this size. */
  readonly diskBytes?: number
}

/** A real `redis-server` of the test's own, in a folder of its own, on a free port of this machine. It ends with the process. */
export interface RedisServer {
  readonly port: number
  readonly url: string
  readonly processId: number
  /** Ends it as a crash would. */
  kill(): Promise<void>
  /** Starts it again after `kill`, over the same files. */
  start(): Promise<void>
  /** Ends it and removes its files. */
  stop(): Promise<void>
}

export async function startRedis({ fsync = 'always', settings = {}, diskBytes }: RedisServerOptions = {}): Promise<RedisServer> {
  requireBinary()
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-redis-'))
  const port = await freePort()
  const all: Record<string, string> = {
    ...{ bind: '127.0.0.1', port: String(port), dir: folder, save: '', 'enable-debug-command': 'local' },
    ...{ appendonly: fsync === 'off' ? 'no' : 'yes', appendfsync: fsync === 'off' ? 'everysec' : fsync },
    ...settings,
  }
  let child: ChildProcess | null = null
  const end = async (signal: NodeJS.Signals) => {
    const ending = child
    if (ending === null) return
    child = null
    ending.ref()
    const closed = once(ending, 'exit')
    ending.kill(signal)
    await closed
  }
  const removeWithProcess = () => {
    child?.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
  process.once('exit', removeWithProcess)

  const server: RedisServer = {
    port,
    url: `redis://127.0.0.1:${port}`,
    get processId() {
      return child?.pid ?? 0
    },
    kill: () => end('SIGKILL'),
    async start() {
      const args = Object.entries(all).flatMap(([name, value]) => [`--${name}`, value])
      let log = ''
      const mount = `mount -t tmpfs -o size=${diskBytes} tmpfs "$0" && exec "$@"`
      const command = diskBytes === undefined ? [] : ['unshare', '-rm', 'sh', '-c', mount, folder]
      const [program, ...rest] = [...command, 'redis-server', ...args] as [string, ...string[]]
      child = spawn(program, rest, { stdio: ['ignore', 'pipe', 'pipe'] })
      child.stdout?.on('data', (chunk) => {
        log = `${log}${chunk}`.slice(-4_000)
      })
      child.unref()
      await untilItListens(port, child, () => log)
    },
    async stop() {
      await end('SIGKILL')
      process.off('exit', removeWithProcess)
      rmSync(folder, { recursive: true, force: true })
    },
  }
  await server.start()
  return server
}

function requireBinary(): void {
  if ((process.env['PATH'] ?? '').split(':').some((folder) => existsSync(join(folder, 'redis-server')))) return
  throw new Error('redis-server is missing. The tests of the Redis store need a real one: apt-get install -y redis-server')
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address() as AddressInfo
  probe.close()
  await once(probe, 'close')
  return port
}

async function untilItListens(port: number, child: ChildProcess, log: () => string): Promise<void> {
  for (;;) {
    if (child.exitCode !== null || child.signalCode !== null) throw new Error(`redis-server did not start: ${log()}`)
    const socket = connectTo(port, '127.0.0.1')
    const isUp = await new Promise<boolean>((resolve) => {
      socket.once('connect', () => socket.write('PING\r\n'))
      // A server that still loads its file answers with another error.
      socket.once('data', (data) => resolve(/^(\+PONG|-NOAUTH)/.test(String(data))))
      socket.once('error', () => resolve(false))
    })
    socket.destroy()
    if (isUp) return
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
