import type { Store } from '../../../src/store/store.ts'
import type { DurableStore, StoreAddress } from '../store-address.ts'
import type { StoreDump } from '../store-dump.ts'

/** Where the stores of scenes come from. */
export interface Ground {
  readonly kind: DurableStore
  /** An empty store; a bare one is not even set up. */
  lend(scene: { readonly name: string; readonly folder: string; readonly isBare: boolean }): Promise<LentStore>
  close(): Promise<void>
}

/** The store of one scene, seen from outside of the processes that are killed. */
export interface LentStore {
  /** For one process: the server lists its sessions under this name. */
  addressFor(life: number): Promise<StoreAddress>
  /**
   * Waits until the server has taken note of a death. What a killed process had sent is still carried out: nothing that is
   * read before may be compared.
   */
  untilLeft(life: number): Promise<void>
  /** Everything in it, read in a way that changes nothing for the next process. */
  dump(): Promise<StoreDump>
  /** Everything in it, while processes work on it. What it says of different threads may be of different moments. */
  watch(): Promise<StoreDump>
  /** Another way into it, set up. */
  open(): Promise<Store>
  giveBack(): Promise<void>
}

/** Looks again and again, since no server tells who has left. */
export async function untilNone(count: () => Promise<number>, what: string): Promise<void> {
  for (let looks = 0; looks < 2_000; looks++) {
    if ((await count()) === 0) return
    await new Promise((resolve) => setTimeout(resolve, looks < 5 ? 1 : 5))
  }
  throw new Error(`The server still lists ${what}`)
}
