import { state, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { becomes, codeOfRejection, gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

onEveryStore('explaining a run', ({ open, openMortal, advance }) => {
  it('that waits says for what, what comes next and when, and what a person can do', async () => {
    const hf = await open()
    const listener = workflow('listener', async (ctx) => ctx.waitFor('go', { timeoutMs: 3_600_000 }))
    const waits = {
      sleeper: workflow('sleeper', async (ctx) => ctx.sleep(3_600_000)),
      listener,
      asker: workflow('asker', async (ctx) => ctx.ask('ok', { question: 'Send it?', to: 'ada' })),
      retrier: workflow('retrier', async (ctx) =>
        ctx.step('load', () => Promise.reject(new Error('busy')), {
          retry: { attempts: 5, minMs: 3_600_000, maxMs: 3_600_000, jitter: false },
        }),
      ),
      doubter: workflow('doubter', async (ctx) =>
        ctx.once('pay', { key: 'pay:1', run: () => Promise.reject(new Error('cut off')) }),
      ),
      parent: workflow('parent', async (ctx) => ctx.call(listener, undefined, { id: 'child' })),
    }
    for (const [id, work] of Object.entries(waits))
      await becomes(await hf.start(work as never, undefined as never, { id }), 'waiting')
    await becomes(await hf.runs.get('child'), 'waiting')
    const told = async (id: string) => {
      const { waitsFor, next, actions, reason, status } = await hf.debug.explain(id)
      expect(status).toBe('waiting')
      return { reason, waitsFor, isDated: next.at !== null, calls: actions.map(({ call }) => call) }
    }
    const general = ['run.pause()', 'run.cancel()']
    expect(await told('sleeper')).toEqual({
      ...{ reason: 'timer', isDated: true, calls: general },
      waitsFor: [{ kind: 'timer', name: expect.any(String), until: expect.any(Number) }],
    })
    expect(await told('listener')).toEqual({
      ...{ reason: 'signal', isDated: true, calls: ['hf.signal("listener", "go", value)', ...general] },
      waitsFor: [{ kind: 'signal', name: 'go', until: expect.any(Number) }],
    })
    const [asked] = await hf.inbox()
    const id = (asked as { id: string }).id
    expect(await told('asker')).toEqual({
      ...{ reason: 'person', isDated: false, calls: [`hf.answer("asker", "ok", value, { id: "${id}" })`, ...general] },
      waitsFor: [{ kind: 'question', name: 'ok', id, question: 'Send it?', to: 'ada' }],
    })
    expect(await told('retrier')).toMatchObject({
      ...{ reason: 'retry', isDated: true, calls: general },
      waitsFor: [{ kind: 'retry', step: 'load', attempt: 2, error: { message: 'busy' } }],
    })
    expect(await told('doubter')).toEqual({
      ...{ reason: 'person', isDated: false, calls: ['hf.resolve("pay:1", { happened, result })', ...general] },
      waitsFor: [{ kind: 'unsure_effect', name: 'pay', key: 'pay:1', message: 'cut off' }],
    })
    expect(await told('parent')).toEqual({
      ...{ reason: 'child', isDated: true, calls: ['hf.debug.explain("child")', ...general] },
      waitsFor: [{ kind: 'child', name: expect.any(String), runId: 'child', status: 'waiting' }],
    })
    const met = workflow('met', async (ctx) => ctx.once('pay', { key: 'pay:1', run: () => 'paid' }))
    const second = await hf.start(met, undefined, { id: 'second' })
    await becomes(second, 'waiting')
    expect(await told('second')).toMatchObject({
      reason: 'person',
      waitsFor: [{ kind: 'effect', key: 'pay:1', runId: 'doubter', status: 'unsure' }],
    })
  })

  it('tells why it was executed again, by whom, and how it ended', async () => {
    const hf = await open()
    let flaws = 2
    const work = workflow('work', async (ctx) => {
      const load = () => {
        if (flaws-- > 0) throw new Error('no luck')
        return 'data'
      }
      await ctx.step('load', load, { retry: { attempts: 2, minMs: 1 } })
      await ctx.waitFor('done')
    })
    const run = await hf.start(work, undefined, { id: 'a' })
    await becomes(run, 'failed')
    const failed = await hf.debug.explain('a')
    expect(failed.text).toContain('It failed at ')
    expect(failed.text).toContain('no luck')
    expect(failed.actions.map(({ action }) => action)).toEqual(['retry', 'rollback'])
    await run.retry()
    await becomes(run, 'waiting')
    await run.pause({ by: 'ada' })
    expect((await hf.debug.explain('a')).text).toContain('It was paused by ada at ')
    await run.resume({ by: 'bob' })
    await becomes(run, 'waiting')
    const { reruns } = await hf.debug.explain('a')
    expect(reruns.map(({ why, step, by }) => [why, step, by])).toEqual([
      ['step_failed', 'load', undefined],
      ['retried', undefined, undefined],
      ['resumed', undefined, 'bob'],
    ])
    await hf.signal('a', 'done')
    await run.result()
    expect(await hf.debug.explain('a')).toMatchObject({
      status: 'completed',
      holder: null,
      next: { what: 'Nothing: it has ended.' },
    })
  })

  it('that its worker left says who held it, since when it can be taken over, and afterwards that it was', async () => {
    const entered = gate()
    const release = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('first', () => 1)
      await ctx.step('slow', async () => {
        entered.open()
        await release.promise
      })
    })
    const { hf: mortal, die } = await openMortal({ workflows: [work] })
    await mortal.start(work, undefined, { id: 'a' })
    await entered.promise
    const looking = await open({ worker: false })
    const held = await looking.debug.explain('a')
    expect(held).toMatchObject({ status: 'running', holder: { isExpired: false } })
    await die()
    advance(11_000)
    const lost = await looking.debug.explain('a')
    expect(lost).toMatchObject({ status: 'running', holder: { worker: held.holder?.worker, isExpired: true } })
    expect(lost.next.what).toContain('takes it over')
    release.open()
    const hf = await open({ workflows: [work] })
    await (await hf.runs.get('a')).result()
    const { reruns } = await looking.debug.explain('a')
    expect(reruns).toMatchObject([{ why: 'taken_over', holder: held.holder?.worker }])
  })

  it('that nobody takes says what is in the way', async () => {
    const hf = await open()
    const work = workflow({ name: 'work', queue: 'q' }, async (ctx) => ctx.waitFor('done'))
    await hf.queues.pause('q')
    await hf.start(work, undefined, { id: 'a' })
    expect((await hf.debug.explain('a')).next.what).toContain('Queue "q" is paused')
    await hf.queues.resume('q')
    await becomes(await hf.runs.get('a'), 'waiting')
    await hf.thread('a').start(work, undefined, { id: 'b' })
    expect((await hf.debug.explain('b')).next.what).toContain('Run "a" of the same thread executes before it')
    const later = await hf.start(work, undefined, { id: 'later', delayMs: 3_600_000 })
    expect((await hf.debug.explain(later.id)).next.at).toBeGreaterThan(Date.now())
  })

  it('whose state is newer than the code says so', async () => {
    const stateOf = (version: number) =>
      state({ version, initial: () => ({ n: version }), migrations: version === 1 ? {} : { 1: (old) => old } })
    const workflowWith = (version: number) =>
      workflow({ name: 'work', state: stateOf(version) }, async (ctx) => {
        ctx.update((draft) => {
          draft.n += 1
        })
      })
    const newer = await open()
    await newer.thread('t').run(workflowWith(2), undefined, { id: 'first' })
    await newer.close()
    const older = await open()
    await older.thread('t').start(workflowWith(1), undefined, { id: 'second' })
    const { next } = await older.debug.explain('second')
    expect(next.what).toBe(
      'The state of thread "t" is of version 2, and the code here knows version 1: only a worker with the newer code takes it.',
    )
  })

  it('that is not there is refused', async () => {
    const hf = await open()
    await hf.run(
      workflow('work', async () => 1),
      undefined,
      { id: 'a' },
    )
    expect(await codeOfRejection(hf.debug.explain('b'))).toBe('run_not_found')
    expect(await codeOfRejection(hf.debug.explain(5 as never))).toBe('invalid_id')
    expect(await codeOfRejection(hf.as('other').debug.explain('a'))).toBe('run_not_found')
    await hf.thread('a').delete()
    expect(await codeOfRejection(hf.debug.explain('a'))).toBe('thread_deleted')
  })
})
