// Streams: tokens a second, and what 100 tokens add to a step
//
// Options: --store=memory, sqlite (default), postgres or redis, --slices=N (default 9).

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { type Holdfast, open, workflow } from 'holdfast'
import { printLoad, printMachine } from './measuring/machine.ts'
import { formatSpread, spreadOf } from './measuring/spread.ts'

const sliceCount = Math.max(3, Number(optionOf('slices') ?? 9))
const store = optionOf('store') ?? 'sqlite'
const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
/** Steps with and without tokens take turns after so many: short enough that both meet the machine in the same mood. */
const blockSize = 25
const blocksASlice = 8
const tokensAStep = 100
const tokensAStream = 50_000
const token = ' token'

const { url, stop } = await openPlace()
try {
  printMachine(store === 'sqlite' ? folder : undefined)
  console.log(`settings  ${store}, durability full, defaults otherwise; a token is a text of ${token.length} characters`)
  await measureRate()
  await measureStep()
  console.log(`
not measured
  A network, many streams at once, tokens that are objects, the time from write to reader (50 ms at most, by design).`)
  printLoad('end')
} finally {
  await stop()
  rmSync(folder, { recursive: true, force: true })
}

/** One step writes as fast as it can, awaiting every write; a second client reads along. */
async function measureRate(): Promise<void> {
  const writing = workflow('writing', (ctx) =>
    ctx.step('write', async (step) => {
      const tokens = step.stream('tokens')
      for (let i = 1; i <= tokensAStream; i++) {
        await tokens.write(token)
        // A model lets others have their turn.
        if (i % tokensAStep === 0) await nextTurn()
      }
    }),
  )
  const hf = await open(url, { workflows: [writing] })
  const reader = store === 'memory' ? hf : await open(url, { worker: false })
  const slices: { writeRate: number; readRate: number }[] = []
  for (let slice = -1; slice < sliceCount; slice++) {
    const startedAt = performance.now()
    const run = await hf.start(writing)
    const read = countItems(reader, run.id).then((count) => {
      if (count !== tokensAStream) throw new Error(`${count} tokens were read`)
      return performance.now() - startedAt
    })
    await run.result()
    const writeMs = performance.now() - startedAt
    const readMs = await read
    if (slice >= 0) slices.push({ writeRate: (tokensAStream * 1_000) / writeMs, readRate: (tokensAStream * 1_000) / readMs })
  }
  await hf.close()
  if (reader !== hf) await reader.close()
  console.log(`
${tokensAStream} tokens of one step, each awaited
    written  ${formatSpread(spreadOf(slices.map(({ writeRate }) => writeRate)), 0)} tokens/s, until the step's result was there
    read     ${formatSpread(spreadOf(slices.map(({ readRate }) => readRate)), 0)} tokens/s, by a second client that followed`)
}

async function countItems(hf: Holdfast, runId: string): Promise<number> {
  let count = 0
  for await (const _ of (await hf.runs.get(runId)).stream('tokens')) count++
  return count
}

/** A run's steps one after the other, in blocks with and without tokens. */
async function measureStep(): Promise<void> {
  const slices: { plainUs: number; streamingUs: number }[] = []
  const stepping = workflow('stepping', async (ctx) => {
    await ctx.step('s', () => 0)
    let [plainMs, streamingMs] = [0, 0]
    for (let block = 0; block < blocksASlice; block++) {
      plainMs += await timed(async () => {
        for (let i = 0; i < blockSize; i++) await ctx.step('s', () => i)
      })
      streamingMs += await timed(async () => {
        for (let i = 0; i < blockSize; i++) {
          await ctx.step('s', (step) => {
            const tokens = step.stream('tokens')
            for (let n = 0; n < tokensAStep; n++) void tokens.write(token)
            return i
          })
        }
      })
    }
    const steps = blockSize * blocksASlice
    slices.push({ plainUs: (plainMs * 1_000) / steps, streamingUs: (streamingMs * 1_000) / steps })
  })
  const hf = await open(url, { workflows: [stepping] })
  for (let slice = -2; slice < sliceCount; slice++) await hf.run(stepping)
  await hf.close()
  slices.splice(0, 2)
  console.log(`
a step that writes ${tokensAStep} tokens against one that writes none, ${blockSize * blocksASlice} steps of each a slice
    none     ${formatSpread(spreadOf(slices.map(({ plainUs }) => plainUs)), 0)} µs
    tokens   ${formatSpread(spreadOf(slices.map(({ streamingUs }) => streamingUs)), 0)} µs
    ratio    ${formatSpread(spreadOf(slices.map(({ plainUs, streamingUs }) => streamingUs / plainUs)))}`)
}

async function openPlace(): Promise<{ url: string; stop: () => Promise<void> }> {
  if (store === 'postgres') {
    const { startPostgres } = await import('../test/servers/postgres.ts')
    const server = await startPostgres()
    return { url: server.url, stop: () => server.stop() }
  }
  if (store === 'redis') {
    const { startRedis } = await import('../test/servers/redis.ts')
    const server = await startRedis()
    return { url: server.url, stop: () => server.stop() }
  }
  return { url: store === 'memory' ? 'memory:' : `sqlite:${join(folder, 'streams.db')}`, stop: async () => {} }
}

async function timed(act: () => Promise<void>): Promise<number> {
  const startedAt = performance.now()
  await act()
  return performance.now() - startedAt
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
