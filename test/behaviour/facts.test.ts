import { type Holdfast, open, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { describe, expect, it, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import { becomes, codeOfRejection, gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

const texts = (facts: readonly { readonly text: string }[]) => facts.map(({ text }) => text)

/** Where the log of a thread ends now. */
async function checkpointOf(hf: Holdfast, threadId: string): Promise<string> {
  return (await hf.thread(threadId).info()).checkpoint ?? ''
}

onEveryStore('facts', ({ open, openMortal, openWrapped, advance }) => {
  it('are remembered about a subject and recalled by their words, the best first', async () => {
    const hf = await open()
    const alice = hf.memory.of('alice')
    const { id } = await alice.remember('Alice is allergic to nuts.', { kind: 'allergy', tags: ['health'], why: 'she said so' })
    await alice.remember('Alice likes green tea', { kind: 'preference' })
    await alice.remember('Her sister is called Ann', { tags: ['family'] })
    await hf.memory.of('bob').remember('Bob has no allergies')
    await hf.as('ann').memory.of('alice').remember('Alice is allergic to cats')

    const [first, ...rest] = await alice.recall('What allergies does Alice have?')
    expect(first).toMatchObject({ id, text: 'Alice is allergic to nuts.', kind: 'allergy', tags: ['health'], trust: 'stated' })
    expect(first).toMatchObject({
      score: first?.scores.lexical,
      scores: { rank: 1 },
      marked: `⟦memory ${id}⟧ Alice is allergic to nuts.`,
    })
    expect(texts(rest)).toEqual(['Alice likes green tea'])
    expect(rest[0]?.score).toBeGreaterThan(0)
    expect(rest[0]?.score).toBeLessThan(first?.score ?? 0)
    expect((await alice.recall('allergic to nuts'))[0]?.score).toBe(1)
    expect(texts(await alice.recall('teas', { limit: 1 }))).toEqual(['Alice likes green tea'])
    expect(texts(await alice.recall('alice', { kind: 'preference' }))).toEqual(['Alice likes green tea'])
    expect(texts(await alice.recall('alice allergy sister', { tags: ['family'] }))).toEqual(['Her sister is called Ann'])
    expect(texts(await alice.recall('family'))).toEqual(['Her sister is called Ann'])
    expect(texts(await alice.recall('alice nuts', { minScore: 0.9 }))).toEqual(['Alice is allergic to nuts.'])
    expect(await alice.recall('weather')).toEqual([])
    expect(await alice.recall('what is she?')).toEqual([])
    expect(await alice.recall('alice', { limit: 0 })).toEqual([])
    expect(texts(await hf.as('ann').memory.of('alice').recall('allergic'))).toEqual(['Alice is allergic to cats'])
  })

  it('that are said again are recognized, and what is new about them is added', async () => {
    const hf = await open()
    const { remember, get, list } = hf.memory.of('alice')
    const first = await remember('Alice likes tea', { tags: ['drink'], trust: 'inferred' })
    expect(first.isNew).toBe(true)
    expect(await remember('  alice likes  TEA. ', { tags: ['habit'] })).toEqual({ id: first.id, isNew: false })
    expect(await get(first.id)).toMatchObject({ text: 'Alice likes tea', tags: ['drink', 'habit'], trust: 'stated' })
    expect((await get(first.id))?.history.map(({ act }) => act)).toEqual(['remembered', 'confirmed'])
    await remember('Alice likes tea')
    expect((await get(first.id))?.history).toHaveLength(2)
    expect((await remember('Alice likes tea', { kind: 'preference' })).id).not.toBe(first.id)
    expect((await list()).items).toHaveLength(2)
  })

  it('are one, however many remember the same at the same time, and none of different ones is lost', async () => {
    const hf = await open()
    const other = await open({ worker: false })
    const clients = [hf, other]
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, n) =>
        (clients[n % 2] ?? hf).memory.of('alice').remember('Alice likes tea', { tags: [`t${n % 7}`] }),
      ),
    )
    expect(answers.filter(({ isNew }) => isNew)).toHaveLength(1)
    expect(new Set(answers.map(({ id }) => id)).size).toBe(1)
    const { items } = await hf.memory.of('alice').list()
    expect(items.map(({ tags }) => [...tags].sort())).toEqual([['t0', 't1', 't2', 't3', 't4', 't5', 't6']])
    await Promise.all(
      Array.from({ length: 50 }, (_, n) => (clients[n % 2] ?? hf).memory.of('bob').remember(`Bob has seen number ${n}`)),
    )
    expect((await hf.memory.of('bob').list()).items).toHaveLength(50)
  })

  it('are replaced by others, and recalled as of when they were true', async () => {
    const hf = await open()
    const { remember, recall, get } = hf.memory.of('alice')
    const at = (day: number) => Date.UTC(2020, 0, day)
    const paris = await remember('Alice lives in Paris', { validFrom: at(1) })
    const berlin = await remember('Alice lives in Berlin', { validFrom: at(10), supersedes: paris.id })
    expect(texts(await recall('where does Alice live'))).toEqual(['Alice lives in Berlin'])
    expect(texts(await recall('where does Alice live', { asOf: at(5) }))).toEqual(['Alice lives in Paris'])
    expect(texts(await recall('where does Alice live', { asOf: at(10) }))).toEqual(['Alice lives in Berlin'])
    expect(await recall('live', { asOf: at(1) - 1 })).toEqual([])
    expect(await get(paris.id)).toMatchObject({ supersededBy: berlin.id, validUntil: at(10) })
    expect(await get(berlin.id)).toMatchObject({ supersedes: paris.id, validFrom: at(10) })
    expect(await remember('Alice lives in Paris', { validFrom: at(20), supersedes: berlin.id })).toEqual({
      id: paris.id,
      isNew: true,
    })
    const where = async (day: number) => texts(await recall('live', { asOf: at(day) }))
    expect([await where(5), await where(15), await where(25)]).toEqual([
      ['Alice lives in Paris'],
      ['Alice lives in Berlin'],
      ['Alice lives in Paris'],
    ])
    await remember('Alice is on holiday', { validFrom: at(1), validUntil: at(2) })
    expect(await recall('holiday')).toEqual([])
    expect(texts(await recall('holiday', { asOf: at(1) }))).toEqual(['Alice is on holiday'])
    expect(await codeOfRejection(remember('x', { supersedes: 'nothing' }))).toBe('invalid_input')
    expect(await recall('x')).toEqual([])
  })

  it('that were true until some time are true again when they are said again', async () => {
    const hf = await open()
    const { remember, recall, get } = hf.memory.of('alice')
    const { id } = await remember('Alice is in Paris', { validUntil: Date.now() + 60_000 })
    expect(await remember('Alice is in Paris')).toEqual({ id, isNew: false })
    const { validFrom = 0, validUntil = 0 } = (await get(id)) ?? {}
    advance(120_000)
    expect(await recall('paris')).toEqual([])
    expect(await remember('Alice is in Paris')).toEqual({ id, isNew: true })
    expect(texts(await recall('paris'))).toEqual(['Alice is in Paris'])
    expect(texts(await recall('paris', { asOf: validFrom }))).toEqual(['Alice is in Paris'])
    expect(await recall('paris', { asOf: validUntil })).toEqual([])
  })

  it('are forgotten, corrected, and both can be undone, with who and why', async () => {
    const hf = await open()
    const { remember, recall, forget, undo, edit, get, list } = hf.memory.of('alice')
    const { id } = await remember('Alice likes tea', { by: 'agent', tags: ['drink'] })
    expect(await forget(id, { by: 'alice', why: 'not any more' })).toBe(true)
    expect(await forget(id)).toBe(false)
    expect(await forget('nothing')).toBe(false)
    expect(await recall('tea')).toEqual([])
    expect((await list()).items).toEqual([])
    expect(texts((await list({ includeRetracted: true })).items)).toEqual(['Alice likes tea'])
    expect(await get(id)).toMatchObject({ retracted: { by: 'alice', why: 'not any more' } })
    expect(await undo(id, { by: 'bob' })).toBe(true)
    expect(texts(await recall('tea'))).toEqual(['Alice likes tea'])
    expect((await get(id))?.history.map(({ act, by }) => [act, by])).toEqual([
      ['remembered', 'agent'],
      ['forgotten', 'alice'],
      ['undone', 'bob'],
    ])
    expect(await undo(id)).toBe(true)
    expect(await recall('tea')).toEqual([])
    await undo(id)

    expect(await edit(id, { tags: ['habit'] })).toEqual({ id, isNew: false })
    expect((await get(id))?.tags).toEqual(['habit'])
    const corrected = await edit(id, { text: 'Alice likes coffee' }, { why: 'misheard' })
    expect(corrected.id).not.toBe(id)
    expect(texts(await recall('tea coffee'))).toEqual(['Alice likes coffee'])
    expect(await get(corrected.id)).toMatchObject({ supersedes: id, tags: ['habit'] })
    expect(await get(id)).toMatchObject({ supersededBy: corrected.id, retracted: { why: 'misheard' } })
    expect(await undo(corrected.id)).toBe(true)
    expect(texts(await recall('tea coffee'))).toEqual(['Alice likes tea'])
    expect(await codeOfRejection(edit('nothing', { tags: [] }))).toBe('invalid_input')
    expect(await undo('nothing')).toBe(false)
  })

  it('that were replaced and are said again take the place of the other one, and undoing that brings it back', async () => {
    const hf = await open()
    const { remember, recall, undo } = hf.memory.of('alice')
    const lives = async () => texts(await recall('where does she live?'))
    const berlin = await remember('Alice lives in Berlin')
    const paris = await remember('Alice lives in Paris', { supersedes: berlin.id })
    expect(await remember('Alice lives in Berlin', { supersedes: paris.id })).toEqual({ id: berlin.id, isNew: true })
    for (let n = 0; n < 2; n++) {
      expect(await lives()).toEqual(['Alice lives in Berlin'])
      await undo(berlin.id)
      expect(await lives()).toEqual(['Alice lives in Paris'])
      await undo(berlin.id)
    }
    expect(await lives()).toEqual(['Alice lives in Berlin'])
  })

  it('that are quarantined are recalled only by who asks for them', async () => {
    const hf = await open()
    const { remember, recall, edit } = hf.memory.of('alice')
    const { id } = await remember('Alice wants all her money sent to Bob', { trust: 'quarantined', source: 'an e-mail' })
    expect(await recall('money')).toEqual([])
    expect(await recall('money', { trust: ['quarantined'] })).toMatchObject([{ id, source: { name: 'an e-mail' } }])
    await remember('Alice wants all her money sent to Bob', { trust: 'quarantined' })
    expect(await recall('money')).toEqual([])
    await edit(id, { trust: 'inferred' })
    expect(await recall('money')).toMatchObject([{ id, trust: 'inferred' }])
    expect(await recall('money', { trust: ['stated'] })).toEqual([])
  })

  it('expire when they should, and later when they are said again', async () => {
    const hf = await open()
    const { remember, recall, list, get } = hf.memory.of('alice')
    const { id } = await remember('Alice is in a hurry', { ttlMs: 60_000 })
    advance(40_000)
    await remember('Alice is in a hurry', { ttlMs: 60_000 })
    await remember('Alice is in a hurry', { tags: ['mood'] })
    advance(40_000)
    expect(texts(await recall('hurry'))).toEqual(['Alice is in a hurry'])
    advance(30_000)
    expect(await recall('hurry')).toEqual([])
    expect((await list({ includeRetracted: true })).items).toEqual([])
    expect(await get(id)).toBeUndefined()
    expect((await remember('Alice is in a hurry')).isNew).toBe(true)
    advance(1_000_000)
    expect(texts(await recall('hurry'))).toEqual(['Alice is in a hurry'])
  })

  it('expire when they would have, with another text, too, and when they are promoted', async () => {
    const learn = workflow('learn', async (ctx, text: string) => ctx.memory.of('alice').remember(text, { ttlMs: 60_000 }))
    const hf = await open({ workflows: [learn] })
    const { edit, get, promote } = hf.memory.of('alice')
    const { id } = await hf.thread('t').run(learn, 'Alice likes tea')
    const expiresAt = (await get(id))?.expiresAt
    const corrected = await edit(id, { text: 'Alice likes coffee' })
    expect(expiresAt).toEqual(expect.any(Number))
    expect((await get(corrected.id))?.expiresAt).toBe(expiresAt)
    const fork = await hf.thread('t').fork(await checkpointOf(hf, 't'))
    const own = await fork.run(learn, 'Alice likes milk')
    const ends = (await get(own.id))?.expiresAt
    const promoted = await promote(own.id)
    expect((await get(promoted?.id ?? ''))?.expiresAt).toBe(ends)
  })

  it('that expire and are remembered by somebody else while a step is at work are not written over', async () => {
    const [isAtWork, mayEnd] = [gate(), gate()]
    const hf = await open()
    const { remember, get } = hf.memory.of('alice')
    const { id } = await remember('Alice likes tea', { ttlMs: 60_000 })
    const learn = workflow('learn', async (ctx) => {
      await ctx.step('learn', async ({ memory }) => {
        await memory.of('alice').remember('Alice likes tea', { tags: ['said'] })
        isAtWork.open()
        await mayEnd.promise
      })
    })
    const run = await hf.start(learn)
    await isAtWork.promise
    advance(120_000)
    await remember('Alice likes tea', { tags: ['new'] })
    mayEnd.open()
    await run.result()
    const fact = await get(id)
    expect(fact?.tags).toEqual(['new', 'said'])
    expect(fact?.expiresAt).toBeUndefined()
  })

  it('that were recalled are not learned again: their mark is recognized', async () => {
    const hf = await open()
    const { remember, recall, list, edit, get } = hf.memory.of('alice')
    const { id } = await remember('Alice likes tea')
    const [recalled] = await recall('tea')
    expect(await remember(`As I remember: ${recalled?.marked}`)).toEqual({ id, isNew: false })
    expect((await list()).items).toHaveLength(1)
    expect(await remember(`⟦memory ${id}⟧`)).toEqual({ id, isNew: false })
    const corrected = await edit(id, { text: `${recalled?.marked} with milk` })
    expect((await get(corrected.id))?.text).toBe('Alice likes tea with milk')
    expect(await codeOfRejection(remember(`⟦memory ${'x'.repeat(16)}⟧`))).toBe('invalid_input')
    expect(await codeOfRejection(edit(corrected.id, { text: `⟦memory ${id}⟧` }))).toBe('invalid_input')
    const bob = hf.memory.of('bob')
    await bob.remember(`${recalled?.marked} very much`)
    expect(texts((await bob.list()).items)).toEqual(['Alice likes tea very much'])
  })

  it('are listed page by page, by kind and tags', async () => {
    const hf = await open()
    const { remember, list } = hf.memory.of('alice')
    for (let n = 0; n < 25; n++)
      await remember(`number ${n}`, { kind: n % 2 === 0 ? 'even' : 'odd', tags: n < 5 ? ['small'] : [] })
    const seen: string[] = []
    for (let cursor: string | undefined; ; ) {
      const page = await list({ limit: 10, cursor })
      seen.push(...texts(page.items))
      cursor = page.cursor
      if (cursor === undefined) break
    }
    expect(seen.sort()).toEqual(Array.from({ length: 25 }, (_, n) => `number ${n}`).sort())
    expect(texts((await list({ kind: 'odd', tags: ['small'] })).items).sort()).toEqual(['number 1', 'number 3'])
  })

  it('of a run know their thread, run and step, and are in its log without their text', async () => {
    const commits: (readonly Change[])[] = []
    const learn = workflow('learn', async (ctx, said: string) => {
      await ctx.step('note', async ({ memory }) => {
        const { remember, recall, list, get } = memory.of('alice')
        const { id, isNew } = await remember(said, { kind: 'note', trust: 'inferred', why: 'heard' })
        expect(isNew).toBe(true)
        expect(await remember(said, { kind: 'note' })).toEqual({ id, isNew: false })
        expect(texts(await recall(said))).toEqual([said])
        expect(texts((await list()).items)).toEqual([said])
        expect((await get(id))?.trust).toBe('stated')
      })
      const recalled = await ctx.memory.of('alice').recall('tea')
      const { id } = recalled[0] ?? { id: '' }
      await ctx.memory.of('alice').forget(id, { why: 'test', by: 'alice' })
      return recalled.map(({ text, source }) => ({ text, source }))
    })
    const hf = await openWrapped(
      (store) =>
        wrapStore(store, { before: (act, _, [changes]) => void (act === 'commit' && commits.push(changes as Change[])) }),
      { workflows: [learn] },
    )
    const source = { threadId: 't', runId: 't', step: 'note' }
    expect(await hf.run(learn, 'Alice likes tea', { id: 't' })).toEqual([{ text: 'Alice likes tea', source }])
    const written = commits.flat().filter(({ records = [] }) => records.length > 0)
    // Starts, and reads, are written earlier where a body takes long.
    const [first, second, ...rest] = written.map(({ events }) => events.map(({ type }) => type))
    expect(first?.slice(-4)).toEqual(['memory_recalled', 'memory_written', 'memory_written', 'step_completed'])
    expect(second?.slice(-2)).toEqual(['memory_written', 'step_completed'])
    expect(rest).toEqual([])
    const events = await (await hf.runs.get('t')).events()
    const [{ id } = { id: '' }] = (await hf.memory.of('alice').list({ includeRetracted: true })).items
    const log = events.filter(({ type }) => type.startsWith('memory_')).map(({ type, step, data }) => [type, step, data])
    expect(log).toMatchObject([
      ['memory_recalled', 'note', { subject: 'alice', query: 'Alice likes tea', facts: [{ id, score: 1 }] }],
      ['memory_written', 'note', { subject: 'alice', act: 'remember', facts: [id], why: 'heard' }],
      ['memory_written', 'note', { subject: 'alice', act: 'remember', facts: [id] }],
      ['memory_recalled', 'memory.recall', { subject: 'alice', query: 'tea', facts: [{ id }] }],
      ['memory_written', 'memory.forget', { subject: 'alice', act: 'forget', facts: [id], why: 'test' }],
    ])
    const end = await checkpointOf(hf, 't')
    const { memory } = await hf.debug.diff('t@1', end)
    expect(memory.map(({ step, data }) => [step, data['act']])).toEqual([
      ['note', 'remember'],
      ['note', 'remember'],
      ['memory.forget', 'forget'],
    ])
    expect((await hf.debug.diff(end, 't@1')).memory).toEqual([])
    expect(await hf.debug.audit('t')).toMatchObject([
      { decision: 'changed_memory', by: 'alice', name: 'memory.forget', value: { act: 'forget', facts: [id], why: 'test' } },
    ])
    expect((await hf.memory.of('alice').get(id))?.history.map(({ act, runId, step }) => [act, runId, step])).toEqual([
      ['remembered', 't', 'note'],
      ['confirmed', 't', 'note'],
      ['forgotten', 't', 'memory.forget'],
    ])
  })

  it('that an attempt learned are dropped with it, and survive the death of the worker once it is recorded', async () => {
    const { promise, open: letGo } = gate()
    let isFirst = true
    const work = workflow('work', async (ctx) => {
      const { remember, recall } = ctx.memory.of('alice')
      await remember('Alice likes tea')
      const before = texts(await recall('alice'))
      await ctx.step(
        'try',
        async ({ memory, attempt }) => {
          await memory.of('alice').remember(`Alice has seen attempt ${attempt}`)
          if (attempt === 1) throw new Error('not yet')
        },
        { retry: { minMs: 1, jitter: false } },
      )
      await ctx.step(
        'die',
        async ({ memory }) => {
          await memory.of('alice').remember(isFirst ? 'Alice was lost' : 'Alice was found')
          if (!isFirst) return
          isFirst = false
          letGo()
          await new Promise(() => {})
        },
        { timeoutMs: 3_600_000 },
      )
      return [before, texts(await recall('alice'))]
    })
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 't' })
    await promise
    await die()
    const next = await open({ workflows: [work] })
    const found = async () => texts((await next.memory.of('alice').list()).items).sort()
    expect(await found()).toEqual(['Alice has seen attempt 2', 'Alice likes tea'])
    advance(11_000)
    const [before, after] = (await (await next.runs.get('t')).result()) as [string[], string[]]
    expect(before).toEqual(['Alice likes tea'])
    expect(after.sort()).toEqual(['Alice has seen attempt 2', 'Alice likes tea', 'Alice was found'])
  })

  it('are recalled by a replay as they were, whatever was learned since', async () => {
    const work = workflow('work', async (ctx) => {
      const recalled = texts(await ctx.memory.of('alice').recall('alice'))
      await ctx.waitFor('go')
      return recalled
    })
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.memory.of('alice').remember('Alice likes tea')
    const run = await hf.start(work, undefined, { id: 't' })
    await becomes(run, 'waiting')
    await die()
    const next = await open({ workflows: [work] })
    await next.memory.of('alice').remember('Alice likes coffee')
    await next.signal('t', 'go')
    expect(await (await next.runs.get('t')).result()).toEqual(['Alice likes tea'])
  })

  it('that two runs learn at once are one, and bodies do not run again for that', async () => {
    const { promise, open: letGo } = gate()
    let bodies = 0
    let ready = 0
    const learn = workflow('learn', async (ctx, n: number) => {
      return ctx.step('note', async ({ memory }) => {
        bodies++
        const { id } = await memory.of('alice').remember('Alice likes tea', { tags: [`run ${n}`] })
        await memory.of('alice').profile.merge({ [`run ${n}`]: true })
        if (++ready === 8) letGo()
        await promise
        return id
      })
    })
    const hf = await open({ workflows: [learn] })
    const ids = await Promise.all(Array.from({ length: 8 }, (_, n) => hf.run(learn, n)))
    expect(new Set(ids).size).toBe(1)
    expect(bodies).toBe(8)
    const [fact, ...rest] = (await hf.memory.of('alice').list()).items
    expect(rest).toEqual([])
    expect([...(fact?.tags ?? [])].sort()).toEqual(Array.from({ length: 8 }, (_, n) => `run ${n}`))
    expect(Object.keys(await hf.memory.of('alice').profile.get())).toHaveLength(8)
  })

  it('that a thread learned after a point are retracted when it is rewound to it, and are back when it goes forward again', async () => {
    const work = workflow('work', async (ctx, said: string) => {
      const alice = ctx.memory.of('alice')
      const { id } = await alice.remember(said)
      return id
    })
    const hf = await open({ workflows: [work] })
    const alice = hf.memory.of('alice')
    const thread = hf.thread('t')
    const paris = await thread.run(work, 'Alice lives in Paris')
    const first = await checkpointOf(hf, 't')
    const move = workflow('move', async (ctx, by: string) => {
      await ctx.step('move', async ({ memory }) => {
        const { remember, forget } = memory.of('alice')
        await remember('Alice lives in Berlin', { supersedes: paris })
        await remember('Alice likes beer', { tags: [by] })
        await remember('Known to others')
        await remember('Said by another thread')
        await forget(cats)
      })
    })
    hf.register(move)
    const { id: cats } = await alice.remember('Alice has cats')
    await thread.run(move, 'x')
    await hf.thread('other').run(work, 'Alice lives in Rome')
    await hf.thread('other').run(work, 'Said by another thread')
    await alice.remember('Known to others', { tags: ['another'] })
    const second = await checkpointOf(hf, 't')
    const known = async () => texts((await alice.list()).items).sort()
    const others = ['Alice lives in Rome', 'Known to others', 'Said by another thread']
    const after = ['Alice likes beer', 'Alice lives in Berlin', ...others]
    expect(await known()).toEqual(after)

    await thread.rewind(first, { by: 'support' })
    const before = ['Alice has cats', 'Alice lives in Paris', ...others]
    expect(await known()).toEqual(before)
    expect(texts(await alice.recall('alice beer berlin')).sort()).toEqual(before.slice(0, 3))
    const [beer] = (await alice.list({ tags: ['x'], includeRetracted: true })).items
    expect(beer).toMatchObject({ retracted: { by: 'support', why: 'the thread was taken back' } })

    await thread.rewind(second)
    expect(await known()).toEqual(after)
    await thread.rewind(`t@1`)
    expect(await known()).toEqual(['Alice has cats', ...others])
    expect((await hf.verify()).isSound).toBe(true)
  })

  it('go back to what they were at a checkpoint, also where a step before it changed them in the same millisecond', async () => {
    const hf = await open()
    const { get } = hf.memory.of('alice')
    const learn = workflow('learn', async (ctx, text: string) => {
      const { id } = await ctx.step('learn', ({ memory }) => memory.of('alice').remember(text))
      await ctx.checkpoint('learned')
      await ctx.step('tag', ({ memory }) => memory.of('alice').edit(id, { tags: ['a'] }))
      return id
    })
    for (const threadId of ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']) {
      const id = await hf.run(learn, `Alice is in group ${threadId}`, { threadId })
      const tagged = await checkpointOf(hf, threadId)
      const thread = hf.thread(threadId)
      await thread.rewind('learned')
      expect(await get(id)).not.toHaveProperty('retracted')
      expect(await get(id)).toMatchObject({ tags: [] })
      const rewound = await checkpointOf(hf, threadId)
      await thread.rewind(tagged)
      expect(await get(id)).toMatchObject({ tags: ['a'] })
      await thread.rewind(rewound)
      expect(await get(id)).toMatchObject({ tags: [] })
    }
  })

  it('that a thread learned and has changed many times since are retracted when it is rewound', async () => {
    const hf = await open()
    const { list, get } = hf.memory.of('alice')
    const learn = workflow('learn', async (ctx) => {
      await ctx.checkpoint('before')
      return await ctx.step('learn', async ({ memory }) => {
        const { remember, edit } = memory.of('alice')
        const { id } = await remember('Alice likes tea')
        for (let n = 0; n < 25; n++) await edit(id, { tags: [`${n}`] })
        return id
      })
    })
    const id = await hf.run(learn, undefined, { threadId: 't' })
    const after = await checkpointOf(hf, 't')
    await hf.thread('t').rewind('before')
    expect((await list()).items).toEqual([])
    await hf.thread('t').rewind(after)
    expect((await list()).items).toMatchObject([{ id, tags: ['24'] }])
    expect(await get(id)).not.toHaveProperty('retracted')
  })

  it('that a run learned after a checkpoint are retracted when it is rolled back to it, and learned again', async () => {
    const work = workflow('work', async (ctx) => {
      const { remember } = ctx.memory.of('alice')
      await remember('Alice likes tea')
      await ctx.checkpoint('here')
      await remember('Alice likes beer')
      await ctx.waitFor('go')
      return texts(await ctx.memory.of('alice').recall('alice')).sort()
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, undefined, { id: 't' })
    await becomes(run, 'waiting')
    const known = async () => texts((await hf.memory.of('alice').list()).items).sort()
    expect(await known()).toEqual(['Alice likes beer', 'Alice likes tea'])
    await run.rollback('here')
    await becomes(run, 'paused')
    expect(await known()).toEqual(['Alice likes tea'])
    await run.resume()
    await becomes(run, 'waiting')
    await hf.signal('t', 'go')
    expect(await run.result()).toEqual(['Alice likes beer', 'Alice likes tea'])
    const all = (await hf.memory.of('alice').list({ includeRetracted: true })).items
    expect(all).toHaveLength(2)
  })

  it('that a fork learned are its own until they are promoted', async () => {
    const talk = workflow('talk', async (ctx, said: string) => {
      const { remember, recall } = ctx.memory.of('alice')
      await remember(said)
      return texts(await recall('alice')).sort()
    })
    const hf = await open({ workflows: [talk] })
    const alice = hf.memory.of('alice')
    await hf.thread('t').run(talk, 'Alice likes tea')
    const fork = await hf.thread('t').fork(await checkpointOf(hf, 't'))
    const both = ['Alice likes beer', 'Alice likes tea']
    expect(await fork.run(talk, 'Alice likes beer')).toEqual(both)
    expect(await hf.thread('t').run(talk, 'Alice likes tea')).toEqual(['Alice likes tea'])
    expect(texts(await alice.recall('alice'))).toEqual(['Alice likes tea'])
    expect(texts((await alice.list()).items)).toEqual(['Alice likes tea'])
    expect(texts(await alice.recall('alice', { fork: fork.id })).sort()).toEqual(both)
    const { items } = await alice.list({ fork: fork.id })
    const beer = items.find(({ text }) => text === 'Alice likes beer')
    expect(beer).toMatchObject({ fork: fork.id, source: { threadId: fork.id } })
    const promoted = await alice.promote(beer?.id ?? '', { by: 'support' })
    expect(promoted?.isNew).toBe(true)
    expect(texts(await alice.recall('alice')).sort()).toEqual(both)
    expect(texts(await alice.recall('alice', { fork: fork.id })).sort()).toEqual(both)
    expect(await alice.promote(promoted?.id ?? '')).toBeUndefined()
    expect((await alice.get(promoted?.id ?? ''))?.history.map(({ act, by }) => [act, by])).toEqual([['promoted', 'support']])
  })

  it('that a fork replaces stay for all others until its fact is promoted, and what is known to all is not learned again', async () => {
    const learn = workflow('learn', async (ctx, { text, supersedes }: { text: string; supersedes?: string }) =>
      ctx.memory.of('alice').remember(text, { ...(supersedes !== undefined && { supersedes }) }),
    )
    const hf = await open({ workflows: [learn] })
    const { recall, promote, undo } = hf.memory.of('alice')
    const lives = async () => texts(await recall('where does she live?'))
    const { id } = await hf.thread('t').run(learn, { text: 'Alice lives in Berlin' })
    const fork = await hf.thread('t').fork(await checkpointOf(hf, 't'))
    expect(await fork.run(learn, { text: 'alice lives in berlin' })).toEqual({ id, isNew: false })
    const paris = await fork.run(learn, { text: 'Alice lives in Paris', supersedes: id })
    for (let n = 0; n < 2; n++) await undo(paris.id)
    expect(await lives()).toEqual(['Alice lives in Berlin'])
    const rome = await fork.run(learn, { text: 'Alice lives in Rome', supersedes: paris.id })
    expect(texts(await recall('live', { fork: fork.id })).sort()).toEqual(['Alice lives in Berlin', 'Alice lives in Rome'])
    expect(await promote(paris.id)).toBeUndefined()
    await promote(rome.id)
    expect((await lives()).sort()).toEqual(['Alice lives in Berlin', 'Alice lives in Rome'])
    const madrid = await promote((await fork.run(learn, { text: 'Alice lives in Madrid', supersedes: id })).id)
    expect((await lives()).sort()).toEqual(['Alice lives in Madrid', 'Alice lives in Rome'])
    await undo(madrid?.id ?? '')
    expect((await lives()).sort()).toEqual(['Alice lives in Berlin', 'Alice lives in Rome'])
  })

  it('of other subjects and owners are never found, whatever the names and questions are', async () => {
    const hf = await open()
    const names = ['tenant/1', 'tenant/10', 'x:y', 'x', '%', '_', '*', "'", '"', 'a OR b', '\\', '__proto__']
    const odd = ['AND', 'OR NOT', 'NEAR(a b)', '"', "'", "');--", 'a*', '%', '_', '!a & b | c', '<->', '$1', '{}', 'text:a', '']
    for (const name of names)
      for (const owner of names.slice(0, 4))
        await hf
          .as(owner)
          .memory.of(name)
          .remember(`tea ${JSON.stringify([owner, name])} a b c`)
    for (const name of names) {
      for (const owner of names.slice(0, 4)) {
        for (const query of ['tea', ...odd]) {
          const found = await hf.as(owner).memory.of(name).recall(query)
          for (const { text } of found) expect(text).toBe(`tea ${JSON.stringify([owner, name])} a b c`)
          if (query === 'tea') expect(found).toHaveLength(1)
        }
      }
      expect(await hf.as('nobody').memory.of(name).recall('tea')).toEqual([])
      expect(await hf.memory.of(name).recall('tea')).toEqual([])
    }
  })

  it('are kept as they are, and found, in any script and with any characters', async () => {
    const hf = await open()
    const { remember, recall, get } = hf.memory.of('alice')
    const said = [`a${'𐐨'.repeat(60)}`, 'ab𐐨𐐨𐐨𐐨', '東京に住んでいる', 'nul\u0000 character', "Robert'); DROP TABLE records;--"]
    for (const text of said) {
      const { id } = await remember(text)
      expect((await get(id))?.text).toBe(text)
      expect(texts(await recall(text, { limit: 1 }))).toEqual([text])
    }
    expect((await hf.verify()).isSound).toBe(true)
  })

  it('are refused with a code, and nothing is lost, where something is wrong', async () => {
    const hf = await open()
    const { remember, recall, list, edit } = hf.memory.of('alice')
    const wrong: readonly (() => Promise<unknown>)[] = [
      () => remember(''),
      () => remember('  '),
      () => remember(7 as never),
      () => remember('x'.repeat(20_001)),
      () => remember('x', { tags: 'a' as never }),
      () => remember('x', { trust: 'believed' as never }),
      () => remember('x', { ttlMs: -1 }),
      () => remember('x', { validFrom: 2, validUntil: 1 }),
      () => remember('x', { tag: ['a'] } as never),
      () => remember('x', { validFrom: new Date() as never }),
      () => recall(7 as never),
      () => recall('x', { limit: -1 }),
      () => recall('x', { minScore: 2 }),
      () => recall('x', { trust: ['none' as never] }),
      () => list({ limit: 0 }),
      () => edit('x', { texts: 'y' } as never),
    ]
    for (const one of wrong) expect(await codeOfRejection(one())).toBe('invalid_input')
    expect(await codeOfRejection(remember('x', { kind: '' }))).toBe('invalid_id')
    expect(() => hf.memory.of('')).toThrow('subject')
    expect((await list({ includeRetracted: true })).items).toEqual([])
  })
})

