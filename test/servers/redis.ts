import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { cp } from 'node:fs/promises'
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
  /** Where its files are. */
  readonly folder: string
  /** A copy of its append-only files as they are, in a folder of its own. */
  backUp(): Promise<string>
  /** Ends it as a crash would. */
  kill(): Promise<void>
  /** Starts it again after `kill`, over the same files, once with more settings if need be. */
  start(more?: RedisServerOptions['settings']): Promise<void>
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
  const mount = `mount -t tmpfs -o size=${diskBytes} tmpfs "$0" && exec "$@"`
  const disk = diskBytes === undefined ? [] : ['unshare', '-rm', 'sh', '-c', mount, folder]
  const removeFolder = () => rmSync(folder, { recursive: true, force: true })
  let keeper: ChildProcess | null = null
  let processId = 0

  const startOnce = async (more: RedisServerOptions['settings'] = {}) => {
    const args = Object.entries({ ...all, ...more }).flatMap(([name, value]) => [`--${name}`, value])
    const started = spawn('sh', ['-c', keep, 'sh', ...disk, 'redis-server', ...args], { stdio: ['pipe', 'pipe', 'inherit'] })
    keeper = started
    processId = 0
    let log = ''
    started.stdout.on('data', (chunk) => {
      log = `${log}${chunk}`
      // A child of the server before, which rewrites its file, may still speak.
      if (keeper === started && processId === 0) processId = Number(/<process (\d+)>/.exec(log)?.[1] ?? 0)
      log = log.slice(-4_000)
    })
    started.unref()
    for (const stream of [started.stdin, started.stdout] as unknown as { unref?(): void }[]) stream.unref?.()
    await untilReady(started, () => ({ log, processId }))
  }

  const server: RedisServer = {
    port,
    url: `redis://127.0.0.1:${port}`,
    folder,
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
      if (processId > 0 && !hasEnded(processId)) process.kill(processId, 'SIGKILL')
      ending.stdin?.end()
      await ended
    },
    async start(more = {}) {
      try {
        await startOnce(more)
      } catch (error) {
        // As a supervisor would: it was killed while it rewrote a file that an earlier kill had torn, and has repaired that just now.
        if (!String(error).includes('the truncated file is not the last file')) throw error
        await server.kill()
        await startOnce(more)
      }
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

/** By what it says itself: while it was away another server may have got its port, and would answer. */
async function untilReady(child: ChildProcess, look: () => { log: string; processId: number }): Promise<void> {
  while (!look().log.includes('Ready to accept connections')) {
    const isOver = child.exitCode !== null || child.signalCode !== null || hasEnded(look().processId)
    // What it said last is read meanwhile.
    await new Promise((resolve) => setTimeout(resolve, 10))
    if (isOver) throw new Error(`redis-server did not start: ${look().log}`)
  }
}

function hasEnded(processId: number): boolean {
  try {
    if (processId > 0) process.kill(processId, 0)
    return false
  } catch {
    return true
  }
}
