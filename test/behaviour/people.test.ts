import { type Holdfast, type HoldfastError, type OpenQuestion, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it, vi } from 'vitest'
import { z } from 'zod'
import { becomes, codeOfRejection, eventTypes, failureOf } from './runs.ts'
import { onEveryStore } from './stores.ts'

const minute = 60_000

/** The open questions, once there are so many. */
async function openQuestions(hf: Holdfast, count: number): Promise<OpenQuestion[]> {
  let items: OpenQuestion[] = []
  await vi.waitUntil(
    async () => {
      items = (await hf.inbox()).filter((item): item is OpenQuestion => item.kind === 'question')
      return items.length === count
    },
    { timeout: 15_000, interval: 5 },
  )
  return items
}

onEveryStore('a question', ({ open, openMortal, openWrapped, advance }) => {
  const approve = workflow('approve', async (ctx, amount: number) => {
    const answer = await ctx.ask('approve', { question: { text: 'Pay this?', amount }, to: 'finance', schema: z.boolean() })
    return ctx.step('paid', () => answer)
  })

  it('waits as a row until a person answers; the record says who, when and what was shown', async () => {
    const hf = await open()
    const run = await hf.start(approve, 100, { id: 'r' })
    await becomes(run, 'waiting')
    expect(await run.info()).toMatchObject({ status: 'waiting', reason: 'person' })
    await hf.answer('r', 'approve', true, { by: 'ann' })
    expect(await run.result()).toBe(true)
    const events = await run.events()
    const asked = events.find(({ type }) => type === 'question_asked')
    const answered = events.find(({ type }) => type === 'question_answered')
    expect(asked?.data).toMatchObject({ question: { text: 'Pay this?', amount: 100 }, to: 'finance' })
    expect(answered?.data).toMatchObject({ result: true, by: 'ann', shown: asked?.data?.['shown'] })
    expect(answered?.data?.['answeredAt']).toBeTypeOf('number')
  })

  it('has one answer: a second one is already_answered, also of two at once', async () => {
    const hf = await open()
    const run = await hf.start(approve, 1, { id: 'r' })
    await becomes(run, 'waiting')
    const answers = await Promise.all(
      [true, false, true].map((value, i) =>
        hf.answer('r', 'approve', value, { by: `p${i}` }).then(
          () => 'taken',
          (error: HoldfastError) => error.code,
        ),
      ),
    )
    expect(answers.sort()).toEqual(['already_answered', 'already_answered', 'taken'])
    await run.result()
    expect(await codeOfRejection(hf.answer('r', 'approve', true))).toBe('already_answered')
  })

  it('refuses an answer that does not fit its schema, and stays open', async () => {
    const hf = await open()
    const run = await hf.start(approve, 1, { id: 'r' })
    await becomes(run, 'waiting')
    expect(await codeOfRejection(hf.answer('r', 'approve', 'yes'))).toBe('invalid_input')
    await hf.answer('r', 'approve', false)
    expect(await run.result()).toBe(false)
  })

  it('gives what its schema makes of the answer, whoever has checked it before', async () => {
    const price = z.string().transform(Number)
    const asks = workflow('asks', (ctx) => ctx.ask('price', { question: 'How much?', schema: price }))
    const hf = await open()
    const elsewhere = await open({ worker: false })
    for (const client of [hf, elsewhere]) {
      const run = await hf.start(asks)
      await openQuestions(hf, 1)
      await client.answer(run.id, 'price', '5')
      expect(await run.result()).toBe(5)
    }
  })

  it('is put again, with the problem, when a process that does not know the schema gave an answer that does not fit', async () => {
    const hf = await open({ workflows: [approve] })
    const client = await open({ worker: false })
    const run = await client.start('approve', 1, { id: 'r' })
    await becomes(run, 'waiting')
    await client.answer('r', 'approve', 'yes')
    await expect
      .poll(async () => (await client.inbox()).find((item) => item.kind === 'question'))
      .toMatchObject({
        problem: expect.stringContaining('answer'),
      })
    await client.answer('r', 'approve', true)
    expect(await (await hf.runs.get<boolean>('r')).result()).toBe(true)
  })

  it('that nobody answers in time takes its default, or throws timeout', async () => {
    const lenient = workflow('lenient', (ctx) => ctx.ask('ok', { question: '?', timeoutMs: 10 * minute, default: 'no' }))
    const strict = workflow('strict', (ctx) => ctx.ask('ok', { question: '?', timeoutMs: 10 * minute }))
    const hf = await open()
    const [a, b] = [await hf.start(lenient), await hf.start(strict)]
    await becomes(a, 'waiting')
    await becomes(b, 'waiting')
    advance(11 * minute)
    expect(await a.result()).toBe('no')
    expect(await failureOf(b)).toMatchObject({ code: 'timeout' })
    expect((await a.events()).find(({ type }) => type === 'question_answered')?.data).toMatchObject({ via: 'default' })
    expect(await codeOfRejection(hf.answer(a.id, 'ok', 'yes'))).toBe('already_answered')
    expect(await codeOfRejection(hf.answer(b.id, 'ok', 'yes'))).toBe('already_answered')
  })

  it('that timed out and failed its run is asked again by a retry, under another id and with its whole time', async () => {
    const strict = workflow('strict', (ctx) => ctx.ask('ok', { question: '?', timeoutMs: 10 * minute }))
    const hf = await open()
    const run = await hf.start(strict, undefined, { id: 'r' })
    const ids = new Set<string>()
    for (let time = 0; time < 3; time++) {
      await becomes(run, 'waiting')
      const [item] = await hf.inbox()
      expect(item).toMatchObject({ kind: 'question', name: 'ok' })
      if (item?.kind === 'question') ids.add(item.id)
      if (time === 2) break
      advance(11 * minute)
      expect(await failureOf(run)).toMatchObject({ code: 'timeout', message: expect.stringContaining('run.retry() asks again') })
      expect(await hf.inbox()).toEqual([])
      await run.retry()
    }
    expect(ids.size).toBe(3)
    advance(9 * minute)
    expect((await run.info()).status).toBe('waiting')
    await hf.answer('r', 'ok', 'yes')
    expect(await run.result()).toBe('yes')
  })

  it('answered binds to what was shown: the answer to something else is refused', async () => {
    let amount = 100
    const pay = workflow('pay', async (ctx) => {
      const ok = await ctx.ask('approve', { question: { amount } })
      await ctx.step(
        'pay',
        () => {
          throw new Error('later')
        },
        { onFailure: 'pause', retry: { attempts: 1 } },
      )
      return ok
    })
    const hf = await open()
    const run = await hf.start(pay, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    expect(await codeOfRejection(hf.answer('r', 'approve', true, { shown: 'something else' }))).toBe('conflict')
    const [item] = await hf.inbox()
    await hf.answer('r', 'approve', true, { shown: item?.kind === 'question' ? item.shown : '' })
    await becomes(run, 'paused')
    amount = 1_000_000
    await run.resume()
    await expect.poll(async () => (await run.info()).reason).toBe('mismatch')
    expect((await run.info()).error?.message).toContain('shows something else')
  })

  it('is asked once and answered once although workers die at every boundary', async () => {
    for (const death of [
      { before: 'question_asked' },
      { after: 'question_asked' },
      { before: 'question_answered' },
      { after: 'question_answered' },
    ] as const) {
      const mortal = await openMortal({ workflows: [approve] }, death)
      const { id } = await mortal.hf.start(approve, 1)
      const client = await open({ worker: false })
      if (death !== undefined && JSON.stringify(death).includes('answered')) {
        await becomes(await client.runs.get(id), 'waiting')
        await client.answer(id, 'approve', true, { by: 'ann' })
      }
      await mortal.dead
      advance(11_000)
      const hf = await open({ workflows: [approve] })
      const run = await hf.runs.get(id)
      if (JSON.stringify(death).includes('asked')) {
        await becomes(run, 'waiting')
        await hf.answer(id, 'approve', true, { by: 'ann' })
      }
      expect(await run.result()).toBe(true)
      expect(await eventTypes(run, 'question')).toEqual(['question_asked', 'question_answered'])
      await hf.close()
    }
  })

  it('may be one of several at once, to several people, answered in any order, with nobody looking meanwhile', async () => {
    const board = workflow('board', (ctx) =>
      Promise.all(['ann', 'bob', 'cleo'].map((name) => ctx.ask<string>(name, { question: 'Agreed?', to: name }))),
    )
    let claims = 0
    const hf = await openWrapped((store) =>
      wrapStore(store, {
        after: (act, _, __, answer) => {
          if (act === 'claim') claims += (answer as readonly unknown[]).length
        },
      }),
    )
    const run = await hf.start(board)
    await becomes(run, 'waiting')
    const before = claims
    advance(60_000)
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(claims).toBe(before)
    for (const name of ['cleo', 'ann', 'bob']) await hf.answer(run.id, name, `yes, says ${name}`)
    expect(await run.result()).toEqual(['yes, says ann', 'yes, says bob', 'yes, says cleo'])
  })

  it('asked several times at once under one name is answered by id; without one the ids are listed', async () => {
    const agent = workflow('agent', (ctx, calls: string[]) =>
      Promise.all(calls.map((question) => ctx.ask<string>('approve', { question }))),
    )
    const hf = await open()
    const run = await hf.start(agent, ['delete a', 'delete b', 'delete c'])
    const items = await openQuestions(hf, 3)
    expect(new Set(items.map(({ id }) => id)).size).toBe(3)
    const refused = await hf.answer(run.id, 'approve', 'which?').catch((error: HoldfastError) => error)
    expect(refused).toMatchObject({ code: 'conflict', details: { ids: items.map(({ id }) => id) } })
    for (const { id, name, question } of items.toReversed())
      await hf.answer(run.id, name, `yes to ${question}`, { id, by: 'ann' })
    expect(await run.result()).toEqual(['yes to delete a', 'yes to delete b', 'yes to delete c'])
    expect(await hf.inbox()).toEqual([])
  })

  it('asked several times at once under one name is also told by what it shows', async () => {
    const agent = workflow('agent', (ctx, calls: string[]) =>
      Promise.all(calls.map((question) => ctx.ask('approve', { question }))),
    )
    const hf = await open()
    const run = await hf.start(agent, ['a', 'b'])
    for (const { name, question, shown } of await openQuestions(hf, 2)) await hf.answer(run.id, name, question, { shown })
    expect(await run.result()).toEqual(['a', 'b'])
  })

  it('has its scopes in its name, as a step has: it is answered by its path, or by its name where that is enough', async () => {
    const board = workflow('board', (ctx) =>
      Promise.all(
        ['x', 'y'].map((scope) =>
          ctx.scope(scope, async () => [
            await ctx.ask('approve', { question: '?' }),
            await ctx.ask(`only ${scope}`, { question: '?' }),
          ]),
        ),
      ),
    )
    const hf = await open()
    const run = await hf.start(board)
    expect((await openQuestions(hf, 2)).map(({ name }) => name).sort()).toEqual(['x/approve', 'y/approve'])
    expect(await codeOfRejection(hf.answer(run.id, 'approve', 1))).toBe('conflict')
    const inX = (await openQuestions(hf, 2)).find(({ name }) => name === 'x/approve')
    for (const path of ['y/approve', 'board/x/approve', 'x', 'other'])
      expect([path, await codeOfRejection(hf.answer(run.id, path, 1, { id: inX!.id }))]).toEqual([path, 'invalid_input'])
    await hf.answer(run.id, 'y/approve', 'y')
    await hf.answer(run.id, 'approve', 'x', { id: inX!.id })
    await vi.waitUntil(async () => (await eventTypes(run, 'question')).filter((type) => type === 'question_asked').length === 4)
    await hf.answer(run.id, 'only x', 1)
    await hf.answer(run.id, 'y/only y', 2)
    expect(await run.result()).toEqual([
      ['x', 1],
      ['y', 2],
    ])
  })

  it('outside a scope is not answered by the path of one inside, whatever the id', async () => {
    const both = workflow('both', (ctx) => Promise.all([ctx.ask('approve', { question: '?' }), ctx.waitFor('end')]))
    const hf = await open()
    const run = await hf.start(both)
    const [asked] = await openQuestions(hf, 1)
    expect(await codeOfRejection(hf.answer(run.id, 'billing/approve', 1, { id: asked!.id }))).toBe('invalid_input')
    await hf.answer(run.id, 'approve', 'yes', { id: asked!.id })
    await hf.signal(run.id, 'end')
    expect(await run.result()).toEqual(['yes', undefined])
  })

  it('asked twice in a row is approved once by an answer that is sent twice', async () => {
    const agent = workflow('agent', async (ctx) => [
      await ctx.ask('approve', { question: 'Run `deploy`?' }),
      await ctx.ask('approve', { question: 'Run `deploy`?' }),
    ])
    const hf = await open()
    for (const by of ['id', 'shown'] as const) {
      const run = await hf.start(agent)
      const [first] = await openQuestions(hf, 1)
      const submit = () => hf.answer(run.id, 'approve', 'yes', { [by]: first?.[by] })
      await submit()
      await vi.waitUntil(async () => (await eventTypes(run, 'question')).length === 3, { timeout: 15_000 })
      expect(await codeOfRejection(submit())).toBe('already_answered')
      const [second] = await openQuestions(hf, 1)
      expect(second?.id).not.toBe(first?.id)
      expect(second?.shown).not.toBe(first?.shown)
      await hf.answer(run.id, 'approve', 'no', { id: second?.id as string })
      expect(await run.result()).toEqual(['yes', 'no'])
    }
  })

  it('is another asking, with another id, when an answer that did not fit was taken', async () => {
    const hf = await open({ workflows: [approve] })
    const client = await open({ worker: false })
    await client.start('approve', 1, { id: 'r' })
    const [first] = await openQuestions(client, 1)
    await client.answer('r', 'approve', 'yes', { id: first?.id as string })
    await vi.waitUntil(async () => (await client.inbox()).some((item) => item.kind === 'question' && item.problem !== undefined))
    const [second] = await openQuestions(client, 1)
    expect(second?.id).not.toBe(first?.id)
    expect(await codeOfRejection(client.answer('r', 'approve', true, { id: first?.id as string }))).toBe('already_answered')
    await client.answer('r', 'approve', true, { id: second?.id as string })
    expect(await (await hf.runs.get<boolean>('r')).result()).toBe(true)
  })

  it('can be answered from the write on that asks it, although its worker is dead', async () => {
    const mortal = await openMortal({ workflows: [approve] }, { after: 'question_asked' })
    const { id } = await mortal.hf.start(approve, 1)
    await mortal.dead
    const client = await open({ worker: false })
    const [item] = await openQuestions(client, 1)
    await client.answer(id, 'approve', true, { id: item?.id as string })
    advance(11_000)
    const hf = await open({ workflows: [approve] })
    expect(await (await hf.runs.get(id)).result()).toBe(true)
  })

  it('that nobody waits for any more is closed: the run ended, or continued with another tape', async () => {
    const ends = workflow('ends', (ctx) => Promise.race([ctx.ask('late', { question: '?' }), ctx.waitFor('go')]))
    const continues = workflow('continues', async (ctx, tape: number): Promise<unknown> => {
      if (tape === 2) return ctx.waitFor('end')
      await Promise.race([ctx.ask('late', { question: '?' }), ctx.waitFor('go')])
      return ctx.continueAs(2)
    })
    const hf = await open()
    const [a, b] = [await hf.start(ends), await hf.start(continues, 1)]
    const items = await openQuestions(hf, 2)
    for (const run of [a, b]) await hf.signal(run.id, 'go', 'gone')
    expect(await a.result()).toBe('gone')
    await vi.waitUntil(async () => (await hf.inbox()).length === 0, { timeout: 15_000 })
    for (const { runId, id } of items) expect(await codeOfRejection(hf.answer(runId, 'late', 1, { id }))).toBe('already_answered')
    await hf.signal(b.id, 'end', 'over')
    expect(await b.result()).toBe('over')
  })

  it('is answered by hf.answer, not decided by hf.resolve; an id of something else is invalid_input', async () => {
    const hf = await open()
    const run = await hf.start(approve, 1)
    const other = await hf.start(approve, 2)
    const items = await openQuestions(hf, 2)
    const id = items.find(({ runId }) => runId === run.id)?.id as string
    expect(await codeOfRejection(hf.resolve(id, { happened: true }))).toBe('invalid_input')
    expect(await codeOfRejection(hf.answer(other.id, 'approve', true, { id }))).toBe('invalid_input')
    expect(await codeOfRejection(hf.answer(run.id, 'another name', true, { id }))).toBe('invalid_input')
    expect(await codeOfRejection(hf.answer(run.id, 'approve', true, { id: 'nothing' }))).toBe('invalid_input')
    await hf.answer(run.id, 'approve', true, { id })
    expect(await run.result()).toBe(true)
  })

  it('that nobody asked is invalid_input; of a run that is not there run_not_found', async () => {
    const hf = await open()
    const run = await hf.start(approve, 1)
    await becomes(run, 'waiting')
    expect(await codeOfRejection(hf.answer(run.id, 'other', true))).toBe('invalid_input')
    expect(await codeOfRejection(hf.answer('nobody', 'approve', true))).toBe('run_not_found')
  })
})

onEveryStore('the inbox', ({ open }) => {
  it('lists everything that waits for a person, oldest first, with what can be done about it', async () => {
    const ask = workflow('ask', (ctx) => ctx.scope('outer', () => ctx.ask('name', { question: 'Who?', to: 'ann' })))
    const charge = workflow('charge', (ctx) =>
      ctx.once('charge', {
        key: 'charge-1',
        run: () => {
          throw new Error('the line went dead')
        },
      }),
    )
    const stuck = workflow('stuck', (ctx) =>
      ctx.step(
        'call',
        () => {
          throw new Error('no answer')
        },
        { retry: { attempts: 1 }, onFailure: 'pause' },
      ),
    )
    const hf = await open()
    await becomes(await hf.start(ask, undefined, { id: 'a' }), 'waiting')
    await becomes(await hf.start(charge, undefined, { id: 'b' }), 'waiting')
    await becomes(await hf.start(stuck, undefined, { id: 'c' }), 'paused')
    const items = await hf.inbox()
    expect(items.map(({ kind, runId }) => [kind, runId])).toEqual([
      ['question', 'a'],
      ['effect', 'b'],
      ['run', 'c'],
    ])
    expect(items[0]).toMatchObject({ name: 'outer/name', question: 'Who?', to: 'ann', actions: ['answer', 'cancel'] })
    expect(items[1]).toMatchObject({ name: 'charge', key: 'charge-1', message: 'the line went dead', actions: ['resolve'] })
    expect(items[2]).toMatchObject({ reason: 'retries', workflow: 'stuck', actions: ['resume', 'cancel', 'rollback'] })
    expect((items[2] as { error?: Error }).error?.message).toBe('no answer')
    await hf.answer('a', 'name', 'Ann')
    await hf.resolve('charge-1', { happened: true })
    await (await hf.runs.get('c')).cancel()
    await (await hf.runs.get('a')).result()
    expect(await hf.inbox()).toEqual([])
    expect(await hf.as('somebody else').inbox()).toEqual([])
  })

  it('forgets the question of a run that was cancelled', async () => {
    const ask = workflow('ask', (ctx) => ctx.ask('name', { question: 'Who?' }))
    const hf = await open()
    const run = await hf.start(ask)
    await becomes(run, 'waiting')
    await run.cancel()
    expect((await run.info()).status).toBe('cancelled')
    expect(await hf.inbox()).toEqual([])
    expect(await codeOfRejection(hf.answer(run.id, 'name', 'Ann'))).toBe('already_answered')
  })
})