/** Vectors of what texts are about: enough to see that meaning counts. */
async function embedTopics(asked: string[]): Promise<number[][]> {
  const topics = [
    ['tea', 'coffee', 'drink', 'beverage', 'thirsty'],
    ['cat', 'dog', 'pet', 'animal', 'hamster'],
    ['paris', 'berlin', 'city', 'live', 'home'],
  ]
  return asked.map((text) => [0.1, ...topics.map((words) => words.filter((word) => text.toLowerCase().includes(word)).length)])
}

onEveryStore('facts with embed', ({ open, openWrapped }) => {
  it('are recalled by their meaning and their words together, with the scores of both', async () => {
    const hf = await open({ embed: embedTopics })
    const { remember, recall } = hf.memory.of('alice')
    const facts = ['Alice prefers coffee', 'Alice has a hamster', 'Alice was in Paris', 'Alice asked for a beverage list']
    for (const text of facts) await remember(text)
    const found = (limit = 3) => recall('which beverage does she like', { limit })
    await vi.waitUntil(async () => (await found(4)).filter(({ scores }) => scores.vector !== undefined).length === 4)
    const [first, second] = await found()
    expect(first).toMatchObject({ text: facts[3], scores: { lexical: expect.any(Number), rank: 1 } })
    expect(second?.text).toBe('Alice prefers coffee')
    expect(second?.scores).toEqual({ vector: expect.any(Number), rank: expect.any(Number) })
    expect(second?.score).toBeGreaterThan(0.9)
    expect(texts(await recall('thirsty', { minScore: 0.5 })).sort()).toEqual([facts[3], facts[0]])
    const other = await open({ embed: { model: '', embed: embedTopics } })
    expect(texts(await other.memory.of('alice').recall('pet', { limit: 1 }))).toEqual(['Alice has a hamster'])
    await other.memory.of('alice').remember('Alice likes animals')
    await vi.waitUntil(async () => texts(await recall('pet', { minScore: 0.5 })).includes('Alice likes animals'))
    const { items } = await hf.memory.of('alice').list()
    const hamster = items.find(({ text }) => text === facts[1])
    await hf.memory.of('alice').forget(hamster?.id ?? '')
    expect(texts(await recall('pet', { minScore: 0.5 }))).toEqual(['Alice likes animals'])
  })

  it('are remembered though nothing can be embedded, are found by their words meanwhile, and by their meaning later', async () => {
    let isDown = true
    let calls = 0
    const embed = async (asked: string[]) => {
      calls++
      if (isDown) throw new Error('no model')
      return embedTopics(asked)
    }
    const learn = workflow('learn', async (ctx) => {
      await ctx.memory.of('alice').remember('Alice prefers coffee')
      return texts(await ctx.memory.of('alice').recall('coffee'))
    })
    const hf = await open({ embed, workflows: [learn], logger: false })
    expect(await hf.run(learn)).toEqual(['Alice prefers coffee'])
    expect(await hf.memory.of('alice').recall('beverage')).toEqual([])
    await vi.waitUntil(() => calls > 3)
    isDown = false
    await vi.waitUntil(async () => texts(await hf.memory.of('alice').recall('beverage')).length === 1)
    await hf.close()
    // Another model, and a fact that nobody has embedded.
    const without = await open()
    await without.memory.of('alice').remember('Alice has a hamster')
    const next = await open({ embed: { model: 'next', embed: embedTopics }, logger: false })
    const near = async (query: string) => texts(await next.memory.of('alice').recall(query, { minScore: 0.5 }))
    await vi.waitUntil(async () => (await near('pet')).length === 1 && (await near('beverage')).length === 1)
    expect(await next.memory.of('bob').recall('pet')).toEqual([])
    await next.close()
    // The same name, and vectors of another length.
    const longer = async (asked: string[]) => (await embedTopics(asked)).map((vector) => [...vector, 0.01])
    const last = await open({ embed: { model: 'next', embed: longer }, logger: false })
    await vi.waitUntil(async () => texts(await last.memory.of('alice').recall('pet', { minScore: 0.5 })).length === 1)
  })

  it('that nobody has embedded, also those that were replaced, are embedded after the first recall', async () => {
    const without = await open()
    const { id } = await without.memory.of('alice').remember('Alice prefers coffee')
    const before = Date.now()
    await without.memory.of('alice').remember('Alice only takes water', { supersedes: id, validFrom: before + 1 })
    await without.memory.of('alice').remember('Alice has a hamster')
    let calls = 0
    const embed = async (asked: string[]) => {
      calls++
      return embedTopics(asked)
    }
    const hf = await open({ embed })
    await hf.memory.of('alice').remember('Alice was in Paris')
    await vi.waitUntil(() => calls === 1)
    const near = async (query: string, asOf?: number) =>
      texts(await hf.memory.of('alice').recall(query, { minScore: 0.5, ...(asOf !== undefined && { asOf }) }))
    await vi.waitUntil(async () => (await near('pet')).length === 1)
    expect(await near('beverage')).toEqual([])
    expect(await near('beverage', before)).toEqual(['Alice prefers coffee'])
  })

  it('that a step remembers are embedded once they are written, however long it takes', async () => {
    const [isAtWork, mayEnd] = [gate(), gate()]
    let reads = 0
    const counting = (act: string, _nth: number, [query]: readonly unknown[]) => {
      const { collection, where } = (query ?? {}) as { collection?: string; where?: { keys?: string[] } }
      if (act === 'readRecords' && collection === 'fact' && where?.keys?.[0]?.includes('alice')) reads++
    }
    const hf = await openWrapped((store) => wrapStore(store, { before: counting }), { embed: embedTopics })
    const learn = workflow('learn', async (ctx) => {
      await ctx.step('learn', async ({ memory }) => {
        await memory.of('alice').remember('Alice has a hamster')
        isAtWork.open()
        await mayEnd.promise
      })
    })
    const run = await hf.start(learn)
    await isAtWork.promise
    const readBefore = reads
    await hf.memory.of('bob').remember('Bob has a dog')
    const near = async (subject: string) => texts(await hf.memory.of(subject).recall('pet', { minScore: 0.5 }))
    await vi.waitUntil(async () => (await near('bob')).length === 1)
    expect(reads).toBe(readBefore)
    mayEnd.open()
    await run.result()
    await vi.waitUntil(async () => (await near('alice')).length === 1)
  })

  it('with vectors that are none, are found by their words', async () => {
    for (const answer of [
      [],
      [[1]],
      [[1], [Number.NaN]],
      'x',
      undefined,
      [null],
      new Array(1),
      [new Array(3)],
      [[]],
    ] as never[]) {
      const hf = await open({ embed: async () => answer, logger: false })
      await hf.memory.of('alice').remember('Alice has a hamster')
      expect(texts(await hf.memory.of('alice').recall('hamster'))).toEqual(['Alice has a hamster'])
      await hf.close()
    }
    expect(await codeOfRejection(open({ embed: 'x' as never }))).toBe('invalid_input')
    expect(await codeOfRejection(open({ embed: { embed: embedTopics } as never }))).toBe('invalid_input')
  })
})

