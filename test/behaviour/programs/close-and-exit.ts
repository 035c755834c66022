// Leaves runs in every state, closes, and has nothing left that would keep the process alive. Argument: URL.
import { open, workflow } from 'holdfast'
import { report } from './report.ts'

const limited = { timeoutMs: 3_600_000 }
const sleeper = workflow({ name: 'sleeper', ...limited }, (ctx) => ctx.sleep(60_000))
const retrying = workflow({ name: 'retrying', ...limited }, (ctx) =>
  ctx.step(
    'a',
    () => {
      throw new Error('no')
    },
    { retry: { minMs: 60_000, maxMs: 60_000, jitter: false }, timeoutMs: 60_000 },
  ),
)
const stuck = workflow({ name: 'stuck', ...limited }, (ctx) => ctx.step('a', () => new Promise(() => {}), { timeoutMs: 60_000 }))
const continued = workflow(
  { name: 'continued', ...limited },
  async (ctx, n: number): Promise<number> => (n < 3 ? ctx.continueAs(n + 1) : n),
)
const hf = await open(process.argv[2] as string, { worker: { closeGraceMs: 50 } })
await hf.run(continued, 1)
const runs = [await hf.start(sleeper), await hf.start(retrying), await hf.start(stuck)]
const cancelled = await hf.start(stuck)
for (const run of [...runs, cancelled]) {
  const isUnderWay = async () => (await run.events()).some(({ type }) => /timer_set|step_failed|step_started/.test(type))
  while (!(await isUnderWay())) await new Promise((resolve) => setTimeout(resolve, 5))
}
await cancelled.cancel()
await hf.close()
report('closed')
