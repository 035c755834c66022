import { type OpenTarget, open, workflow } from 'holdfast'
import { type Spread, spreadOf } from './spread.ts'

/** What a driver takes for runs without an engine: each is inserted, updated as claimed and updated as finished, in batches. */
export interface RawQueue {
  insert(ids: readonly number[]): Promise<void>
  claim(ids: readonly number[]): Promise<void>
  finish(ids: readonly number[]): Promise<void>
}

export const runsASlice = 2_000
const warmUpSlices = 3
/** As many as the engine hands to the store at once. */
const batchSize = 250

export interface QueueSpeed {
  /** Runs a second, from startMany to the last run finished. */
  readonly rate: Spread
  /** Until startMany has returned. */
  readonly startRate: Spread
  readonly rawRate: Spread
  /** Engine / raw, slice by slice. */
  readonly ratio: Spread
}

/** Engine and raw writes take turns, so that both meet the machine in the same mood. */
export async function measureQueue(options: { target: OpenTarget; raw: RawQueue; sliceCount: number }): Promise<QueueSpeed> {
  let finished = 0
  const noop = workflow('noop', () => {
    finished++
  })
  const hf = await open(options.target, { workflows: [noop], worker: { concurrency: 500 } })
  const slices: { rate: number; startRate: number; rawRate: number }[] = []
  let lastId = 0
  const measureSlice = async (): Promise<void> => {
    const rawBefore = await rawSlice(options.raw, runsASlice / 2, lastId)
    const beganAt = performance.now()
    finished = 0
    await hf.startMany(Array.from({ length: runsASlice }, () => ({ workflow: noop })))
    const startedAt = performance.now()
    while (finished < runsASlice) await new Promise((resolve) => setTimeout(resolve, 1))
    // The last of them are about to be written. `drain` looks every 10 ms: what it sleeps is no time of theirs.
    for (let left = 1; left > 0; ) {
      const { pending, running } = await hf.queues.count('default')
      left = pending + running
      if (left > 0) await new Promise((resolve) => setTimeout(resolve, 1))
    }
    const endedAt = performance.now()
    const rawAfter = await rawSlice(options.raw, runsASlice / 2, lastId + runsASlice / 2)
    lastId += runsASlice
    slices.push({
      rate: (runsASlice * 1_000) / (endedAt - beganAt),
      startRate: (runsASlice * 1_000) / (startedAt - beganAt),
      rawRate: (runsASlice * 1_000) / (rawBefore + rawAfter),
    })
  }
  // The engine is far more code than the raw writes: it is compiled for speed only after some thousand runs.
  for (let slice = 0; slice < warmUpSlices; slice++) await measureSlice()
  slices.length = 0
  for (let slice = 0; slice < options.sliceCount; slice++) await measureSlice()
  await hf.close()
  return {
    rate: spreadOf(slices.map(({ rate }) => rate)),
    startRate: spreadOf(slices.map(({ startRate }) => startRate)),
    rawRate: spreadOf(slices.map(({ rawRate }) => rawRate)),
    ratio: spreadOf(slices.map(({ rate, rawRate }) => rate / rawRate)),
  }
}

async function rawSlice(raw: RawQueue, count: number, from: number): Promise<number> {
  const beganAt = performance.now()
  const batches = Array.from({ length: count / batchSize }, (_, batch) =>
    Array.from({ length: batchSize }, (_, index) => from + batch * batchSize + index + 1),
  )
  for (const batch of batches) await raw.insert(batch)
  for (const batch of batches) await raw.claim(batch)
  for (const batch of batches) await raw.finish(batch)
  return performance.now() - beganAt
}
