// A process that changes the past of a thread and is killed on the way: before or after the write that does it, or in the middle of it.
// Its argument is an `Order` as JSON. It prints what it has done, if it lives.

import { setTimeout as sleep } from 'node:timers/promises'
import { open } from 'holdfast'
import { wrapStore } from '../../src/testing/faulty-store.ts'
import { openStoreAt, type StoreAddress } from './bed/store-address.ts'

export interface Order {
  readonly store: StoreAddress
  readonly threadId: string
  readonly checkpoint: string
  readonly act: 'rewind' | 'fork' | 'what_if'
  readonly fork: string
  /** Null: it lives. A number: so many ms after the write was begun. */
  readonly dies: 'before' | 'after' | number | null
}

const { store: address, threadId, checkpoint, act, fork, dies } = JSON.parse(process.argv[2] as string) as Order
const write = act === 'rewind' ? 'commit' : 'restoreThread'
const die = () => process.kill(process.pid, 'SIGKILL')

const store = wrapStore(await openStoreAt(address, () => 0), {
  async before(name) {
    if (name !== write) return
    if (dies === 'before') {
      die()
      await sleep(60_000)
    } else if (typeof dies === 'number') setTimeout(die, dies)
  },
  async after(name) {
    if (name !== write || dies === null) return
    die()
    await sleep(60_000)
  },
})
const hf = await open(store, { worker: false })
const thread = hf.thread(threadId)
if (act === 'rewind') await thread.rewind(checkpoint)
else
  await thread.fork(checkpoint, {
    threadId: fork,
    ...(act === 'what_if' && { replace: { first: 'another' }, edit: (draft: { texts: string[] }) => draft.texts.push('edited') }),
  })
console.log('done')
await hf.close()
