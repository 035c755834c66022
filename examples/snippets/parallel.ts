import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const fetchPage = async (url: string) => `<html>${url}</html>`
const count = async (pages: readonly string[]) => pages.join('').length

// #region parallel
const crawl = workflow('crawl', async (ctx, urls: string[]) => {
  const pages = await ctx.map('fetch', urls, (url) => fetchPage(url), { concurrency: 4 }) // steps fetch[0], fetch[1], …
  return await ctx.scope('measure', async () => {
    const [all, first] = await Promise.all([
      ctx.step('all', () => count(pages)), // recorded as measure/all
      ctx.step('first', () => count(pages.slice(0, 1))),
    ])
    return { all, first }
  })
})
// #endregion

const hf = await open('memory:', { workflows: [crawl] })
assert.deepEqual(await hf.run(crawl, ['a', 'b', 'c'], { id: 'c1' }), { all: 42, first: 14 })
const { completedSteps } = await (await hf.runs.get('c1')).info()
assert.deepEqual([...completedSteps].sort(), ['fetch[0]', 'fetch[1]', 'fetch[2]', 'measure/all', 'measure/first'])
await hf.close()
