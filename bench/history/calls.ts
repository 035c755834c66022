import type { Blame, Holdfast } from 'holdfast'
import type { Original } from './copies.ts'
import { bytesOfState, type Portion, type Reading, snapshotBefore } from './readings.ts'

const pageSize = 1_000

/** What is measured: pages, buckets, states and writers at several places of the thread. */
export async function readingsOf(hf: Holdfast, original: Original): Promise<{ shown: Reading[]; states: Reading[] }> {
  const { whole, longRun } = original
  const { threadId, headSeq } = whole.thread
  const positions = whole.checkpoints.map(({ seq }) => seq)
  const near = (seq: number) => positions.findLast((one) => one <= seq) ?? headSeq
  const id = (seq: number) => `${threadId}@${seq}`
  const page = (name: string, after: number, isPromised: boolean): Reading => {
    const last = positions[positions.findIndex((seq) => seq > after) + pageSize - 1] ?? headSeq
    const before: Portion[] = after === 0 ? [] : [{ of: 'heads', range: [0, after] }, ...bytesOfState(original, after)]
    return {
      name: `timeline, ${name}`,
      call: (client) => client.debug.timeline(threadId, after === 0 ? {} : { after: id(after) }),
      bytes: [...before, { of: 'log', range: [after, last] }],
      ...{ isPromised, ...(isPromised && { aimMs: 100 }) },
    }
  }
  const state = (name: string, seq: number): Reading => ({
    name: `stateAt ${name}`,
    call: (client) => client.thread(threadId).stateAt(id(seq)),
    bytes: bytesOfState(original, seq),
    ...{ isPromised: true, isDecoded: true, aimMs: 50 },
  })
  const blame = async (path: string, place: string, seq: number): Promise<Reading> => ({
    name: `blame ${path} ${place}`,
    call: (client) => client.debug.blame(id(seq), path),
    bytes: bytesOfBlame(original, seq, await hf.debug.blame(id(seq), path)),
    ...{ isPromised: true, isDecoded: true, aimMs: 50 },
  })
  const inLongRun = near((longRun.firstSeq + longRun.lastSeq) / 2)
  const begin = near(headSeq / 10)
  const lastSnapshot = whole.snapshots.at(-1)?.seq ?? headSeq
  const furthest = near(lastSnapshot - 1)
  return {
    shown: [
      page('first page', 0, true),
      page('page from the middle, in the long run', inLongRun, false),
      page('last page', near(headSeq - 3 * pageSize), false),
      {
        name: 'timeline, 200 buckets',
        call: (client) => client.debug.timeline(threadId, { buckets: 200 }),
        bytes: [{ of: 'log', range: [0, headSeq] }],
        ...{ isPromised: true, aimMs: 500 },
      },
      {
        name: 'timeline of the long run, 200 buckets',
        call: (client) => client.debug.timeline(longRun.id, { buckets: 200 }),
        bytes: [...bytesOfState(original, longRun.firstSeq - 1), { of: 'log', range: [longRun.firstSeq - 1, longRun.lastSeq] }],
        ...{ isPromised: true, aimMs: 500 },
      },
      state('at the begin', begin),
      state('in the long run', inLongRun),
      state('right after a snapshot', near(lastSnapshot)),
      state('right before a snapshot', furthest),
      state('at the end', headSeq),
      await blame('turn', 'at the begin', begin),
      await blame('turn', 'in the long run', inLongRun),
      await blame('turn', 'at the end', headSeq),
      await blame('messages[0].text', 'in the long run', inLongRun),
      await blame('messages[900].text', 'at the end', headSeq),
      await blame('facts.fact-7', 'in the long run', inLongRun),
      await blame('facts.fact-7', 'at the end', headSeq),
      await blame('facts', 'at the end', headSeq),
    ],
    states: Array.from({ length: 24 }, (_, index) => near(begin + ((headSeq - begin) * index) / 23)).map((seq) =>
      state(id(seq), seq),
    ),
  }
}

/** The state, and the changes back to the last writer that was told; to the beginning, where there was nobody else. */
function bytesOfBlame({ whole }: Original, at: number, { last, before }: Blame): Portion[] {
  const oldest = before.at(-1) ?? last
  const seq = oldest === null ? 0 : Number(oldest.checkpoint.slice(oldest.checkpoint.lastIndexOf('@') + 1))
  return [
    { of: 'snapshot', at },
    { of: 'patches', range: [Math.max(0, Math.min(snapshotBefore(whole.snapshots, at), seq - 1)), at] },
  ]
}
