import { setTimeout as pass } from 'node:timers/promises'
import { type Context, open, workflow } from 'holdfast'
import { report } from './report.ts'

/** Functions that leave timers behind, which call ctx once their runs have ended. */
const leaveTimer = (ctx: Context): void => {
  setInterval(() => {
    ctx.now()
    ctx.random()
    ctx.uuid()
    ctx.update(() => {})
    ctx.usage({ cost: 1 })
    ctx.stream('tokens').write('late')
    ctx.progress(0.5)
    void ctx.step('late', () => 1)
  }, 50)
}
const ends = workflow({ name: 'ends', retry: { attempts: 1 } }, async (ctx, how: 'returns' | 'throws' | 'waits') => {
  try {
    if (how === 'throws') await ctx.step('fails', () => Promise.reject(new Error('on purpose')))
    if (how === 'waits') await ctx.waitFor('never')
  } finally {
    leaveTimer(ctx)
  }
})
const continues = workflow('continues', async (ctx, n: number) => {
  if (n > 1) return
  leaveTimer(ctx)
  await ctx.continueAs(n + 1)
})
const slow = workflow({ name: 'slow', timeoutMs: 50 }, async (ctx) => {
  await ctx.step('a', () => {})
  setTimeout(() => leaveTimer(ctx), 200)
  await ctx.step('b', () => pass(60_000))
})
const other = workflow('other', (ctx) => ctx.step('a', () => pass(2_500, 'done')))

const told = new Set<string>()
const warn = (message: string) => void told.add(message.split(' was called on')[0] as string)
const hf = await open('memory:', {
  logger: { debug() {}, info() {}, warn, error() {} },
  worker: { quietMs: 60_000 },
})
const beside = await hf.start(other)
const runs = [await hf.start(ends, 'returns'), await hf.start(ends, 'throws'), await hf.start(ends, 'waits')]
runs.push(await hf.start(continues, 1), await hf.start(slow))
await pass(100)
await runs[2]?.cancel()
await Promise.all(runs.map((run) => run.result().catch(() => {})))
const statuses = await Promise.all(runs.map(async (run) => (await run.info()).status))
report('ended', [...statuses, await beside.result(), [...told].sort().join(' ')])
await hf.close()
process.exit(0)
