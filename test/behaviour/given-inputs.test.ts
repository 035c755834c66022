import { randomUUID } from 'node:crypto'
import { workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { becomes, codeOfRejection } from './runs.ts'
import { onEveryStore } from './stores.ts'

const labelled = z.object({ topic: z.string().trim(), label: z.string().default(() => randomUUID()) })
const report = workflow({ name: 'report', input: labelled }, async (_ctx, input) => input)
const next = workflow({ name: 'next', input: z.number().transform((n) => n + 1) }, async (_ctx, n) => n)

onEveryStore('what a caller gives for an input with a schema', ({ open }) => {
  it('names the run: given again it is the same run, whatever the schema makes of it then', async () => {
    const hf = await open()
    const run = await hf.start(report, { topic: ' refunds' }, { id: 'r' })
    const output = await run.result()
    expect(output).toEqual({ topic: 'refunds', label: expect.any(String) })
    expect((await run.info()).input).toEqual(output)
    expect(await hf.run(report, { topic: ' refunds' }, { id: 'r' })).toEqual(output)
    expect(await hf.thread('r').run(report, { topic: ' refunds' }, { id: 'r' })).toEqual(output)
    const [again] = await hf.startMany([{ workflow: report, input: { topic: ' refunds' }, options: { id: 'r' } }])
    expect(await again.result()).toEqual(output)
  })

  it('names it exactly: something else is input_mismatch, though the schema may make the same of it', async () => {
    const hf = await open()
    await hf.run(report, { topic: ' refunds' }, { id: 'r' })
    for (const topic of ['returns', 'refunds ']) {
      expect([topic, await codeOfRejection(hf.start(report, { topic }, { id: 'r' }))]).toEqual([topic, 'input_mismatch'])
    }
    expect(await hf.run(next, 5, { id: 'n' })).toBe(6)
    // The schema makes of 4 what was given for the run.
    for (const n of [4, 6]) expect([n, await codeOfRejection(hf.start(next, n, { id: 'n' }))]).toEqual([n, 'input_mismatch'])
  })

  it('names it also by the name of the workflow, where nobody has the schema', async () => {
    const web = await open({ worker: false })
    await web.start('next', 5, { id: 'by name' })
    const hf = await open({ workflows: [next] })
    expect(await hf.run(next, 5, { id: 'by name' })).toBe(6)
    await hf.run(next, 7, { id: 'by workflow' })
    expect(await web.run('next', 7, { id: 'by workflow' })).toBe(8)
    expect(await codeOfRejection(web.start('next', 8, { id: 'by workflow' }))).toBe('input_mismatch')
  })

  it('names it by what the schema makes of it where it could not be stored itself', async () => {
    const fetching = workflow(
      { name: 'fetch', input: z.instanceof(URL).transform(({ href }) => href) },
      async (_ctx, href) => href,
    )
    const hf = await open()
    for (let times = 0; times < 2; times++)
      expect(await hf.run(fetching, new URL('https://example.com/a'), { id: 'r' })).toBe('https://example.com/a')
    const other = hf.start(fetching, new URL('https://example.com/b'), { id: 'r' })
    expect(await codeOfRejection(other)).toBe('input_mismatch')
  })

  it('is the same run as one that an earlier version started, which is named by what the schema made of it', async () => {
    // What an earlier version wrote: the checked input, and its fingerprint.
    const before = workflow('report', async (_ctx, input: { topic: string; label: string }) => input)
    const earlier = await open({ workflows: [before] })
    const output = await earlier.run(before, { topic: 'refunds', label: 'a' }, { id: 'r' })
    await earlier.close()
    const hf = await open({ workflows: [report] })
    expect(await hf.run(report, { topic: ' refunds', label: 'a' }, { id: 'r' })).toEqual(output)
    expect(await codeOfRejection(hf.start(report, { topic: 'returns', label: 'a' }, { id: 'r' }))).toBe('input_mismatch')
  })

  it('names a child: a replay calls the same one, also one that an earlier version called', async () => {
    const parentOf = (child: typeof report | string, input: { topic: string; label?: string }, id: string) =>
      workflow('parent', async (ctx) => {
        const output = await (typeof child === 'string' ? ctx.call(child, input, { id }) : ctx.call(child, input, { id }))
        await ctx.waitFor('go')
        return output
      })
    for (const [id, child, input] of [
      ['new', report, { topic: ' refunds' }],
      // Without the schema: the recorded input and fingerprint are those of an earlier version.
      ['earlier', 'report', { topic: 'refunds', label: 'a' }],
    ] as const) {
      const first = parentOf(child, input, `${id} child`)
      const before = workflow('report', async (_ctx, checked: { topic: string; label: string }) => checked)
      const one = await open({ workflows: [first, child === 'report' ? before : report] })
      const run = await one.start(first, undefined, { id })
      await becomes(run, 'waiting')
      await one.close()
      const second = parentOf(report, id === 'new' ? input : { topic: ' refunds', label: 'a' }, `${id} child`)
      const two = await open({ workflows: [second, report] })
      await two.signal(id, 'go')
      expect(await (await two.runs.get(id)).result()).toMatchObject({ topic: 'refunds' })
      await two.close()
    }
  })
})
