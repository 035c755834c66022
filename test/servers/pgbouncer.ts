import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { answers, findUser, freePort } from './postgres.ts'

export interface PgbouncerServer {
  readonly url: string
  stop(): Promise<void>
}

/** A real `pgbouncer` in transaction mode before the database of a URL: a session of the client is many of the server. */
export async function startPgbouncer(serverUrl: string): Promise<PgbouncerServer> {
  const program = ['/usr/sbin/pgbouncer', '/usr/bin/pgbouncer', '/usr/local/bin/pgbouncer'].find(existsSync)
  if (program === undefined) throw new Error('pgbouncer is missing. The tests need a real one: apt-get install -y pgbouncer')
  const user = findUser()
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-pgbouncer-'))
  const file = join(folder, 'pgbouncer.ini')
  const port = await freePort()
  const target = new URL(serverUrl)
  const database = target.pathname.slice(1)
  const login = `user=${target.username} password='${decodeURIComponent(target.password).replaceAll("'", "''")}'`
  writeFileSync(
    file,
    `[databases]
${database} = host=${target.hostname} port=${target.port} dbname=${database} ${login}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
auth_type = any
pool_mode = transaction
default_pool_size = 4
logfile = ${join(folder, 'pgbouncer.log')}
`,
  )
  if (user !== null) for (const path of [folder, file]) chownSync(path, user.uid, user.gid)
  const child = spawn(program, ['-q', file], { stdio: 'ignore', ...user })
  child.unref()
  const end = () => child.kill('SIGKILL')
  process.once('exit', end)
  const url = new URL(serverUrl)
  url.port = String(port)
  if (!(await answers(url.href, child)))
    throw new Error(`pgbouncer did not start: ${readFileSync(join(folder, 'pgbouncer.log'), 'utf8')}`)

  return {
    url: url.href,
    async stop() {
      process.off('exit', end)
      child.ref()
      const closed = once(child, 'exit')
      end()
      await closed
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
