import { pairKey } from '../model/ids.ts'
import type { KeyedRecord, RecordChange } from '../model/record.ts'
import type { RecordQuery } from '../store/store.ts'

/**
 * Vectors of facts as records: one for each batch that was embedded together, numbered per subject. They are only added to, so that who has read some
 * needs only the later ones. Of a fact with several the last one counts.
 */
const vectorCollection = 'fact_vectors'

export interface VectorBatch {
  readonly model: string
  readonly ids: readonly string[]
  /** One after the other, each of the same length. */
  readonly values: Float32Array
}

export function batchQuery(
  owner: string,
  subject: string,
  { after, limit }: { readonly after: number; readonly limit: number },
): RecordQuery {
  return { owner, collection: vectorCollection, where: { parent: subject }, afterKey: batchKey(subject, after), limit }
}

export function lastBatchQuery(owner: string, subject: string): RecordQuery {
  return { owner, collection: vectorCollection, where: { parent: subject }, isDescending: true, limit: 1 }
}

/** Refused where another process has written a batch of this number. */
export function putBatch(subject: string, number: number, batch: VectorBatch): RecordChange {
  const place = { parent: subject, threadId: null, fields: [], expires: 'never' } as const
  const key = batchKey(subject, number)
  return { kind: 'put', collection: vectorCollection, key, ...place, payload: packBatch(batch), ifVersion: 0 }
}

function batchKey(subject: string, number: number): string {
  return pairKey(subject, String(number).padStart(12, '0'))
}

export function numberOf({ key }: KeyedRecord): number {
  return Number(key.slice(-12))
}

/** Length of the head, head, values, all little-endian. */
function packBatch({ model, ids, values }: VectorBatch): Uint8Array {
  const head = Buffer.from(JSON.stringify({ model, ids }))
  const packed = Buffer.alloc(4 + head.length + values.length * 4)
  packed.writeUInt32LE(head.length, 0)
  head.copy(packed, 4)
  for (const [index, value] of values.entries()) packed.writeFloatLE(value, 4 + head.length + index * 4)
  return packed
}

export function readBatch({ payload }: KeyedRecord): VectorBatch {
  const packed = Buffer.from(payload as Uint8Array)
  const start = 4 + packed.readUInt32LE(0)
  const { model, ids } = JSON.parse(packed.toString('utf8', 4, start)) as Pick<VectorBatch, 'model' | 'ids'>
  const values = new Float32Array((packed.length - start) / 4)
  for (let index = 0; index < values.length; index++) values[index] = packed.readFloatLE(start + index * 4)
  return { model, ids, values }
}
