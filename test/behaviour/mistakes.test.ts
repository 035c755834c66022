import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Context, open as openHoldfast, plan, workflow } from 'holdfast'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { failureOf } from './runs.ts'
import { onEveryStore } from './stores.ts'

onEveryStore('an option that there is not', ({ open }) => {
  const calls: Readonly<
    Record<string, [wrong: string, near: string | undefined, call: (ctx: Context, option: object) => unknown]>
  > = {
    'ctx.step': ['timeout', 'timeoutMs', (ctx, option) => ctx.step('a', () => 1, option)],
    'ctx.once': ['idempotant', 'idempotent', (ctx, option) => ctx.once('a', { run: () => 1, ...option })],
    'ctx.map': ['concurency', 'concurrency', (ctx, option) => ctx.map('a', [1], (n) => n, option)],
    'ctx.section': ['onfailure', 'onFailure', (ctx, option) => ctx.section('a', () => 1, option)],
    'ctx.waitFor': ['timeoutMS', 'timeoutMs', (ctx, option) => ctx.waitFor('a', option)],
    'ctx.ask': ['zzz', undefined, (ctx, option) => ctx.ask('a', { question: '?', ...option })],
    'ctx.call': ['detach', 'detached', (ctx, option) => ctx.call('other', 1, option)],
    'the retry of a step': ['attempt', 'attempts', (ctx, option) => ctx.step('a', () => 1, { retry: option })],
  }
  it.each(Object.entries(calls))('is refused by %s at once, with the nearest one', async (_, [wrong, near, call]) => {
    const work = workflow('work', (ctx) => call(ctx, { [wrong]: 5 }))
    const hf = await open()
    const error = await failureOf(await hf.start(work))
    expect(error).toMatchObject({
      code: 'invalid_input',
      details: { option: wrong, ...(near !== undefined && { nearest: near }) },
    })
    expect(error.message).toContain(near === undefined ? 'It has question, ' : `Did you mean "${near}"?`)
  })

  it('is refused by start, run, startMany and threads, and nothing is started', async () => {
    const work = workflow('work', () => 1)
    const hf = await open()
    const refused = { code: 'invalid_input', message: expect.stringContaining('has no option "delay". Did you mean "delayMs"?') }
    const wrong = { delay: 5 } as object
    await expect(hf.start(work, undefined, wrong)).rejects.toMatchObject(refused)
    await expect(hf.run(work, undefined, wrong)).rejects.toMatchObject(refused)
    await expect(hf.thread('t').start(work, undefined, wrong)).rejects.toMatchObject(refused)
    await expect(hf.startMany([{ workflow: work, options: wrong }])).rejects.toMatchObject({ code: 'invalid_input' })
    await expect(hf.startMany([{ workflow: work, id: 'r' } as never])).rejects.toMatchObject({ code: 'invalid_input' })
    expect((await hf.runs.list()).items).toEqual([])
  })

  it('is refused by open and its worker', async () => {
    await expect(open({ worker: { concurency: 5 } as object })).rejects.toMatchObject({
      code: 'invalid_input',
      message: 'worker of open has no option "concurency". Did you mean "concurrency"?',
    })
    await expect(open({ workflow: [] } as object)).rejects.toMatchObject({ details: { nearest: 'workflows' } })
  })
})

describe('an option that there is not', () => {
  it('is refused by workflow, plan and the step of a plan', () => {
    const refused = (near: string) =>
      expect.objectContaining({ code: 'invalid_input', details: expect.objectContaining({ nearest: near }) })
    expect(() => workflow({ name: 'w', timeout: 1 } as never, () => 1)).toThrow(refused('timeoutMs'))
    expect(() => plan('p', { states: 1 } as never)).toThrow(refused('state'))
    expect(() => plan('p').step('a', () => {}, { wieght: 1 } as never)).toThrow(refused('weight'))
  })

  it('may be undefined', () => {
    expect(workflow({ name: 'w', timeout: undefined } as never, () => 1).name).toBe('w')
  })
})

describe('open without a URL', () => {
  let folder: string
  const folderBefore = process.cwd()
  const urlBefore = process.env['HOLDFAST_URL']
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-mistakes-'))
    process.chdir(folder)
    delete process.env['HOLDFAST_URL']
  })
  afterEach(() => {
    process.chdir(folderBefore)
    if (urlBefore !== undefined) process.env['HOLDFAST_URL'] = urlBefore
    else delete process.env['HOLDFAST_URL']
    rmSync(folder, { recursive: true, force: true })
  })
  const work = workflow('work', () => 1)

  it('is refused where a variable was meant that is not set', async () => {
    const url: string | undefined = process.env['A_DATABASE_THAT_NOBODY_SET']
    await expect(openHoldfast(url)).rejects.toMatchObject({ code: 'invalid_url', message: expect.stringContaining('undefined') })
    await expect(openHoldfast(url, { workflows: [work] })).rejects.toMatchObject({ code: 'invalid_url' })
    process.env['HOLDFAST_URL'] = 'memory:'
    const hf = await openHoldfast(url)
    expect(await hf.run(work)).toBe(1)
    await hf.close()
  })

  it('takes the default where nothing was meant, also with options', async () => {
    for (const open of [() => openHoldfast(), () => openHoldfast({ workflows: [work] })]) {
      const hf = await open()
      expect(await hf.run(work)).toBe(1)
      await hf.close()
    }
  })
})
