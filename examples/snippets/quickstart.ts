import { setTimeout as sleep } from 'node:timers/promises'
import { open, workflow } from 'holdfast'

const report = workflow('report', async (ctx, input: { topic: string }) => {
  const amounts = await ctx.step('load_data', async () => {
    console.log('loading data …')
    await sleep(1_000)
    return [42.5, 118, 35.9, 64]
  })
  const summary = await ctx.step('summarize', async () => {
    console.log('summarizing …')
    await sleep(4_000)
    return `${amounts.length} ${input.topic}, ${amounts.reduce((sum, amount) => sum + amount)} euros in all`
  })
  return await ctx.step('write_report', () => {
    console.log('writing the report …')
    return `# Report\n\n${summary}`
  })
})

const hf = await open('sqlite:holdfast.db', { workflows: [report] })
const run = await hf.start(report, { topic: 'refunds' }, { id: 'refunds-2026-11' })
console.log(await run.result())
await hf.close()
