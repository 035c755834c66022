import { type RunDiffRow, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { becomes, codeOfRejection } from './runs.ts'
import { onEveryStore } from './stores.ts'

interface Input {
  readonly topic: string
  readonly isLong?: boolean
}

const report = workflow('report', async (ctx, { topic, isLong }: Input) => {
  ctx.uuid()
  await ctx.step('load', () => 'data')
  const [, summary] = await Promise.all([
    ctx.step('count', () => 3),
    ctx.step(
      'summarize',
      (step) => {
        step.usage({ model: 'm', inputTokens: topic.length, outputTokens: 1, cost: 0.5 })
        return `about ${topic}`
      },
      { input: topic, kind: 'model' },
    ),
  ])
  if (isLong) await ctx.step('extend', () => 'more')
  await ctx.once('send', { run: () => summary, idempotent: true })
  return summary
})

onEveryStore('two runs side by side', ({ open }) => {
  it('are aligned by name and count, and show where they first differ, with times and costs', async () => {
    const hf = await open()
    await hf.run(report, { topic: 'tea' }, { id: 'a' })
    await hf.run(report, { topic: 'coffee', isLong: true }, { id: 'b' })
    const diff = await hf.debug.diffRuns('a', 'b')
    const row = (name: string) => diff.rows.find((one) => one.name === name) as RunDiffRow
    expect(diff.rows.map(({ name, differs }) => [name, ...differs])).toEqual(
      expect.arrayContaining([['load'], ['count'], ['summarize', 'input', 'output'], ['extend', 'missing'], ['send', 'output']]),
    )
    expect(diff.firstDivergence).toEqual(row('summarize'))
    expect(row('summarize')).toMatchObject({
      ...{ kind: 'model', call: 1 },
      a: { input: 'tea', output: 'about tea', attempt: 1, tokens: 4, cost: 0.5, durationMs: expect.any(Number) },
      b: { input: 'coffee', output: 'about coffee', tokens: 7, cost: 0.5 },
    })
    expect(row('extend')).toMatchObject({ a: null, b: { output: 'more' } })
    expect(diff.rows.findIndex(({ name }) => name === 'extend')).toBeLessThan(diff.rows.findIndex(({ name }) => name === 'send'))
    expect(diff.a).toMatchObject({
      runId: 'a',
      status: 'completed',
      input: { topic: 'tea' },
      output: 'about tea',
      tokens: 4,
      cost: 0.5,
    })
    expect(diff.b).toMatchObject({ runId: 'b', output: 'about coffee', tokens: 7, durationMs: expect.any(Number) })
  })

  it('that did the same differ in nothing but the values of the day', async () => {
    const hf = await open()
    for (const id of ['a', 'b']) await hf.run(report, { topic: 'tea' }, { id })
    const { rows, firstDivergence } = await hf.debug.diffRuns('a', 'b')
    expect(rows.filter(({ kind }) => kind !== 'value').every(({ differs }) => differs.length === 0)).toBe(true)
    expect(rows.some(({ kind, differs }) => kind === 'value' && differs.includes('output'))).toBe(true)
    expect(firstDivergence).toBeNull()
  })

  it('leave out what was rolled back, and are refused where one is not there', async () => {
    const hf = await open()
    let count = 0
    const work = workflow('work', async (ctx) => {
      await ctx.step('one', () => 1)
      await ctx.step('two', () => ++count)
      await ctx.waitFor('done')
    })
    const run = await hf.start(work, undefined, { id: 'a' })
    await becomes(run, 'waiting')
    const one = (await hf.debug.timeline('a')).find(({ step }) => step === 'one')?.checkpoint as string
    await run.rollback(one)
    expect((await hf.debug.diffRuns('a', 'a')).rows.map(({ name }) => name)).toEqual(['one'])
    expect(await codeOfRejection(hf.debug.diffRuns('a', 'b'))).toBe('run_not_found')
    expect(await codeOfRejection(hf.as('other').debug.diffRuns('a', 'a'))).toBe('run_not_found')
  })
})
