import { open, workflow } from 'holdfast'

const greet = workflow('greet', async (ctx, name: string) => await ctx.step('greet', () => `Hello ${name}`))

// #region shutdown
const hf = await open('sqlite:holdfast.db', { workflows: [greet], worker: { closeGraceMs: 8_000 } })

for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  process.once(signal, async () => {
    await hf.close() // running steps may finish within the grace; unfinished runs go back, for others to take at once
    process.exit(0)
  })
}
// #endregion

process.kill(process.pid, 'SIGTERM')
