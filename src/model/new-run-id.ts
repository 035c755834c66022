import { randomUUID } from 'node:crypto'

/**
 * The id of a run that was given none: a UUID that begins with the time (version 7). Runs that are started together then stand together
 * in a store's indexes, and a batch of them writes a few pages instead of one for each run.
 */
export function newRunId(at = Date.now()): string {
  const time = at.toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`
}
