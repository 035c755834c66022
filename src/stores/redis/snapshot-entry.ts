import { payloadChecksum, sealChecksum, verifyChecksum } from '../../model/checksum.ts'
import type { Payload } from '../../model/payload.ts'
import type { Snapshot, ThreadKey } from '../../store/store.ts'
import { Packer } from './pack.ts'
import { addPayload, unpackPayload } from './payload-bytes.ts'

/** A snapshot is `<position> <sealed checksum> <state version> <payload>`; the seal holds position and version. */
export function snapshotChecksum({ owner, threadId }: ThreadKey, state: Payload): number {
  return payloadChecksum(['snapshot', owner, threadId], state)
}

export function toSnapshot(entry: Buffer, thread: ThreadKey): Snapshot {
  const afterSeq = entry.indexOf(32)
  const afterSum = entry.indexOf(32, afterSeq + 1)
  const afterVersion = entry.indexOf(32, afterSum + 1)
  const seq = Number(entry.toString('latin1', 0, afterSeq))
  const stateVersion = Number(entry.toString('latin1', afterSum + 1, afterVersion))
  const state = unpackPayload(entry, afterVersion + 1)
  const found = sealChecksum(snapshotChecksum(thread, state), seq + 65_537 * stateVersion)
  verifyChecksum(Number(entry.toString('latin1', afterSeq + 1, afterSum)), found, `The snapshot of ${thread.threadId}@${seq}`)
  return { seq, state, stateVersion }
}

/** A snapshot as it is kept. */
export function snapshotEntryOf({ seq, state, stateVersion }: Snapshot, thread: ThreadKey): Buffer {
  const packer = new Packer(512)
  const sealed = sealChecksum(snapshotChecksum(thread, state), seq + 65_537 * stateVersion)
  packer.addText(`${seq} ${sealed} ${stateVersion} ${typeof state === 'string' ? 's' : 'b'}`)
  addPayload(packer, state)
  return packer.end()
}