describe('embed', () => {
  it('is not waited for for ever: facts are recalled by their words where it does not answer', async () => {
    const hf = await open('memory:', { embed: { model: '', embed: () => new Promise(() => {}), timeoutMs: 50 }, logger: false })
    await hf.memory.of('alice').remember('Alice has a hamster')
    expect(texts(await hf.memory.of('alice').recall('hamster'))).toEqual(['Alice has a hamster'])
    await hf.close()
    expect(await codeOfRejection(open('memory:', { embed: { model: '', embed: embedTopics, timeoutMs: 0 } }))).toBe(
      'invalid_input',
    )
    const patient = await open('memory:', { embed: { model: '', embed: embedTopics, timeoutMs: Number.POSITIVE_INFINITY } })
    await patient.memory.of('alice').remember('Alice has a hamster')
    await vi.waitUntil(async () => (await patient.memory.of('alice').recall('pet', { minScore: 0.5 })).length === 1)
    await patient.close()
  })

  it('that refuses a text is asked for the others', async () => {
    const embed = async (asked: string[]) => {
      if (asked.some((text) => text.includes('refused'))) throw new Error('no')
      return embedTopics(asked)
    }
    const hf = await open('memory:', { embed, logger: false })
    const { remember, recall } = hf.memory.of('alice')
    for (const text of ['Alice was refused', 'Alice has a hamster', 'Alice prefers coffee', 'It was refused again'])
      await remember(text)
    const near = async (query: string) => texts(await recall(query, { minScore: 0.5 }))
    await vi.waitUntil(async () => (await near('pet')).length === 1 && (await near('beverage')).length === 1, { timeout: 15_000 })
    await hf.close()
  })
})

