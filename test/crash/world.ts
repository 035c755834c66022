import type { Fault } from './fault.ts'
import type { Journal } from './journal.ts'
import type { ProviderClient } from './provider.ts'
import type { StoreAddress } from './store-address.ts'

/** What the workflows under test see of the world: they note what they do, call the provider, and meet their fault. */
export class World {
  readonly journal: Journal
  readonly provider: ProviderClient
  /** Which life of a scene this process is, from 1. */
  readonly life: number
  /** The user's own table in the store's database; null where the store takes no SQL. */
  readonly orders: StoreAddress['orders']
  readonly #fault: Fault | null
  readonly #strike: () => void
  readonly #bodies = new Map<string, number>()

  constructor(options: {
    journal: Journal
    provider: ProviderClient
    life: number
    orders: StoreAddress['orders']
    fault: Fault | null
    strike: () => void
  }) {
    this.journal = options.journal
    this.provider = options.provider
    this.life = options.life
    this.orders = options.orders
    this.#fault = options.fault
    this.#strike = options.strike
  }

  /** A body was entered: counted durably, then perhaps struck. */
  body(body: { run: string; tape: number; path: string; attempt: number }): void {
    this.journal.write({ kind: 'body', ...body })
    const { path } = body
    const nth = (this.#bodies.get(path) ?? 0) + 1
    this.#bodies.set(path, nth)
    if (this.#fault?.at === 'body' && this.#fault.path === path && (this.#fault.nth ?? 1) === nth) this.#strike()
  }

  /** The function has the result of a call. */
  ack(call: { run: string; tape: number; path: string }): void {
    this.journal.write({ kind: 'ack', ...call })
  }

  /** Sends to the provider; may be struck with the answer in hand. */
  async send(call: { name: string; key: string; body?: unknown; dedupes?: boolean }): Promise<{ receipt: string }> {
    const answer = await this.provider.send(call)
    if (this.#fault?.at === 'answer' && this.#fault.name === call.name) this.#strike()
    return answer
  }
}
