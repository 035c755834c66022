// biome-ignore-all lint/suspicious/noAssignInExpressions: recipes are written the way users write them
import { NotHappened, plan, state, workflow } from 'holdfast'
import { expect, it, vi } from 'vitest'
import { becomes, codeOfRejection, gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

interface Notes {
  texts: string[]
}

const notes = state({ version: 1, initial: (): Notes => ({ texts: [] }) })

/** Counts what is really executed, by run and name. */
function bodies() {
  const counts = new Map<string, number>()
  return {
    counts,
    ran: (name: string) => {
      counts.set(name, (counts.get(name) ?? 0) + 1)
      return `${name} ${counts.get(name)}`
    },
  }
}

function trip() {
  const { counts, ran } = bodies()
  const work = workflow({ name: 'trip', state: notes }, async (ctx, to: string) => {
    const plan = await ctx.step('plan', (step) => {
      step.update((draft) => void draft.texts.push(`plan for ${to}`))
      return ran('plan')
    })
    const at = await ctx.now()
    const mail = await ctx.once('mail', { run: () => ran('mail'), check: () => ({ happened: false }) })
    await ctx.checkpoint('mailed')
    const word = await ctx.waitFor<string>('word')
    const book = await ctx.step(
      'book',
      (step) => {
        step.update((draft) => void draft.texts.push(`book after ${plan}`))
        return ran('book')
      },
      { undo: () => void ran('unbook') },
    )
    return { plan, at, mail, word, book, texts: ctx.state.texts }
  })
  return { work, counts }
}

onEveryStore('forking a thread', ({ open }) => {
  it('inside a run copies its tape under a new id, paused; what is recorded is not executed again', async () => {
    const hf = await open()
    const { work, counts } = trip()
    const run = await hf.start(work, 'rome', { id: 'original' })
    await becomes(run, 'waiting')
    const fork = await hf.thread('original').fork('mailed', { by: 'ann' })
    expect(fork.forkedFrom).toMatch(/^original@\d+$/)
    const copy = await hf.runs.get(fork.runId as string)
    expect(copy.id).not.toBe('original')
    expect(copy.threadId).toBe(fork.id)
    expect(await copy.info()).toMatchObject({
      ...{ status: 'paused', reason: 'asked', forkedFrom: fork.forkedFrom, workflow: 'trip', input: 'rome' },
      completedSteps: ['plan', 'mail'],
    })
    expect(await fork.info()).toMatchObject({ id: fork.id, forkedFrom: fork.forkedFrom })
    expect(await fork.state()).toEqual({ texts: ['plan for rome'] })
    expect((await hf.debug.audit(fork.id))[0]).toMatchObject({ decision: 'forked', by: 'ann', from: fork.forkedFrom })
    const resumed = await fork.resume()
    await hf.signal(resumed.id, 'word', 'fork')
    await hf.signal('original', 'word', 'original')
    const [theirs, ours] = [(await run.result()) as object, (await resumed.result()) as object]
    expect(ours).toEqual({ ...theirs, word: 'fork', book: expect.any(String) })
    expect(Object.fromEntries(counts)).toEqual({ plan: 1, mail: 1, book: 2 })
    expect(await hf.thread('original').state()).toEqual(await fork.state())
  })

  it('between runs begins with the state alone, and needs nothing of the parent afterwards', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    const add = workflow({ name: 'add', state: notes }, async (ctx, text: string) => {
      await ctx.step('write', (step) => step.update((draft) => void draft.texts.push(text)))
      return ctx.state.texts
    })
    await thread.run(add, 'one', { id: 'first' })
    const between = (await thread.info()).checkpoint as string
    await thread.run(add, 'two')
    const fork = await thread.fork(between, { threadId: 'f' })
    expect([fork.id, fork.runId]).toEqual(['f', null])
    expect(await codeOfRejection(fork.resume())).toBe('conflict')
    expect(await fork.run(add, 'three')).toEqual(['one', 'three'])
    const head = (await fork.info()).checkpoint as string
    expect(await hf.debug.blame(head, 'texts[0]')).toMatchObject({
      last: { runId: 'first', step: 'write', through: [{ event: 'thread_forked' }] },
    })
    expect((await hf.debug.diff(between, head)).changes).toHaveLength(1)
    await thread.delete()
    expect(await fork.run(add, 'four')).toEqual(['one', 'three', 'four'])
    expect(await hf.debug.blame(head, 'texts[0]')).toMatchObject({ last: { event: 'thread_forked', runId: null } })
    expect(await codeOfRejection(hf.thread('t').fork(between))).toBe('thread_deleted')
  })

  it('with `replace` gives a recorded call another result, without its patch, and runs live from there', async () => {
    const hf = await open()
    const { work, counts } = trip()
    const run = await hf.start(work, 'rome', { id: 'original' })
    await hf.signal('original', 'word', 'go')
    await run.result()
    const end = (await run.info()).checkpoint as string
    const fork = await hf.thread('original').fork(end, { replace: { plan: 'another plan' } })
    expect(await fork.state()).toEqual({ texts: [] })
    const resumed = await fork.resume()
    await hf.signal(resumed.id, 'word', 'fork')
    expect(await resumed.result()).toMatchObject({ plan: 'another plan', word: 'fork', texts: ['book after another plan'] })
    expect(Object.fromEntries(counts)).toEqual({ plan: 1, mail: 2, book: 2 })
    const { firstDivergence } = (await hf.debug.diffRuns('original', resumed.id)) as { firstDivergence?: unknown }
    expect(firstDivergence).not.toBeNull()
    const refused = hf.thread('original').fork(end, { replace: { plans: 1 } })
    await expect(refused).rejects.toThrow(/replace names "plans", which is no call .* Near it are "plan"/)
    expect(await codeOfRejection(refused)).toBe('invalid_input')
    expect(await codeOfRejection(hf.thread('original').fork(end, { replace: { plan: () => {} } }))).toBe('value_not_storable')
  })

  it.each([
    ['an effect', 'mail', 'another mail'],
    ['a signal', 'word', 'another word'],
    ['by kind', 'signal:word', 'another word'],
    ['a step', 'book', 'another booking'],
    ['by count', 'plan#1', 'another plan'],
  ])('with `replace` of %s', async (_, name, value) => {
    const hf = await open()
    const { work } = trip()
    const run = await hf.start(work, 'rome', { id: 'original' })
    await hf.signal('original', 'word', 'go')
    await run.result()
    const fork = await hf.thread('original').fork((await run.info()).checkpoint as string, { replace: { [name]: value } })
    const resumed = await fork.resume()
    if (name !== 'book' && !name.includes('word')) await hf.signal(resumed.id, 'word', 'go')
    expect(Object.values((await resumed.result()) as object)).toContain(value)
  })

  it('with several replaced calls runs what is between them live', async () => {
    const hf = await open()
    const { counts, ran } = bodies()
    const work = workflow('work', async (ctx) => {
      const a = await ctx.step('a', () => ran('a'))
      const b = await ctx.step('b', () => `${ran('b')} after ${a}`)
      const c = await ctx.step('c', () => ran('c'))
      const d = await ctx.step('d', () => `${ran('d')} after ${c}`)
      return [a, b, c, d]
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await run.result()
    const end = (await run.info()).checkpoint as string
    const fork = await hf.thread('original').fork(end, { replace: { c: 'C', a: 'A' } })
    expect(await (await fork.resume()).result()).toEqual(['A', 'b 2 after A', 'C', 'd 2 after C'])
    expect(Object.fromEntries(counts)).toEqual({ a: 1, b: 2, c: 1, d: 2 })
    // A fork of the fork has what that has recorded.
    const info = await (await hf.runs.get(fork.runId as string)).info()
    const second = await fork.fork(info.checkpoint as string, { replace: { d: 'D' } })
    expect(await (await second.resume()).result()).toEqual(['A', 'b 2 after A', 'C', 'D'])
    expect((await second.info()).forkedFrom).toBe(info.checkpoint)
    expect(Object.fromEntries(counts)).toEqual({ a: 1, b: 2, c: 1, d: 2 })
  })

  it('with `replace` takes a name for the first call of it, and a count for the others', async () => {
    const hf = await open()
    const work = workflow('work', async (ctx) => {
      const results: unknown[] = []
      for (let n = 1; n <= 3; n++) results.push(await ctx.step('draw', () => n))
      return results
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await run.result()
    const end = (await run.info()).checkpoint as string
    for (const [replace, expected] of [
      [{ draw: 10 }, [10, 2, 3]],
      [{ 'draw#2': 20 }, [1, 20, 3]],
    ] as const) {
      const fork = await hf.thread('original').fork(end, { replace })
      expect(await (await fork.resume()).result()).toEqual(expected)
    }
  })

  it('of a call that failed lets the run continue where it failed', async () => {
    const hf = await open()
    const work = workflow('work', async (ctx) => {
      const a = await ctx.section('part', () =>
        ctx.step(
          'a',
          () => {
            throw new Error('flaw')
          },
          { retry: { attempts: 1 } },
        ),
      )
      return [a, await ctx.step('b', () => 'b')]
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await becomes(run, 'failed')
    const { checkpoint } = await run.info()
    const fork = await hf.thread('original').fork(checkpoint as string, { replace: { 'part/a': 'mended' } })
    expect(await (await fork.resume()).result()).toEqual(['mended', 'b'])
  })

  it('with `edit` changes the state before it continues', async () => {
    const hf = await open()
    const { work } = trip()
    const run = await hf.start(work, 'rome', { id: 'original' })
    await becomes(run, 'waiting')
    const fork = await hf.thread('original').fork('mailed', {
      edit: (draft: Notes) => void draft.texts.push('edited'),
      by: 'bob',
    })
    expect(await fork.state()).toEqual({ texts: ['plan for rome', 'edited'] })
    expect(await hf.thread('original').state()).toEqual({ texts: ['plan for rome'] })
    const resumed = await fork.resume()
    await hf.signal(resumed.id, 'word', 'go')
    expect(await resumed.result()).toMatchObject({ texts: ['plan for rome', 'edited', 'book after plan 1'] })
    const head = (await fork.info()).checkpoint as string
    expect(await hf.debug.blame(head, 'texts[1]')).toMatchObject({ last: { runId: null, by: 'bob', event: 'state_updated' } })
    expect(await hf.debug.blame(head, 'texts[0]')).toMatchObject({ last: { runId: 'original', step: 'plan' } })
  })

  it('undoes nothing that was copied: not on cancel, rollback, failure or time limit', async () => {
    const hf = await open()
    const undone: string[] = []
    const work = workflow({ name: 'work', undoOnFailure: true }, async (ctx, how: string) => {
      await ctx.step('a', () => 'a', { undo: () => void undone.push('a') })
      await ctx.section('s', () => ctx.step('inner', () => 1), { undo: () => void undone.push('s') })
      await ctx.once('e', { run: () => 'e', idempotent: true, undo: () => void undone.push('e') })
      await ctx.checkpoint('done')
      await ctx.waitFor('go')
      await ctx.step('b', () => 'b', { undo: () => void undone.push('b') })
      await ctx.waitFor('more')
      if (how === 'fail') throw new Error('flaw')
    })
    const run = await hf.start(work, 'fail', { id: 'original' })
    await becomes(run, 'waiting')
    const fork = async () => {
      const resumed = await (await hf.thread('original').fork('done')).resume()
      await becomes(resumed, 'waiting')
      await hf.signal(resumed.id, 'go')
      await becomes(resumed, 'waiting')
      while (!(await resumed.info()).completedSteps.includes('b')) await new Promise((resolve) => setTimeout(resolve, 5))
      await becomes(resumed, 'waiting')
      return resumed
    }
    const cancelled = await fork()
    await cancelled.cancel()
    expect(undone).toEqual(['b'])
    const failed = await fork()
    await hf.signal(failed.id, 'more')
    await becomes(failed, 'failed')
    expect(undone).toEqual(['b', 'b'])
    const rolled = await fork()
    // Also into the middle of the copied section.
    for (const name of ['s/inner', 'a']) {
      const checkpoints = await hf.thread(rolled.threadId).checkpoints()
      await rolled.rollback(checkpoints.find(({ step }) => step === name)?.checkpoint as string)
    }
    expect(undone).toEqual(['b', 'b', 'b'])
    await rolled.resume()
    await hf.signal(rolled.id, 'go')
    await becomes(rolled, 'waiting')
    const before = undone.length
    // What the fork has done itself since is its own: it came to all but 'a' again.
    await rolled.cancel()
    expect(undone.slice(before)).toEqual(['b', 'e', 's'])
    await run.cancel()
    expect(undone.slice(before + 3)).toEqual(['e', 's', 'a'])
  })

  it('begins what was open anew under its own name: an effect, a question, a child, a sleep', async () => {
    const hf = await open()
    const sent: string[] = []
    const child = workflow('child', async (ctx) => ctx.waitFor<string>('word'))
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => 'a')
      await ctx.checkpoint('begun')
      const [answer, word] = await Promise.all([
        ctx.ask<string>('name', { question: 'who?' }),
        ctx.call(child, undefined),
        ctx.sleep(3_600_000),
        ctx.step('b', () => 'b'),
      ])
      await ctx.once('mail', { run: (key) => void sent.push(key), idempotent: true })
      return [answer, word]
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await becomes(run, 'waiting')
    while (!(await run.info()).completedSteps.includes('b')) await new Promise((resolve) => setTimeout(resolve, 5))
    const here = (await run.info()).checkpoint as string
    const fork = await hf.thread('original').fork(here)
    const types = (await (await hf.runs.get(fork.runId as string)).events()).map(({ type }) => type)
    expect(types.filter((type) => /question|child|timer/.test(type))).toEqual([])
    const resumed = await fork.resume()
    await becomes(resumed, 'waiting')
    const asked = async () => (await hf.inbox()).filter((item) => item.kind === 'question')
    while ((await asked()).length < 2) await new Promise((resolve) => setTimeout(resolve, 5))
    const children = (await hf.runs.list({ workflow: 'child' })).items
    expect(children.map(({ parent }) => parent).sort()).toEqual([resumed.id, 'original'].sort())
    await resumed.cancel()
    await becomes(run, 'waiting')
    expect((await hf.runs.list({ workflow: 'child', status: 'cancelled' })).items).toHaveLength(1)
    expect(await asked()).toHaveLength(1)
    await run.cancel()
    expect(sent).toEqual([])
  })

  it('an effect with a key of its own is met again, not sent again', async () => {
    const hf = await open()
    let sent = 0
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => 'a')
      await ctx.checkpoint('begun')
      return ctx.once('mail', { key: 'mail:1', run: () => ++sent, idempotent: true })
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    expect(await run.result()).toBe(1)
    const fork = await hf.thread('original').fork('begun')
    expect(await (await fork.resume()).result()).toBe(1)
    expect(sent).toBe(1)
    expect((await (await hf.runs.get(fork.runId as string)).events()).map(({ type }) => type)).toContain('effect_skipped')
  })

  it('after a retry and a rollback has the tape as it stands there', async () => {
    const hf = await open()
    const { counts, ran } = bodies()
    let flaws = 1
    const work = workflow({ name: 'work', state: notes }, async (ctx) => {
      await ctx.step('a', (step) => {
        step.update((draft) => void draft.texts.push('a'))
        return ran('a')
      })
      await ctx.once('e', {
        run: () => {
          if (flaws-- > 0) throw new NotHappened(new Error('flaw'))
          return ran('e')
        },
        retry: { attempts: 1 },
      })
      await ctx.step('b', (step) => {
        step.update((draft) => void draft.texts.push('b'))
        return ran('b')
      })
      await ctx.waitFor('go')
      return [await ctx.step('c', () => ran('c')), ctx.state.texts]
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await becomes(run, 'failed')
    await run.retry()
    await becomes(run, 'waiting')
    const a = (await run.events()).find(({ type }) => type === 'step_completed')?.seq
    await run.rollback(`original@${a}`)
    await run.resume()
    await becomes(run, 'waiting')
    const before = Object.fromEntries(counts)
    const fork = await hf.thread('original').fork((await run.info()).checkpoint as string)
    const resumed = await fork.resume()
    await hf.signal(resumed.id, 'go')
    expect(await resumed.result()).toEqual(['c 1', ['a', 'b']])
    expect(Object.fromEntries(counts)).toEqual({ ...before, c: 1 })
    expect(await codeOfRejection(resumed.retry())).toBe('conflict')
    await run.cancel()
  })

  it('of a later tape, and of a child, belongs to nobody', async () => {
    const hf = await open()
    const child = workflow('child', async (ctx, round: number): Promise<number> => {
      await ctx.step('a', () => round)
      if (round === 1) return ctx.continueAs(2)
      await ctx.checkpoint('second')
      await ctx.waitFor('go')
      return round
    })
    const parent = workflow('parent', async (ctx) => ctx.call(child, 1, { id: 'kid' }))
    const run = await hf.start(parent, undefined, { id: 'original' })
    await becomes(run, 'waiting')
    const kid = await hf.runs.get('kid')
    while (!(await hf.thread('kid').checkpoints()).some(({ label }) => label === 'second'))
      await new Promise((resolve) => setTimeout(resolve, 5))
    await becomes(kid, 'waiting')
    const resumed = await (await hf.thread('kid').fork('second')).resume()
    expect(await resumed.info()).toMatchObject({ input: 2 })
    expect((await resumed.info()).parent).toBeUndefined()
    await hf.signal(resumed.id, 'go')
    expect(await resumed.result()).toBe(2)
    await becomes(run, 'waiting')
    await hf.signal('kid', 'go')
    expect(await run.result()).toBe(2)
  })

  it('says where it is from on each tape, also of a fork of a fork', async () => {
    const hf = await open()
    const work = workflow('work', async (ctx, round: number): Promise<number> => {
      await ctx.checkpoint(`round ${round}`)
      await ctx.waitFor('go')
      return round < 4 ? ctx.continueAs(round + 1) : round
    })
    const run = await hf.start(work, 1, { id: 'original' })
    const goTo = async (of: { readonly id: string; readonly threadId: string }, label: string) => {
      await hf.signal(of.id, 'go')
      await vi.waitUntil(async () => (await hf.thread(of.threadId).checkpoints()).some((one) => one.label === label))
    }
    await becomes(run, 'waiting')
    const first = await hf.thread('original').fork('round 1')
    const copy = await first.resume()
    await goTo(copy, 'round 2')
    expect(await copy.info()).toMatchObject({ input: 2, forkedFrom: first.forkedFrom })
    const second = await hf.thread(first.id).fork('round 2')
    const copyOfCopy = await second.resume()
    expect(await copyOfCopy.info()).toMatchObject({ input: 2, forkedFrom: second.forkedFrom })
    await goTo(copyOfCopy, 'round 3')
    expect(await copyOfCopy.info()).toMatchObject({ input: 3, forkedFrom: second.forkedFrom })
    for (const { id, forkedFrom } of (await hf.runs.list()).items)
      expect(forkedFrom).toBe({ [copy.id]: first.forkedFrom, [copyOfCopy.id]: second.forkedFrom }[id])
    for (const one of [run, copy, copyOfCopy]) await one.cancel()
  })

  it('shows both sides where the code no longer matches', async () => {
    const hf = await open()
    const version = (step: string) =>
      workflow('work', async (ctx) => {
        await ctx.step(step, () => 1)
        await ctx.waitFor('go')
      })
    const run = await hf.start(version('old'), undefined, { id: 'original' })
    await becomes(run, 'waiting')
    const fork = await hf.thread('original').fork((await run.info()).checkpoint as string)
    await hf.close()
    const other = await open({ workflows: [version('new')] })
    const copy = await other.runs.get(fork.runId as string)
    await copy.resume()
    await expect(copy.result()).rejects.toThrow(/old.*new|new.*old/)
    expect(await copy.info()).toMatchObject({ status: 'paused', reason: 'mismatch' })
  })

  it('refuses what is taken, unknown or wrong, and writes nothing then', async () => {
    const hf = await open()
    const { work } = trip()
    const run = await hf.start(work, 'rome', { id: 'original' })
    await becomes(run, 'waiting')
    const thread = hf.thread('original')
    expect(await codeOfRejection(thread.fork('mailed', { threadId: 'original' }))).toBe('conflict')
    expect(await codeOfRejection(thread.fork('original@999'))).toBe('invalid_id')
    expect(await codeOfRejection(thread.fork('nowhere'))).toBe('invalid_id')
    expect(await codeOfRejection(thread.fork('mailed', { threadId: '' }))).toBe('invalid_id')
    expect(await codeOfRejection(thread.fork('mailed', { replaced: {} } as never))).toBe('invalid_input')
    expect(await codeOfRejection(thread.fork('mailed', { edit: async () => {} }))).toBe('invalid_input')
    expect(await codeOfRejection(thread.fork('original@1', { replace: { plan: 1 } }))).toBe('invalid_input')
    expect(await codeOfRejection(hf.as('other').thread('original').fork('mailed'))).toBe('invalid_id')
    expect((await hf.runs.list()).items).toHaveLength(1)
    await run.cancel()
  })

  it('exported and imported keeps where it came from', async () => {
    const hf = await open()
    const { work } = trip()
    const run = await hf.start(work, 'rome', { id: 'original' })
    await becomes(run, 'waiting')
    const fork = await hf.thread('original').fork('mailed')
    const bundle = await hf.debug.export(fork.id)
    const other = hf.as('other')
    await other.debug.import(bundle)
    expect(await other.thread(fork.id).info()).toMatchObject({ forkedFrom: fork.forkedFrom })
    const copy = await other.runs.get(fork.runId as string)
    await copy.resume()
    await other.signal(copy.id, 'word', 'go')
    expect(await copy.result()).toMatchObject({ word: 'go' })
    await run.cancel()
  })

  it('makes what it makes again under names of its own: the child and the effect of a copied failure', async () => {
    const hf = await open()
    const keys: string[] = []
    let flaws = 2
    const flawed = () => {
      if (flaws-- > 0) throw new NotHappened(new Error('flaw'))
      return 'done'
    }
    const kid = workflow('kid', async (ctx) => ctx.step('work', flawed, { retry: { attempts: 1 } }))
    const mailing = {
      retry: { attempts: 1 },
      run: (key: string) => {
        keys.push(key)
        return flawed()
      },
    }
    const work = workflow('work', async (ctx) => {
      const done = await Promise.allSettled([ctx.call(kid, undefined), ctx.once('mail', mailing)])
      await ctx.checkpoint('tried')
      for (const one of done) if (one.status === 'rejected') throw one.reason
      return done.length
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await becomes(run, 'failed')
    const before = await hf.debug.export('original/kid#1')
    const copy = await (await hf.thread('original').fork('tried')).resume()
    await becomes(copy, 'failed')
    expect(keys).toHaveLength(1)
    // Each retry tries what failed it: first the child, then the effect.
    await copy.retry()
    await copy.result().catch(() => copy.retry())
    expect(await copy.result()).toBe(2)
    expect((await hf.debug.export('original/kid#1')).sha256).toBe(before.sha256)
    expect((await hf.runs.list({ workflow: 'kid' })).items.map(({ parent }) => parent).sort()).toEqual(
      [copy.id, 'original'].sort(),
    )
    await run.retry()
    await run.result().catch(() => run.retry())
    expect(await run.result()).toBe(2)
    expect([keys.length, new Set(keys).size, keys[0] === keys[2]]).toEqual([3, 2, true])
  })

  it('inside a step of ctx.begin continues in it', async () => {
    const hf = await open()
    const work = workflow('work', async (ctx) => {
      const loop = await ctx.begin<string>('loop')
      const a = await ctx.step('a', () => 'a')
      await ctx.waitFor('go')
      return loop.complete(`${a} and more`)
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    while (!(await run.info()).completedSteps.includes('a')) await new Promise((resolve) => setTimeout(resolve, 5))
    const resumed = await (await hf.thread('original').fork((await run.info()).checkpoint as string)).resume()
    await hf.signal(resumed.id, 'go')
    expect(await resumed.result()).toBe('a and more')
    await run.cancel()
  })

  it('does not take an effect for done that a person said has not happened', async () => {
    const hf = await open()
    let sent = 0
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => 'a')
      await ctx.checkpoint('begun')
      const mail = await ctx.once('mail', {
        run: () => {
          if (++sent === 1) throw new Error('no answer')
          return sent
        },
      })
      await ctx.waitFor('go')
      return mail
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await becomes(run, 'waiting')
    const key = ((await hf.inbox())[0] as { key: string }).key
    await run.rollback('begun')
    await hf.resolve(key, { happened: false })
    await run.resume()
    while (sent < 2) await new Promise((resolve) => setTimeout(resolve, 5))
    await becomes(run, 'waiting')
    const at = (await hf.thread('original').checkpoints()).find(({ label }) => label === 'begun')
    const resolved = (await hf.thread('original').checkpoints()).find(({ seq, step }) => seq > (at?.seq ?? 0) && step === 'mail')
    const fork = await hf.thread('original').fork(resolved?.checkpoint as string)
    const resumed = await fork.resume()
    await hf.signal(resumed.id, 'go')
    expect(typeof (await resumed.result())).toBe('number')
    await run.cancel()
  })

  it('takes what a person decided first for no result, where it is another than the last', async () => {
    const hf = await open()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => 'a')
      return ctx.once('mail', {
        run: () => {
          throw new Error('no answer')
        },
      })
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    const decide = async (decision: { happened: boolean; result?: unknown }) => {
      const { key } = await vi.waitUntil(async () => (await hf.inbox())[0] as { key: string } | undefined)
      await hf.resolve(key, decision)
    }
    await decide({ happened: false })
    await decide({ happened: true, result: 'sent' })
    expect(await run.result()).toBe('sent')
    const fork = await hf.thread('original').fork((await run.info()).checkpoint as string, { replace: { mail: 'other' } })
    const copy = await fork.resume()
    expect(await copy.result()).toBe('other')
    const decided = (await fork.checkpoints()).find(({ step }) => step === 'mail')
    await copy.rollback(decided?.checkpoint as string)
    await copy.resume()
    expect(await copy.result()).toBe('sent')
  })

  it('of a fork replaces a result that the first was given for later', async () => {
    const hf = await open()
    const { ran } = bodies()
    const work = workflow('work', async (ctx) => {
      const a = await ctx.step('a', () => ran('a'))
      const b = await ctx.step('b', () => `${ran('b')} after ${a}`)
      const c = await ctx.step('c', () => ran('c'))
      return [a, b, c]
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await run.result()
    const fork = await hf.thread('original').fork((await run.info()).checkpoint as string, { replace: { a: 'A', c: 'C' } })
    const early = await fork.fork((await fork.info()).checkpoint as string, { replace: { c: 'C2' } })
    expect(await (await early.resume()).result()).toEqual(['A', 'b 2 after A', 'C2'])
    const resumed = await fork.resume()
    expect(await resumed.result()).toEqual(['A', 'b 3 after A', 'C'])
    const late = await fork.fork((await resumed.info()).checkpoint as string, { replace: { c: 'C3' } })
    expect(await (await late.resume()).result()).toEqual(['A', 'b 4 after A', 'C3'])
    // A rollback of the fork does not take back what it was given.
    const again = await hf.thread('original').fork((await run.info()).checkpoint as string, { replace: { a: 'A', c: 'C' } })
    const rolled = await again.resume()
    await rolled.result()
    const first = (await again.checkpoints()).find(({ step }) => step === 'a')?.checkpoint as string
    await rolled.rollback(first)
    await rolled.resume()
    expect(await rolled.result()).toEqual(['A', 'b 6 after A', 'C'])
  })

  it('rolled back asks again, and leaves the answer of the original alone', async () => {
    const hf = await open()
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('begun')
      const word = await ctx.ask<string>('word', { question: 'which word?' })
      await ctx.waitFor('go')
      return word
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await becomes(run, 'waiting')
    await hf.answer('original', 'word', 'first', { by: 'ann' })
    await vi.waitUntil(async () => (await run.events()).some(({ type }) => type === 'question_answered'))
    await becomes(run, 'waiting')
    const fork = await hf.thread('original').fork((await run.info()).checkpoint as string)
    const copy = await hf.runs.get(fork.runId as string)
    await copy.rollback('begun')
    await fork.resume()
    await vi.waitUntil(async () => (await hf.inbox()).some(({ runId }) => runId === copy.id))
    expect(await codeOfRejection(hf.answer('original', 'word', 'other', { by: 'bob' }))).toBe('already_answered')
    await hf.answer(copy.id, 'word', 'second', { by: 'bob' })
    for (const { id } of [run, copy]) await hf.signal(id, 'go')
    expect([await run.result(), await copy.result()]).toEqual(['first', 'second'])
  })

  it('does not undo as a whole what was begun by the original', async () => {
    const hf = await open()
    const undone: string[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.section(
        's',
        async () => {
          await ctx.step('booking', () => ctx.runId)
          await ctx.waitFor('go')
        },
        { undo: () => void undone.push('s') },
      )
      await ctx.waitFor('more')
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await becomes(run, 'waiting')
    const resumed = await (await hf.thread('original').fork((await run.info()).checkpoint as string)).resume()
    await hf.signal(resumed.id, 'go')
    while (!(await resumed.info()).completedSteps.includes('s')) await new Promise((resolve) => setTimeout(resolve, 5))
    await resumed.cancel()
    expect(undone).toEqual([])
    await run.cancel()
  })

  it('undoes as a whole a section in which the original had done nothing yet', async () => {
    const hf = await open()
    const undone: string[] = []
    let flaws = 1
    const work = workflow('work', async (ctx) => {
      await ctx.section(
        's',
        async () => {
          await ctx.waitFor('go')
          await ctx.step(
            'try',
            () => {
              if (flaws-- > 0) throw new Error('flaw')
            },
            { retry: { attempts: 1 } },
          )
          await ctx.waitFor('again')
          await ctx.step('booking', () => ctx.runId)
        },
        { retry: { attempts: 2, minMs: 1 }, undo: () => void undone.push('s') },
      )
      await ctx.waitFor('more')
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await hf.signal('original', 'go')
    await vi.waitUntil(async () => (await run.events()).some(({ type, step }) => type === 'step_failed' && step === 's'))
    const failed = (await run.events()).find(({ type, step }) => type === 'step_failed' && step === 's')
    const resumed = await (await hf.thread('original').fork(`original@${failed?.seq}`)).resume()
    await hf.signal(resumed.id, 'again')
    await vi.waitUntil(async () => (await resumed.info()).completedSteps.includes('s'))
    await resumed.cancel()
    expect(undone).toEqual(['s'])
    await run.cancel()
    expect(undone).toEqual(['s'])
  })

  it('of a copy goes back to what had been rolled back before it was made', async () => {
    const hf = await open()
    const { counts, ran } = bodies()
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('begun')
      const done = await ctx.section('s', async () => {
        await ctx.step('a', () => ran('a'))
        return ctx.waitFor('go')
      })
      await ctx.waitFor('more')
      return done
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await becomes(run, 'waiting')
    await run.rollback('begun')
    const first = await hf.thread('original').fork((await run.info()).checkpoint as string)
    const copied = (await (await hf.runs.get(first.runId as string)).events()).find(
      ({ step, type }) => step === 's/a' && type === 'step_completed',
    )
    const second = await (await hf.thread(first.id).fork(`${first.id}@${copied?.seq}`)).resume()
    await hf.signal(second.id, 'go', 'went')
    await hf.signal(second.id, 'more')
    expect(await second.result()).toBe('went')
    expect(counts.get('a')).toBe(1)
    for (const one of [run, await hf.runs.get(first.runId as string)]) await one.cancel()
  })

  it('of a copy replaces a step of a plan once more', async () => {
    const hf = await open()
    const trip = plan('trip', { state: state({ version: 1, initial: () => ({ to: '', by: '' }) }) })
      .step('where', () => ({ to: 'oslo' }))
      .step('how', ({ to }) => ({ by: `the train to ${to}` }))
    const run = await hf.start(trip, {}, { id: 'plan' })
    await run.result()
    const first = await hf.thread('plan').fork((await run.info()).checkpoint as string, { replace: { where: { to: 'bern' } } })
    const checkpoint = (await first.info()).checkpoint as string
    const second = await hf.thread(first.id).fork(checkpoint, { replace: { where: { to: 'rome' } } })
    expect(await (await second.resume()).result()).toEqual({ to: 'rome', by: 'the train to rome' })
    await (await hf.runs.get(first.runId as string)).cancel()
  })

  it('with `replace` of a section leaves nothing of it, and of a plan step merges what it is given', async () => {
    const hf = await open()
    const work = workflow({ name: 'work', state: notes }, async (ctx) => {
      await ctx.section('s', async () => {
        await ctx.step('a', (step) => step.update((draft) => void draft.texts.push('a')))
        ctx.update((draft) => void draft.texts.push('b'))
        return 'section'
      })
      ctx.update((draft) => void draft.texts.push('c'))
      await ctx.step('end', () => 1)
      return ctx.state.texts
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    expect(await run.result()).toEqual(['a', 'b', 'c'])
    const fork = await hf.thread('original').fork((await run.info()).checkpoint as string, { replace: { s: 'other' } })
    expect(await (await fork.resume()).result()).toEqual(['c'])
    const trip = plan('trip', { state: state({ version: 1, initial: () => ({ from: '', to: '', by: '' }) }) })
      .step('where', () => ({ from: 'rome', to: 'oslo' }))
      .step('how', ({ to }) => ({ by: `the train to ${to}` }))
    const planned = await hf.start(trip, {}, { id: 'plan' })
    await planned.result()
    const end = (await planned.info()).checkpoint as string
    const other = await hf.thread('plan').fork(end, { replace: { where: { to: 'bern' } } })
    expect(await (await other.resume()).result()).toEqual({ from: '', to: 'bern', by: 'the train to bern' })
    expect(await codeOfRejection(hf.thread('plan').fork(end, { replace: { where: 'bern' } }))).toBe('invalid_input')
    expect(await codeOfRejection(hf.thread('plan').fork(end, { replace: { where: {}, how: {} } }))).toBe('invalid_input')
  })

  it('with `replace` of what came after a failure that was retried tries that again', async () => {
    const hf = await open()
    let flaws = 1
    const work = workflow('work', async (ctx) => {
      const flawed = () => {
        if (flaws-- > 0) throw new Error('flaw')
        return 'x'
      }
      const [x, y] = await Promise.allSettled([
        ctx.step('x', flawed, { retry: { attempts: 1 } }),
        new Promise<void>((resolve) => setTimeout(resolve, 20)).then(() => ctx.step('y', () => 'y')),
      ])
      if (x.status === 'rejected') throw x.reason
      return [x.value, y.status === 'fulfilled' ? y.value : null]
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await becomes(run, 'failed')
    await run.retry()
    expect(await run.result()).toEqual(['x', 'y'])
    const fork = await hf.thread('original').fork((await run.info()).checkpoint as string, { replace: { y: 'Y' } })
    expect(await (await fork.resume()).result()).toEqual(['x', 'Y'])
  })

  it('keeps who edited the state by hand, and edits it by the definition of its own run', async () => {
    const hf = await open()
    const newer = state({
      version: 2,
      initial: () => ({ texts: [] as string[], n: 0 }),
      migrations: { 1: (old) => ({ ...old, n: 1 }) },
    })
    const { work } = trip()
    const run = await hf.start(work, 'rome', { id: 'original' })
    await becomes(run, 'waiting')
    await run.pause()
    await hf.thread('original').update<Notes>((draft) => void draft.texts.push('by ann'), { by: 'ann' })
    await run.resume()
    await becomes(run, 'waiting')
    await hf.signal('original', 'word', 'go')
    await run.result()
    const end = (await run.info()).checkpoint as string
    await hf.thread('original').run(
      workflow(
        { name: 'trip', state: newer, version: 2 },
        async (ctx) => void (await ctx.step('s', (step) => step.update((draft) => void draft.n++))),
      ),
      undefined,
    )
    const fork = await hf.thread('original').fork(end, {
      replace: { book: 'other' },
      edit: (draft: Notes) => void draft.texts.push('edited'),
    })
    expect(await fork.info()).toMatchObject({ stateVersion: 1 })
    expect((await hf.debug.audit(fork.id)).filter(({ decision }) => decision === 'edited').map(({ by }) => by)).toEqual([
      'ann',
      null,
    ])
    expect(await (await fork.resume()).result()).toMatchObject({ book: 'other', texts: ['plan for rome', 'by ann', 'edited'] })
    expect((await hf.debug.explain(fork.runId as string)).reruns.map(({ why }) => why)).toEqual(['resumed'])
    // Nothing to replace is as if it were not there.
    expect((await hf.thread('original').fork(end, { replace: {} })).runId).toBeNull()
  })

  it('is a conflict where what was done is being undone', async () => {
    const hf = await open()
    const { promise, open: let_ } = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => 'a', { undo: () => promise })
      await ctx.step('b', () => 'b', { undo: () => {} })
      await ctx.waitFor('never')
    })
    const run = await hf.start(work, undefined, { id: 'original' })
    await becomes(run, 'waiting')
    const cancelled = run.cancel()
    while (!(await run.events()).some(({ type }) => type === 'step_undone'))
      await new Promise((resolve) => setTimeout(resolve, 5))
    const undone = (await hf.thread('original').checkpoints()).at(-1)?.checkpoint as string
    expect(await codeOfRejection(hf.thread('original').fork(undone))).toBe('conflict')
    let_()
    await cancelled
  })
})
