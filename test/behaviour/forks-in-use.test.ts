// biome-ignore-all lint/suspicious/noAssignInExpressions: recipes are written the way users write them
import { type Holdfast, plan, state, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import { becomes, codeOfRejection, gate, logged } from './runs.ts'
import { onEveryStore } from './stores.ts'

interface Notes {
  texts: string[]
}

const notes = state({ version: 1, initial: (): Notes => ({ texts: [] }) })
const newerNotes = state({
  version: 2,
  initial: () => ({ texts: [] as string[], isNew: true }),
  migrations: { 1: (old: Notes) => ({ texts: ['heading', ...old.texts], isNew: true }) },
})

const noteWith = (definition: typeof notes | typeof newerNotes) =>
  workflow({ name: 'note', state: definition as typeof notes }, async (ctx, text: string) => {
    await ctx.step('write', (step) => step.update((draft) => void draft.texts.push(text)))
    return ctx.state.texts
  })
const note = noteWith(notes)

onEveryStore('a fork in use', ({ open, openMortal, advance }) => {
  it('takes a recorded effect whose key was made of the id of the run', async () => {
    const hf = await open()
    let sent = 0
    const pay = workflow('pay', async (ctx) => {
      const receipt = await ctx.once('pay', { key: `pay-${ctx.runId}`, run: () => `receipt ${++sent}` })
      await ctx.waitFor('word')
      const fee = await ctx.once('fee', { key: `fee-${ctx.runId}`, run: (key) => key })
      return [receipt, fee]
    })
    const run = await hf.start(pay, undefined, { id: 'original' })
    await becomes(run, 'waiting')
    const fork = await hf.thread('original').fork((await run.info()).checkpoint as string)
    const copy = await fork.resume()
    await hf.signal(copy.id, 'word')
    expect(await copy.result()).toEqual(['receipt 1', `fee-${copy.id}`])
    await run.cancel()
  })

  it('says where it came from in all that its run does, also after ctx.continueAs', async () => {
    const hf = await open()
    const count = workflow('count', async (ctx, n: number): Promise<number> => {
      await ctx.step('count', () => n)
      await ctx.waitFor('word')
      return n < 2 ? ctx.continueAs(n + 1) : n
    })
    const run = await hf.start(count, 0, { id: 'original' })
    await becomes(run, 'waiting')
    const fork = await hf.thread('original').fork((await hf.thread('original').info()).checkpoint as string)
    const copy = await fork.resume()
    for (let n = 0; n < 3; n++) await hf.signal(copy.id, 'word')
    expect(await copy.result()).toBe(2)
    expect(await copy.info()).toMatchObject({ forkedFrom: fork.forkedFrom })
    expect((await hf.runs.list({ threadId: fork.id })).items).toMatchObject([{ forkedFrom: fork.forkedFrom }])
    expect((await hf.debug.explain(copy.id)).text).toContain(fork.forkedFrom)
    await run.cancel()
  })

  it('began when it was made, however long ago its original did', async () => {
    const hf = await open()
    const work = workflow('work', async (ctx) => {
      await ctx.step('one', () => 1)
      await ctx.waitFor('go')
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await becomes(run, 'waiting')
    advance(3_600_000)
    const fork = await hf.thread('original').fork((await run.info()).checkpoint as string)
    const copy = await fork.resume()
    await hf.signal(copy.id, 'go')
    await copy.result()
    const { createdAt, startedAt, finishedAt } = await copy.info()
    expect(startedAt).toBe(createdAt)
    const { b } = await hf.debug.diffRuns('original', copy.id)
    expect(b.durationMs).toBe((finishedAt as number) - createdAt)
  })

  it('has the whole time of a section that was open', async () => {
    const hf = await open()
    const limit = { timeoutMs: 60_000, retry: { attempts: 1 } }
    const work = workflow('work', async (ctx) => {
      const talk = async () => {
        await ctx.step('ask', () => 1)
        return ctx.waitFor('answer')
      }
      return Promise.all([ctx.section('talk', talk, limit), ctx.section('undoable', talk, { ...limit, undo: () => {} })])
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await becomes(run, 'waiting')
    advance(50_000)
    const fork = await hf.thread('original').fork((await run.info()).checkpoint as string)
    advance(30_000)
    await becomes(run, 'failed')
    const copy = await fork.resume()
    await becomes(copy, 'waiting')
    for (const answer of ['yes', 'no']) await hf.signal(copy.id, 'answer', answer)
    expect(((await copy.result()) as string[]).toSorted()).toEqual(['no', 'yes'])
  })

  it('does not take over an order to undo that its original was given and had not begun with', async () => {
    const undone: string[] = []
    const book = workflow('book', async (ctx) => {
      await ctx.step('flight', () => 1, { undo: () => void undone.push('flight') })
      if (!isPatient) await ctx.step('hotel', (step) => new Promise((_, reject) => step.signal.addEventListener('abort', reject)))
      return ctx.waitFor('go')
    })
    let isPatient = false
    const mortal = await openMortal({ workflows: [book] }, { after: 'undo_ordered' })
    const run = await mortal.hf.start(book, undefined, { id: 'original' })
    await logged(run, 'step_completed')
    void run.cancel().catch(() => {})
    await mortal.dead
    isPatient = true
    const reader = await open({ worker: false })
    const [last] = (await reader.thread('original').checkpoints()).reverse()
    expect((await (await reader.runs.get('original')).events()).find(({ seq }) => seq === last?.seq)?.type).toBe('undo_ordered')
    const fork = await reader.thread('original').fork(last?.checkpoint as string)
    advance(11_000)
    const hf = await open({ workflows: [book] })
    await becomes(await hf.runs.get('original'), 'cancelled')
    expect(undone).toEqual(['flight'])
    const copy = await hf.runs.get(fork.runId as string)
    await copy.resume()
    await hf.signal(copy.id, 'go', 'on')
    expect(await copy.result()).toBe('on')
    expect(undone).toEqual(['flight'])

    const next = await hf.start(book, undefined, { id: 'next' })
    await becomes(next, 'waiting')
    await hf.close()
    const cancelling = reader.runs.get('next').then((one) => one.cancel())
    await becomes(await reader.runs.get('next'), 'pending')
    const other = await reader.thread('next').fork((await (await reader.runs.get('next')).info()).checkpoint as string)
    await open({ workflows: [book] })
    await cancelling
    await reader.signal(other.runId as string, 'go', 'on')
    expect(await (await other.resume()).result()).toBe('on')
    expect(undone).toEqual(['flight', 'flight'])
  })

  it('names who replaced a result in its audit, and who wrote what a replaced step of a plan brought', async () => {
    const hf = await open()
    const report = plan('report', { state: notes })
      .step('gather', () => ({ texts: ['gathered'] }))
      .step('close', ({ texts }) => ({ texts: [...texts, 'closed'] }))
    await hf.run(report, {}, { id: 'original' })
    const end = (await hf.thread('original').info()).checkpoint as string
    const fork = await hf.thread('original').fork(end, { replace: { gather: { texts: ['by hand'] } }, by: 'ann' })
    expect((await hf.debug.audit(fork.id))[0]).toMatchObject({ decision: 'forked', by: 'ann', replaced: ['gather'] })
    await (await fork.resume()).result()
    expect(await fork.state()).toEqual({ texts: ['by hand', 'closed'] })
    const head = (await fork.info()).checkpoint as string
    const { last, before } = await hf.debug.blame(head, 'texts[0]')
    expect([last?.step, last?.by, last?.runId]).toEqual(['gather', 'ann', fork.runId])
    expect(before).toEqual([])
    expect(await hf.debug.blame(head, 'texts[1]')).toMatchObject({ last: { step: 'close' } })
  })

  it('is not taken for one of another thread that has the id of its origin', async () => {
    const hf = await open()
    await hf.thread('t').run(note, 'one', { id: 'first' })
    const fork = await hf.thread('t').fork((await hf.thread('t').info()).checkpoint as string)
    const other = hf.as('other')
    // The two are told apart by the time of the checkpoint.
    advance(1)
    await other.thread('t').run(note, 'something else')
    const imported = await other.debug.import(await hf.debug.export(fork.id))
    const head = (await imported.info()).checkpoint as string
    expect((await other.debug.blame(head, 'texts[0]')).last).toMatchObject({ event: 'thread_forked', runId: null })
    expect((await hf.debug.blame(head, 'texts[0]')).last).toMatchObject({ runId: 'first', step: 'write' })
  })
})

onEveryStore('a thread', ({ open }) => {
  it('that is being worked on says a checkpoint at which it can be forked', async () => {
    const hf = await open()
    const { promise, open: release } = gate()
    const work = workflow({ name: 'work', state: notes }, async (ctx) => {
      await ctx.step('first', (step) => step.update((draft) => void draft.texts.push('first')))
      await ctx.step('slow', () => promise)
    })
    const run = await hf.start(work, undefined, { id: 't' })
    await expect.poll(async () => (await run.events()).filter(({ type }) => type === 'step_started').length).toBe(2)
    const { checkpoint } = await hf.thread('t').info()
    expect((await hf.thread('t').checkpoints()).at(-1)?.checkpoint).toBe(checkpoint)
    const fork = await hf.thread('t').fork(checkpoint as string)
    expect(await fork.state()).toEqual({ texts: ['first'] })
    release()
    await run.result()
  })

  it('that was migrated is blamed through the migration, item by item', async () => {
    const hf = await open()
    await hf.thread('t').run(note, 'one', { id: 'first' })
    await hf.thread('t').update<Notes>((draft) => void draft.texts.push('two'), { by: 'ann' })
    await hf.close()
    const newer = await open()
    await newer.thread('t').run(noteWith(newerNotes), 'three', { id: 'second' })
    const head = (await newer.thread('t').info()).checkpoint as string
    const writers = [0, 1, 2, 3].map(async (i) => (await newer.debug.blame(head, ['texts', i])).last)
    expect(await Promise.all(writers)).toMatchObject([
      { event: 'state_migrated', runId: 'second' },
      { event: 'step_completed', runId: 'first', path: ['texts', 0], through: [{ event: 'state_migrated' }] },
      { event: 'state_updated', by: 'ann', path: ['texts', 1], through: [{ event: 'state_migrated' }] },
      { event: 'step_completed', runId: 'second' },
    ])
  })

  it('that was rewound offers nothing that its ended runs refuse', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(note, 'one', { id: 'first' })
    const between = (await thread.info()).checkpoint as string
    await thread.run(note, 'two', { id: 'second' })
    expect((await hf.debug.explain('second')).actions).toMatchObject([{ action: 'rollback' }])
    await thread.rewind(between)
    const { actions, text } = await hf.debug.explain('second')
    expect(actions).toEqual([])
    expect(text).toContain(`rewound at ${(await thread.info()).checkpoint}`)
  })

  it('that never was is not said to have been deleted', async () => {
    const hf = await open()
    const never = hf.thread('never')
    const calls = [
      () => never.fork('never@1'),
      () => never.rewind('never@1'),
      () => never.tag('never@1', 'x'),
      () => never.stateAt('never@1'),
    ]
    for (const act of calls) {
      const call: Promise<unknown> = act()
      await expect(call).rejects.toThrow(/There is no thread "never"/)
      expect(await codeOfRejection(call)).toBe('invalid_id')
    }
  })

  it('says who retried a run', async () => {
    const hf = await open()
    let isDown = true
    const work = workflow('work', (ctx) =>
      ctx.step(
        'call',
        () => {
          if (isDown) throw new Error('down')
        },
        { retry: { attempts: 1 } },
      ),
    )
    const run = await hf.start(work, undefined, { id: 't' })
    await becomes(run, 'failed')
    isDown = false
    await run.retry({ by: 'ann' })
    await run.result()
    expect(await hf.debug.audit('t')).toMatchObject([{ decision: 'retried', by: 'ann' }])
    expect((await hf.debug.explain('t')).reruns).toMatchObject([{ why: 'retried', by: 'ann' }])
    expect(await codeOfRejection(run.retry({ who: 'ann' } as never))).toBe('invalid_input')
  })
})

onEveryStore('what is given wrong', ({ open }) => {
  it('is refused with a code, and nothing is written', async () => {
    const hf = await open()
    await hf.thread('t').run(note, 'one', { id: 't' })
    const thread = hf.thread('t')
    const run = await hf.runs.get('t')
    const head = (await thread.info()).checkpoint as string
    for (const wrong of [undefined, null, 7, {}] as never[]) {
      const calls = [thread.fork(wrong), thread.rewind(wrong), thread.tag(wrong, 'label'), run.rollback(wrong)]
      const reads = [thread.stateAt(wrong), hf.debug.blame(wrong, 'texts'), hf.debug.diff(wrong, head)]
      const found = await Promise.all([...calls, ...reads].map(codeOfRejection))
      expect(new Set(found)).toEqual(new Set(['invalid_id']))
    }
    for (const wrong of [null, 7, {}] as never[]) {
      const pages = [hf.debug.timeline('t', { after: wrong }), hf.debug.audit('t', { after: wrong })]
      const replay = (async () => await hf.debug.replay('t', { to: wrong }))()
      expect(await Promise.all([...pages, replay].map(codeOfRejection))).toEqual(['invalid_id', 'invalid_id', 'invalid_id'])
    }
    const wrongInputs = [
      ...[null, 'texts', [1], new Map([['write', 1]]), 7].map((replace) => thread.fork(head, { replace } as never)),
      ...[null, 7, {}].map((edit) => thread.fork(head, { edit } as never)),
      ...[undefined, null, 7].map((recipe) => thread.update(recipe as never)),
      ...[{}, { checkpoints: 1 }, []].map((history) => hf.debug.timeline(history as never)),
      ...[-1, 0, 1.5, '5'].map((limit) => thread.checkpoints({ limit } as never)),
      ...[-1, 'x'].map((after) => thread.checkpoints({ after } as never)),
      ...['write#1', 'step:write#1'].map((again) => thread.fork(head, { replace: { write: 1, [again]: 2 } })),
      thread.stateAt(head, null as never),
      thread.stateAt(head, 7 as never),
    ]
    expect(new Set(await Promise.all(wrongInputs.map(codeOfRejection)))).toEqual(new Set(['invalid_input']))
    expect((await thread.info()).checkpoint).toBe(head)
    expect((await hf.runs.list()).items).toHaveLength(1)
  })
})

onEveryStore('a thread that is deleted', ({ open, openWrapped }) => {
  it('while it is forked or rewound says so, and nothing is written', async () => {
    const add = workflow({ name: 'add', state: notes }, async (ctx, text: string) => {
      await ctx.step('add', (step) => step.update((draft) => void draft.texts.push(text)))
      await ctx.memory.session.set('last', text)
    })
    const hf = await open({ workflows: [add] })
    let callsLeft = Number.POSITIVE_INFINITY
    let threadId = ''
    const other = await openWrapped(
      (store) =>
        wrapStore(store, {
          before: async (act) => {
            if (act !== 'now' && callsLeft-- === 0) await hf.thread(threadId).delete()
          },
        }),
      { worker: false },
    )
    const acts = {
      fork: (id: string, at: string) => other.thread(id).fork(at, { threadId: `fork of ${id}` }),
      replace: (id: string, at: string) => other.thread(id).fork(at, { threadId: `fork of ${id}`, replace: { add: null } }),
      rewind: (id: string, at: string) => other.thread(id).rewind(at),
    }
    for (const [name, act] of Object.entries(acts)) {
      const codes: unknown[] = []
      for (let nth = 0; codes.at(-1) !== 'nothing was thrown'; nth++) {
        threadId = `${name} ${nth}`
        await hf.thread(threadId).run(add, 'one')
        await hf.thread(threadId).tag((await hf.thread(threadId).info()).checkpoint as string, 'one')
        await hf.thread(threadId).run(add, 'two')
        callsLeft = nth
        codes.push(await codeOfRejection(act(threadId, name === 'fork' ? 'one' : `${threadId}@${await seqOf(hf, threadId)}`)))
        callsLeft = Number.POSITIVE_INFINITY
        const { items } = await hf.runs.list({ threadId: `fork of ${threadId}` })
        if (codes.at(-1) !== 'nothing was thrown') expect([threadId, items]).toEqual([threadId, []])
      }
      expect([name, new Set(codes)]).toEqual([name, new Set(['thread_deleted', 'nothing was thrown'])])
    }
    expect((await hf.verify()).damaged).toEqual([])
  })
})

/** The position of the first checkpoint of a thread at which a run had ended. */
async function seqOf(hf: Holdfast, threadId: string): Promise<number> {
  return (await hf.thread(threadId).checkpoints()).find(({ step }) => step === 'add')?.seq as number
}
