import { HoldfastError } from '../../model/errors.ts'

/** What was going on when the engine failed: decides whether something may have been written. */
export type Doing = 'open' | 'read' | 'write' | 'commit'

/** Another connection holds what this one needs; trying again soon can help. */
export function isBusy(error: unknown): boolean {
  const code = engineCodeOf(error)
  return code.startsWith('SQLITE_BUSY') || code.startsWith('SQLITE_LOCKED') || code === 'SQLITE_PROTOCOL'
}

/** An error of the engine or the file system as one of ours; anything else as it is. */
export function toHoldfastError(error: unknown, { doing, file }: { readonly doing: Doing; readonly file: string }): unknown {
  const code = engineCodeOf(error)
  if (code === '') return error
  const options = { cause: error, details: { file, engineCode: code } }
  const because = `(${code}: ${(error as Error).message})`

  if (isBusy(error)) {
    const message = `Another process kept ${file} locked; nothing was written. Try again, and look for a process stopped inside a write transaction. ${because}`
    return new HoldfastError('store_unavailable', message, { ...options, retryable: true })
  }
  // A shared-memory file that cannot grow is a full disk, seen from another side.
  if (code === 'SQLITE_FULL' || code === 'SQLITE_IOERR_SHMSIZE' || code === 'ENOSPC' || code === 'EDQUOT') {
    const message = `No space is left for ${file}; nothing of this write was kept, all before it was. Free space and try again. ${because}`
    return new HoldfastError('storage_full', message, { ...options, retryable: true })
  }
  if (code.startsWith('SQLITE_CORRUPT') || code === 'SQLITE_NOTADB') {
    const message = `${file} is damaged or not a SQLite database. Restore it from a backup, or name another file. ${because}`
    return new HoldfastError('corrupt_record', message, options)
  }
  if (code.startsWith('SQLITE_IOERR')) return ioError({ doing, file, because, options })
  if (code.startsWith('SQLITE_READONLY') || code === 'SQLITE_PERM' || code === 'SQLITE_AUTH' || code === 'EROFS') {
    const message = `${file} or its folder cannot be written. Give this process write access to both, or name another file. ${because}`
    return new HoldfastError('store_unavailable', message, options)
  }
  if (code.startsWith('SQLITE_CANTOPEN') || /^E[A-Z]+$/.test(code)) {
    const message = `${file} cannot be opened. Check that its folder exists and that this process may write there. ${because}`
    return new HoldfastError('store_unavailable', message, options)
  }
  if (code === 'SQLITE_ERROR' && /no such table: (main\.)?holdfast_/.test((error as Error).message)) {
    const message = `${file} has no tables of Holdfast yet, or they were dropped. Call migrate() before anything else. ${because}`
    return new HoldfastError('store_unavailable', message, options)
  }
  if (code === 'SQLITE_TOOBIG') {
    return new HoldfastError(
      'value_too_large',
      `A value is larger than SQLite can keep; nothing of this write was kept. ${because}`,
      options,
    )
  }
  if (code === 'SQLITE_NOMEM') {
    return new HoldfastError('store_unavailable', `SQLite ran out of memory; nothing was written. ${because}`, {
      ...options,
      retryable: true,
    })
  }
  return error
}

/** Refuses every call after close(). */
export function closedError(): HoldfastError {
  return new HoldfastError('closed', 'The store is closed; nothing was read or written. Open it again to continue.')
}

/** The file under an open database is no longer the one that was opened. */
export function fileGoneError(file: string): HoldfastError {
  const message = `${file} was removed or replaced while it was open; nothing was written, because it would be lost. Put the file back, or open the store again.`
  return new HoldfastError('store_unavailable', message, { details: { file } })
}

interface IoFailure {
  readonly doing: Doing
  readonly file: string
  readonly because: string
  readonly options: { readonly cause: unknown; readonly details: Readonly<Record<string, unknown>> }
}

function ioError({ doing, file, because, options }: IoFailure): HoldfastError {
  if (doing === 'commit') {
    // The commit mark may have reached the disk before its flush failed: recovery after a crash could find it.
    const message = `The disk under ${file} failed at the moment of commit; whether the write will be there is not known. Read before trying again. ${because}`
    return new HoldfastError('outcome_unknown', message, { ...options, retryable: true })
  }
  const message = `The disk under ${file} failed; nothing was written. Check the disk and the file system. ${because}`
  return new HoldfastError('store_unavailable', message, { ...options, retryable: true })
}

/** The name of the engine's result code, of the file system's, or nothing. */
function engineCodeOf(error: unknown): string {
  if (!(error instanceof Error) || error instanceof HoldfastError) return ''
  const { code, errcode, message } = error as { code?: unknown; errcode?: unknown; message: string }
  if (code === 'ERR_SQLITE_ERROR') return nameOf(typeof errcode === 'number' ? errcode : codeOfText(message))
  return typeof code === 'string' && (code.startsWith('SQLITE_') || /^E[A-Z]+$/.test(code)) ? code : ''
}

/** node:sqlite gives numbers, better-sqlite3 names. Of an extended code the lower byte is the primary one. */
function nameOf(code: number): string {
  return code === shmSizeCode ? 'SQLITE_IOERR_SHMSIZE' : (primaryCodes[code % 256]?.name ?? `SQLITE_${code}`)
}

/** Some errors of Deno's node:sqlite come without a number. */
function codeOfText(message: string): number {
  const found = Object.entries(primaryCodes).find(([, { text }]) => text !== '' && message.startsWith(text))
  return found === undefined ? 1 : Number(found[0])
}

const shmSizeCode = 4874

const primaryCodes: Readonly<Record<number, { readonly name: string; readonly text: string }>> = {
  1: { name: 'SQLITE_ERROR', text: '' },
  3: { name: 'SQLITE_PERM', text: 'access permission denied' },
  5: { name: 'SQLITE_BUSY', text: 'database is locked' },
  6: { name: 'SQLITE_LOCKED', text: 'database table is locked' },
  7: { name: 'SQLITE_NOMEM', text: 'out of memory' },
  8: { name: 'SQLITE_READONLY', text: 'attempt to write a readonly database' },
  10: { name: 'SQLITE_IOERR', text: 'disk I/O error' },
  11: { name: 'SQLITE_CORRUPT', text: 'database disk image is malformed' },
  13: { name: 'SQLITE_FULL', text: 'database or disk is full' },
  14: { name: 'SQLITE_CANTOPEN', text: 'unable to open database file' },
  15: { name: 'SQLITE_PROTOCOL', text: 'locking protocol' },
  18: { name: 'SQLITE_TOOBIG', text: 'string or blob too big' },
  23: { name: 'SQLITE_AUTH', text: 'authorization denied' },
  26: { name: 'SQLITE_NOTADB', text: 'file is not a database' },
}
