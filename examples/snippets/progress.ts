import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const pages = ['one', 'two', 'three', 'four']
const translate = async (page: string): Promise<string> => page.toUpperCase()

// #region report
const book = workflow('book', async (ctx) => {
  return await ctx.step('translate', async (step) => {
    const done: string[] = []
    for (const page of pages) {
      done.push(await translate(page))
      step.progress(done.length / pages.length, `page ${done.length} of ${pages.length}`)
    }
    return done
  })
})
// #endregion

const hf = await open('sqlite:progress.db', { workflows: [book] })
// #region bar
const run = await hf.start(book, undefined, { id: 'book-1' })
for await (const { type, data } of run.watch()) {
  const fraction = type === 'run_completed' ? 1 : data?.['fraction']
  if (typeof fraction === 'number') console.log(`${'█'.repeat(fraction * 20).padEnd(20, '░')} ${data?.['note'] ?? ''}`)
}
const { progress } = await run.info() // { fraction, note?, step? }, from any process, at any time
// #endregion
assert.deepEqual(progress, { fraction: 1 })
const reports = (await run.events()).filter(({ type }) => type === 'progress_reported')
assert.deepEqual(reports.at(-1)?.data, { fraction: 1, note: 'page 4 of 4' })
await hf.close()
