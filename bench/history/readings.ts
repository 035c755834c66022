import { inflateRawSync } from 'node:zlib'
import { type Holdfast, open } from 'holdfast'
import type { Payload } from '../../src/model/payload.ts'
import type { Store } from '../../src/store/store.ts'
import { medianOf, type Spread, spreadOf } from '../measuring/spread.ts'
import { type Original, openStore } from './copies.ts'
import type { PlainReads } from './plain-reads.ts'

/** A call of the debugger, and the bytes that it can't do without. */
export interface Reading {
  readonly name: string
  readonly call: (hf: Holdfast) => Promise<unknown>
  readonly bytes: readonly Portion[]
  /** What is promised of it: at most three times the plain read. */
  readonly isPromised: boolean
  /** Its answer has the values of what it reads. */
  readonly isDecoded?: boolean
  readonly aimMs?: number
}

/** A part of a thread's rows. Ranges are after the first position, up to and including the second. */
export type Portion =
  | { readonly of: 'log' | 'patches' | 'heads'; readonly range: readonly [number, number] }
  | { readonly of: 'snapshot'; readonly at: number }

/** The call, and plain reads of its bytes: rows by the database's client; read and verified through the contract; the same, inflated and parsed. */
export type Way = 'call' | 'client' | 'contract' | 'parsed'

export interface Measured {
  readonly ms: Readonly<Record<Way, Spread>>
  /** Of the call to each of the others, round by round. */
  readonly ratio: Readonly<Record<Way, Spread>>
  /** Processor time of this thread, a server's not included. */
  readonly cpuMs: Readonly<Record<Way, number>>
  readonly bytes: number
}

const ways: readonly Way[] = ['client', 'contract', 'parsed', 'call']

interface Client {
  readonly hf: Holdfast
  readonly store: Store
  close(): Promise<void>
}

/** Calls and plain reads in turn, round by round, in one process: what slows the machine down slows both. */
export async function measureReading(
  reading: Reading,
  {
    url,
    original,
    plain,
    rounds,
    isCold,
  }: Place & { readonly plain: PlainReads; readonly rounds: number; readonly isCold: boolean },
): Promise<Measured> {
  const took = forEachWay((): { ms: number; cpuMs: number }[] => [])
  let bytes = 0
  const { threadId } = original.whole.thread
  const acts: Record<Way, (client: Client) => Promise<unknown>> = {
    client: async () => {
      bytes = await readRaw(plain, reading.bytes)
    },
    contract: ({ store }) => readPortions(store, threadId, reading.bytes),
    parsed: async ({ store }) => (await readPortions(store, threadId, reading.bytes)).map(parsePlainly),
    call: ({ hf }) => reading.call(hf),
  }
  const shared = isCold ? null : await openClient(url)
  for (let round = isCold ? 0 : -2; round < rounds; round++) {
    for (const way of ways) {
      const client = shared ?? (await openClient(url))
      const before = { at: performance.now(), cpu: process.threadCpuUsage() }
      await acts[way](client)
      const ms = performance.now() - before.at
      const { user, system } = process.threadCpuUsage(before.cpu)
      if (round >= 0) took[way].push({ ms, cpuMs: (user + system) / 1_000 })
      if (shared === null) await client.close()
    }
  }
  await shared?.close()
  return {
    ms: forEachWay((way) => spreadOf(took[way].map(({ ms }) => ms))),
    ratio: forEachWay((way) => spreadOf(took.call.map(({ ms }, round) => ms / (took[way][round]?.ms ?? Number.NaN)))),
    cpuMs: forEachWay((way) => medianOf(took[way].map(({ cpuMs }) => cpuMs))),
    bytes,
  }
}

function forEachWay<T>(make: (way: Way) => T): Record<Way, T> {
  return { client: make('client'), contract: make('contract'), parsed: make('parsed'), call: make('call') }
}

/** As any program has to that wants the values. */
function parsePlainly(payload: Payload): unknown {
  return JSON.parse(typeof payload === 'string' ? payload : inflateRawSync(payload.subarray(1)).toString())
}

export interface Place {
  readonly url: string
  readonly original: Original
}

async function openClient(url: string): Promise<Client> {
  const store = await openStore(url)
  const hf = await open(store, { worker: false })
  return {
    ...{ hf, store },
    close: async () => {
      await hf.close()
      await store.close()
    },
  }
}

async function readPortions(store: Store, threadId: string, portions: readonly Portion[]): Promise<Payload[]> {
  const key = { owner: '', threadId }
  const payloads: Payload[] = []
  for (const portion of portions) {
    if (portion.of === 'snapshot') {
      const snapshot = await store.readSnapshot({ ...key, atSeq: portion.at })
      if (snapshot !== null) payloads.push(snapshot.state)
      continue
    }
    const [afterSeq, toSeq] = portion.range
    const part = portion.of === 'log' ? {} : portion.of === 'patches' ? { patchesOnly: true } : { bare: true }
    for (const { payload, patch } of await store.readLog({ ...key, afterSeq, toSeq, ...part })) {
      if (payload !== null) payloads.push(payload)
      if (patch !== null) payloads.push(patch)
    }
  }
  return payloads
}

async function readRaw(plain: PlainReads, portions: readonly Portion[]): Promise<number> {
  let bytes = 0
  for (const portion of portions)
    bytes += portion.of === 'snapshot' ? await plain.snapshot(portion.at) : await plain[portion.of](...portion.range)
  return bytes
}

/** What a state is made of: the last snapshot, and the changes after it. */
export function bytesOfState({ whole }: Original, at: number): Portion[] {
  const snapshot = snapshotBefore(whole.snapshots, at)
  return [
    { of: 'snapshot', at },
    { of: 'patches', range: [snapshot, at] },
  ]
}

export function snapshotBefore(snapshots: readonly { readonly seq: number }[], at: number): number {
  return snapshots.findLast(({ seq }) => seq <= at)?.seq ?? 0
}
