import assert from 'node:assert/strict'
import { open, state, workflow } from 'holdfast'

const model = { summarize: async (text: string) => `${text.slice(0, 10)} …` }
const mail = { send: async (to: string, text: string, key: string) => `${to} ${text} ${key}` }
const load = async (topic: string) => `everything about ${topic}`

// #region program
interface Report {
  summaries: string[]
}

const reportState = state({ version: 1, initial: (): Report => ({ summaries: [] }) })

const report = workflow(
  { name: 'report', version: 1, state: reportState, budget: { cost: 2, steps: 200 } },
  async (ctx, { topic, to }: { topic: string; to: string }) => {
    const text = await ctx.step('load', () => load(topic), { timeoutMs: 30_000 })
    const summary = await ctx.step(
      'summarize',
      async (step) => {
        const made = await model.summarize(text)
        step.usage({ model: 'small', inputTokens: 900, outputTokens: 40, cost: 0.004 })
        step.update((draft) => void draft.summaries.push(made))
        return made
      },
      { kind: 'model', retry: { attempts: 5 } },
    )
    const approval = await ctx.ask('approve', { question: { summary }, to: 'editors' })
    if (approval !== 'yes') return { sent: false }
    await ctx.once('send', { key: `report:${topic}:${to}`, run: (key) => mail.send(to, summary, key) })
    return { sent: true }
  },
)

const hf = await open('sqlite:holdfast.db', { workflows: [report] })
const run = await hf.start(report, { topic: 'refunds', to: 'ann' }, { id: 'report:refunds', threadId: 'ann' })
// #endregion

while ((await hf.inbox()).length === 0) await new Promise((resolve) => setTimeout(resolve, 10))
// #region answer
for (const item of await hf.inbox()) {
  if (item.kind === 'question') await hf.answer(item.runId, item.name, 'yes', { id: item.id, by: 'ann' })
}
console.log(await run.result())
// #endregion
assert.deepEqual(await run.result(), { sent: true })

// #region recorded
const clocked = workflow('clocked', async (ctx, orders: string[]) => {
  const [now, id] = [await ctx.now(), await ctx.uuid()] // the same in every replay
  const prices = await ctx.map('price', orders, (order) => order.length * 100, { concurrency: 4 })
  const [a, b] = await Promise.all([
    ctx.scope('left', () => ctx.step('count', () => prices.length)), // recorded as left/count
    ctx.scope('right', () => ctx.step('count', () => prices.length)), // recorded as right/count
  ])
  await ctx.sleep(10)
  return { now, id, a, b }
})
// #endregion
const { a, b } = await hf.run(clocked, ['x', 'yy'])
assert.deepEqual([a, b], [2, 2])
await hf.close()
