import { type RunEvent, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { codeOfRejection } from './runs.ts'
import { onEveryStore } from './stores.ts'

onEveryStore('the events of a step', ({ open }) => {
  it('say in short what it got and returned', async () => {
    const hf = await open()
    const long = 'x'.repeat(10_000)
    const work = workflow('work', async (ctx) => {
      await ctx.step('look_up', () => ({ price: 40, text: long }), { input: { order: '4711', text: long } })
      await ctx.step('note', () => {})
      await ctx.once('send', { run: () => 'sent', idempotent: true })
      await ctx.map('fetch', [{ url: 'a' }, { url: 'b', token: long }], ({ url }) => url.length)
      await ctx.map('plain', ['secret'], () => null, { summary: false })
      return ctx.waitFor('go')
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await hf.signal('r', 'go', [1, 2])
    await run.result()
    const events = await run.events()
    const shown = events.flatMap(({ type, step, summary }) => (summary === undefined ? [] : [`${type} ${step} ${summary}`]))
    expect(shown.map((line) => line.slice(0, 60)).sort()).toEqual([
      'effect_completed send "sent"',
      'signal_received go [1, 2]',
      'step_completed fetch[0] 1',
      'step_completed fetch[1] 1',
      expect.stringMatching(/^step_completed look_up \{price: 40, text: "xxxxx/),
      'step_completed plain[0] null',
      'step_started fetch[0] {url: "a"}',
      expect.stringMatching(/^step_started fetch\[1\] \{url: "b", token: "xxxxx/),
      expect.stringMatching(/^step_started look_up \{order: "4711", text: "xxxxx/),
    ])
    for (const { summary = '' } of events) expect(Buffer.byteLength(summary)).toBeLessThanOrEqual(256)
    const started = (name: string) => events.find(({ type, step }) => type === 'step_started' && step === name) as RunEvent
    expect(started('fetch[0]').data).toEqual({ item: '{url: "a"}' })
    expect(Buffer.byteLength(started('fetch[1]').data?.['item'] as string)).toBe(256)
    expect(started('plain[0]').data).toBeUndefined()
    expect(JSON.stringify(await hf.debug.export('r'))).not.toContain('secret')
    const steps = (await hf.debug.replay('r')).filter(({ name }) => name?.startsWith('fetch'))
    expect(steps.map(({ item }) => item?.slice(0, 11)).sort()).toEqual(['{url: "a"}', '{url: "b", '])
  })

  it('say it in a timeline, if asked', async () => {
    const hf = await open()
    const work = workflow('work', async (ctx) => {
      for (const n of [1, 2, 3]) await ctx.step('count', () => ({ n }))
    })
    await hf.run(work, undefined, { id: 'r' })
    const rows = await hf.debug.timeline('r', { summaries: true })
    expect(rows.flatMap(({ step, summary }) => (step === null ? [] : [summary]))).toEqual(['{n: 1}', '{n: 2}', '{n: 3}'])
    expect((await hf.debug.timeline('r', { buckets: 1, summaries: true })).map(({ step, summary }) => [step, summary])).toEqual([
      ['count', '{n: 3}'],
    ])
    const plain = await hf.debug.timeline('r')
    expect(rows.map(({ summary: _, ...row }) => row)).toEqual(plain)
    expect(await codeOfRejection(hf.debug.timeline('r', { summary: true } as never))).toBe('invalid_input')
  })
})
