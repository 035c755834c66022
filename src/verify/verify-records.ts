import type { Codec } from '../model/codec.ts'
import { codeOf } from '../model/errors.ts'
import type { KeyedRecord } from '../model/record.ts'
import type { RecordPage, Store } from '../store/store.ts'
import { type Damage, damageTo } from './damage.ts'

export interface RecordFindings {
  readonly records: number
  readonly bytes: number
  readonly damaged: readonly Damage[]
}

/** Records of all owners. Past one that can't be read there is no way: the rest is not looked at, and that is said. */
export async function verifyRecords(store: Store, codec: Codec, signal: AbortSignal | undefined): Promise<RecordFindings> {
  const damaged: Damage[] = []
  let [records, bytes, limit] = [0, 0, 500]
  for (let cursor: string | undefined; ; ) {
    signal?.throwIfAborted()
    const page = await readPage(store, { limit, ...(cursor !== undefined && { cursor }) })
    if (page instanceof Error && limit > 1) {
      limit = 1
      continue
    }
    if (page instanceof Error) {
      const message = `${page.message} Values that come after it were not looked at.`
      return { records, bytes, damaged: [...damaged, damageTo({ owner: '', threadId: '' }, 'memory', message)] }
    }
    records += page.items.length
    for (const record of page.items) {
      bytes += Buffer.byteLength(record.payload)
      damaged.push(...unreadable(record, codec))
    }
    cursor = page.cursor
    if (cursor === undefined) return { records, bytes, damaged }
  }
}

async function readPage(store: Store, query: { readonly limit: number; readonly cursor?: string }): Promise<RecordPage | Error> {
  try {
    return await store.scanRecords(query)
  } catch (error) {
    if (codeOf(error) !== 'corrupt_record') throw error
    return error as Error
  }
}

function unreadable({ owner, threadId, collection, key, payload }: KeyedRecord, codec: Codec): Damage[] {
  try {
    codec.decode(payload)
    return []
  } catch (error) {
    const message = `The value of ${JSON.stringify(key)} in ${collection} can't be read: ${(error as Error).message}`
    return [damageTo({ owner, threadId: threadId ?? '' }, 'memory', message)]
  }
}
