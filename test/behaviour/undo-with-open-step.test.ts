import { workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { becomes, failureOf, logged } from './runs.ts'
import { onEveryStore } from './stores.ts'

onEveryStore('undoOnFailure beside a step that ctx.begin began around an open question', ({ open }) => {
  it('fails the run again after a retry: what the run itself writes meanwhile does not keep its end from being written', async () => {
    let calls = 0
    const work = workflow({ name: 'work', undoOnFailure: true, retry: { attempts: 1 } }, async (ctx) => {
      calls++
      const review = async () => {
        const step = await ctx.begin('review')
        await ctx.ask('ok', { question: '?' })
        await step.complete(1)
      }
      const declined = ctx.waitFor('decline').then(() => Promise.reject(new Error('declined')))
      await Promise.all([review(), declined])
    })
    const hf = await open({ workflows: [work], worker: { quietMs: 60_000 } })
    const run = await hf.start(work)
    await logged(run, 'question_asked')
    await hf.signal(run.id, 'decline')
    expect(await failureOf(run)).toMatchObject({ message: 'declined' })
    expect(calls).toBe(1)
    await run.retry()
    await becomes(run, 'failed')
    expect(await failureOf(run)).toMatchObject({ message: 'declined' })
    expect(calls).toBe(2)
    expect(await hf.inbox()).toEqual([])
  })
})
