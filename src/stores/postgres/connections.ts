import { createHash } from 'node:crypto'
import { HoldfastError } from '../../model/errors.ts'
import {
  loadDriver,
  type PgClientLike,
  type PgDriver,
  type PgOwnClientLike,
  type PgPooledClientLike,
  type PgPoolLike,
} from './driver.ts'
import {
  closedError,
  isConnectionLost,
  isReadOnly,
  isStatementUnknown,
  NotSent,
  refusesSettings,
  toHoldfastError,
} from './errors.ts'
import type { Row } from './rows.ts'

export type { PgClientLike, PgPoolLike } from './driver.ts'

/** How long the server may work on one statement. */
const statementMs = 20_000
const connectMs = 10_000
/** A heartbeat that can't connect is to be tried again before its leases are over. */
const heartbeatConnectMs = 4_000

/** SQL with a name under which the server keeps it prepared. */
export interface Statement {
  readonly text: string
  readonly name: string
}

export interface ConnectionsOptions {
  readonly url?: string
  readonly pool?: PgPoolLike
  readonly poolSize?: { readonly min?: number; readonly max?: number }
  /** How long to wait for an answer before a connection is given up. Default: a little more than the server may take. */
  readonly answerMs?: number
}

/**
 * The connections of one store: a pool for everything, and a separate connection for heartbeats, which the load of the pool
 * never starves. A pool that the user passed is used and stays open; the separate connection is always ours.
 *
 * Nothing here depends on the settings of a session, since behind a pooler a session is not ours: functions bring their own
 * lock time-out, transactions set theirs.
 */
export class Connections {
  readonly #driver: PgDriver | null
  readonly #config: object
  readonly #isOwn: boolean
  readonly #answerMs: number
  #pool: PgPoolLike
  #apart: PgPoolLike | null
  readonly #sent = new Set<{ readonly client: PgPooledClientLike; readonly until: number }>()
  readonly #watchdog: NodeJS.Timeout
  #isPreparing = true
  #isClosed = false

  private constructor(options: {
    driver: PgDriver | null
    config: object
    pool: PgPoolLike
    apart: PgPoolLike | null
    isOwn: boolean
    answerMs: number
  }) {
    this.#driver = options.driver
    this.#config = options.config
    this.#pool = options.pool
    this.#apart = options.apart
    this.#isOwn = options.isOwn
    this.#answerMs = options.answerMs
    this.#watchdog = setInterval(() => this.#endSilent(), Math.min(1_000, options.answerMs / 4)).unref()
  }

  static async open({ url, pool, poolSize, answerMs = statementMs + 5_000 }: ConnectionsOptions): Promise<Connections> {
    if (pool !== undefined) return Connections.#over(pool, answerMs)
    const driver = await loadDriver()
    const size = { min: poolSize?.min ?? 5, max: Math.max(1, poolSize?.max ?? 20) }
    const base = { connectionString: url, ...clientSettings, ...size }
    const attempt = async (config: object): Promise<Connections> => {
      const [pool, apart] = [openPool(driver, config), openApart(driver, config)]
      const connections = new Connections({ driver, config, pool, apart, isOwn: true, answerMs })
      try {
        await connections.withClient(async () => {})
        await connections.#openHeartbeat()
        return connections
      } catch (error) {
        await connections.close()
        throw error
      }
    }
    try {
      return await attempt({ ...base, ...withReadCommitted(url ?? ''), ...sessionSettings })
    } catch (error) {
      if (!refusesSettings((error as Error).cause)) throw toHoldfastError(error, 'open')
    }
    // A pooler that takes no settings: statements have no time limit on the server, locks still have one.
    try {
      return await attempt(base)
    } catch (error) {
      throw toHoldfastError(error, 'open')
    }
  }

