import { plan, type StepOptions, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { codeOfRejection } from './runs.ts'
import { onEveryStore } from './stores.ts'

const notMs = [Number.NaN, -1, '50' as never, null as never]

onEveryStore('a time that is no number of milliseconds is refused:', ({ open }) => {
  it('the limit of a step, an item, an effect, a section, a signal and a question, and nothing of it is on record', async () => {
    const bad = workflow('bad', async (ctx, n: number) => {
      const timeoutMs = notMs[n] as number
      const options: StepOptions<number> = { timeoutMs, retry: { attempts: 1 } }
      return Promise.all(
        [
          ctx.step('step', () => 1, options),
          ctx.map('map', [1], () => 1, options),
          ctx.once('once', { run: () => 1, idempotent: true, timeoutMs }),
          ctx.section('section', () => 1, { timeoutMs }),
          ctx.waitFor('signal', { timeoutMs }),
          ctx.waitFor(['one', 'two'], { timeoutMs }),
          ctx.ask('question', { question: '?', timeoutMs }),
        ].map(codeOfRejection),
      )
    })
    const hf = await open()
    for (const n of notMs.keys()) {
      const run = await hf.start(bad, n)
      expect(new Set(await run.result())).toEqual(new Set(['invalid_input']))
      expect((await run.events()).filter(({ step }) => step !== undefined)).toEqual([])
    }
  })

  it('that of a workflow, a sleep and a retry', async () => {
    const work = workflow('work', async (ctx, n: number) => [
      await codeOfRejection(ctx.step('a', () => 1, { retry: { minMs: notMs[n] as number } })),
      await codeOfRejection(ctx.step('b', () => 1, { retry: { maxMs: notMs[n] as number } })),
    ])
    const hf = await open()
    for (const [n, ms] of notMs.entries()) {
      expect(() => workflow({ name: 'limited', timeoutMs: ms as number }, () => 1)).toThrow(/timeoutMs of workflow "limited" is/)
      expect(() => plan('planned').step('a', () => {}, { timeoutMs: ms as number })).toThrow(/timeoutMs is/)
      expect(await hf.run(work, n)).toEqual(['invalid_input', 'invalid_input'])
    }
    const nap = workflow('nap', async (ctx) => [
      await codeOfRejection(ctx.sleep(Number.NaN)),
      await codeOfRejection(ctx.sleep('5' as never)),
    ])
    expect(await hf.run(nap)).toEqual(['invalid_input', 'invalid_input'])
  })

  it('those of the client and of the worker', async () => {
    const quick = workflow('quick', () => 1)
    const hf = await open({ workflows: [quick] })
    const run = await hf.start(quick)
    for (const ms of notMs) {
      const timeoutMs = ms as number
      expect(await codeOfRejection(run.result({ timeoutMs }))).toBe('invalid_input')
      expect(await codeOfRejection(hf.queues.drain('default', { timeoutMs }))).toBe('invalid_input')
      expect(await codeOfRejection(hf.start(quick, undefined, { delayMs: timeoutMs }))).toBe('invalid_input')
      for (const name of ['leaseMs', 'pollMs', 'closeGraceMs', 'quietMs', 'concurrency'])
        expect(await codeOfRejection(open({ worker: { [name]: ms } }))).toBe('invalid_input')
    }
  })
})

onEveryStore('what a body left behind', ({ open }) => {
  it('calls from where the step stood, once the body has ended', async () => {
    const work = workflow('work', (ctx) =>
      ctx.scope('outer', async () => {
        let ring = () => {}
        const rung = new Promise<void>((resolve) => {
          ring = resolve
        })
        const answered: Promise<unknown>[] = []
        await ctx.step('connect', () => {
          setTimeout(() => {
            answered.push(ctx.step('handle', () => 'handled'))
            ring()
          }, 5)
        })
        await rung
        return answered[0]
      }),
    )
    const hf = await open()
    const run = await hf.start(work)
    expect(await run.result()).toBe('handled')
    expect((await run.events()).map(({ step }) => step)).toContain('outer/handle')
  })

  it('is refused while the body is at work, however late', async () => {
    const work = workflow('work', (ctx) =>
      ctx.step('slow', async () => {
        await new Promise((resolve) => setTimeout(resolve, 5))
        return codeOfRejection(ctx.step('inner', () => 1))
      }),
    )
    const hf = await open()
    expect(await hf.run(work)).toBe('nested_call')
  })
})
