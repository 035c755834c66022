import { recordChecksum, sealChecksum } from '../model/checksum.ts'
import type { Codec } from '../model/codec.ts'
import { codeOf } from '../model/errors.ts'
import type { LogRecord } from '../model/event.ts'
import { applyPatch, type Patch } from '../model/patch.ts'
import { isSameValue } from '../model/state-diff.ts'
import type { Snapshot, Thread } from '../store/store.ts'
import { asKept } from '../store/whole-payloads.ts'
import type { Findings } from './findings.ts'

/** Which record it was. */
export type RecordAt = Pick<LogRecord, 'seq' | 'runId' | 'type'>

/**
 * Goes through a thread's log once, and builds the state on the way: data that can be read, changes that fit, snapshots that are the state
 * there, and a row of the thread that says the same. Memory: one state, and a few words for each run and operation.
 */
export class LogCheck {
  readonly #thread: Thread
  readonly #codec: Codec
  readonly #findings: Findings
  /** The records that opened operations, by key. Those of another run, before the mark of a fork, are not among them. */
  readonly operations = new Map<string, RecordAt>()
  /** Where the log first names each run. */
  readonly runs = new Map<string, number>()
  records = 0
  #state: unknown
  /** False after damage, until a snapshot says what the state is. */
  #isStateKnown = true
  #isWhole = true
  #lastSeq: number
  #lastPatch: { readonly seq: number; readonly checksum: number } = { seq: 0, checksum: 0 }

  constructor(thread: Thread, codec: Codec, findings: Findings) {
    this.#thread = thread
    this.#codec = codec
    this.#findings = findings
    this.#lastSeq = thread.baseSeq
  }

  add(record: LogRecord): void {
    const { seq, runId, payload, patch } = record
    if (seq !== this.#lastSeq + 1) {
      this.#isStateKnown = false
      this.#isWhole = false
    }
    this.#lastSeq = seq
    this.records++
    if (runId !== null && !this.runs.has(runId)) this.runs.set(runId, seq)
    try {
      if (payload !== null) this.#read(record, this.#codec.decode(payload) as RecordData)
    } catch (error) {
      this.#findings.note('record', `The data of ${record.type} can't be read: ${(error as Error).message}`, { runId, seq })
    }
    if (patch !== null) this.#apply(record, patch)
  }

  /** Compares a snapshot with the state at the last record that was added. */
  compare({ seq, state }: Snapshot): void {
    let value: unknown
    try {
      value = this.#codec.decode(state)
    } catch (error) {
      this.#findings.note('snapshot', `The snapshot can't be read: ${(error as Error).message}`, { seq })
      return
    }
    if (this.#isStateKnown && !isSameValue(value, this.#state))
      this.#findings.note('snapshot', 'The snapshot is not the state that the log leads to.', { seq })
    this.#state = value
    this.#isStateKnown = true
  }

  /** Once every record was added. */
  end(): void {
    const { headSeq, patchSeq, patchChecksum } = this.#thread
    const { seq, checksum } = this.#lastPatch
    // Earlier builds did not write it down.
    if (patchSeq === 0 && patchChecksum === 0) return
    if (!this.#isWhole || this.#lastSeq !== headSeq || (seq === patchSeq && checksum === patchChecksum)) return
    const message =
      seq === patchSeq
        ? `The row of the thread has another checksum for the change of the state at ${seq} than its log.`
        : `The row of the thread says that the state changed last at ${patchSeq}, its log at ${seq}.`
    this.#findings.note('thread', message)
  }

  #read({ seq, runId, type }: LogRecord, { key, fork }: RecordData): void {
    if (type === 'run_paused' && fork !== undefined) this.operations.clear()
    if ((type === 'effect_intended' || type === 'question_asked') && key !== undefined)
      this.operations.set(key, { seq, runId, type })
  }

  #apply(record: LogRecord, patch: NonNullable<LogRecord['patch']>): void {
    const { owner, threadId } = this.#thread
    const { seq, type, runId } = record
    this.#lastPatch = { seq, checksum: sealChecksum(recordChecksum({ owner, threadId }, asKept(record)), seq) }
    if (!this.#isStateKnown) return
    try {
      this.#state = applyPatch(this.#state, this.#codec.decode(patch) as Patch)
    } catch (error) {
      this.#isStateKnown = false
      const why = codeOf(error) === 'corrupt_record' ? 'does not fit the state there' : "can't be read"
      this.#findings.note('record', `The change of the state by ${type} ${why}: ${(error as Error).message}`, { runId, seq })
    }
  }
}

interface RecordData {
  readonly key?: string
  readonly fork?: unknown
}
