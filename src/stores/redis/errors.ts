import { codeOf, HoldfastError } from '../../model/errors.ts'
import { schemaVersion } from './keys.ts'

/**
 * What an error of the server or of the way to it means for a call:
 *
 *   unloaded  the server does not know the script: send its text
 *   forgotten the server does not know the slot of the write: it was not carried out now, and whether it was before can't be told
 *   passing   surely not carried out, and the same call can succeed soon: wait and send again
 *   final     surely not carried out, and waiting does not help
 *   lost      no answer came: it may have been carried out or not
 */
export type Trouble =
  | { readonly kind: 'unloaded' }
  | { readonly kind: 'forgotten' }
  | { readonly kind: 'passing'; readonly error: HoldfastError; readonly isElsewhere?: boolean }
  | { readonly kind: 'final'; readonly error: HoldfastError }
  | { readonly kind: 'lost'; readonly cause: unknown }

export function troubleOf(cause: unknown, namespace: string): Trouble {
  if (codeOf(cause) !== undefined) return { kind: 'final', error: cause as HoldfastError }
  if (!isReply(cause)) return { kind: 'lost', cause }
  const message = (cause as Error).message
  const word = message.split(' ', 1)[0] ?? ''
  const options = { cause, details: { serverCode: word }, retryable: true }
  const because = `(${shortened(message)})`
  switch (word) {
    case 'NOSCRIPT':
      return { kind: 'unloaded' }
    case 'HOLDFASTFORGOTTEN':
      return { kind: 'forgotten' }
    case 'HOLDFAST':
      return { kind: 'final', error: goneError(namespace, message.slice(9), cause) }
    case 'LOADING':
    case 'BUSY':
    case 'TRYAGAIN':
    case 'CLUSTERDOWN':
    case 'MASTERDOWN':
      return {
        kind: 'passing',
        error: new HoldfastError(
          'store_unavailable',
          `Redis is not ready; nothing was done. Try again soon. ${because}`,
          options,
        ),
      }
    case 'READONLY':
    case 'MOVED':
    case 'ASK': {
      const text = `This Redis server takes no writes for the namespace: it is a replica, or another node of a cluster has it. Name the primary, or pass a client for the whole cluster. ${because}`
      return { kind: 'passing', error: new HoldfastError('store_unavailable', text, options), isElsewhere: true }
    }
    case 'NOREPLICAS': {
      const text = `Redis asks for more replicas than are connected (min-replicas-to-write); nothing was written. ${because}`
      return { kind: 'final', error: new HoldfastError('store_unavailable', text, options) }
    }
    case 'OOM': {
      const text = `Redis has reached its maxmemory; nothing was written; everything before is kept and can be read. Raise maxmemory or delete threads. ${because}`
      return { kind: 'final', error: new HoldfastError('storage_full', text, options) }
    }
    case 'MISCONF':
      return { kind: 'final', error: diskError(message, options) }
    case 'NOAUTH':
    case 'WRONGPASS':
    case 'NOPERM': {
      const text = `Redis refuses this user. Check user and password, and that it may run EVALSHA, EVAL, PUBLISH and SUBSCRIBE on keys that begin with "holdfast:{${namespace}}:". ${because}`
      return { kind: 'final', error: new HoldfastError('store_unavailable', text, { ...options, retryable: false }) }
    }
    case 'WRONGTYPE': {
      const text = `A key of the namespace "${namespace}" was overwritten by something else. Restore it from a backup, or use another namespace. ${because}`
      return { kind: 'final', error: new HoldfastError('corrupt_record', text, { ...options, retryable: false }) }
    }
    default: {
      // A script that fails half-way is not rolled back.
      const text = `Redis failed while it carried out a script; whether it was written is not known. Read before trying again. ${because}`
      return { kind: 'final', error: new HoldfastError('outcome_unknown', text, options) }
    }
  }
}

/** Refuses every call after close(). */
export function closedError(): HoldfastError {
  return new HoldfastError('closed', 'The store is closed; nothing was read or written. Open it again to continue.')
}

export function unreachableError(cause: unknown): HoldfastError {
  return new HoldfastError(
    'store_unavailable',
    `Redis cannot be reached; nothing was written. Check that it is running and that the address is correct. (${shortened(messageOf(cause))})`,
    { cause, retryable: true },
  )
}

/** The server answered a new connection with an error. */
export function notLetInError(cause: unknown): HoldfastError {
  return new HoldfastError(
    'store_unavailable',
    `Redis refuses the connection; nothing was written. Check the user, the password and the number of the database in the URL, and maxclients. (${shortened(messageOf(cause))})`,
    { cause, retryable: true },
  )
}

export function unknownError(cause: unknown): HoldfastError {
  return new HoldfastError(
    'outcome_unknown',
    `The connection to Redis was lost after a write was sent and did not come back in time; whether it was written is not known. Read before trying again. (${shortened(messageOf(cause))})`,
    { cause, retryable: true },
  )
}

/** A batch that was too large for one call was written in part. */
export function partlyWrittenError(cause: unknown): HoldfastError {
  return new HoldfastError(
    'outcome_unknown',
    `A very large batch went to Redis in parts, and not all of them were written. Read before trying again. (${shortened(messageOf(cause))})`,
    { cause, retryable: true },
  )
}

/** The namespace no longer exists, or it is not the one that was opened. `found` is its id, or "none". */
export function goneError(namespace: string, found: string, cause?: unknown): HoldfastError {
  if (Number.parseInt(found, 10) > schemaVersion) return tooNewError(namespace, found)
  const what = found === 'none' ? 'is gone' : 'was replaced by another'
  return new HoldfastError(
    'store_unavailable',
    `The data of the namespace "${namespace}" ${what} (FLUSHALL, eviction, a server without its append-only file?); nothing was read or written. Restore it from a backup. To begin with an empty store, remove what is left of the namespace and open it again.`,
    { details: { namespace, found }, ...(cause !== undefined && { cause }) },
  )
}

/** A later version of Holdfast has migrated the namespace. `found` is its id. */
export function tooNewError(namespace: string, found: string): HoldfastError {
  const version = Number.parseInt(found, 10)
  return new HoldfastError(
    'schema_too_new',
    `The namespace "${namespace}" was written by a later version of Holdfast (data version ${version}, this one knows ${schemaVersion}). Upgrade Holdfast here.`,
    { details: { found: version, known: schemaVersion } },
  )
}

function diskError(message: string, options: ConstructorParameters<typeof HoldfastError>[2]): HoldfastError {
  const because = `(${shortened(message)})`
  if (/no space|disk quota|ENOSPC/i.test(message)) {
    const text = `The disk of the Redis server is full; nothing was written; everything before is kept and can be read. ${because}`
    return new HoldfastError('storage_full', text, options)
  }
  const text = `Redis cannot write to its disk and takes no writes; nothing was written. Look into its log. ${because}`
  return new HoldfastError('store_unavailable', text, options)
}

/** Whether the server answered with an error, by the class names of both client libraries: a program may have several copies of them. */
function isReply(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if (error.name === 'ReplyError') return true
  for (
    let type = Object.getPrototypeOf(error) as object | null;
    type !== null;
    type = Object.getPrototypeOf(type) as object | null
  ) {
    if (type.constructor.name === 'ErrorReply' || type.constructor.name === 'ReplyError') return true
  }
  return false
}

function messageOf(error: unknown): string {
  if (error instanceof AggregateError) return messageOf(error.errors[0])
  return error instanceof Error ? error.message || error.name : String(error)
}

function shortened(message: string): string {
  return message.length > 300 ? `${message.slice(0, 300)}…` : message
}
