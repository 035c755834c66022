import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Database from 'better-sqlite3'
import { type Context, open as openHoldfast, type StepHandle, workflow } from 'holdfast'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { eventTypes, failureOf } from './runs.ts'
import { onEveryStore } from './stores.ts'

const echo = workflow('echo', (ctx, input: unknown) => ctx.step('echo', () => input))

describe('open', () => {
  let folder: string
  const folderBefore = process.cwd()
  const urlBefore = process.env['HOLDFAST_URL']

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-open-'))
  })
  afterEach(() => {
    process.chdir(folderBefore)
    if (urlBefore === undefined) delete process.env['HOLDFAST_URL']
    else process.env['HOLDFAST_URL'] = urlBefore
    rmSync(folder, { recursive: true, force: true })
  })

  it('without a URL takes $HOLDFAST_URL', async () => {
    const file = join(folder, 'from-the-environment.db')
    process.env['HOLDFAST_URL'] = `sqlite:${file}`
    const hf = await openHoldfast()
    expect(await hf.run(echo, 1)).toBe(1)
    await hf.close()
    expect(existsSync(file)).toBe(true)
  })

  it('without either takes .holdfast/holdfast.db in the current folder', async () => {
    delete process.env['HOLDFAST_URL']
    process.chdir(folder)
    const hf = await openHoldfast()
    expect(await hf.run(echo, 1)).toBe(1)
    await hf.close()
    expect(existsSync(join(folder, '.holdfast', 'holdfast.db'))).toBe(true)
  })

  it('takes a SQLite handle that the user opened, and leaves it open', async () => {
    const db = new Database(join(folder, 'mine.db'))
    db.exec('CREATE TABLE mine (n INTEGER)')
    const hf = await openHoldfast(db)
    expect(await hf.run(echo, 'over my handle')).toBe('over my handle')
    await hf.close()
    expect(db.open).toBe(true)
    db.prepare('INSERT INTO mine VALUES (1)').run()
    expect(db.prepare('SELECT count(*) AS runs FROM holdfast_runs').get()).toEqual({ runs: 1 })
    const again = await openHoldfast(db)
    expect((await again.runs.list()).items).toHaveLength(1)
    await again.close()
    db.close()
  })

  it("with durability: 'relaxed' does the same work", async () => {
    const hf = await openHoldfast(`sqlite:${join(folder, 'relaxed.db')}`, { durability: 'relaxed' })
    const mail = workflow('mail', async (ctx) => {
      await ctx.step('write', () => {})
      return ctx.once('send', { key: 'k', run: () => 'sent' })
    })
    expect(await hf.run(mail)).toBe('sent')
    await hf.close()
  })

  it('of memory: is empty each time', async () => {
    const first = await openHoldfast('memory:')
    const second = await openHoldfast('memory:')
    await first.run(echo, 1, { id: 'r' })
    expect((await second.runs.list()).items).toEqual([])
    await first.close()
    await second.close()
  })
})

onEveryStore('the context', ({ open }) => {
  it('knows its run, thread and owner, and has a signal', async () => {
    const who = workflow('who', async (ctx) => [ctx.runId, ctx.threadId, ctx.owner, ctx.signal.aborted])
    const hf = await open()
    expect(await hf.as('acme').thread('t').run(who, undefined, { id: 'r' })).toEqual(['r', 't', 'acme', false])
  })

  it('log lines go to the logger with the run they belong to, and are not repeated by a replay', async () => {
    const lines: unknown[] = []
    const note = (message: string, data?: unknown) => lines.push([message, data])
    const logger = { debug: () => {}, info: note, warn: note, error: () => {} }
    let isDown = true
    const chatty = workflow({ name: 'chatty', retry: { attempts: 1 } }, async (ctx: Context) => {
      ctx.log('at the start', { n: 1 })
      await ctx.step('work', (step: StepHandle) => step.log('in the step'))
      ctx.log('after the step')
      await ctx.step('end', () => {
        if (isDown) throw new Error('down')
      })
      ctx.log('at the end')
    })
    const hf = await open({ logger })
    const run = await hf.start(chatty, undefined, { id: 'r' })
    await failureOf(run)
    isDown = false
    await run.retry()
    await run.result()
    expect(lines).toEqual([
      ['at the start', { runId: 'r', n: 1 }],
      ['in the step', { runId: 'r', step: 'work', attempt: 1 }],
      ['after the step', { runId: 'r' }],
      ['at the end', { runId: 'r' }],
    ])
  })

  it('a run that takes no step at all is recorded as well', async () => {
    const plain = workflow('plain', (_, n: number) => n + 1)
    const hf = await open()
    const run = await hf.start(plain, 1)
    expect(await run.result()).toBe(2)
    expect(await eventTypes(run)).toEqual(['run_queued', 'run_started', 'run_completed'])
    expect(await run.info()).toMatchObject({ status: 'completed', completedSteps: [], stepAttempts: {} })
  })

  it('a function that throws fails the run, and retry() calls it again', async () => {
    let isDown = true
    const plain = workflow('plain', async (ctx) => {
      await ctx.step('a', () => {})
      if (isDown) throw new RangeError('outside of every step')
      return 'done'
    })
    const hf = await open()
    const run = await hf.start(plain)
    expect(await failureOf(run)).toMatchObject({ name: 'RangeError', message: 'outside of every step' })
    isDown = false
    await run.retry()
    expect(await run.result()).toBe('done')
  })
})
