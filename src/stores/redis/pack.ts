import { HoldfastError } from '../../model/errors.ts'

/**
 * Writes MessagePack, which scripts read with `cmsgpack.unpack`: one binary argument for a batch of any size.
 * Text and bytes are both written as strings, since that is all Lua knows; numbers are exact up to 2^53.
 */
export class Packer {
  #buffer: Buffer
  #length = 0

  constructor(expectedBytes = 1_024) {
    this.#buffer = Buffer.allocUnsafe(expectedBytes)
  }

  /** What was written. The packer must not be used afterwards. */
  end(): Buffer {
    return this.#buffer.subarray(0, this.#length)
  }

  get length(): number {
    return this.#length
  }

  array(count: number): this {
    this.#room(5)
    if (count < 16) this.#buffer[this.#length++] = 0x90 | count
    else this.#head(0xdd, count)
    return this
  }

  map(count: number): this {
    this.#room(5)
    if (count < 16) this.#buffer[this.#length++] = 0x80 | count
    else this.#head(0xdf, count)
    return this
  }

  boolean(value: boolean): this {
    this.#room(1)
    this.#buffer[this.#length++] = value ? 0xc3 : 0xc2
    return this
  }

  number(value: number): this {
    this.#room(9)
    if (Number.isInteger(value) && value >= 0 && value <= 0xff_ff_ff_ff && !Object.is(value, -0)) {
      if (value < 128) this.#buffer[this.#length++] = value
      else this.#head(0xce, value)
    } else {
      this.#buffer[this.#length] = 0xcb
      this.#buffer.writeDoubleBE(value, this.#length + 1)
      this.#length += 9
    }
    return this
  }

  text(value: string): this {
    this.beginString()
    this.addText(value)
    this.endString()
    return this
  }

  bytes(value: Uint8Array): this {
    this.beginString()
    this.addBytes(value)
    this.endString()
    return this
  }

  // ── a string made of parts ───────────────────────────────────────────────

  #stringStart = 0

  beginString(): void {
    this.#room(5)
    this.#stringStart = this.#length
    this.#length += 5
  }

  addText(value: string): void {
    // Three bytes for each unit is the most that UTF-8 can take; long texts are measured instead.
    this.#room(value.length < 2_048 ? value.length * 3 : Buffer.byteLength(value))
    this.#length += this.#buffer.write(value, this.#length)
  }

  addBytes(value: Uint8Array): void {
    this.#room(value.byteLength)
    this.#buffer.set(value, this.#length)
    this.#length += value.byteLength
  }

  endString(): void {
    this.#buffer[this.#stringStart] = 0xdb
    this.#buffer.writeUInt32BE(this.#length - this.#stringStart - 5, this.#stringStart + 1)
  }

  #head(type: number, value: number): void {
    this.#buffer[this.#length] = type
    this.#buffer.writeUInt32BE(value, this.#length + 1)
    this.#length += 5
  }

  #room(bytes: number): void {
    if (this.#length + bytes <= this.#buffer.length) return
    const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#length + bytes))
    this.#buffer.copy(larger, 0, 0, this.#length)
    this.#buffer = larger
  }
}

/** Names, and what packs the value of each. */
export type Fields = (readonly [name: string, pack: () => void])[]

export function packFields(packer: Packer, fields: Fields): void {
  packer.map(fields.length)
  for (const [name, pack] of fields) {
    packer.text(name)
    pack()
  }
}

/** The most that Redis takes as one argument. */
const maxBytes = 512 * 1024 * 1024 - 1

export function refuseTooLarge(what: string, { length: bytes }: Packer): void {
  if (bytes <= maxBytes) return
  const text = `${what} is larger than Redis can take (512 MB); nothing of it was written. Store large contents elsewhere, and references to them here.`
  throw new HoldfastError('value_too_large', text, { details: { bytes } })
}
