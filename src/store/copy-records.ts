import { createHash } from 'node:crypto'
import { HoldfastError } from '../model/errors.ts'
import { hasExpired, type KeyedRecord, keyedRecordChecksum } from '../model/record.ts'
import type { Change } from './change.ts'
import { compareRecords as compareKeys } from './record-query.ts'
import type { Store } from './store.ts'

const pageSize = 200

/** Writes the records of all owners to another store as they are, collections that are left out aside. Those that are there already stay as they are. */
export async function copyRecords(source: Store, target: Store, isLeftOut: (collection: string) => boolean): Promise<void> {
  for await (const all of pages(source)) {
    const records = all.filter(({ collection }) => !isLeftOut(collection))
    if (records.length === 0) continue
    const answers = await target.commit(records.map(restoring))
    const refused = answers.find(({ ok }) => !ok)
    if (refused !== undefined) throw new HoldfastError('conflict', 'A record could not be copied. Copy into an empty store.')
  }
}

function restoring({ owner, ...record }: KeyedRecord): Change {
  const records = [{ kind: 'restore', record }] as const
  return {
    owner,
    threadId: record.threadId ?? '',
    runId: null,
    guard: { kind: 'none' },
    events: [],
    records,
    isCheckpoint: false,
  }
}

/** Compares the records of two stores, those aside that expire meanwhile. Throws `conflict` where they are not the same. */
export async function compareRecords(
  source: Store,
  target: Store,
  sha256OfThreads: string,
  isLeftOut: (collection: string) => boolean,
): Promise<{ readonly memories: number; readonly sha256: string }> {
  const [here, there] = await Promise.all([readAll(source, isLeftOut), readAll(target, isLeftOut)])
  const now = Math.max(await source.now(), await target.now())
  const kept = [...here.values()].filter(({ record }) => !hasExpired(record, now)).sort((a, b) => compareKeys(a.record, b.record))
  const hash = createHash('sha256').update(sha256OfThreads)
  for (const { record, checksum } of kept) {
    const { owner, collection, key } = record
    if (there.get(nameOf(record))?.checksum !== checksum) {
      throw new HoldfastError(
        'conflict',
        `Record ${JSON.stringify(key)} of ${collection} is not the same in both stores: it was changed while it was copied, or the target had another one. ` +
          'Close every process that uses either store, and copy into an empty one.',
        { details: { owner, collection, key } },
      )
    }
    hash.update(`${nameOf(record)}${checksum}`)
  }
  return { memories: kept.length, sha256: kept.length === 0 ? sha256OfThreads : hash.digest('hex') }
}

interface Seen {
  readonly record: Pick<KeyedRecord, 'owner' | 'collection' | 'key' | 'expiresAt'>
  readonly checksum: number
}

async function readAll(store: Store, isLeftOut: (collection: string) => boolean): Promise<ReadonlyMap<string, Seen>> {
  const seen = new Map<string, Seen>()
  for await (const records of pages(store)) {
    for (const record of records) {
      const { owner, collection, key, expiresAt } = record
      if (isLeftOut(collection)) continue
      seen.set(nameOf(record), { record: { owner, collection, key, expiresAt }, checksum: keyedRecordChecksum(record) })
    }
  }
  return seen
}

function nameOf({ owner, collection, key }: Seen['record']): string {
  return JSON.stringify([owner, collection, key])
}

async function* pages(store: Store): AsyncGenerator<readonly KeyedRecord[]> {
  let cursor: string | undefined
  do {
    const page = await store.scanRecords({ limit: pageSize, ...(cursor !== undefined && { cursor }) })
    if (page.items.length > 0) yield page.items
    cursor = page.cursor
  } while (cursor !== undefined)
}
