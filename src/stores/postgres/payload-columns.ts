import type { Payload } from '../../model/payload.ts'
import { BytesColumn, TextColumn } from './columns.ts'
import { bytesOf, textOf } from './rows.ts'

/** Text and bytes apart; null for a kind that does not occur. */
export class PayloadColumns {
  readonly #texts: TextColumn
  readonly #bytes = new BytesColumn()

  constructor(count: number) {
    this.#texts = new TextColumn(count)
  }

  push(payload: Payload | null): void {
    this.#texts.push(textOf(payload))
    this.#bytes.push(bytesOf(payload))
  }

  encode(): (Buffer | null)[] {
    return [this.#texts.encode(), this.#bytes.encode()]
  }
}
