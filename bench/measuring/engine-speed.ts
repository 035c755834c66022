import { type Holdfast, type OpenOptions, type OpenTarget, open, workflow } from 'holdfast'
import { type Spread, spreadOf } from './spread.ts'

/** What a server and its driver take for a step without an engine: one write at a time, on one connection. */
export interface RawWrites {
  write(count: number): Promise<void>
}

export interface EngineSpeedOptions {
  readonly target: OpenTarget
  readonly open?: Pick<OpenOptions, 'durability' | 'pool'>
  readonly raw: RawWrites
  readonly sliceCount: number
}

export const runCount = 500
export const stepsARun = 10
/** Engine and raw writes take turns after so many steps: short enough that both meet the machine in the same mood. */
const blockSize = 25
const stepsASlice = 200

export interface LoneSpeed {
  readonly engineUs: Spread
  readonly rawUs: Spread
  /** Engine / raw writes, slice by slice. */
  readonly ratio: Spread
}

/** One run, one step after the other: each pays a durable write of its own. */
export async function measureLoneStep({ target, open: options, raw, sliceCount }: EngineSpeedOptions): Promise<LoneSpeed> {
  const slices: { engineUs: number; rawUs: number }[] = []
  const lone = workflow('lone', async (ctx, input: { steps: number }) => {
    // The first commit of a run also starts its tape; it is not a step's.
    await ctx.step('s', () => 0)
    let [engineMs, rawMs] = [0, 0]
    for (let block = 0; block < input.steps / blockSize; block++) {
      engineMs += await timed(async () => {
        for (let i = 0; i < blockSize; i++) await ctx.step('s', () => i)
      })
      rawMs += await timed(() => raw.write(blockSize))
    }
    slices.push({ engineUs: (engineMs * 1_000) / input.steps, rawUs: (rawMs * 1_000) / input.steps })
  })
  const hf = await open(target, { ...options, workflows: [lone] })
  await hf.run(lone, { steps: 4 * stepsASlice })
  slices.length = 0
  for (let slice = 0; slice < sliceCount; slice++) await hf.run(lone, { steps: stepsASlice })
  await hf.close()
  return {
    engineUs: spreadOf(slices.map(({ engineUs }) => engineUs)),
    rawUs: spreadOf(slices.map(({ rawUs }) => rawUs)),
    ratio: spreadOf(slices.map(({ engineUs, rawUs }) => engineUs / rawUs)),
  }
}

export interface LoadSpeed {
  /** Steps a second: from all runs queued to the last result in the caller's hands. */
  readonly engineRate: Spread
  readonly rawRate: Spread
  /** Engine / raw writes, slice by slice: in all, and from the first step to the last. */
  readonly ratio: Spread
  readonly stepRatio: Spread
}

/** Many runs at once: they share durable writes. */
export async function measureLoad({ target, open: options, raw, sliceCount }: EngineSpeedOptions): Promise<LoadSpeed> {
  // Runs are queued by a client without a worker. The worker learns of the workflow when the clock starts.
  const queue = await open(target, { ...options, worker: false })
  const hf = await open(target, { ...options, worker: { concurrency: runCount } })
  const slices: (Load & { rawRate: number })[] = []
  const measureSlice = async (name: string): Promise<void> => {
    const runLoad = await prepareLoad({ queue, hf, name })
    // Half of the raw writes before the load and half after it, so that a drift of the machine hurts both.
    const half = stepsASlice / 2
    let rawMs = await timed(() => raw.write(half))
    const load = await runLoad()
    rawMs += await timed(() => raw.write(half))
    slices.push({ ...load, rawRate: (2 * half * 1_000) / rawMs })
  }
  for (const name of ['warm-up-1', 'warm-up-2', 'warm-up-3']) await measureSlice(name)
  slices.length = 0
  for (let slice = 0; slice < sliceCount; slice++) await measureSlice(`load-${slice}`)
  await hf.close()
  await queue.close()
  const rateOf = (ms: number) => (runCount * stepsARun * 1_000) / ms
  return {
    engineRate: spreadOf(slices.map(({ totalMs }) => rateOf(totalMs))),
    rawRate: spreadOf(slices.map(({ rawRate }) => rawRate)),
    ratio: spreadOf(slices.map(({ totalMs, rawRate }) => rateOf(totalMs) / rawRate)),
    stepRatio: spreadOf(slices.map(({ stepsMs, rawRate }) => rateOf(stepsMs) / rawRate)),
  }
}

export interface Load {
  readonly totalMs: number
  /** From the first step to the last. */
  readonly stepsMs: number
}

/** Queues runs of a workflow that the worker learns of when the load is run. */
export async function prepareLoad({
  queue,
  hf,
  name,
}: {
  queue: Holdfast
  hf: Holdfast
  name: string
}): Promise<() => Promise<Load>> {
  let [firstStepAt, lastStepAt] = [0, 0]
  const load = workflow(name, async (ctx) => {
    firstStepAt ||= performance.now()
    for (let i = 0; i < stepsARun; i++) await ctx.step('s', () => i)
    lastStepAt = performance.now()
    return 'done'
  })
  const ids = Array.from({ length: runCount }, (_, index) => `${name}-${index}`)
  await Promise.all(ids.map((id) => queue.start(name, undefined, { id })))
  const handles = await Promise.all(ids.map((id) => hf.runs.get<string>(id)))
  // The worker looks around when another client has written; that is over before the clock starts.
  await new Promise((resolve) => setTimeout(resolve, 250))
  return async () => {
    const totalMs = await timed(async () => {
      hf.register(load)
      const outputs = await Promise.all(handles.map((handle) => handle.result()))
      if (outputs.some((output) => output !== 'done')) throw new Error('a run of the load gave a wrong result')
    })
    return { totalMs, stepsMs: lastStepAt - firstStepAt }
  }
}

async function timed(act: () => Promise<void>): Promise<number> {
  const startedAt = performance.now()
  await act()
  return performance.now() - startedAt
}
