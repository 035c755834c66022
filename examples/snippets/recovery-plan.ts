import assert from 'node:assert/strict'
import { open, plan, recoveryPlan, state } from 'holdfast'

const asked: string[] = []
const fetchSource = async (name: string, _signal: AbortSignal): Promise<string> => {
  asked.push(name)
  if (name === 'web' && asked.filter((other) => other === 'web').length === 1) throw new Error('timed out')
  return `data of ${name}`
}
const findTrends = async (data: readonly string[]): Promise<string> => {
  if (data.length > 2) throw new Error('out of memory')
  return `trends in ${data.length} sources`
}
const drawChart = async (_trends: string): Promise<string> => {
  throw new Error('no ink')
}
const toPdf = ({ trends }: { readonly trends: string }) => ({ file: `report.pdf with ${trends}` })
const toHtml = ({ trends }: { readonly trends: string }) => ({ file: `report.html with ${trends}` })

// #region plan
const reportState = state({
  version: 1,
  initial: () => ({ topic: '', data: [] as string[], trends: '', chart: '', file: '' }),
})

const report = plan('report', { state: reportState })
  .step(
    'gather',
    async ({ topic }, ctx) => {
      ctx.log('gathering', { topic })
      const data = await ctx.map('source', ['news', 'sales', 'web'], (name, _, step) => fetchSource(name, step.signal), {
        retry: { attempts: 1 },
      })
      return { data } // merged into the state
    },
    { retry: { attempts: 5, minMs: 100 }, timeoutMs: 60_000, weight: 40, canFail: 'A source is down' },
  )
  .step('analyze', async ({ data }) => ({ trends: await findTrends(data) }), {
    retry: { attempts: 1 },
    fallback: async ({ data }, ctx, error) => {
      ctx.log('taking a sample', { because: error.message })
      return { trends: await findTrends(data.slice(0, 2)) }
    },
    weight: 30,
  })
  .parallel([
    [
      'charts',
      async ({ trends }) => ({ chart: await drawChart(trends) }),
      { retry: { attempts: 1 }, onFailure: 'skip', weight: 10 },
    ],
    ['compile', toPdf, { fallback: toHtml, weight: 20 }],
  ])
// #endregion

const url = 'sqlite:plan.db'
// #region run
const hf = await open(url, { workflows: [report] })
const run = await hf.start(report, { topic: 'refunds' }, { id: 'refunds-2026-11' })
for await (const { type, step, data } of run.watch()) {
  if (type === 'progress_reported') console.log(`${Math.round(Number(data?.['fraction']) * 100)} % after ${step}`)
}
console.log(await run.result()) // the final state
// #endregion

// #region print
console.log(recoveryPlan(report))
// #endregion

assert.deepEqual(await run.result(), {
  topic: 'refunds',
  data: ['data of news', 'data of sales', 'data of web'],
  trends: 'trends in 2 sources',
  chart: '',
  file: 'report.pdf with trends in 2 sources',
})
assert.deepEqual(asked, ['news', 'sales', 'web', 'web'])
assert.match(recoveryPlan(report), /\| 1 \| `gather` \| A source is down; it takes longer than 1 min/)
await hf.close()
