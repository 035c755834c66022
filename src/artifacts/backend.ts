import { HoldfastError } from '../model/errors.ts'

/**
 * Content at rest. `generation` tells the content of one record from that of an earlier one of the same owner and sum: what is removed late is never
 * what was saved since.
 */
export interface Blob {
  readonly owner: string
  readonly sha256: string
  readonly generation: string
}

/** Content that was taken in and has no name yet. */
export interface Received {
  readonly sha256: string
  readonly size: number
  /** Gives it its name: from then on it is there as a whole, and stays there. What was there already and is damaged is replaced. */
  keep(blob: Blob): Promise<void>
  /** Removes what is left of it. */
  discard(): Promise<void>
}

/** Where the bytes of artifacts are. Errors have a code: `storage_full`, `store_unavailable`, `corrupt_record`. */
export interface ArtifactBackend {
  readonly kind: 'store' | 'folder'
  /** Takes content in, in bounded memory. Should it fail, nothing is left of it. */
  receive(chunks: AsyncIterable<Uint8Array>): Promise<Received>
  /** Makes sure that it stays there, where it is there as a whole; false where it is not. */
  has(blob: Blob, size: number): Promise<boolean>
  /** Reads it from its beginning. `corrupt_record` where it is not there, or is not what was kept. */
  read(blob: Blob, size: number): AsyncIterable<Uint8Array>
  /** Where there is none nothing happens. */
  remove(blob: Blob): Promise<void>
  /** What is there of an owner, in any order. */
  list(owner: string): AsyncIterable<Blob>
  /** Removes what was taken in before then and never kept, or discarded. Returns how many. */
  removeReceived(beforeMs: number): Promise<number>
}

export function contentDamaged({ owner, sha256 }: Blob, why: string, cause?: unknown): HoldfastError {
  return new HoldfastError(
    'corrupt_record',
    `The content ${sha256.slice(0, 12)}… of an artifact is damaged: ${why}. Nothing of it was returned. Restore it from a backup, or save the artifact again.`,
    { details: { what: 'artifact', owner, sha256 }, ...(cause !== undefined && { cause }) },
  )
}
