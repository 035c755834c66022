import { codeOf, HoldfastError } from '../../model/errors.ts'

/** What was going on when the server or the connection failed. */
export type Doing = 'open' | 'read' | 'write'

/** The failure came before anything was sent. */
export class NotSent extends Error {
  constructor(cause: unknown) {
    super(`no connection: ${(cause as Error)?.message}`, { cause })
  }
}

/** An error of the server, the driver or the network as one of ours; anything else as it is. Only when surely nothing was written. */
export function toHoldfastError(error: unknown, doing: Doing): unknown {
  if (error instanceof NotSent) return toHoldfastError(error.cause, doing)
  if (codeOf(error) !== undefined) return error
  const code = serverCodeOf(error)
  const because = `(${[code, (error as Error)?.message].filter(Boolean).join(': ')})`
  const nothing = doing === 'write' ? '; nothing was written' : ''
  const options = { cause: error, details: { serverCode: code } }
  const retryable = { ...options, retryable: true }

  if (code === '53100' || code === 'ENOSPC') {
    const message = `The Postgres server has no space left${nothing}. Free space there and try again. ${because}`
    return new HoldfastError('storage_full', message, retryable)
  }
  if (code === '25006') {
    const message = `The Postgres server is read-only${nothing}: a standby, or a primary that was demoted. Connect to the primary. ${because}`
    return new HoldfastError('store_unavailable', message, retryable)
  }
  if (code === '53300' || code === '53400') {
    const message = `The Postgres server takes no more connections${nothing}. Raise max_connections, or open with a smaller pool. ${because}`
    return new HoldfastError('store_unavailable', message, retryable)
  }
  if (busyCodes.has(code)) {
    const message = `The Postgres server was too busy with others${nothing}. Try again; look for a session that is idle in a transaction. ${because}`
    return new HoldfastError('store_unavailable', message, retryable)
  }
  if (isConnectionLost(error)) {
    const message = `The Postgres server cannot be reached${nothing}. Check that it runs and that the URL is right; then try again. ${because}`
    return new HoldfastError('store_unavailable', message, retryable)
  }
  if (code.startsWith('28') || code === '3D000') {
    const message = `The Postgres server refused the login. Check user, password and database in the URL. ${because}`
    return new HoldfastError('store_unavailable', message, options)
  }
  if (code === '42501') {
    const message = `The user of the Postgres store lacks a right${nothing}. Grant it, or set the tables up with another user. ${because}`
    return new HoldfastError('store_unavailable', message, options)
  }
  if (code === '22021' || code === '22P05') {
    const message = `A text has a NUL character, which Postgres can't hold${nothing}. Leave it out. ${because}`
    return new HoldfastError('invalid_input', message, options)
  }
  if (code === tooIsolated) {
    const message = `A session of the Postgres store has another isolation level than read committed${nothing}. Set default_transaction_isolation = 'read committed' for the user of the store. ${because}`
    return new HoldfastError('store_unavailable', message, options)
  }
  if (missingCodes.has(code) && /\bfn_[0-9a-f]{8}_|\bused_at\b/.test((error as Error).message)) {
    const message = `The tables were upgraded by a later version of Holdfast, and this process can no longer use them${nothing}. Start it with the later version. ${because}`
    return new HoldfastError('schema_too_new', message, options)
  }
  if (code === '54000') {
    return new HoldfastError(
      'value_too_large',
      `A value is larger than the Postgres server can take${nothing}. ${because}`,
      options,
    )
  }
  if (code === 'XX001' || code === 'XX002') {
    return new HoldfastError(
      'corrupt_record',
      `A table of the Postgres store is damaged. Restore it from a backup. ${because}`,
      options,
    )
  }
  if (doing === 'open' && /^[0-9A-Z]{5}$/.test(code)) {
    const message = `The Postgres server refuses to open the store. Look for an option that it does not know, or for tables of another program in the schema. ${because}`
    return new HoldfastError('store_unavailable', message, options)
  }
  return error
}

/** The error of a statement of the user's own: an outage is one of ours and can be waited for, anything else is for the user as it is. */
export function toOutage(error: unknown): unknown {
  const code = serverCodeOf(error)
  // With NOWAIT the same code is what the user asked for; then it comes from elsewhere in the server.
  const isLockTimeout = code === '55P03' && (error as { routine?: unknown }).routine === 'ProcessInterrupts'
  const isOutage = isConnectionLost(error) || isWorthRepeating(error) || isLockTimeout || outageCodes.has(code)
  return isOutage ? toHoldfastError(error, 'write') : error
}

/** Nothing is known of what was sent: the connection went away before the answer came. */
export function isConnectionLost(error: unknown): boolean {
  const code = serverCodeOf(error)
  if (code.startsWith('08') || shutdownCodes.has(code)) return true
  if (/^E[A-Z]+$/.test(code)) return true
  return error instanceof Error && code === '' && /connection|timeout|closed|terminated|socket/i.test(error.message)
}

/** Two writers got in each other's way; the same statement succeeds when it is sent again. */
export function isWorthRepeating(error: unknown): boolean {
  const code = serverCodeOf(error)
  return code === '40P01' || code === '40001' || code === leaseTaken
}

/** A lease was lost to another worker while the writer waited for a lock: sql.ts. */
export const leaseTaken = 'HF004'

/** Under this isolation level the functions can't work: sql.ts. */
export const tooIsolated = 'HF005'

/** A function or a column that does not exist. */
const missingCodes = new Set(['42883', '42703'])

/** A pooler has handed us a session that does not know our prepared statement, or knows another of that name. */
export function isStatementUnknown(error: unknown): boolean {
  const code = serverCodeOf(error)
  return code === '26000' || code === '42P05'
}

export function isReadOnly(error: unknown): boolean {
  return serverCodeOf(error) === '25006'
}

/** A pooler that takes no settings with the login. */
export function refusesSettings(error: unknown): boolean {
  return serverCodeOf(error) === '08P01' && /startup parameter/i.test((error as Error).message)
}

export function closedError(): HoldfastError {
  return new HoldfastError('closed', 'The store is closed; nothing was read or written. Open it again to continue.')
}

export function unknownOutcome(error: unknown): HoldfastError {
  const message =
    'The connection to the Postgres server was lost while it wrote, and it has not come back: whether the write is there is not known. Read before trying again.'
  return new HoldfastError('outcome_unknown', message, {
    cause: error,
    retryable: true,
    details: { serverCode: serverCodeOf(error) },
  })
}

/** SQLSTATE, or the code of the operating system; '' where there is neither. */
export function serverCodeOf(error: unknown): string {
  if (!(error instanceof Error) || error instanceof HoldfastError) return ''
  const code = (error as { code?: unknown }).code
  return typeof code === 'string' ? code : ''
}

/** Deadlock, serialization, lock and statement time-outs, out of memory or of locks. */
const busyCodes = new Set(['40P01', '40001', '55P03', '57014', '25P03', '25P04', '53000', '53200', 'HF003', leaseTaken])

/** Read-only, no space, no memory. */
const outageCodes = new Set(['25006', '53100', '53200', '53000', '25P03'])

/** The session was ended by another, or the server is starting or shutting down. */
const shutdownCodes = new Set(['57P01', '57P02', '57P03', '57P05'])
