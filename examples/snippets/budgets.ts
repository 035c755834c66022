import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const model = {
  ask: async (prompt: string) => ({ text: `about ${prompt}`, usage: { input: 300, output: 150 }, cost: 0.004 }),
}

// #region budget
const research = workflow(
  { name: 'research', budget: { tokens: 1_000, cost: 0.5, steps: 200, wallMs: 600_000, repeats: 5 } },
  async (ctx, questions: string[]) => {
    const notes: string[] = []
    for (const question of questions) {
      await ctx.reserve({ tokens: 400 }) // before the call: the run pauses here if there is no room for it
      const answer = await ctx.step(
        'ask',
        async (step) => {
          const { text, usage, cost } = await model.ask(question)
          step.usage({ model: 'm-1', inputTokens: usage.input, outputTokens: usage.output, cost }) // kept even if this attempt fails
          return text
        },
        { input: question, kind: 'model' },
      )
      notes.push(answer)
    }
    return notes
  },
)
// #endregion

const hf = await open('memory:', { workflows: [research] })

// #region raise
const run = await hf.start(research, ['kelp', 'rock', 'sea'])
for await (const event of run.watch()) {
  if (event.type !== 'run_paused') continue
  const { usage, error } = await run.info()
  console.log(`${usage.tokens} tokens, ${usage.cost} spent: ${error?.message}`)
  await run.resume({ budget: { tokens: 5_000 }, by: 'dana' })
}
// #endregion
assert.equal((await run.result()).length, 3)
assert.equal((await run.info()).usage.tokens, 1_350)
assert.ok((await run.events()).some(({ type }) => type === 'budget_raised'))
await hf.close()
