import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { cp } from 'node:fs/promises'
import { connect as connectTo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { freePort } from './free-port.ts'

export interface RedisServerOptions {
  /** Default `always`. `off`: no append-only file at all. */
  readonly fsync?: 'always' | 'everysec' | 'no' | 'off'
  /** More settings, as in redis.conf: `{ maxmemory: '10mb' }`. */
  readonly settings?: Readonly<Record<string, string>>
  /** Puts its files on a disk of this size. */
  readonly diskBytes?: number
  /** Begins with the append-only files of a backup, which become the server's own. */
  readonly backup?: string
}

/** A real `redis-server` of the test's own, in a folder of its own, on a free port of this machine. It ends with the process. */
export interface RedisServer {
  readonly port: number
  readonly url: string
  readonly processId: number
  /** A copy of its append-only files as they are, in a folder of its own. */
  backUp(): Promise<string>
  /** Ends it as a crash would. */
  kill(): Promise<void>
  /** Starts it again after `kill`, over the same files. */
  start(): Promise<void>
  /** Ends it and removes its files. */
  stop(): Promise<void>
}

export async function startRedis(options: RedisServerOptions = {}): Promise<RedisServer> {
  const { fsync = 'always', settings = {}, diskBytes, backup } = options
  requireBinary()
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-redis-'))
  if (backup !== undefined) {
    renameSync(backup, join(folder, appendOnlyFolder))
    rmSync(dirname(backup), { recursive: true })
  }
  const port = await freePort()
  const all: Record<string, string> = {
    ...{ bind: '127.0.0.1', port: String(port), dir: folder, save: '', 'enable-debug-command': 'local' },
    ...{ appendonly: fsync === 'off' ? 'no' : 'yes', appendfsync: fsync === 'off' ? 'everysec' : fsync },
    // By itself it takes the port 10,000 above, which may be one of an outgoing connection.
    ...(settings['cluster-enabled'] === 'yes' && { 'cluster-port': String(await freePort()) }),
    ...settings,
  }
  const args = Object.entries(all).flatMap(([name, value]) => [`--${name}`, value])
  const mount = `mount -t tmpfs -o size=${diskBytes} tmpfs "$0" && exec "$@"`
  const disk = diskBytes === undefined ? [] : ['unshare', '-rm', 'sh', '-c', mount, folder]
  const removeFolder = () => rmSync(folder, { recursive: true, force: true })
  let keeper: ChildProcess | null = null
  let processId = 0

  const server: RedisServer = {
    port,
    url: `redis://127.0.0.1:${port}`,
    get processId() {
      return processId
    },
    async backUp() {
      const copy = join(mkdtempSync(join(tmpdir(), 'holdfast-backup-')), appendOnlyFolder)
      await cp(join(folder, appendOnlyFolder), copy, { recursive: true })
      return copy
    },
    async kill() {
      if (keeper === null) return
      const ending = keeper
      keeper = null
      ending.ref()
      const ended = once(ending, 'exit')
      process.kill(processId, 'SIGKILL')
      ending.stdin?.end()
      await ended
    },
    async start() {
      const started = spawn('sh', ['-c', keep, 'sh', ...disk, 'redis-server', ...args], { stdio: ['pipe', 'pipe', 'inherit'] })
      keeper = started
      let log = ''
      started.stdout.on('data', (chunk) => {
        processId = Number(/<process (\d+)>/.exec(`${log}${chunk}`)?.[1] ?? processId)
        log = `${log}${chunk}`.slice(-4_000)
      })
      started.unref()
      for (const stream of [started.stdin, started.stdout] as unknown as { unref?(): void }[]) stream.unref?.()
      await untilItListens(port, started, () => log)
    },
    async stop() {
      await server.kill()
      process.off('exit', removeFolder)
      removeFolder()
    },
  }
  process.once('exit', removeFolder)
  await server.start()
  return server
}

/** What Redis calls it unless told otherwise. */
const appendOnlyFolder = 'appendonlydir'

let shared: Promise<{ url: string }> | undefined

/** The server that all tests of a run share, started by the first that asks: `setup.ts`. Outside of vitest, one of this process's own. */
export function sharedRedis(): Promise<{ url: string }> {
  const desk = process.env['HOLDFAST_TEST_SERVERS']
  shared ??=
    desk === undefined ? startRedis() : fetch(`${desk}/redis`).then((answer) => answer.json() as Promise<{ url: string }>)
  return shared
}

/** Ends the server when its input ends: that also happens when the process that started it is killed. */
const keep = '"$@" </dev/null & echo "<process $!>"; cat >/dev/null; { kill -9 $!; wait $!; } 2>/dev/null'

function requireBinary(): void {
  if ((process.env['PATH'] ?? '').split(':').some((folder) => existsSync(join(folder, 'redis-server')))) return
  throw new Error('redis-server is missing. The tests of the Redis store need a real one: apt-get install -y redis-server')
}

async function untilItListens(port: number, child: ChildProcess, log: () => string): Promise<void> {
  for (;;) {
    const hasEnded = child.exitCode !== null || child.signalCode !== null || log().includes('Failed listening')
    if (hasEnded) throw new Error(`redis-server did not start: ${log()}`)
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
