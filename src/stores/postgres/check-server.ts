import { HoldfastError } from '../../model/errors.ts'
import { type Connections, prepareStatement } from './connections.ts'

/** The server that a store was pointed at, as its own settings describe it. */
const settingsSql = `
  SELECT current_setting('server_version_num'), current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
    current_setting('server_encoding'), current_setting('transaction_read_only'), pg_is_in_recovery()::text,
    current_setting('transaction_isolation')`

/** Refuses a server that cannot keep what the store promises, naming the setting and what to do about it. */
export async function checkServer(connections: Connections, durability: 'full' | 'relaxed'): Promise<void> {
  const [row] = await connections.read(prepareStatement(settingsSql), [])
  const [version, fsync, fullPageWrites, synchronousCommit, encoding, readOnly, inRecovery, isolation] = row ?? []
  if (Number(version) < 140_000) {
    throw new HoldfastError(
      'store_unavailable',
      `The Postgres server has version ${Number(version) / 10_000}; 14 or later is needed.`,
      {
        details: { version },
      },
    )
  }
  if (inRecovery === 'true' || readOnly === 'on') {
    const message = `The Postgres server is ${inRecovery === 'true' ? 'a standby' : 'read-only'}. Connect to the primary.`
    throw new HoldfastError('store_unavailable', message, { retryable: true, details: { inRecovery, readOnly } })
  }
  if (encoding !== 'UTF8') {
    const message = `The database has the encoding ${encoding}; texts come back unchanged only with UTF8. Create one with ENCODING 'UTF8'.`
    throw new HoldfastError('store_unavailable', message, { details: { encoding } })
  }
  if (isolation !== 'read committed' && isolation !== 'read uncommitted') throw isolationError(isolation ?? '')
  refuseWeak('fsync', fsync, 'what is acknowledged would not survive the machine, and the database might be damaged')
  refuseWeak('full_page_writes', fullPageWrites, 'a power loss could damage the database')
  if (durability === 'full')
    refuseWeak(
      'synchronous_commit',
      synchronousCommit,
      "what is acknowledged could be lost with the machine; or open with durability: 'relaxed'",
    )
}

/** On connections of the store's own it is set at the login: this one is a user's pool, or goes through a pooler. */
function isolationError(isolation: string): HoldfastError {
  return new HoldfastError(
    'store_unavailable',
    `The sessions of the Postgres store have default_transaction_isolation = ${isolation}; it needs read committed. Set that for the user of the store (ALTER ROLE … SET default_transaction_isolation = 'read committed'), or create the pool with { options: '-c default_transaction_isolation=read\\ committed' }.`,
    { details: { setting: 'default_transaction_isolation', value: isolation } },
  )
}

function refuseWeak(setting: string, value: string | null | undefined, because: string): void {
  if (value !== 'off') return
  throw new HoldfastError(
    'durability_too_weak',
    `The Postgres server has ${setting} = off: ${because}. Set ${setting} = on for the server, the database and the user of the store.`,
    { details: { setting, value } },
  )
}
