import { setTimeout as delay } from 'node:timers/promises'
import { open, workflow } from 'holdfast'
import { report } from './report.ts'

// Cancels a run whose function has a promise that it does not await yet, beside one that has nothing to do with it.
const two = workflow('two', async (ctx) => {
  const work = async (name: string) => {
    await ctx.step(name, () => delay(60_000))
  }
  const [a, b] = [work('a'), work('b')]
  await a
  await b
})
const other = workflow('other', (ctx) => ctx.step('slow', () => delay(300, 'done')))
const hf = await open('memory:', { logger: false })
const run = await hf.start(two)
const beside = await hf.start(other)
while ((await run.info()).currentStep === undefined) await delay(5)
await run.cancel()
report('ended', [(await run.info()).status, await beside.result()])
if (process.argv[2] === 'foreign') {
  void Promise.reject(new Error('of somebody else'))
  await delay(200)
  report('still there')
}
await hf.close()
process.exit(0)
