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
}

/**
 * Checks the server against the durability asked for, and says how durable what it acknowledges is:
 *
 *   full     the append-only file is flushed before the answer leaves: survives the server's machine
 *   relaxed  the append-only file is written, and flushed about once a second: survives the server's process
 *   none     no append-only file: what came after the last snapshot dies with the server's process
 *
 * Who asks for `full` gets it or is refused. Who asks for `relaxed` gets what is there, and the store says what that is; it must not
 * become less while the store is open. Eviction is never accepted: it removes data without a word.
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
  return durability
}

function durabilityOf({ hasAof, fsync, pausesFsync }: Settings): Durability {
  if (!hasAof) return 'none'
  return fsync === 'always' && !pausesFsync ? 'full' : 'relaxed'
}

function tooWeakFor({ hasAof, fsync }: Settings): HoldfastError {
  const otherwise = "Or open with durability: 'relaxed', which may lose the last moments with the server."
  if (!hasAof) return tooWeak({ name: 'appendonly', is: 'no', needs: 'yes' }, otherwise)
  if (fsync === null) {
    return new HoldfastError(
      'durability_too_weak',
      `This Redis server does not let this user read its configuration (CONFIG GET), so appendfsync cannot be checked; durability "full" needs it to be "always". Allow CONFIG GET. ${otherwise}`,
      { details: { setting: 'appendfsync', is: null, needs: 'always' } },
    )
  }
  if (fsync !== 'always') return tooWeak({ name: 'appendfsync', is: fsync, needs: 'always' }, otherwise)
  return tooWeak({ name: 'no-appendfsync-on-rewrite', is: 'yes', needs: 'no' }, otherwise)
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
  }
}

/** Null where the server does not let it be read: many hosted ones don't. */
async function readConfig(link: Link): Promise<Map<string, string> | null> {
  const names = ['appendonly', 'appendfsync', 'no-appendfsync-on-rewrite', 'maxmemory-policy']
  try {
    const reply = (await link.send(['CONFIG', 'GET', ...names])) as readonly Buffer[]
    if (!Array.isArray(reply)) return new Map(Object.entries(reply).map(([name, value]) => [name, String(value)]))
    if (reply.length < 8) return null
    return new Map(names.map((_, i) => [String(reply[2 * i]), String(reply[2 * i + 1])]))
  } catch (error) {
    if (error instanceof Error && /NOPERM|unknown command|not allowed|disabled/i.test(error.message)) return null
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
