import { codeOf, type HoldfastError } from '../model/errors.ts'
import type { LogRecord } from '../model/event.ts'
import type { LogStretch } from './store.ts'

/** What a read of a log brings, or the damage that it met. */
export function stretchOf(read: () => readonly LogRecord[]): LogStretch {
  try {
    return { records: read() }
  } catch (error) {
    if (codeOf(error) !== 'corrupt_record') throw error
    return { damage: error as HoldfastError }
  }
}
