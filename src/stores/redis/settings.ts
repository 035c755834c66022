import { HoldfastError } from '../../model/errors.ts'
import type { Link, Reply } from './link.ts'

export type Durability = 'full' | 'relaxed' | 'none'

const strengths: readonly Durability[] = ['none', 'relaxed', 'full']

/** What a server says about itself. `fsync` is null where it does not let its configuration be read. */
interface Settings {
  readonly version: string
  readonly isReplica: boolean
  readonly hasAof: boolean
  readonly fsync: string | null
  readonly pausesFsync: boolean
  readonly evictionPolicy: string
  /** Whether it starts over an append-only file whose last write is there only in part: its default. */
  readonly loadsTornFile: boolean
  /** How often it has begun to rewrite that file since it was started. */
  readonly rewriteCount: number
}

/**
 * Checks the server against the durability asked for, and says how durable what it acknowledges is:
 *
 *   full     the append-only file is flushed before the answer leaves: survives the server's machine
 *   relaxed  the append-only file is written, and flushed about once a second: survives the server's process
 *   none     no append-only file: what came after the last snapshot dies with the server's process
 *
 * A caller that asks for `full` gets it or is refused. One that asks for `relaxed` gets what the server offers, and the store says what that
 * is; it must not become less while the store is open. Eviction is never accepted: it removes data silently.
 */
export async function checkSettings(link: Link, atLeast: Durability): Promise<Durability> {
  const settings = await readSettings(link)
  if (Number.parseInt(settings.version, 10) < 7) {
    throw new HoldfastError(
      'store_unavailable',
      `Holdfast needs Redis 7.0 or later, or Valkey; this server is ${settings.version}. Upgrade it.`,
    )
  }
  if (settings.isReplica) {
    throw new HoldfastError('store_unavailable', 'This Redis server is a replica and takes no writes. Name the primary.', {
      retryable: true,
    })
  }
  if (settings.evictionPolicy !== 'noeviction') {
    throw tooWeak(
      { name: 'maxmemory-policy', is: settings.evictionPolicy, needs: 'noeviction' },
      'Otherwise it removes data when memory is full.',
    )
  }
  const durability = durabilityOf(settings)
  if (strengths.indexOf(durability) < strengths.indexOf(atLeast)) throw tooWeakFor(settings)
  const isSafe = !settings.hasAof || !settings.loadsTornFile || settings.rewriteCount > 0 || (await rewriteFile(link))
  if (isSafe || durability !== 'full') return durability
  if (atLeast === 'full') throw tornError()
  return 'relaxed'
}

/**
 * A crash can leave the beginning of a script's writes at the end of the append-only file: MULTI and some of the commands. Redis (seen
 * with 7.0.15; Valkey until its change 4342) then cuts the file inside of the transaction, without carrying it out, and appends what comes next; at
 * the start after that, the next EXEC carries the beginning out as well. In the log of a thread that is a record at the place of another. So the file is
 * rewritten once after each start of the server, before anything is written: from the moment at which the rewriting begins, new
 * writes go to a file of their own. Says whether this user may do that.
 */
async function rewriteFile(link: Link): Promise<boolean> {
  try {
    await link.send(['BGREWRITEAOF'])
    return true
  } catch (error) {
    if (isRefusal(error)) return false
    // It is being rewritten already, or there is no memory to fork at the moment: then the next connection tries again.
    if (error instanceof Error && /^ERR .*(append only file|AOF)/.test(error.message)) return true
    throw error
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof Error && /NOPERM|unknown command|not allowed|disabled/i.test(error.message)
}

function tornError(): HoldfastError {
  return new HoldfastError(
    'durability_too_weak',
    `This Redis server starts over an append-only file that a crash has torn (aof-load-truncated "yes"), and may then bring half of a write back at its next start. Holdfast prevents that by rewriting the file after each start, which this user is not allowed to do: allow BGREWRITEAOF, or set aof-load-truncated "no" (CONFIG SET aof-load-truncated no, and in redis.conf). ${orRelaxed}`,
    { details: { setting: 'aof-load-truncated', is: 'yes', needs: 'no' } },
  )
}

const orRelaxed = "Or open with durability: 'relaxed', which may lose the last moments with the server."

function durabilityOf({ hasAof, fsync, pausesFsync }: Settings): Durability {
  if (!hasAof) return 'none'
  return fsync === 'always' && !pausesFsync ? 'full' : 'relaxed'
}

function tooWeakFor({ hasAof, fsync }: Settings): HoldfastError {
  if (!hasAof) return tooWeak({ name: 'appendonly', is: 'no', needs: 'yes' }, orRelaxed)
  if (fsync === null) {
    return new HoldfastError(
      'durability_too_weak',
      `This Redis server does not let this user read its configuration (CONFIG GET), so appendfsync cannot be checked; durability "full" needs it to be "always". Allow CONFIG GET. ${orRelaxed}`,
      { details: { setting: 'appendfsync', is: null, needs: 'always' } },
    )
  }
  if (fsync !== 'always') return tooWeak({ name: 'appendfsync', is: fsync, needs: 'always' }, orRelaxed)
  return tooWeak({ name: 'no-appendfsync-on-rewrite', is: 'yes', needs: 'no' }, orRelaxed)
}

function tooWeak({ name, is, needs }: { name: string; is: string; needs: string }, otherwise: string): HoldfastError {
  return new HoldfastError(
    'durability_too_weak',
    `The Redis server has ${name} "${is}"; Holdfast needs "${needs}" here. Set it (CONFIG SET ${name} ${needs}, and in redis.conf). ${otherwise}`,
    { details: { setting: name, is, needs } },
  )
}

async function readSettings(link: Link): Promise<Settings> {
  const info = parseInfo(await link.send(['INFO', 'everything']))
  const config = await readConfig(link)
  return {
    version: info.get('redis_version') ?? '0',
    isReplica: info.get('role') === 'slave',
    hasAof: config === null ? info.get('aof_enabled') === '1' : config.get('appendonly') === 'yes',
    fsync: config?.get('appendfsync') ?? null,
    pausesFsync: config?.get('no-appendfsync-on-rewrite') === 'yes',
    evictionPolicy: config?.get('maxmemory-policy') ?? info.get('maxmemory_policy') ?? 'unknown',
    loadsTornFile: config?.get('aof-load-truncated') !== 'no',
    rewriteCount: Number(info.get('aof_rewrites') ?? 0),
  }
}

/** Null where the server does not let it be read: many hosted ones don't. */
async function readConfig(link: Link): Promise<Map<string, string> | null> {
  const names = ['appendonly', 'appendfsync', 'no-appendfsync-on-rewrite', 'maxmemory-policy', 'aof-load-truncated']
  try {
    const reply = (await link.send(['CONFIG', 'GET', ...names])) as readonly Buffer[]
    if (!Array.isArray(reply)) return new Map(Object.entries(reply).map(([name, value]) => [name, String(value)]))
    if (reply.length < 2 * names.length) return null
    return new Map(names.map((_, i) => [String(reply[2 * i]), String(reply[2 * i + 1])]))
  } catch (error) {
    if (isRefusal(error)) return null
    throw error
  }
}

function parseInfo(reply: Reply): Map<string, string> {
  const lines = String(reply).split(/\r?\n/)
  return new Map(
    lines
      .filter((line) => line.includes(':'))
      .map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]),
  )
}
