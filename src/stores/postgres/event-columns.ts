import { storedChecksum, wholeOf } from '../../model/checksum.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Change, NewRun } from '../../store/change.ts'
import { BigintColumn, FloatColumn, IntegerColumn, TextColumn } from './columns.ts'
import { PayloadColumns } from './payload-columns.ts'
import { byteLengthOf } from './rows.ts'
import { count32 } from './whole-numbers.ts'

/** The events of a batch as parallel arrays. */
export class EventColumns {
  readonly #slots: IntegerColumn
  readonly #ords: IntegerColumn
  readonly #types: TextColumn
  readonly #steps: TextColumn
  readonly #counts: IntegerColumn
  readonly #attempts: IntegerColumn
  readonly #ats: FloatColumn
  readonly #durations: FloatColumn
  readonly #checkpointBytes: BigintColumn
  readonly #checksums: BigintColumn
  readonly #payloads: PayloadColumns
  readonly #patches: PayloadColumns

  constructor(count: number) {
    this.#slots = new IntegerColumn(count)
    this.#ords = new IntegerColumn(count)
    this.#types = new TextColumn(count, 16)
    this.#steps = new TextColumn(count, 16)
    this.#counts = new IntegerColumn(count)
    this.#attempts = new IntegerColumn(count)
    this.#ats = new FloatColumn(count)
    this.#durations = new FloatColumn(count)
    this.#checkpointBytes = new BigintColumn(count)
    this.#checksums = new BigintColumn(count)
    this.#payloads = new PayloadColumns(count)
    this.#patches = new PayloadColumns(count)
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

  encode(): unknown[] {
    return [
      ...[this.#slots, this.#ords, this.#types, this.#steps, this.#counts, this.#attempts, this.#ats, this.#durations].map(
        (column) => column.encode(),
      ),
      ...[this.#checkpointBytes.encode(), this.#checksums.encode(), ...this.#payloads.encode(), ...this.#patches.encode()],
    ]
  }

  #push(event: NewEvent, { slot, ord, place, runId, checkpointBytes }: EventPlace): number {
    const { type, step, count, attempt, at, durationMs, payload, patch } = event
    const record = { runId, type, step, count, attempt, at, durationMs, payload, patch, isCheckpoint: checkpointBytes !== null }
    this.#slots.push(slot)
    this.#ords.push(ord)
    this.#types.push(type)
    this.#steps.push(step)
    this.#counts.push(count32(count))
    this.#attempts.push(count32(attempt))
    this.#ats.push(at)
    this.#durations.push(durationMs)
    this.#checkpointBytes.push(checkpointBytes)
    const checksum = storedChecksum(place, record)
    this.#checksums.push(checksum)
    this.#payloads.push(payload)
    this.#patches.push(patch)
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
