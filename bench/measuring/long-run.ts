// A process with a run of very many steps: `fill FILE STEPS` is killed ten steps before the end, `resume FILE STEPS` finishes it.

import { open, workflow } from 'holdfast'

const [act, file, count] = process.argv.slice(2)
const steps = Number(count)
let isLive = false
let liveAt = 0

const long = workflow('long', async (ctx, input: { steps: number }) => {
  let sum = 0
  for (let i = 0; i < input.steps; i++) {
    sum += await ctx.step('s', () => {
      if (act === 'fill' && i === input.steps - 10) process.kill(process.pid, 'SIGKILL')
      if (!isLive && act === 'resume') {
        isLive = true
        liveAt = performance.now()
      }
      return 1
    })
  }
  return sum
})

const rssBefore = process.memoryUsage.rss()
const startedAt = performance.now()
const hf = await open(`sqlite:${file}`, { workflows: [long], durability: act === 'fill' ? 'relaxed' : 'full' })
const run = act === 'fill' ? await hf.start(long, { steps }, { id: 'long' }) : await hf.runs.get<number>('long')
const sum = await run.result()
const endedAt = performance.now()
await hf.close()
console.log(
  JSON.stringify({
    isRight: sum === steps,
    untilLiveMs: liveAt - startedAt,
    totalMs: endedAt - startedAt,
    rssBefore,
    rssPeak: process.resourceUsage().maxRSS * 1024,
  }),
)
