import { HoldfastError } from '../../model/errors.ts'

// biome-ignore lint/suspicious/noExplicitAny: what an event brings depends on the event
type Listener = (...args: any[]) => void

/** As much of `pg` as this store uses. Its own types stay out of ours: it is an optional peer. */
export interface PgClientLike {
  query(query: string | PgQuery, values?: readonly unknown[]): Promise<PgResult>
}

interface PgConnectionLike extends PgClientLike {
  on(event: string, listener: Listener): unknown
  removeListener(event: string, listener: Listener): unknown
  end(): Promise<void>
}

export interface PgPooledClientLike extends PgConnectionLike {
  /** Gives the connection back; with an error or true it is ended instead. */
  release(error?: Error | boolean): void
}

export interface PgOwnClientLike extends PgConnectionLike {
  connect(): Promise<unknown>
  /** Lets the process end although it is connected. */
  unref?(): void
}

export interface PgPoolLike {
  connect(): Promise<PgPooledClientLike>
  end(): Promise<void>
  on?(event: string, listener: Listener): unknown
  readonly options?: object
}

export interface PgQuery {
  readonly text: string
  readonly values?: readonly unknown[]
  readonly name?: string
  readonly rowMode?: 'array'
  readonly queryMode?: 'extended'
  readonly types?: { getTypeParser(oid: number, format?: string): (value: string) => unknown }
}

export interface PgResult {
  readonly rows: readonly unknown[]
}

export interface PgDriver {
  readonly Pool: new (config: object) => PgPoolLike
  readonly Client: new (config: object) => PgOwnClientLike
}

/** Loads `pg`, which is installed only by those who need it. */
export async function loadDriver(): Promise<PgDriver> {
  try {
    const { default: driver } = (await import('pg')) as unknown as { default: PgDriver }
    return driver
  } catch (error) {
    if ((error as { code?: unknown }).code !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new HoldfastError(
      'missing_dependency',
      'A Postgres store needs the driver "pg", which is not installed. Run: npm install pg',
      {
        cause: error,
        details: { dependency: 'pg' },
      },
    )
  }
}
