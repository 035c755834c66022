import { recordChecksum, sealChecksum } from '../../model/checksum.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { Thread } from '../../store/store.ts'
import { UnderWay } from '../execution/under-way.ts'
import { BegunEffects } from './begun-effects.ts'

/**
 * What the store has acknowledged to the holder of a lease, in all executions under it. A store that has lost some of it, after a failover or a
 * restore, must not be written to as if it were there.
 *
 *   H1  Each change is sent with the last position that was acknowledged before it is sent, and anew when it is sent again.
 *   H2  Once the lease is lost nothing is sent under it, apart from what gives it up: that says nothing of its history, and could make a change
 *       pass that is still on its way.
 */
export class LeaseHistory {
  /** Effects that were begun under the lease. */
  readonly effects = new BegunEffects()
  /** Changes that were sent and not answered for. */
  readonly sent = new UnderWay()
  #writtenSeq: number
  #patch: PatchName
  /** The last change with a patch, whose name is made when it is asked for. */
  #patched: { readonly change: Change; readonly index: number; readonly firstSeq: number } | undefined
  #isOver = false

  constructor(thread: Thread) {
    this.#writtenSeq = thread.writtenSeq
    this.#patch = thread
  }

  get writtenSeq(): number {
    return this.#writtenSeq
  }

  /** The lease is lost. */
  get isOver(): boolean {
    return this.#isOver
  }

  end(): void {
    this.#isOver = true
  }

  /** The change as it is sent (H1). */
  stamp(change: Change): Change {
    const { guard } = change
    return guard.kind === 'lease' ? { ...change, guard: { ...guard, writtenSeq: this.#writtenSeq } } : change
  }

  /** Takes in the answer to a change. */
  note(change: Change, answer: Committed): void {
    if (!answer.ok) {
      if (answer.refusal === 'lease_lost') this.end()
      return
    }
    const { events } = change
    if (events.length === 0) return
    this.#writtenSeq = answer.lastSeq
    const index = events.findLastIndex(({ patch }) => patch !== null)
    if (index >= 0) this.#patched = { change, index, firstSeq: answer.firstSeq }
  }

  /** Names the state that the thread has after the last acknowledged change. */
  get patch(): PatchName {
    if (this.#patched === undefined) return this.#patch
    const { change, index, firstSeq } = this.#patched
    const { owner, threadId, runId, events } = change
    const isCheckpoint = change.isCheckpoint && index === events.length - 1
    const checksum = recordChecksum({ owner, threadId }, { ...(events[index] as NewEvent), runId, isCheckpoint })
    this.#patched = undefined
    this.#patch = { patchSeq: firstSeq + index, patchChecksum: sealChecksum(checksum, firstSeq + index) }
    return this.#patch
  }
}

/** Position and checksum of the last record with a patch. */
export type PatchName = Pick<Thread, 'patchSeq' | 'patchChecksum'>

export function isSamePatch(one: PatchName, other: PatchName): boolean {
  return one.patchSeq === other.patchSeq && one.patchChecksum === other.patchChecksum
}
