import { type Holdfast, open } from 'holdfast'
import { createCodec } from '../../src/model/codec.ts'
import { type Spread, spreadOf } from '../measuring/spread.ts'
import { type Original, openStore } from './copies.ts'
import type { PlainReads } from './plain-reads.ts'
import type { Place } from './readings.ts'

export interface ForkSize {
  /** By how much the store grew. */
  readonly grown: number
  /** What the records of the fork take. */
  readonly log: number
  /** The state as it is encoded, and what the records of its run take where they were. */
  readonly state: number
  readonly tape: number
}

/** Where a thread is forked: between two runs, or inside one that began there. */
export interface ForkPoint {
  readonly seq: number
  readonly tapeSeq?: number
}

const codec = createCodec()

/** What a fork costs the store, against what it has to keep. */
export async function measureForkSize(
  { url, original, plain }: Place & { readonly plain: PlainReads },
  at: ForkPoint,
): Promise<ForkSize> {
  const { threadId } = original.whole.thread
  const store = await openStore(url)
  const hf = await open(store, { worker: false })
  const thread = hf.thread(threadId)
  const state = await thread.stateAt(`${threadId}@${at.tapeSeq === undefined ? at.seq : at.tapeSeq - 1}`)
  const before = await plain.allBytes()
  const fork = await thread.fork(`${threadId}@${at.seq}`)
  const grown = (await plain.allBytes()) - before
  const tape = at.tapeSeq === undefined ? 0 : await plain.logBytes(threadId, at.tapeSeq - 1, at.seq)
  const log = await plain.logBytes(fork.id, 0, 1_000_000)
  await fork.delete()
  await hf.close()
  await store.close()
  return { grown, log, state: codec.encode(state).length, tape }
}

/** Forks of a long and of a short thread in turn. */
export async function measureForkTime(
  long: Place & { readonly at: ForkPoint },
  short: Place & { readonly at: ForkPoint },
  rounds: number,
): Promise<{ readonly long: Spread; readonly short: Spread; readonly ratio: Spread }> {
  const sides = await Promise.all([long, short].map(async ({ url }) => openStore(url)))
  const clients = await Promise.all(sides.map((store) => open(store, { worker: false })))
  const times: [number[], number[]] = [[], []]
  for (let round = -2; round < rounds; round++) {
    for (const [side, { original, at }] of [long, short].entries()) {
      const thread = (clients[side] as Holdfast).thread(original.whole.thread.threadId)
      const startedAt = performance.now()
      const fork = await thread.fork(`${thread.id}@${at.seq}`)
      if (round >= 0) times[side as 0 | 1].push(performance.now() - startedAt)
      await fork.delete()
    }
  }
  for (const client of clients) await client.close()
  for (const store of sides) await store.close()
  const [longMs, shortMs] = times
  return {
    ...{ long: spreadOf(longMs), short: spreadOf(shortMs) },
    ratio: spreadOf(longMs.map((ms, round) => ms / (shortMs[round] ?? Number.NaN))),
  }
}

/** The end of the last run, and the middle of it: as far after a snapshot as it comes. */
export function forkPoints({ whole, longRun }: Original): Record<'between runs' | 'in a run' | 'in the long run', ForkPoint> {
  const runs = whole.runs.map(({ run }) => run).toSorted((a, b) => a.inputSeq - b.inputSeq)
  const [last, before] = [runs.at(-1), runs.at(-2)]
  if (last === undefined || before === undefined || before.endSeq === null) throw new Error('the thread has less than two runs')
  const checkpoint = (seq: number) => whole.checkpoints.findLast((one) => one.seq <= seq)?.seq ?? seq
  const inside = (from: number, to: number) => ({ tapeSeq: from + 1, seq: checkpoint((from + to) / 2) })
  return {
    'between runs': { seq: before.endSeq },
    'in a run': inside(before.inputSeq, before.endSeq),
    'in the long run': inside(longRun.firstSeq, longRun.lastSeq),
  }
}
