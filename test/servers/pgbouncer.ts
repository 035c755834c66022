import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { freePort } from './free-port.ts'
import { findUser } from './postgres.ts'

export interface Pgbouncer {
  /** Of the same database as the server's URL. */
  readonly url: string
  stop(): Promise<void>
}

/** A real pgbouncer in transaction mode in front of a server: each transaction gets whichever session is free. It ends with the process. */
export async function startPgbouncer(serverUrl: string, { sessions = 5 } = {}): Promise<Pgbouncer> {
  const server = new URL(serverUrl)
  const user = findUser()
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-pgbouncer-'))
  const file = join(folder, 'pgbouncer.ini')
  const port = await freePort()
  const login = `user=${server.username} password='${decodeURIComponent(server.password)}'`
  const settings = [
    '[databases]',
    `* = host=${server.hostname} port=${server.port} ${login}`,
    '[pgbouncer]',
    ...['listen_addr=127.0.0.1', `listen_port=${port}`, 'unix_socket_dir=', 'auth_type=any', 'pool_mode=transaction'],
    ...[`default_pool_size=${sessions}`, 'max_client_conn=500', 'logfile=', 'server_round_robin=1'],
  ]
  writeFileSync(file, `${settings.join('\n')}\n`)
  if (user !== null) for (const path of [folder, file]) chownSync(path, user.uid, user.gid)
  const removeFolder = () => rmSync(folder, { recursive: true, force: true })
  const keeper = spawn('sh', ['-c', keep, 'sh', 'pgbouncer', '-q', file], { stdio: ['pipe', 'ignore', 'inherit'], ...user })
  keeper.unref()
  ;(keeper.stdin as unknown as { unref?(): void }).unref?.()
  process.once('exit', removeFolder)

  const url = new URL(serverUrl)
  url.port = String(port)
  for (;;) {
    if (keeper.exitCode !== null) throw new Error('pgbouncer did not start')
    const client = new pg.Client({ connectionString: url.href })
    client.on('error', () => {})
    try {
      await client.connect()
      await client.end()
      break
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 25))
    }
  }
  return {
    url: url.href,
    async stop() {
      const ended = once(keeper, 'exit')
      keeper.ref()
      keeper.stdin.end()
      await ended
      process.off('exit', removeFolder)
      removeFolder()
    },
  }
}

/** Ends it when the input ends: that also happens when the process that started it is killed. */
const keep = '"$@" </dev/null & cat >/dev/null; { kill -9 $!; wait $!; } 2>/dev/null'
