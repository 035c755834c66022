import { formatPath, type PathStep } from './codec.ts'
import { kindOf, put, shallowCopy, stepsOf } from './container.ts'
import { HoldfastError } from './errors.ts'
import type { PathKey } from './patch-operation.ts'
import { makeReadOnly } from './read-only.ts'

type Bytes = ArrayBufferView | ArrayBuffer

/**
 * A state as it is shown to user code. Bytes can't be frozen, so what is shown are copies: a change in place reaches nothing else, and is
 * refused at the next look at the state or the next update. Everything that holds no bytes is shared with the state.
 */
export class ShownBytes {
  #state: unknown
  #shown: unknown
  /** What was shown, with what it is a copy of and where that stands. */
  readonly #copies = new Map<Bytes, { readonly original: Bytes; readonly path: string }>()
  /** Parts that hold no bytes: they need no second walk. */
  readonly #plain = new WeakSet<object>()

  of(state: unknown): unknown {
    this.verify()
    if (this.#state === state) return this.#shown
    this.#copies.clear()
    this.#state = state
    this.#shown = this.#show(state, [])
    return this.#shown
  }

  /** Refuses what user code has changed in place. What it sees afterwards is as it was. */
  verify(): void {
    for (const [copy, { original, path }] of this.#copies) {
      if (Buffer.compare(bytesOf(copy), bytesOf(original)) === 0) continue
      bytesOf(copy).set(bytesOf(original))
      throw new HoldfastError(
        'invalid_input',
        `The state is read-only: the bytes at ${path} were changed in place, which was refused. Assign new bytes in ctx.update((draft) => …).`,
        { details: { path } },
      )
    }
  }

  #show(value: unknown, path: PathStep[]): unknown {
    if (typeof value !== 'object' || value === null || this.#plain.has(value)) return value
    const kind = kindOf(value)
    if (kind === 'leaf') return value instanceof Date ? value : this.#copy(value as Bytes, path)
    if (kind === 'other' || kind === 'set') return value
    let copy: object | undefined
    for (const [key, item] of kind === 'map' ? (value as Map<PathKey, unknown>) : Object.entries(value)) {
      if (typeof item !== 'object' || item === null) continue
      const shown = this.#show(item, [...path, ...stepsOf([kind === 'array' ? Number(key) : key])])
      if (shown === item) continue
      copy ??= shallowCopy(value, kind)
      put(copy, key, shown)
    }
    if (copy === undefined) this.#plain.add(value)
    if (copy === undefined) return value
    makeReadOnly(copy)
    return copy
  }

  #copy(original: Bytes, path: readonly PathStep[]): Bytes {
    const copy = copyOf(original)
    this.#copies.set(copy, { original, path: formatPath(path) })
    return copy
  }
}

function copyOf(value: Bytes): Bytes {
  if (!ArrayBuffer.isView(value)) return value.slice(0)
  if (Buffer.isBuffer(value)) return Buffer.from(value)
  const { buffer, byteOffset, byteLength } = value
  const bytes = buffer.slice(byteOffset, byteOffset + byteLength)
  return new (value.constructor as new (buffer: ArrayBufferLike) => ArrayBufferView)(bytes)
}

export function bytesOf(value: Bytes): Uint8Array {
  return ArrayBuffer.isView(value) ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : new Uint8Array(value)
}
