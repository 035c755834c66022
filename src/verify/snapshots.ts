import type { Snapshot, Thread } from '../store/store.ts'
import { attempt, type Findings, type Source } from './findings.ts'

/** Of the snapshots of a thread that are kept until its log has come to them; others are read again. */
const keptBytes = 4 * 1024 * 1024

/** The snapshots of a thread by their positions; memory does not grow with their number. */
export class Snapshots {
  readonly #source: Source
  readonly #thread: Thread
  readonly #findings: Findings
  readonly #found = new Map<number, Snapshot | null>()
  bytes = 0

  constructor(source: Source, thread: Thread, findings: Findings) {
    this.#source = source
    this.#thread = thread
    this.#findings = findings
  }

  get size(): number {
    return this.#found.size
  }

  /** Finds them all, from the last to the first. */
  async find(): Promise<void> {
    const { headSeq, baseSeq } = this.#thread
    for (let atSeq = headSeq; atSeq > baseSeq; ) {
      this.#source.signal?.throwIfAborted()
      const read = await this.#read(atSeq)
      if ('damage' in read) {
        const seq = await this.#whereDamaged(atSeq, read.damage)
        this.#findings.note('snapshot', read.damage.message, { seq })
        atSeq = seq - 1
        continue
      }
      const snapshot = read.value
      if (snapshot === null) return
      this.bytes += snapshot.state.length
      this.#found.set(snapshot.seq, this.bytes > keptBytes ? null : snapshot)
      atSeq = snapshot.seq - 1
    }
  }

  /** The one at a position, if there is one and it can be read. */
  async at(seq: number): Promise<Snapshot | null> {
    const snapshot = this.#found.get(seq)
    if (snapshot === undefined) return null
    if (snapshot !== null) return snapshot
    const read = await this.#read(seq)
    return 'damage' in read ? null : read.value
  }

  #read(atSeq: number) {
    const { owner, threadId } = this.#thread
    const { store } = this.#source
    return attempt(store, () => store.readSnapshot({ owner, threadId, atSeq }))
  }

  /** The first position at which this same damage is met: that of the snapshot. */
  async #whereDamaged(atSeq: number, damage: Error): Promise<number> {
    let [before, at] = [this.#thread.baseSeq, atSeq]
    while (at > before + 1) {
      const middle = Math.floor((before + at) / 2)
      const read = await this.#read(middle)
      if ('damage' in read && read.damage.message === damage.message) at = middle
      else before = middle
    }
    return at
  }
}
