import { type HoldfastError, state, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { makeChat } from './programs/chat.ts'
import { startProgram } from './programs.ts'
import { becomes, codeOfRejection, eventTypes, failureOf, gate } from './runs.ts'
import { onEverySharedStore, onEveryStore, onSqlite } from './stores.ts'

const chat = makeChat((said) => `you said ${said}`)

onEveryStore('a thread', ({ open }) => {
  it('remembers from run to run, and another thread does not', async () => {
    const hf = await open({ workflows: [chat] })
    expect(await hf.thread('alice').run(chat, { say: 'my name is Alice' })).toBe('you said my name is Alice')
    expect(await hf.thread('alice').run(chat, { say: 'who am I?' })).toBe(
      'you said my name is Alice, you said my name is Alice, who am I?',
    )
    expect(await hf.thread('bob').run(chat, { say: 'who am I?' })).toBe('you said who am I?')
    expect(await hf.thread('alice').state<{ messages: string[] }>()).toMatchObject({ messages: { length: 4 } })
  })

  it('can be used by name', async () => {
    const hf = await open({ workflows: [chat] })
    expect(await hf.thread('alice').run('chat', { say: 'hi' })).toBe('you said hi')
    const run = await hf.thread('alice').start('chat', { say: 'again' }, { id: 'r' })
    expect(run).toMatchObject({ id: 'r', threadId: 'alice' })
  })

  it('has the id of the run when none is given', async () => {
    const hf = await open({ workflows: [chat] })
    const run = await hf.start(chat, { say: 'hi' }, { id: 'r' })
    await run.result()
    expect(run.threadId).toBe('r')
    expect(await hf.thread('r').state()).toMatchObject({ messages: ['hi', 'you said hi'] })
  })

  it('belongs to its owner: the same id of another owner is another thread', async () => {
    const hf = await open({ workflows: [chat] })
    await hf.as('acme').thread('alice').run(chat, { say: 'acme secret' })
    await hf.as('globex').thread('alice').run(chat, { say: 'globex' })
    await hf.thread('alice').run(chat, { say: 'nobody' })
    expect(await hf.as('acme').thread('alice').state()).toMatchObject({ messages: ['acme secret', expect.any(String)] })
    expect(await hf.as('globex').thread('alice').state()).toMatchObject({ messages: ['globex', expect.any(String)] })
    expect(await hf.thread('alice').state()).toMatchObject({ messages: ['nobody', expect.any(String)] })
  })

  it('that was never used is empty and has no checkpoints', async () => {
    const hf = await open()
    expect(await hf.thread('new').checkpoints()).toEqual([])
    expect(await hf.thread('new').state()).toBeUndefined()
  })
})

onEverySharedStore('a thread after kill -9', (scene) => {
  it('still remembers, and its unfinished run goes on when its lease is over', async () => {
    const program = startProgram('chat-and-hang', scene.url)
    await program.said('in the second turn')
    const hf = await scene.open({ workflows: [chat] })
    const run = await hf.runs.get('second-turn')
    expect(await run.info()).toMatchObject({ status: 'running' })
    await program.kill()
    const why = scene.outlastKilled()
    expect(await run.result()).toBe('you said my name is Alice, you said my name is Alice, second')
    expect(await hf.thread('alice').run(chat, { say: 'third' })).toContain('my name is Alice')
    const recovered = (await run.events()).find(({ type }) => type === 'run_recovered')
    expect(recovered?.data).toMatchObject({ why })
  })
})

onSqlite('a thread after kill -9', (scene) => {
  // How soon is measured by the benchmark `recovery`; here nobody lets the lease run out.
  it('goes on with its unfinished run at once, not after the lease', async () => {
    const program = startProgram('chat-and-hang', scene.url)
    await program.said('in the second turn')
    await program.kill()

    const hf = await scene.open({ workflows: [chat] })
    const run = await hf.runs.get('second-turn')
    expect(await run.result()).toBe('you said my name is Alice, you said my name is Alice, second')
    expect(await hf.thread('alice').run(chat, { say: 'third' })).toContain('my name is Alice')
    const recovered = (await run.events()).find(({ type }) => type === 'run_recovered')
    expect(recovered?.data).toMatchObject({ why: 'holder_died' })
  })

  it('is served by a process that was there before the kill, long before the lease is over', async () => {
    const program = startProgram('chat-and-hang', scene.url)
    await program.said('in the second turn')
    const heir = await scene.open({ workflows: [chat] })
    const run = await heir.runs.get('second-turn')
    expect(await run.info()).toMatchObject({ status: 'running' })
    await program.kill()
    await run.result()
    const recovered = (await run.events()).find(({ type }) => type === 'run_recovered')
    expect(recovered?.data).toMatchObject({ why: 'holder_died' })
  })
})

onEveryStore('the runs of a thread', ({ open, advance }) => {
  const makeSlow = () => {
    const order: string[] = []
    const gates = new Map<string, ReturnType<typeof gate<void>>>()
    const gateOf = (id: string) => {
      const known = gates.get(id) ?? gate()
      gates.set(id, known)
      return known
    }
    let atWork = 0
    const slow = workflow('slow', (ctx) =>
      ctx.step('work', async () => {
        expect(++atWork).toBe(1)
        order.push(`${ctx.runId} begins`)
        await gateOf(ctx.runId).promise
        order.push(`${ctx.runId} ends`)
        atWork--
      }),
    )
    return { slow, order, finish: (id: string) => gateOf(id).open() }
  }

  it('go one at a time, in the order in which they were started', async () => {
    const { slow, order, finish } = makeSlow()
    const hf = await open()
    const runs = []
    for (const id of ['first', 'second', 'third']) runs.push(await hf.thread('t').start(slow, undefined, { id }))
    for (const id of ['third', 'second', 'first']) finish(id)
    await Promise.all(runs.map((run) => run.result()))
    expect(order).toEqual(['first begins', 'first ends', 'second begins', 'second ends', 'third begins', 'third ends'])
  })

  it("wait in line behind one that waits or is paused; ifBusy: 'reject' is a conflict then", async () => {
    const sleeper = workflow('sleeper', (ctx) => ctx.sleep(3_600_000))
    const quick = workflow('quick', () => 'done')
    const hf = await open()
    const thread = hf.thread('t')
    const first = await thread.start(sleeper, undefined, { id: 'first' })
    await becomes(first, 'waiting')
    expect(await codeOfRejection(thread.start(quick, undefined, { id: 'x', ifBusy: 'reject' }))).toBe('conflict')
    const second = await thread.start(quick, undefined, { id: 'second' })
    await first.pause()
    expect(await codeOfRejection(thread.start(quick, undefined, { id: 'x', ifBusy: 'reject' }))).toBe('conflict')
    await hf.run(workflow('other', () => 'a run that shows that the worker has looked'))
    expect(await second.info()).toMatchObject({ status: 'pending' })
    await first.resume()
    await becomes(first, 'waiting')
    advance(3_700_000)
    await first.result()
    expect(await second.result()).toBe('done')
    expect(await (await thread.start(quick, undefined, { id: 'x', ifBusy: 'reject' })).result()).toBe('done')
  })

  it('go on after one that failed or was cancelled', async () => {
    const fails = workflow({ name: 'fails', retry: { attempts: 1 } }, (ctx) =>
      ctx.step('a', () => {
        throw new Error('no')
      }),
    )
    const quick = workflow('quick', () => 'done')
    const sleeper = workflow('sleeper', (ctx) => ctx.sleep(3_600_000))
    const hf = await open()
    const first = await hf.thread('t').start(fails)
    const second = await hf.thread('t').start(sleeper)
    const third = await hf.thread('t').start(quick)
    await failureOf(first)
    await becomes(second, 'waiting')
    await second.cancel()
    expect(await third.result()).toBe('done')
  })

  it('of different threads go at the same time', async () => {
    const both = gate()
    let atWork = 0
    const meet = workflow('meet', (ctx) =>
      ctx.step('work', () => {
        if (++atWork === 2) both.open()
        return both.promise
      }),
    )
    const hf = await open()
    await Promise.all([hf.thread('a').run(meet), hf.thread('b').run(meet)])
  })

  it('retry() of a run after a later run has changed the thread is a conflict', async () => {
    let isDown = true
    const flaky = workflow({ name: 'flaky', retry: { attempts: 1 } }, (ctx) =>
      ctx.step('a', () => {
        if (isDown) throw new Error('down')
        return 'up'
      }),
    )
    const hf = await open({ workflows: [chat] })
    const first = await hf.thread('t').start(flaky)
    await failureOf(first)
    await hf.thread('t').run(chat, { say: 'meanwhile' })
    isDown = false
    const error = await first.retry().catch((thrown: HoldfastError) => thrown)
    expect(error).toMatchObject({ code: 'conflict' })
    expect((error as HoldfastError).message).toContain('Start a new run')
    expect(await first.info()).toMatchObject({ status: 'failed' })
  })

  it('retry() of a run that only has others waiting behind it goes first', async () => {
    let isDown = true
    const order: string[] = []
    const flaky = workflow({ name: 'flaky', retry: { attempts: 1 } }, (ctx) =>
      ctx.step('a', () => {
        order.push(ctx.runId)
        if (isDown) throw new Error('down')
      }),
    )
    const hf = await open({ worker: false })
    const first = await hf.thread('t').start(flaky, undefined, { id: 'first' })
    const worker = await open({ workflows: [flaky] })
    await failureOf(first)
    await worker.close()
    const second = await hf.thread('t').start(flaky, undefined, { id: 'second' })
    isDown = false
    await first.retry()
    await open({ workflows: [flaky] })
    await second.result()
    expect(order).toEqual(['first', 'first', 'second'])
  })
})

onEveryStore('deleting a thread', ({ open, openMortal, advance }) => {
  it('takes its runs, log and state with it; a new start is a new life', async () => {
    const hf = await open({ workflows: [chat] })
    const thread = hf.thread('alice')
    const old = await thread.start(chat, { say: 'hi' }, { id: 'r' })
    await old.result()
    await thread.delete()
    expect(await codeOfRejection(thread.state())).toBe('thread_deleted')
    expect(await codeOfRejection(thread.checkpoints())).toBe('thread_deleted')
    expect(await codeOfRejection(old.info())).toBe('thread_deleted')
    expect(await codeOfRejection(hf.runs.get('r'))).toBe('run_not_found')
    expect((await hf.runs.list()).items).toEqual([])

    const run = await thread.start(chat, { say: 'hello again' }, { id: 'r' })
    expect(await run.result()).toBe('you said hello again')
    expect(await thread.state()).toEqual({ messages: ['hello again', 'you said hello again'] })
    expect((await run.events())[0]?.type).toBe('run_queued')
  })

  it('fences the holder: its signal is aborted, its result is not taken, its result() says thread_deleted', async () => {
    const inStep = gate()
    const release = gate()
    const aborted = gate<unknown>()
    const after: string[] = []
    const slow = workflow('slow', async (ctx) => {
      ctx.signal.addEventListener('abort', () => aborted.open((ctx.signal.reason as HoldfastError).code))
      await ctx.step('work', async () => {
        inStep.open()
        await release.promise
      })
      after.push('the function went on')
      await ctx.step('next', () => void after.push('the next step ran'))
    })
    const hf = await open()
    const run = await hf.thread('t').start(slow, undefined, { id: 'r' })
    await inStep.promise
    await hf.thread('t').delete()
    release.open()
    expect(await aborted.promise).toBe('lease_lost')
    expect(await codeOfRejection(run.result())).toBe('thread_deleted')
    expect(after).toEqual([])
    expect(await codeOfRejection(hf.thread('t').state())).toBe('thread_deleted')
  })

  it('can not be undone by a late writer, also when a new life has begun', async () => {
    const inStep = gate()
    const release = gate()
    const slow = workflow(
      { name: 'slow', state: state({ version: 1, initial: () => ({ by: 'nobody' }) }) },
      async (ctx, by: string) => {
        await ctx.step('work', async (step) => {
          if (by === 'the old run') {
            inStep.open()
            await release.promise
          }
          step.update((draft) => {
            draft.by = by
          })
        })
        return ctx.state.by
      },
    )
    const hf = await open()
    await hf.thread('t').start(slow, 'the old run', { id: 'r' })
    await inStep.promise
    await hf.thread('t').delete()
    expect(await hf.thread('t').run(slow, 'the new run', { id: 'r' })).toBe('the new run')
    release.open()
    await hf.run(workflow('other', (ctx) => ctx.step('a', () => 'a run that shows that writes were flushed')))
    expect(await hf.thread('t').state()).toEqual({ by: 'the new run' })
    const run = await hf.runs.get('r')
    expect(await eventTypes(run, 'step')).toEqual(['step_started', 'step_completed'])
  })

  it('touches no other thread, whatever its id looks like', async () => {
    const hf = await open({ workflows: [chat] })
    const others = ['acme:bob', 'acme/bob', 'acme*', 'acm', 'acme@1', 'ACME', '*', '%']
    for (const id of ['acme', ...others]) await hf.thread(id).run(chat, { say: id })
    await hf.as('x').thread('acme').run(chat, { say: 'x' })
    await hf.thread('acme').delete()
    await hf.thread('*').delete()
    await hf.thread('%').delete()
    for (const id of others.slice(0, -2)) expect(await hf.thread(id).state()).toMatchObject({ messages: [id, `you said ${id}`] })
    expect(await hf.as('x').thread('acme').state()).toMatchObject({ messages: ['x', 'you said x'] })
  })

  it('that is not there, or twice, is no error', async () => {
    const hf = await open({ workflows: [chat] })
    await hf.thread('never').delete()
    await hf.thread('alice').run(chat, { say: 'hi' })
    await hf.thread('alice').delete()
    await hf.thread('alice').delete()
  })

  it('keeps its operations, so that no effect happens twice', async () => {
    let sent = 0
    const mail = workflow('mail', (ctx) => ctx.once('send', { key: 'k', run: () => ++sent }))
    const hf = await open()
    await hf.thread('t').run(mail)
    await hf.thread('t').delete()
    expect(await hf.thread('t').run(mail)).toBe(1)
    expect(sent).toBe(1)
  })

  it('makes the effect that its run had under way unsure', async () => {
    const sending = gate()
    const mail = workflow('mail', (ctx) =>
      ctx.once('send', {
        key: 'k',
        run: () => {
          sending.open()
          return new Promise(() => {})
        },
      }),
    )
    const { hf, die } = await openMortal({ workflows: [mail] })
    await hf.start(mail, undefined, { id: 'first' })
    await sending.promise
    await die()
    const heir = await open({ workflows: [mail] })
    await heir.thread('first').delete()
    const second = await heir.start(mail, undefined, { id: 'second' })
    await becomes(second, 'waiting')
    expect(await second.info()).toMatchObject({ reason: 'person' })
    await heir.resolve('k', { happened: true, result: 'arrived' })
    expect(await second.result()).toBe('arrived')
    advance(11_000)
  })
})
