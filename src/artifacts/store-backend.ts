import { createHash } from 'node:crypto'
import type { Codec } from '../model/codec.ts'
import { codeOf, HoldfastError } from '../model/errors.ts'
import type { RecordChange } from '../model/record.ts'
import type { Change, Committed } from '../store/change.ts'
import type { Store } from '../store/store.ts'
import { type ArtifactBackend, type Blob, contentDamaged, type Received } from './backend.ts'

const collection = 'artifact_chunk'
const chunkBytes = 256 * 1024
/** Chunks of one write: a batch of steps waits no longer than for this. */
const chunksPerWrite = 4
/** The most that a store is made to hold. */
const mostBytesInStore = 64 * 1024 * 1024

export interface StoreBackendParts {
  readonly store: Store
  readonly codec: Codec
  readonly commit: (change: Change) => Promise<Committed>
}

/** Content as records of the store, in chunks that are written in order: where the last one is, all are. */
export class StoreBackend implements ArtifactBackend {
  readonly kind = 'store'
  readonly #parts: StoreBackendParts

  constructor(parts: StoreBackendParts) {
    this.#parts = parts
  }

  async receive(chunks: AsyncIterable<Uint8Array>): Promise<Received> {
    const received: Uint8Array[] = []
    let size = 0
    for await (const chunk of chunks) {
      size += chunk.byteLength
      if (size > mostBytesInStore) throw tooLarge()
      // The caller may use its buffer again.
      received.push(chunk.slice())
    }
    const content = Buffer.concat(received)
    const sha256 = createHash('sha256').update(content).digest('hex')
    return { sha256, size, keep: (blob) => this.#keep(blob, content), discard: async () => {} }
  }

  async #keep(blob: Blob, content: Uint8Array): Promise<void> {
    const { codec } = this.#parts
    const count = countOf(content.byteLength)
    for (let from = 0; from < count; from += chunksPerWrite) {
      const records: RecordChange[] = []
      for (let index = from; index < Math.min(from + chunksPerWrite, count); index++) {
        const chunk = new Uint8Array(content.subarray(index * chunkBytes, (index + 1) * chunkBytes))
        if (await this.#isKept(blob, index, chunk)) continue
        records.push({
          ...{ kind: 'put', collection, key: keyOf(blob, index), parent: null, threadId: null, fields: [], expires: 'never' },
          payload: codec.encode(chunk),
        })
      }
      if (records.length > 0) await this.#write(blob.owner, records)
    }
  }

  async #isKept(blob: Blob, index: number, chunk: Uint8Array): Promise<boolean> {
    try {
      const kept = await this.#chunk(blob, index)
      return kept !== undefined && Buffer.compare(kept, chunk) === 0
    } catch (error) {
      if (codeOf(error) !== 'corrupt_record') throw error
      return false
    }
  }

  async has(blob: Blob, size: number): Promise<boolean> {
    return size === 0 || (await this.#chunk(blob, countOf(size) - 1)) !== undefined
  }

  async *read(blob: Blob, size: number): AsyncIterable<Uint8Array> {
    for (let index = 0; index < countOf(size); index++) {
      const chunk = await this.#chunk(blob, index)
      if (chunk === undefined) throw contentDamaged(blob, `part ${index + 1} of ${countOf(size)} is missing in the store`)
      yield chunk
    }
  }

  /** The last one first: where the process dies in between, what is left is not taken for a whole. */
  async remove(blob: Blob): Promise<void> {
    const { store } = this.#parts
    const { owner } = blob
    for (;;) {
      const range = { afterKey: `${stemOf(blob)}:`, beforeKey: `${stemOf(blob)};`, isDescending: true }
      const found = await store.readRecords({ owner, collection, ...range, limit: chunksPerWrite })
      if (found.length === 0) return
      await this.#write(
        owner,
        found.map(({ key }) => ({ kind: 'delete', collection, key })),
      )
    }
  }

  async *list(owner: string): AsyncIterable<Blob> {
    for (let afterKey = ''; ; ) {
      const [found] = await this.#parts.store.readRecords({ owner, collection, ...(afterKey !== '' && { afterKey }), limit: 1 })
      if (found === undefined) return
      const stem = found.key.slice(0, found.key.lastIndexOf(':'))
      yield { owner, sha256: stem.slice(0, 64), generation: stem.slice(65) }
      afterKey = `${stem};`
    }
  }

  async removeReceived(): Promise<number> {
    return 0
  }

  async #chunk(blob: Blob, index: number): Promise<Uint8Array | undefined> {
    const { store, codec } = this.#parts
    const where = { keys: [keyOf(blob, index)] }
    const [record] = await store.readRecords({ owner: blob.owner, collection, where, limit: 1 })
    return record === undefined ? undefined : (codec.decode(record.payload) as Uint8Array)
  }

  async #write(owner: string, records: readonly RecordChange[]): Promise<void> {
    const change: Change = { owner, threadId: '', runId: null, guard: { kind: 'none' }, events: [], records, isCheckpoint: false }
    const answer = await this.#parts.commit(change)
    if (!answer.ok)
      throw new HoldfastError('conflict', `Content of an artifact could not be written: ${answer.refusal}. Try again.`, {
        retryable: true,
      })
  }
}

function stemOf({ sha256, generation }: Blob): string {
  return `${sha256}-${generation}`
}

function keyOf(blob: Blob, index: number): string {
  return `${stemOf(blob)}:${String(index).padStart(4, '0')}`
}

function countOf(size: number): number {
  return Math.ceil(size / chunkBytes)
}

function tooLarge(): HoldfastError {
  return new HoldfastError(
    'value_too_large',
    `The content of an artifact is larger than ${mostBytesInStore / 1024 / 1024} MiB, the most that is kept inside the store. ` +
      'Save it as a generated_file or a data_export, and open with artifacts: "file:DIR".',
  )
}