onEveryStore('a great many look-ups', ({ open }) => {
  it('find nothing of another owner or subject', async () => {
    const store = await open({ worker: false })
    // Most of them are below, where they cost least. That many on each store: LOOKUPS=100000
    const count = Number(process.env['LOOKUPS'] ?? 300)
    expect(await lookUp(store, count)).toEqual({ foreign: 0, missed: 0 })
  })
})

describe('a hundred thousand look-ups', () => {
  it('find nothing of another owner or subject', async () => {
    const hf = await open('memory:', { worker: false })
    expect(await lookUp(hf, 100_000)).toEqual({ foreign: 0, missed: 0 })
    await hf.close()
  })
})

/** Facts, profiles and session values of two owners, each with its own place as its text, looked up in an order that is always the same. */
async function lookUp(hf: Holdfast, count: number): Promise<{ foreign: number; missed: number }> {
  const owners = ['tenant/1', 'tenant/10'] as const
  const subjects = Array.from({ length: 20 }, (_, n) => `s${n}`)
  const words = ['tea', 'nuts', 'milk', 'paris', 'berlin', 'cats', 'rain', 'music']
  const places = owners.flatMap((owner) => subjects.map((subject) => ({ owner, subject, name: `${owner} ${subject}` })))
  for (const { owner, subject, name } of places) {
    const { session, of } = hf.as(owner).memory
    await session.of(subject).set(subject, name)
    await of(subject).profile.merge({ name })
    await Promise.all(words.map((word) => of(subject).remember(`${name} ${word}`)))
  }
  let random = 1
  const next = (below: number) => {
    random = (random * 48_271) % 2_147_483_647
    return random % below
  }
  const found = { foreign: 0, missed: 0 }
  for (let n = 0; n < count; n++) {
    const { owner, subject, name } = places[next(places.length)] as (typeof places)[number]
    const { session, of } = hf.as(owner).memory
    const asked = `${words[next(8)]} ${subjects[next(20)]} ${owners[next(2)]}`
    const look = [
      async () => texts(await of(subject).recall(asked, { limit: 5 })),
      async () => [((await of(subject).profile.get()) as { name: string }).name],
      async () => [(await session.of(subject).get<string>(subject)) ?? ''],
    ][n % 10 < 8 ? 0 : (n % 10) - 7] as () => Promise<string[]>
    const values = await look()
    found.foreign += values.filter((value) => value !== name && !value.startsWith(`${name} `)).length
    found.missed += values.length === 0 ? 1 : 0
  }
  return found
}
