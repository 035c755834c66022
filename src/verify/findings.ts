import type { Codec } from '../model/codec.ts'
import { codeOf } from '../model/errors.ts'
import type { Store, ThreadKey } from '../store/store.ts'
import { type Damage, damageTo } from './damage.ts'

/** What verifying needs. */
export interface Source {
  readonly store: Store
  readonly codec: Codec
  readonly signal?: AbortSignal | undefined
}

type Place = { readonly runId?: string | null; readonly seq?: number }

/** The damage that was found in one thread. */
export class Findings {
  readonly damaged: Damage[] = []
  readonly #store: Store
  readonly #thread: ThreadKey

  constructor(store: Store, thread: ThreadKey) {
    this.#store = store
    this.#thread = thread
  }

  note(what: Damage['what'], message: string, at: Place = {}): void {
    this.damaged.push(damageTo(this.#thread, what, message, at))
  }

  /** What is read, or undefined where it is damaged, which is noted. */
  async read<T>(what: Damage['what'], read: () => Promise<T>, at: Place = {}): Promise<T | undefined> {
    const found = await attempt(this.#store, read)
    if (!('damage' in found)) return found.value
    this.note(what, found.damage.message, at)
    return undefined
  }
}

/**
 * Other errors than damage are thrown: a store that can't be reached says nothing about what is in it. A script of Redis fails over a row
 * that it does not understand; where the server is the reason, the next call says so.
 */
export async function attempt<T>(
  store: Store,
  read: () => Promise<T>,
): Promise<{ readonly value: T } | { readonly damage: Error & { readonly details?: Readonly<Record<string, unknown>> } }> {
  try {
    return { value: await read() }
  } catch (error) {
    const code = codeOf(error)
    if (code !== 'corrupt_record' && code !== 'outcome_unknown') throw error
    if (code === 'outcome_unknown') await store.readThread({ owner: '', threadId: '' })
    return { damage: error as Error }
  }
}
