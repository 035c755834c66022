import type { Fault } from './fault.ts'
import type { Journal } from './journal.ts'
import type { ProviderClient } from './provider.ts'
import type { StoreAddress } from './store-address.ts'

/** What workflows under test use: a journal of what they do, the provider, the user's table; and where faults are injected in them. */
export class TestServices {
  readonly journal: Journal
  readonly provider: ProviderClient
  /** Which process of its scenario this is, from 1. */
  readonly processNumber: number
  /** The user's own table in the store's database; null where the store takes no SQL. */
  readonly orders: StoreAddress['orders']
  readonly #fault: Fault | null
  readonly #injectFault: () => void
  readonly #bodies = new Map<string, number>()

  constructor(options: {
    journal: Journal
    provider: ProviderClient
    processNumber: number
    orders: StoreAddress['orders']
    fault: Fault | null
    injectFault: () => void
  }) {
    this.journal = options.journal
    this.provider = options.provider
    this.processNumber = options.processNumber
    this.orders = options.orders
    this.#fault = options.fault
    this.#injectFault = options.injectFault
  }

  /** A body was entered. It is noted before the fault, so that it counts even if the process dies here. */
  body(body: { run: string; tape: number; path: string; attempt: number }): void {
    this.journal.write({ kind: 'body', ...body })
    const { path } = body
    const nth = (this.#bodies.get(path) ?? 0) + 1
    this.#bodies.set(path, nth)
    if (this.#fault?.at === 'body' && this.#fault.path === path && (this.#fault.nth ?? 1) === nth) this.#injectFault()
  }

  /** The function has the result of a call. */
  ack(call: { run: string; tape: number; path: string }): void {
    this.journal.write({ kind: 'ack', ...call })
  }

  /** Sends to the provider. The fault may come after the answer has arrived. */
  async send(call: { name: string; key: string; body?: unknown; dedupes?: boolean }): Promise<{ receipt: string }> {
    const answer = await this.provider.send(call)
    if (this.#fault?.at === 'answer' && this.#fault.name === call.name) this.#injectFault()
    return answer
  }
}
