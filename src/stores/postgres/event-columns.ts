import { storedChecksum, wholeOf } from '../../model/checksum.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Change, NewRun } from '../../store/change.ts'
import { ColumnList, type Encoders } from './column-list.ts'
import { count32 } from './integers.ts'
import { byteLengthOf } from './rows.ts'

/** Events, each with the slot that says where it goes (commit-sql.ts) and its position there, from 1. */
export const eventColumns = new ColumnList('event', {
  ...({ slot: 'int', ord: 'int', type: 'text', step: 'text', count: 'int', attempt: 'int', at: 'float8' } as const),
  ...({ duration_ms: 'float8', checkpoint_bytes: 'bigint', crc: 'bigint', payload: 'payload', patch: 'payload' } as const),
})

export class EventEncoder {
  readonly #columns: Encoders<typeof eventColumns.columns>

  constructor(count: number) {
    this.#columns = eventColumns.createEncoders(count)
  }

  /** The events of a change, after `before` others of the same slot. Returns the last of them that has a patch. */
  add(slot: number, change: Change, before: number): PatchPlace | null {
    const { events } = change
    let bytes = 0
    let last: PatchPlace | null = null
    for (let i = 0; i < events.length; i++) {
      const event = events[i] as NewEvent
      const isCheckpoint = change.isCheckpoint && i === events.length - 1
      bytes += byteLengthOf(event.payload) + byteLengthOf(event.patch)
      const checksum = this.#push(event, {
        slot,
        ord: before + i + 1,
        place: change,
        runId: change.runId,
        checkpointBytes: isCheckpoint ? bytes : null,
      })
      if (event.patch !== null) last = { ord: before + i + 1, checksum }
    }
    return last
  }

  addQueued(slot: number, create: NewRun): PatchPlace | null {
    const { queued, id: runId } = create
    const checkpointBytes = byteLengthOf(queued.payload) + byteLengthOf(queued.patch)
    const checksum = this.#push(queued, { slot, ord: 1, place: create, runId, checkpointBytes })
    return queued.patch === null ? null : { ord: 1, checksum }
  }

  encode(): readonly unknown[] {
    return eventColumns.encode(this.#columns)
  }

  #push(event: NewEvent, { slot, ord, place, runId, checkpointBytes }: EventPlace): number {
    const { type, step, count, attempt, at, durationMs, payload, patch } = event
    const record = { runId, type, step, count, attempt, at, durationMs, payload, patch, isCheckpoint: checkpointBytes !== null }
    const checksum = storedChecksum(place, record)
    const columns = this.#columns
    columns.slot.push(slot)
    columns.ord.push(ord)
    columns.type.push(type)
    columns.step.push(step)
    columns.count.push(count32(count))
    columns.attempt.push(count32(attempt))
    columns.at.push(at)
    columns.duration_ms.push(durationMs)
    columns.checkpoint_bytes.push(checkpointBytes)
    columns.crc.push(checksum)
    columns.payload.push(payload)
    columns.patch.push(patch)
    return wholeOf(checksum)
  }
}

/** An event with a patch: its position, counted from the head before the slot, and its checksum before it is sealed. */
export interface PatchPlace {
  readonly ord: number
  readonly checksum: number
}

interface EventPlace {
  readonly slot: number
  readonly ord: number
  readonly place: { readonly owner: string; readonly threadId: string }
  readonly runId: string | null
  readonly checkpointBytes: number | null
}
