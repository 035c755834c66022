// A worker for a plan of two steps. Arguments: URL, and whether the second step hangs.
import { open, plan } from 'holdfast'
import { patience } from '../../patience.ts'
import { forEver, report } from './report.ts'

const [url, hangs] = process.argv.slice(2) as [string, string]
const work = plan('work')
  .step('gather', async (_, ctx) => ({ sources: await ctx.map('source', ['a', 'b'], (name) => `${name} by ${process.pid}`) }), {
    weight: 3,
  })
  .step('analyze', async (state, ctx) => {
    await ctx.step('load', () => report('executed', 'load'))
    ctx.progress(0.5, 'loaded')
    await ctx.step('crunch', () => (hangs === 'hangs' ? forEver() : undefined))
    return { trends: (state['sources'] as string[]).length }
  })
await open(url, { workflows: [work], worker: { leaseMs: patience(1_500) } })
report('ready')
