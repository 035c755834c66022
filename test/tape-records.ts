import { readTape } from '../src/engine/replay/read-tape.ts'
import type { Tape } from '../src/engine/replay/tape.ts'
import { createCodec } from '../src/model/codec.ts'
import type { EventType, LogRecord } from '../src/model/event.ts'
import type { Patch } from '../src/model/patch.ts'

const codec = createCodec()

/** What a test says about a record: `data` is its payload, `sets` a field of the state that its patch sets. */
interface RecordOptions extends Partial<Omit<LogRecord, 'seq' | 'type' | 'payload' | 'patch'>> {
  readonly data?: unknown
  readonly sets?: string
}

/** A record of run `r`, at `seq` seconds: the first call of its step, if it has one. */
export function record(seq: number, type: EventType, { data, sets, ...more }: RecordOptions = {}): LogRecord {
  const patch: Patch = [['=', [sets ?? ''], seq]]
  return {
    ...{
      seq,
      type,
      runId: 'r',
      step: null,
      count: more.step === undefined ? 0 : 1,
      attempt: 0,
      at: seq * 1_000,
      durationMs: null,
    },
    payload: data === undefined ? null : codec.encode(data),
    patch: sets === undefined ? null : codec.encode(patch),
    ...{ isCheckpoint: true, ...more },
  }
}

/** The tape of run `r`. */
export function tapeOf(...records: readonly LogRecord[]): Tape {
  return readTape(records, codec, 'r')
}
