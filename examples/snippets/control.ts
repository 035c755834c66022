import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { open, workflow } from 'holdfast'

const crawled: string[] = []
async function crawl(page: string, signal: AbortSignal): Promise<void> {
  await delay(20, undefined, { signal })
  crawled.push(page)
}

// #region sleep
const nightly = workflow('nightly', async (ctx, pages: string[]) => {
  for (const page of pages) {
    await ctx.step('crawl', ({ signal }) => crawl(page, signal), { input: page }) // the signal ends it when the run is cancelled
    await ctx.sleep(50) // milliseconds or a Date; over 5 s the run is stored as waiting and holds no worker
  }
})
// #endregion

const hf = await open('memory:', { workflows: [nightly] })
const pages = Array.from({ length: 100 }, (_, index) => `page ${index}`)

// #region control
const run = await hf.start(nightly, pages, { id: 'crawl-2026-11-15' })

await run.pause({ by: 'dana' }) // at the next safe point: a running step finishes first
console.log((await run.info()).status) // paused
await run.resume({ by: 'dana' })

await run.cancel({ by: 'dana' }) // a running step is aborted through its signal
console.log((await run.info()).status) // cancelled
// #endregion
assert.equal((await run.info()).status, 'cancelled')
await assert.rejects(run.result(), { code: 'run_cancelled' })
assert.ok(crawled.length < 10)

// #region start
await hf.start(nightly, [], { runAt: Date.parse('2027-01-01T03:00:00Z'), priority: 5 })
await hf.start(nightly, [], { delayMs: 60_000, queue: 'slow' })
await hf.start(nightly, [], { threadId: 'shop-7', ifBusy: 'reject' }) // `conflict` if an unfinished run holds the thread
// #endregion
assert.equal((await hf.runs.list({ status: 'pending' })).items.length >= 2, true)
await hf.close()