  static async #over(pool: PgPoolLike, answerMs: number): Promise<Connections> {
    const config = copyOptions(pool)
    const Pool = pool.constructor as PgDriver['Pool']
    const apart = config === null ? null : openApart({ Pool } as PgDriver, config)
    const connections = new Connections({ driver: null, config: config ?? {}, pool, apart, isOwn: false, answerMs })
    await connections.#openHeartbeat()
    return connections
  }

  /** While there is room on the server. Where there is none, the first heartbeat tries again. */
  async #openHeartbeat(): Promise<void> {
    const client = await this.#apart?.connect().catch(() => undefined)
    client?.release()
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  /** How many connections the pool can have. */
  get max(): number {
    return (this.#pool.options as { readonly max?: number } | undefined)?.max ?? 1
  }

  refuseClosed(): void {
    if (this.#isClosed) throw closedError()
  }

  /** One statement that only reads. On a connection that turns out to be dead it is sent once more. */
  async read(statement: Statement, values: readonly unknown[]): Promise<readonly Row[]> {
    this.refuseClosed()
    try {
      return await this.send(statement, values)
    } catch (error) {
      if (!isConnectionLost(error)) throw toHoldfastError(error, 'read')
    }
    try {
      return await this.send(statement, values)
    } catch (error) {
      throw toHoldfastError(error, 'read')
    }
  }

  /** One statement and its rows in text form. Errors are as the driver has them; `NotSent` when nothing reached the server. */
  async send(statement: Statement, values: readonly unknown[]): Promise<readonly Row[]> {
    const client = await this.#connect(this.#pool)
    return this.#sendOn(client, statement, values)
  }

  /** A heartbeat, on its separate connection. It is given up after `withinMs`, so that another can be sent before it is too late. */
  async sendApart(
    statement: Statement,
    values: readonly unknown[],
    { withinMs }: { readonly withinMs: number },
  ): Promise<readonly Row[]> {
    let client: PgPooledClientLike | undefined
    let isLate = false
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        isLate = true
        reject(new NotSent(new Error(`connection timeout: no answer within ${Math.round(withinMs)} ms`)))
        void client?.end().catch(ignore)
      }, withinMs)
    })
    const answer = this.#connect(this.#apart ?? this.#pool).then((connected) => {
      client = connected
      if (!isLate) return this.#sendOn(connected, statement, values)
      connected.release()
      throw new NotSent(new Error('connection timeout'))
    })
    answer.catch(ignore)
    try {
      return await Promise.race([answer, late])
    } finally {
      clearTimeout(timer)
    }
  }

  /**
   * A client for several statements, each of which is answered within `answerMs`. It is given back at the end, or ended when the body
   * throws. Errors are as the body throws them; `NotSent` when there was no connection.
   */
  async withClient<Answer>(body: (client: PgClientLike) => Promise<Answer>, { answerMs = this.#answerMs } = {}): Promise<Answer> {
    this.refuseClosed()
    const client = await this.#connect(this.#pool)
    let failure: Error | undefined
    client.on('error', ignore)
    try {
      return await body({ query: (query, values) => this.#watched(client, answerMs, () => client.query(query, values)) })
    } catch (error) {
      failure = error as Error
      throw error
    } finally {
      client.removeListener('error', ignore)
      client.release(failure)
    }
  }

  /** A separate connection for notifications; null where there is no way to open one. */
  async openApart(): Promise<PgOwnClientLike | null> {
    const Client =
      this.#driver?.Client ?? ((this.#pool as { Client?: PgDriver['Client'] }).Client as PgDriver['Client'] | undefined)
    if (Client === undefined || this.#isClosed) return null
    const client = new Client({ ...withPassword(this.#config), application_name: 'holdfast listen' })
    client.on('error', ignore)
    await client.connect()
    // No caller waits for a notification.
    client.unref?.()
    return client
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    clearInterval(this.#watchdog)
    const ending = [this.#apart?.end(), this.#isOwn ? this.#pool.end() : undefined]
    // With the server out of reach, closing does not wait for a connection that waits for an answer.
    await Promise.race([Promise.allSettled(ending), sleep(5_000)])
  }

  async #connect(pool: PgPoolLike): Promise<PgPooledClientLike> {
    try {
      return await pool.connect()
    } catch (error) {
      throw new NotSent(error)
    }
  }

  async #sendOn(client: PgPooledClientLike, { text, name }: Statement, values: readonly unknown[]): Promise<readonly Row[]> {
    let failure: Error | undefined
    client.on('error', ignore)
    try {
      return await this.#watched(client, this.#answerMs, async () => {
        const query = { text, values, rowMode: 'array', types: rawTypes } as const
        if (!this.#isPreparing) return (await client.query(query)).rows as Row[]
        try {
          return (await client.query({ ...query, name })).rows as Row[]
        } catch (error) {
          if (!isStatementUnknown(error)) throw error
          this.#isPreparing = false
          return (await client.query(query)).rows as Row[]
        }
      })
    } catch (error) {
      if (isConnectionLost(error) || isReadOnly(error)) failure = error as Error
      if (isReadOnly(error)) this.#renewPool()
      throw error
    } finally {
      client.removeListener('error', ignore)
      client.release(failure)
    }
  }

  async #watched<Answer>(client: PgPooledClientLike, answerMs: number, send: () => Promise<Answer>): Promise<Answer> {
    const sent = { client, until: performance.now() + answerMs }
    this.#sent.add(sent)
    try {
      return await send()
    } finally {
      this.#sent.delete(sent)
    }
  }

  /** A server or a network that has gone silent: connections whose answer is long overdue are ended, which fails their statements. */
  #endSilent(): void {
    const now = performance.now()
    for (const { client, until } of this.#sent) {
      if (now > until) void client.end().catch(ignore)
    }
  }

  /** The server is no longer the primary: all connections to it are ended, and its name is looked up again. */
  #renewPool(): void {
    if (!this.#isOwn || this.#driver === null || this.#isClosed) return
    const [pool, apart] = [this.#pool, this.#apart]
    this.#pool = openPool(this.#driver, this.#config)
    this.#apart = openApart(this.#driver, this.#config)
    void pool.end().catch(ignore)
    void apart?.end().catch(ignore)
  }
}

/** Names a statement after its text, so that two stores over one pool do not collide. */
export function prepareStatement(text: string): Statement {
  return { text, name: `hf_${createHash('sha256').update(text).digest('hex').slice(0, 16)}` }
}

const clientSettings = {
  application_name: 'holdfast',
  connectionTimeoutMillis: connectMs,
  idleTimeoutMillis: 30_000,
  keepAlive: true,
  keepAliveInitialDelayMillis: 10_000,
  // An idle connection does not keep the process alive; one in use does, and so does a worker.
  allowExitOnIdle: true,
}

/** Sent with the login. A pooler may not take them. */
const sessionSettings = {
  statement_timeout: statementMs,
  lock_timeout: 10_000,
  idle_in_transaction_session_timeout: 10_000,
}

/** The functions need READ COMMITTED, whatever the database or the user has as default. The URL's own options are kept. */
function withReadCommitted(url: string): object {
  const parsed = new URL(url)
  const given = parsed.searchParams.get('options') ?? process.env['PGOPTIONS'] ?? ''
  parsed.searchParams.delete('options')
  return { connectionString: parsed.href, options: `${given} -c default_transaction_isolation=read\\ committed`.trim() }
}

/** Values stay text: the caller knows what they are. */
const rawTypes = { getTypeParser: () => (value: string) => value }

function openPool(driver: PgDriver, config: object): PgPoolLike {
  const pool = new driver.Pool(config)
  // A connection that dies is replaced at its next use; without a listener it would end the process.
  pool.on?.('error', ignore)
  pool.on?.('connect', (client: PgPooledClientLike) => client.on('error', ignore))
  return pool
}

function openApart(driver: Pick<PgDriver, 'Pool'>, config: object): PgPoolLike {
  return openPool(driver as PgDriver, {
    ...withPassword(config),
    ...{ min: 1, max: 1, application_name: 'holdfast heartbeat', allowExitOnIdle: true },
    connectionTimeoutMillis: heartbeatConnectMs,
  })
}

/** How the user's pool connects, for a connection beside it; null if it does not say. */
function copyOptions(pool: PgPoolLike): object | null {
  const { options } = pool
  return options === undefined || typeof pool.constructor !== 'function' ? null : withPassword(options)
}

/** The driver keeps the password out of sight of copies. */
function withPassword(config: object): object {
  return 'password' in config ? { ...config, password: (config as { password: unknown }).password } : { ...config }
}

function ignore(): void {}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms).unref())
}

export function invalidUrl(message: string): HoldfastError {
  return new HoldfastError('invalid_url', message)
}
