import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { HoldfastError, open, workflow } from 'holdfast'

let failures = 1
const attempts: number[] = []
async function askModel(_prompt: string, options: { signal: AbortSignal; key: string }): Promise<string> {
  await sleep(1, undefined, { signal: options.signal })
  if (failures-- > 0) throw new Error('overloaded')
  return 'a summary'
}
async function drawCharts(): Promise<string[]> {
  throw new Error('no fonts')
}
const isOverload = (error: unknown) => error instanceof Error && error.message === 'overloaded'

// #region retry
const summarize = workflow('summarize', async (ctx, prompt: string) => {
  const summary = await ctx.step(
    'ask_model',
    ({ attempt, signal, key }) => {
      attempts.push(attempt)
      return askModel(prompt, { signal, key }) // the signal is aborted at the time-out; the key is the same for every attempt
    },
    {
      retry: { attempts: 5, minMs: 500, maxMs: 30_000, retryIf: isOverload },
      timeoutMs: 60_000, // of each attempt
      fallback: (error) => `No summary (${error.message}).`, // after the last attempt
    },
  )
  const charts = await ctx.step('charts', () => drawCharts(), { onFailure: 'skip', retry: { attempts: 1 } }) // undefined if it fails
  return { summary, charts }
})
// #endregion

// #region workflow
const careful = workflow({ name: 'careful', retry: { attempts: 1 } }, async (ctx, prompt: string) => {
  return await ctx.step('ask_model', ({ signal, key }) => askModel(prompt, { signal, key }))
})
// #endregion

const hf = await open('memory:', { workflows: [summarize, careful] })
assert.deepEqual(await hf.run(summarize, 'refunds'), { summary: 'a summary', charts: undefined })
assert.deepEqual(attempts, [1, 2])

failures = 1
// #region failed
const run = await hf.start(careful, 'refunds', { id: 'refunds-2026-11' })
try {
  await run.result()
} catch (error) {
  if (!(error instanceof HoldfastError) || error.code !== 'run_failed') throw error
  console.log(error.cause) // what the step threw
  console.log((await run.info()).currentStep, (await run.info()).completedSteps)
  await run.retry() // recorded steps stay; the failure that failed the run is tried again
}
// #endregion
assert.equal(await run.result(), 'a summary')

failures = 1
const again = await hf.start(careful, 'again', { id: 'again' })
await assert.rejects(again.result(), { code: 'run_failed' })
// #region if-failed
await hf.start(careful, 'again', { id: 'again', ifFailed: 'retry' })
// #endregion
assert.equal(await again.result(), 'a summary')
await hf.close()
