import type { Payload } from '../../model/payload.ts'
import { ColumnList, type Encoders } from './column-list.ts'

/** Payloads of what is sent as JSON, with their checksums; the JSON has their places here. */
export const extraColumns = new ColumnList('extra', { crc: 'bigint', payload: 'payload' })

export class ExtraPayloads {
  #columns: Encoders<typeof extraColumns.columns> | null = null
  #count = 0

  /** Its place, from 1. */
  add(payload: Payload, checksum: number): number {
    this.#columns ??= extraColumns.createEncoders(4)
    this.#columns.crc.push(checksum)
    this.#columns.payload.push(payload)
    return ++this.#count
  }

  encode(): readonly unknown[] {
    return this.#columns === null ? extraColumns.noRows : extraColumns.encode(this.#columns)
  }
}
