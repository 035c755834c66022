import { readFileSync } from 'node:fs'
import { open } from 'holdfast'
import { createMemoryStore } from 'holdfast/testing'
import { openTarget } from '../../src/open.ts'
import { readWholeThread } from '../../src/store/read-whole-thread.ts'
import type { Store } from '../../src/store/store.ts'
import type { WholeThread } from '../../src/store/thread-image.ts'
import { makeLongThread } from '../measuring/long-thread.ts'

/** A thread with all that belongs to it, as it is copied into each store. */
export interface Original {
  readonly whole: WholeThread
  /** The run with the longest tape, which begins and ends at these positions. */
  readonly longRun: { readonly id: string; readonly firstSeq: number; readonly lastSeq: number }
}

export async function makeOriginal(events: number): Promise<Original> {
  const { store, threadId } = await makeLongThread(events)
  return originalOf(await readThread(store, threadId))
}

/** From what hf.debug.export returned, as a file. */
export async function readOriginal(file: string): Promise<Original> {
  const store = createMemoryStore()
  const hf = await open(store, { worker: false })
  const { id } = await hf.debug.import(readFileSync(file))
  await hf.close()
  return originalOf(await readThread(store, id))
}

function originalOf(whole: WholeThread): Original {
  const longest = whole.runs
    .map(({ run }) => ({ id: run.id, firstSeq: run.inputSeq, lastSeq: run.endSeq ?? whole.thread.headSeq }))
    .toSorted((a, b) => b.lastSeq - b.firstSeq - (a.lastSeq - a.firstSeq))[0]
  if (longest === undefined) throw new Error('the thread has no run')
  return { whole, longRun: longest }
}

/** Opens a store that is to be measured. */
export async function openStore(url: string): Promise<Store> {
  const { store } = await openTarget(url, { durability: 'full', clockOffsetMs: () => 0 })
  return store
}

export async function copyInto(url: string, { whole }: Original): Promise<void> {
  const store = await openStore(url)
  const { ok } = await store.restoreThread(whole)
  await store.close()
  if (!ok) throw new Error('the thread was not copied')
}

async function readThread(store: Store, threadId: string): Promise<WholeThread> {
  const whole = await readWholeThread(store, { owner: '', threadId })
  if (whole === null) throw new Error('the thread is not there')
  return whole
}
