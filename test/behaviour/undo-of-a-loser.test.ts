import { workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

onEveryStore('a rollback of a completed run', ({ open }) => {
  it('finds the undo of a branch that lost a race, and comes by its step after the function has ended', async () => {
    const undone: unknown[] = []
    const isWon = gate()
    const isRecorded = gate()
    let calls = 0
    const work = workflow('work', async (ctx) => {
      const call = ++calls
      await ctx.step('first', () => {})
      const lose = async () => {
        await (call === 1 ? isWon.promise : new Promise((resolve) => setTimeout(resolve, 20)))
        await ctx.step('lose', () => 'lost', { undo: (result) => void undone.push(result) })
        isRecorded.open()
        await new Promise(() => {})
      }
      await Promise.race([lose(), ctx.step('win', () => {})])
      isWon.open()
      await isRecorded.promise
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    await run.result()
    const [first] = await hf.thread(run.threadId).checkpoints()
    await run.rollback(first?.checkpoint ?? '')
    expect(undone).toEqual(['lost'])
    expect(calls).toBe(2)
  })
})
