import { setTimeout as wait } from 'node:timers/promises'
import type { Store } from 'holdfast'
import { imageOfTables } from '../behaviour/images.ts'
import { readStore } from '../crash/bed/store-dump.ts'
import { patience } from '../patience.ts'
import type { ForgetfulStore } from './forgetful-store.ts'
import type { Target } from './target.ts'
import { work } from './worker.ts'

/** A store in the memory of this process, in which its workers are as well. It forgets by an image of its tables that is put back. */
export function prepareMemory(target: Target, workerCount: number): ForgetfulStore {
  const memory = target.createOpenMemoryStore()
  if (memory === null) throw new Error('This checkout has no memory store whose tables can be reached (createStoreOver).')
  const { store, tables } = memory
  const gates = Array.from({ length: workerCount + 1 }, () => new Gate())
  const wayOf = (nth: number): Store => target.wrapStore(store, { before: () => (gates[nth] as Gate).open })
  let putBack = () => {}
  return {
    hasSql: false,
    isRelaxed: false,
    openStore: async () => wayOf(0),
    async startWorker(order) {
      const close = await work(target, order, wayOf(order.number))
      return { close: () => close().then(() => []), kill: () => {} }
    },
    async keep() {
      putBack = imageOfTables(tables)
    },
    async forget() {
      for (const gate of gates) gate.shut()
      putBack()
      // What was acknowledged before is heard of, and begun, by now.
      await wait(patience(300))
    },
    admit: (nth) => gates[nth]?.admit(),
    read: async () => ({ ...(await readStore(store)), orders: [] }),
    stop: () => store.close(),
  }
}

/** Who comes while it is shut waits. */
class Gate {
  open: Promise<void> = Promise.resolve()
  admit = () => {}

  shut(): void {
    this.open = new Promise((resolve) => {
      this.admit = resolve
    })
  }
}
