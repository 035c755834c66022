// biome-ignore-all lint/suspicious/noAssignInExpressions: recipes are written the way users write them
import { state, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { becomes, codeOfRejection } from './runs.ts'
import { onEveryStore } from './stores.ts'

interface Notes {
  texts: string[]
}

const notes = state({ version: 1, initial: (): Notes => ({ texts: [] }) })

const note = workflow({ name: 'note', state: notes }, async (ctx, text: string) => {
  await ctx.step('write', (step) => step.update((draft) => void draft.texts.push(text)))
  if (text === 'flaw') throw new Error('flaw')
  return ctx.state.texts
})

const stay = workflow({ name: 'stay', state: notes }, async (ctx) => {
  await ctx.step('write', (step) => step.update((draft) => void draft.texts.push('stays')))
  await ctx.waitFor('done')
})

onEveryStore('rewinding a thread', ({ open }) => {
  it('takes the state back, keeps the log, executes nothing, and the next run starts from there', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(note, 'one', { id: 'first' })
    const before = (await hf.runs.get('first').then((run) => run.info())).checkpoint as string
    await thread.run(note, 'two')
    await thread.run(note, 'three')
    const head = (await thread.info()).checkpoint as string
    const events = (await thread.checkpoints()).length
    await thread.rewind(before, { by: 'ann' })
    expect(await thread.state()).toEqual({ texts: ['one'] })
    expect(await thread.stateAt(head)).toEqual({ texts: ['one', 'two', 'three'] })
    expect(await thread.checkpoints()).toHaveLength(events + 1)
    expect(await thread.run(note, 'four')).toEqual(['one', 'four'])
    // It can be taken back itself.
    await thread.rewind(head)
    expect(await thread.run(note, 'five')).toEqual(['one', 'two', 'three', 'five'])
    const decisions = await hf.debug.audit('t')
    expect(decisions).toMatchObject([
      { decision: 'rewound', by: 'ann', to: before, runId: null },
      { decision: 'rewound', by: null, to: head },
    ])
    const now = (await thread.info()).checkpoint as string
    expect(await hf.debug.blame(now, 'texts[1]')).toMatchObject({
      value: 'two',
      last: { step: 'write', through: [{ event: 'thread_rewound' }] },
    })
    expect(await hf.debug.blame(now, 'texts[0]')).toMatchObject({ value: 'one', last: { runId: 'first', step: 'write' } })
    expect((await hf.debug.timeline('t')).at(-1)).toMatchObject({ stepCount: 4 })
  })

  it('to before anything was written leaves no state, and a versioned one starts anew', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(note, 'one', { id: 'first' })
    await thread.rewind('t@1')
    expect(await thread.state()).toBeUndefined()
    expect(await thread.info()).toMatchObject({ stateVersion: 0 })
    expect(await thread.run(note, 'two')).toEqual(['two'])
  })

  it('brings the version of the state that was there, without running a migration', async () => {
    const newer = state({
      version: 2,
      initial: () => ({ texts: [] as string[], mood: 'new' }),
      migrations: { 1: (old) => ({ ...old, mood: 'migrated' }) },
    })
    const later = workflow({ name: 'later', state: newer }, async (ctx) => {
      await ctx.step('write', (step) => step.update((draft) => void draft.texts.push('later')))
      return ctx.state
    })
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(note, 'one', { id: 'first' })
    const before = (await thread.info()).checkpoint as string
    await thread.run(later, undefined)
    expect(await thread.info()).toMatchObject({ stateVersion: 2 })
    await thread.rewind(before)
    expect(await thread.info()).toMatchObject({ stateVersion: 1 })
    expect(await thread.state()).toEqual({ texts: ['one'] })
    expect(await thread.run(note, 'two')).toEqual(['one', 'two'])
    expect(await thread.run(later, undefined)).toEqual({ texts: ['one', 'two', 'later'], mood: 'migrated' })
  })

  it('is a conflict under a run in flight, whatever it does', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(note, 'one')
    const run = await thread.start(stay, undefined)
    await becomes(run, 'waiting')
    expect(await codeOfRejection(thread.rewind('t@1'))).toBe('conflict')
    await run.pause()
    await expect(thread.rewind('t@1')).rejects.toThrow(/can't be rewound to t@1: run ".*" is paused \(asked\)/)
    const queued = await thread.start(note, 'two', { delayMs: 3_600_000 })
    await run.cancel()
    expect(await codeOfRejection(thread.rewind('t@1'))).toBe('conflict')
    await queued.cancel()
    await thread.rewind('t@1')
    expect(await thread.state()).toBeUndefined()
  })

  it('makes retry, rollback and resume of earlier runs a conflict', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(note, 'one', { id: 'first' })
    const before = (await thread.info()).checkpoint as string
    const run = await thread.start(note, 'flaw', { id: 'second' })
    await becomes(run, 'failed')
    await thread.rewind(before)
    await expect(run.retry()).rejects.toThrow(/"second" can't be retried: thread "t" was rewound since it ended/)
    expect(await codeOfRejection(run.rollback(`t@${(await run.events())[0]?.seq}`))).toBe('conflict')
    expect(await codeOfRejection(run.resume())).toBe('conflict')
    const first = await hf.runs.get('first')
    expect(await codeOfRejection(first.rollback('t@2'))).toBe('conflict')
    expect(await codeOfRejection(thread.start(note, 'flaw', { id: 'second', ifFailed: 'retry' }))).toBe('conflict')
    expect(await thread.run(note, 'three')).toEqual(['one', 'three'])
  })

  it('refuses what is no checkpoint of the thread, and unknown options', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(note, 'one')
    expect(await codeOfRejection(thread.rewind('t@99'))).toBe('invalid_id')
    expect(await codeOfRejection(thread.rewind('other@1'))).toBe('invalid_id')
    expect(await codeOfRejection(thread.rewind('no such label'))).toBe('invalid_id')
    expect(await codeOfRejection(thread.rewind('t@1', { who: 'ann' } as never))).toBe('invalid_input')
    expect(await codeOfRejection(thread.rewind('t@1', { by: 7 } as never))).toBe('invalid_input')
    await thread.delete()
    expect(await codeOfRejection(thread.rewind('t@1'))).toBe('thread_deleted')
    expect(await codeOfRejection(hf.thread('never').rewind('never@1'))).toBe('invalid_id')
  })

  it('accepts a label, and to where the thread is does nothing', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(note, 'one')
    await thread.tag((await thread.info()).checkpoint as string, 'good')
    await thread.rewind('good')
    const { checkpoint } = await thread.info()
    await thread.update<Notes>((draft) => void draft.texts.push('by hand'), { by: 'bob' })
    expect((await hf.debug.audit('t')).at(-1)).toMatchObject({ decision: 'edited', by: 'bob' })
    await thread.rewind('good')
    expect(await thread.state()).toEqual({ texts: ['one'] })
    expect(checkpoint).toBe(`t@${(await thread.checkpoints()).findLast(({ label }) => label === 'good')?.seq}`)
  })

  it('from two clients at once happens whole, one after the other', async () => {
    const [one, two] = [await open(), await open()]
    await one.thread('t').run(note, 'one')
    const first = (await one.thread('t').info()).checkpoint as string
    await one.thread('t').run(note, 'two')
    const second = (await one.thread('t').info()).checkpoint as string
    await one.thread('t').run(note, 'three')
    await Promise.all([
      one.thread('t').rewind(first),
      two.thread('t').rewind(second),
      one.thread('t').update<Notes>((draft) => void draft.texts.push('by hand')),
    ])
    const log = (await one.debug.audit('t')).map(({ decision, to }) => to ?? decision)
    let expected: string[] = ['one', 'two', 'three']
    for (const entry of log) {
      if (entry === first) expected = ['one']
      else if (entry === second) expected = ['one', 'two']
      else expected = [...expected, 'by hand']
    }
    expect(await two.thread('t').state()).toEqual({ texts: expected })
  })
})
