// biome-ignore-all lint/suspicious/noAssignInExpressions: recipes are written the way users write them

import { setTimeout as delay } from 'node:timers/promises'
import { type ErrorCode, type Holdfast, HoldfastError, open, type StepHandle, state, workflow } from 'holdfast'
import { createMemoryStore, wrapStore } from 'holdfast/testing'
import { describe, expect, it } from 'vitest'
import type { Change, Committed } from '../../src/store/change.ts'
import { becomes, codeOfRejection, gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

const hourMs = 3_600_000

onEveryStore('session memory', ({ open, openMortal, openWrapped, advance }) => {
  it('keeps what a run has set, for the runs of its thread and for clients, each with its own session', async () => {
    const remember = workflow<{ key: string; value: unknown }, unknown>('remember', async (ctx, { key, value }) => {
      const before = await ctx.memory.session.get(key)
      await ctx.memory.session.set(key, value)
      await ctx.memory.session.of('login').set('last', key)
      return before
    })
    const hf = await open({ workflows: [remember] })
    const value = { at: new Date(0), bytes: new Uint8Array([0, 255]), text: 'é\u0000' }
    expect(await hf.thread('alice').run(remember, { key: 'a', value })).toBeUndefined()
    expect(await hf.thread('alice').run(remember, { key: 'a', value: 2 })).toEqual(value)
    expect(await hf.thread('bob').run(remember, { key: 'a', value: 3 })).toBeUndefined()
    expect(await hf.memory.session.of('alice').get('a')).toBe(2)
    expect(await hf.memory.session.of('bob').get('a')).toBe(3)
    expect(await hf.memory.session.of('login').get('last')).toBe('a')
    expect(await hf.as('ann').memory.session.of('alice').get('a')).toBeUndefined()
    await hf.memory.session.of('alice').set('b', null)
    await hf.memory.session.of('alice').delete('a')
    expect((await hf.memory.session.of('alice').list()).map(({ key, value }) => [key, value])).toEqual([['b', null]])
    expect(await hf.memory.session.of('alice').get('b')).toBeNull()
  })

  it('is committed with the result of the step that wrote it, in one write, and dropped when that fails', async () => {
    const commits: (readonly Change[])[] = []
    const work = workflow('work', async (ctx) => {
      const failures = await ctx.step(
        'try',
        async ({ memory, attempt }) => {
          await memory.session.set('of', attempt)
          await memory.session.set(`only ${attempt}`, attempt)
          expect(await memory.session.get('of')).toBe(attempt)
          expect((await memory.session.list()).map(({ key }) => key)).toEqual(['of', `only ${attempt}`])
          if (attempt < 3) throw new Error('not yet')
          await memory.session.delete('none')
          return attempt - 1
        },
        { retry: { minMs: 1, jitter: false } },
      )
      return failures
    })
    const hf = await openWrapped(
      (store) =>
        wrapStore(store, { before: (act, _, [changes]) => void (act === 'commit' && commits.push(changes as Change[])) }),
      { workflows: [work] },
    )
    expect(await hf.run(work, undefined, { id: 't' })).toBe(2)
    expect((await hf.memory.session.of('t').list()).map(({ key, value }) => [key, value])).toEqual([
      ['of', 3],
      ['only 3', 3],
    ])
    const changes = commits.flat().filter(({ records }) => records !== undefined)
    // A step that takes its time was written as started before.
    const types = changes.map(({ events }) => events.map(({ type }) => type).filter((type) => type !== 'step_started'))
    expect(types).toEqual([['memory_written', 'memory_written', 'memory_written', 'step_completed']])
    const written = (await (await hf.runs.get('t')).events()).filter(({ type }) => type === 'memory_written')
    expect(written.map(({ step, data }) => [step, data])).toEqual([
      ['try', { session: 't', key: 'of', value: 3, ttlMs: hourMs }],
      ['try', { session: 't', key: 'only 3', value: 3, ttlMs: hourMs }],
      ['try', { session: 't', key: 'none', deleted: true }],
    ])
  })

  it('survives the death of its worker, and what a dead attempt wrote is not there', async () => {
    const { promise, open: letGo } = gate()
    let isFirst = true
    const work = workflow('work', async (ctx) => {
      await ctx.memory.session.set('kept', 1)
      await ctx.step(
        'die',
        async ({ memory }) => {
          await memory.session.set('lost', 2)
          if (isFirst) {
            isFirst = false
            letGo()
            await new Promise(() => {})
          }
        },
        { timeoutMs: 3_600_000 },
      )
      return [await ctx.memory.session.get('kept'), await ctx.memory.session.get('lost')]
    })
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 't' })
    await promise
    await die()
    const next = await open({ workflows: [work] })
    expect(await next.memory.session.of('t').get('kept')).toBe(1)
    expect(await next.memory.session.of('t').get('lost')).toBeUndefined()
    advance(11_000)
    expect(await (await next.runs.get('t')).result()).toEqual([1, 2])
  })

  it('expires an hour after it was used last, or when you say, also right after a restart', async () => {
    const hf = await open()
    const session = hf.memory.session.of('s')
    await session.set('default', 1)
    await session.set('short', 2, { ttlMs: 60_000 })
    await session.set('ever', 3, { ttlMs: Number.POSITIVE_INFINITY })
    advance(59_000)
    expect(await session.get('short')).toBe(2)
    advance(59_000)
    expect((await session.list()).map(({ key }) => key)).toEqual(['default', 'ever', 'short'])
    advance(2_000)
    expect(await session.get('short')).toBeUndefined()
    advance(hourMs - 130_000)
    expect(await session.get('default')).toBe(1)
    advance(hourMs - 10_000)
    expect(await session.get('default')).toBe(1)
    advance(hourMs + 1_000)
    const again = await open()
    expect((await again.memory.session.of('s').list()).map(({ key, expiresAt }) => [key, expiresAt])).toEqual([
      ['ever', undefined],
    ])
    expect(await again.memory.session.of('s').get('default')).toBeUndefined()
  })

  it('is refreshed by a use at most once per tenth of its time, and a use in a run needs no write of its own', async () => {
    const touches: unknown[] = []
    const reads = workflow('reads', async (ctx) => {
      for (let n = 0; n < 5; n++) await ctx.memory.session.get('k')
      return ctx.step('in a step', ({ memory }) => memory.session.get('k'))
    })
    let alone = 0
    const hf = await openWrapped(
      (store) =>
        wrapStore(store, {
          before: (act, _, [changes]) => {
            if (act !== 'commit') return
            for (const { records = [], events } of changes as Change[]) {
              const found = records.filter(({ kind }) => kind === 'touch')
              touches.push(...found)
              if (found.length > 0 && events.length === 0) alone++
            }
          },
        }),
      { workflows: [reads] },
    )
    await hf.memory.session.of('t').set('k', 'v', { ttlMs: 1_000_000 })
    for (let n = 0; n < 3; n++) expect(await hf.memory.session.of('t').get('k')).toBe('v')
    expect(touches).toEqual([])
    advance(100_001)
    expect(await hf.run(reads, undefined, { id: 't' })).toBe('v')
    expect([touches.length > 0, alone]).toEqual([true, 0])
    const once = touches.length
    for (let n = 0; n < 3; n++) await hf.memory.session.of('t').get('k')
    expect(touches).toHaveLength(once)
    advance(950_000)
    expect(await hf.memory.session.of('t').get('k')).toBe('v')
  })

  it('is read from a store that takes no writes, though its time does not begin anew', async () => {
    let failure: ErrorCode | null = null
    const hf = await openWrapped((store) => ({
      ...wrapStore(store, {}),
      commit: (changes) => (failure === null ? store.commit(changes) : Promise.reject(new HoldfastError(failure, 'no writes'))),
    }))
    const session = hf.memory.session.of('login')
    await session.set('a', 1)
    advance(hourMs / 2)
    const [before] = await session.list()
    for (failure of ['storage_full', 'store_unavailable', 'outcome_unknown'] as const) {
      expect(await session.get('a')).toBe(1)
      expect(await codeOfRejection(session.set('a', 2))).toBe(failure)
    }
    expect(await session.list()).toEqual([before])
  })

  it('that was set again while a step used the earlier one keeps its own time', async () => {
    const { promise: isRead, open: read } = gate()
    const { promise: isSet, open: letGo } = gate()
    const use = workflow('use', (ctx) =>
      ctx.step('use', async ({ memory: { session } }) => {
        const used = [await session.get('ever'), await session.get('short'), await session.get('same')]
        read()
        await isSet
        return used
      }),
    )
    const hf = await open({ workflows: [use] })
    const session = hf.memory.session.of('t')
    for (const key of ['ever', 'short', 'same']) await session.set(key, 'old', { ttlMs: 1_000_000 })
    advance(200_000)
    const run = await hf.start(use, undefined, { id: 't' })
    await isRead
    await session.set('ever', 'new', { ttlMs: Number.POSITIVE_INFINITY })
    await session.set('short', 'new', { ttlMs: 60_000 })
    letGo()
    expect(await run.result()).toEqual(['old', 'old', 'old'])
    advance(900_000)
    expect((await session.list()).map(({ key, value }) => [key, value])).toEqual([
      ['ever', 'new'],
      ['same', 'old'],
    ])
    advance(2_000_000)
    expect(await session.get('ever')).toBe('new')
  })

  it('shares nothing with what a caller gave or got', async () => {
    const change = workflow('change', (ctx) =>
      ctx.step('change', async ({ memory: { session, of } }) => {
        await session.set('k', [1])
        ;(await session.get<number[]>('k'))?.push(2)
        for (const { value } of await session.list()) (value as number[]).push(3)
        const got = await of('alice').profile.merge<{ list: number[] }>({ list: [1] })
        got.list.push(2)
        ;(await of('alice').profile.get<{ list: number[] }>()).list.push(3)
        return session.get('k')
      }),
    )
    const hf = await open({ workflows: [change] })
    const run = await hf.start(change, undefined, { id: 't' })
    expect(await run.result()).toEqual([1])
    const given = { n: 1 }
    const isSet = hf.memory.session.of('t').set('given', given)
    const isMerged = hf.memory.of('bob').profile.merge(given)
    given.n = 2
    await Promise.all([isSet, isMerged])
    const values = (await hf.memory.session.of('t').list()).map(({ value }) => value)
    expect(values).toEqual([{ n: 1 }, [1]])
    expect(await hf.memory.of('alice').profile.get()).toEqual({ list: [1] })
    expect(await hf.memory.of('bob').profile.get()).toEqual({ n: 1 })
    // What the log says is what is kept: a rewind makes the values of it.
    const start = (await hf.thread('t').checkpoints({ limit: 1_000 })).at(-1)?.checkpoint as string
    for (const key of ['given', 'k']) await hf.memory.session.of('t').set(key, 'later')
    await hf.thread('t').rewind(start)
    expect((await hf.memory.session.of('t').list()).map(({ value }) => value)).toEqual(values)
  })

  it('that was read in a run is recorded: a replay sees what it saw', async () => {
    const { promise, open: letGo } = gate()
    let isFirst = true
    const seen: unknown[] = []
    const work = workflow('work', async (ctx) => {
      const value = await ctx.memory.session.get('k')
      const { likes } = await ctx.memory.of('alice').profile.get<{ likes?: string }>()
      seen.push([value, likes])
      await ctx.step('one', () => 1)
      if (isFirst) {
        isFirst = false
        letGo()
        await ctx.step('die', () => new Promise(() => {}))
      }
      return [value, likes]
    })
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.memory.session.of('t').set('k', 'before')
    await hf.memory.of('alice').profile.merge({ likes: 'tea' })
    await hf.start(work, undefined, { id: 't' })
    await promise
    await die()
    const next = await open({ workflows: [work] })
    await next.memory.session.of('t').set('k', 'after')
    await next.memory.of('alice').profile.merge({ likes: 'milk' })
    advance(11_000)
    expect(await (await next.runs.get('t')).result()).toEqual(['before', 'tea'])
    expect(seen).toEqual([
      ['before', 'tea'],
      ['before', 'tea'],
    ])
  })

  it('takes any key and session id for plain text', async () => {
    const hf = await open()
    const names = ['tenant/1', 'tenant/10', 'x:y', 'x', 'y', '%', '_', '*', "it's", '"', '\\', '__proto__', '1:x', 'é']
    for (const session of names) for (const key of names) await hf.memory.session.of(session).set(key, [session, key])
    for (const session of names) {
      const listed = await hf.memory.session.of(session).list()
      expect(listed.map(({ key }) => key)).toEqual([...names].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))))
      for (const { key, value } of listed) expect(value).toEqual([session, key])
    }
    for (const bad of ['', 'a\u0000b', '\ud800', 'x'.repeat(513)]) {
      expect(await codeOfRejection(hf.memory.session.of('s').set(bad, 1))).toBe('invalid_id')
      expect(() => hf.memory.session.of(bad)).toThrow(expect.objectContaining({ code: 'invalid_id' }))
    }
    for (const ttlMs of [0, -1, Number.NaN, '5' as never])
      expect(await codeOfRejection(hf.memory.session.of('s').set('k', 1, { ttlMs }))).toBe('invalid_input')
    expect(await codeOfRejection(hf.memory.session.of('s').set('k', 1, { ttl: 5 } as never))).toBe('invalid_input')
    expect(await codeOfRejection(hf.memory.session.of('s').set('k', () => 1))).toBe('value_not_storable')
  })

  it('that the body of a step writes after its end is refused and told of: it would be in no commit', async () => {
    const warnings: string[] = []
    const logger = { debug() {}, info() {}, warn: (message: string) => void warnings.push(message), error() {} }
    const hf = await open({ logger })
    const work = workflow('work', async (ctx) => {
      const { memory, update } = await new Promise<StepHandle<{ late?: true }>>((resolve) => {
        void ctx.step('write', (step) => resolve(step as StepHandle<{ late?: true }>))
      })
      await ctx.step('after', () => {})
      const { profile, remember } = memory.of('alice')
      const late = [memory.session.set('k', 1), memory.session.delete('k'), profile.merge({ a: 1 }), remember('tea')]
      update((draft) => {
        draft.late = true
      })
      const outcomes = (await Promise.allSettled(late)).map((one) => (one.status === 'rejected' ? one.reason.code : one.value))
      return [...outcomes, await ctx.memory.session.get('k'), await ctx.memory.of('alice').profile.get(), ctx.state]
    })
    expect(await hf.run(work)).toEqual(['closed', 'closed', 'closed', 'closed', undefined, {}, {}])
    expect((await hf.memory.of('alice').list()).items).toEqual([])
    const methods = warnings.map((message) => message.split(' ')[0]).sort()
    const ofMemory = ['profile.merge', 'remember', 'session.delete', 'session.set'].map((method) => `step.memory.${method}`)
    expect(methods).toEqual([...ofMemory, 'step.update'])
  })

  it('that a body begins to write and does not await is committed with the result', async () => {
    const hf = await open()
    const work = workflow('work', async (ctx) => {
      await ctx.step('write', ({ memory }) => {
        const { profile, remember } = memory.of('alice')
        void memory.session.set('k', 1)
        void profile.merge({ a: 1 })
        void remember('tea')
      })
      const { profile, list } = ctx.memory.of('alice')
      return [await ctx.memory.session.get('k'), await profile.get(), (await list()).items.map(({ text }) => text)]
    })
    expect(await hf.run(work)).toEqual([1, { a: 1 }, ['tea']])
  })

  it('that a step with an undo writes after its run was cancelled is recorded with its result, all of it', async () => {
    const hf = await open({})
    const isAtWork = gate()
    const list = state({ version: 1, initial: () => ({ list: [] as string[] }) })
    const work = workflow({ name: 'work', state: list }, async (ctx) => {
      const write = async (step: StepHandle<{ list: string[] }>) => {
        isAtWork.open()
        await new Promise((resolve) => step.signal.addEventListener('abort', resolve))
        await delay(20)
        step.update((draft) => void draft.list.push('a'))
        await step.memory.session.set('k', 1)
        await step.memory.of('alice').profile.merge({ a: 1 })
        await step.memory.of('alice').remember('tea')
      }
      await ctx.step('write', write, { undo: () => {} })
    })
    const run = await hf.start(work, undefined, { id: 't' })
    await isAtWork.promise
    await run.cancel({ undo: false })
    expect(await codeOfRejection(run.result())).toBe('run_cancelled')
    expect(await hf.memory.session.of('t').get('k')).toBe(1)
    expect(await hf.memory.of('alice').profile.get()).toEqual({ a: 1 })
    expect((await hf.memory.of('alice').list()).items.map(({ text }) => text)).toEqual(['tea'])
    expect(await hf.thread('t').state()).toEqual({ list: ['a'] })
  })

  it('is deleted with its thread, moves with it, and its writes from outside are in the log', async () => {
    const greet = workflow('greet', () => 'hello')
    const hf = await open({ workflows: [greet] })
    await hf.run(greet, undefined, { id: 't' })
    await hf.memory.session.of('t').set('k', { n: 1 })
    expect(await hf.verify()).toMatchObject({ isSound: true, memories: 1 })
    const other = await openElsewhere()
    await other.debug.import(await hf.debug.export('t'))
    expect(await other.memory.session.of('t').get('k')).toEqual({ n: 1 })
    const log = (await hf.debug.export('t')).content.log as { type: string }[]
    expect(log.map(({ type }) => type)).toContain('memory_written')
    await hf.thread('t').delete()
    expect(await hf.memory.session.of('t').get('k')).toBeUndefined()
    await other.close()
  })
})

onEveryStore('the session of a thread', ({ open, advance }) => {
  const note = workflow<[string, unknown], void>('note', async (ctx, [key, value]) => {
    if (value === undefined) await ctx.memory.session.delete(key)
    else await ctx.memory.session.set(key, value, { ttlMs: 600_000 })
  })

  async function values(hf: Holdfast, sessionId: string) {
    return (await hf.memory.session.of(sessionId).list()).map(({ key, value }) => [key, value])
  }

  it('goes back when the thread is rewound, and forward again; other sessions and profiles stay', async () => {
    const hf = await open({ workflows: [note] })
    const thread = hf.thread('t')
    await hf.memory.session.of('t').set('early', 'kept')
    for (const [key, value] of [
      ['a', 1],
      ['b', 2],
    ] as const)
      await thread.run(note, [key, value])
    const middle = (await thread.checkpoints({ limit: 1_000 })).at(-1)?.checkpoint as string
    for (const [key, value] of [
      ['a', 10],
      ['b', undefined],
      ['c', 3],
    ] as const)
      await thread.run(note, [key, value])
    await hf.memory.session.of('t').set('d', 'from outside')
    await hf.memory.session.of('login').set('x', 1)
    await hf.memory.of('alice').profile.merge({ n: 1 })
    const end = (await thread.checkpoints({ limit: 1_000 })).at(-1)?.checkpoint as string
    const before = [
      ['a', 10],
      ['c', 3],
      ['d', 'from outside'],
      ['early', 'kept'],
    ]
    expect(await values(hf, 't')).toEqual(before)
    await thread.rewind(middle)
    expect(await values(hf, 't')).toEqual([
      ['a', 1],
      ['b', 2],
      ['early', 'kept'],
    ])
    expect(await values(hf, 'login')).toEqual([['x', 1]])
    expect(await hf.memory.of('alice').profile.get()).toEqual({ n: 1 })
    await thread.rewind(end)
    expect(await values(hf, 't')).toEqual(before)
    await thread.rewind(middle)
    advance(300_000)
    await thread.run(note, ['b', 20])
    advance(400_000)
    expect(await values(hf, 't')).toEqual([
      ['b', 20],
      ['early', 'kept'],
    ])
    await thread.rewind(middle)
    expect(await values(hf, 't')).toEqual([
      ['b', 2],
      ['early', 'kept'],
    ])
    expect((await hf.verify()).damaged).toEqual([])
  })

  it('comes back with its own time: not with the shorter or longer one of what replaced it', async () => {
    const hf = await open({ workflows: [note] })
    const session = hf.memory.session.of('t')
    const thread = hf.thread('t')
    await thread.run(note, ['other', 1])
    await session.set('kept', 1, { ttlMs: Number.POSITIVE_INFINITY })
    await session.set('hour', 1, { ttlMs: 3_600_000 })
    await session.set('minute', 1, { ttlMs: 60_000 })
    const { checkpoint } = await thread.info()
    for (const key of ['kept', 'hour']) await session.set(key, 2, { ttlMs: 1_000 })
    await session.set('minute', 2, { ttlMs: Number.POSITIVE_INFINITY })
    const fork = await thread.fork(checkpoint as string)
    await thread.rewind(checkpoint as string)
    const found = async () => [(await values(hf, 't')).map(([key]) => key), (await values(hf, fork.id)).map(([key]) => key)]
    expect(await found()).toEqual(Array(2).fill(['hour', 'kept', 'minute', 'other']))
    advance(30_000)
    expect(await found()).toEqual(Array(2).fill(['hour', 'kept', 'minute', 'other']))
    advance(60_000)
    expect(await found()).toEqual(Array(2).fill(['hour', 'kept', 'other']))
    advance(4_000_000)
    expect(await found()).toEqual(Array(2).fill(['kept']))
  })

  it('that is older than its thread is copied to a fork, too', async () => {
    const hf = await open({ workflows: [note] })
    const session = hf.memory.session.of('t')
    await session.set('early', 'kept')
    await session.set('replaced', 1)
    const thread = hf.thread('t')
    const others = workflow('others', async (ctx, key: string) => ctx.memory.session.of('t').set(key, 'of another thread'))
    advance(1)
    await thread.run(note, ['a', 1])
    await hf.run(others, 'from elsewhere')
    advance(1)
    await thread.run(note, ['a', 1])
    const { checkpoint } = await thread.info()
    advance(1)
    await hf.run(others, 'too late')
    await session.set('replaced', 2)
    await session.set('late', 1)
    const fork = await thread.fork(checkpoint as string, { threadId: 'f' })
    const expected = [
      ['a', 1],
      ['early', 'kept'],
      ['from elsewhere', 'of another thread'],
    ]
    expect(await values(hf, 'f')).toEqual(expected)
    await hf.memory.session.of('f').set('early', 'changed')
    const again = await fork.fork((await fork.info()).checkpoint as string)
    expect(await values(hf, again.id)).toEqual([
      ['a', 1],
      ['early', 'changed'],
      ['from elsewhere', 'of another thread'],
    ])
    await fork.rewind((await fork.checkpoints())[0]?.checkpoint as string)
    expect(await values(hf, 'f')).toEqual(expected)
    expect((await hf.verify()).damaged).toEqual([])
  })

  it('is copied to a fork as it was at the checkpoint, and is its own from then on', async () => {
    const hf = await open({ workflows: [note] })
    const thread = hf.thread('t')
    for (const [key, value] of [
      ['a', 1],
      ['b', 2],
    ] as const)
      await thread.run(note, [key, value])
    const middle = (await thread.checkpoints({ limit: 1_000 })).at(-1)?.checkpoint as string
    for (const [key, value] of [
      ['a', 10],
      ['b', undefined],
      ['c', 3],
    ] as const)
      await thread.run(note, [key, value])
    const fork = await thread.fork(middle, { threadId: 'f' })
    expect(await values(hf, 'f')).toEqual([
      ['a', 1],
      ['b', 2],
    ])
    expect(await values(hf, 't')).toEqual([
      ['a', 10],
      ['c', 3],
    ])
    await hf.memory.session.of('f').set('a', 'of the fork')
    expect(await values(hf, 't')).toEqual([
      ['a', 10],
      ['c', 3],
    ])
    const last = (await hf.thread('f').checkpoints({ limit: 1_000 })).at(-2)?.checkpoint as string
    await hf.thread('f').rewind(last)
    expect(await values(hf, 'f')).toEqual([
      ['a', 1],
      ['b', 2],
    ])
    expect(fork.id).toBe('f')
    advance(700_000)
    const late = await thread.fork(middle, { threadId: 'late' })
    expect(await values(hf, late.id)).toEqual([])
    expect((await hf.verify()).damaged).toEqual([])
  })

  it('of another thread that has the same values already keeps its own: the fork says what is in its way', async () => {
    const remembers = workflow('remembers', async (ctx) => void (await ctx.memory.session.set('a', 1)))
    const hf = await open({ workflows: [remembers] })
    await hf.thread('t').run(remembers, undefined)
    await hf.memory.session.of('new').set('a', 'mine')
    const [first] = (await hf.thread('t').checkpoints()).slice(-1)
    const fork = hf.thread('t').fork(first?.checkpoint as string, { threadId: 'new' })
    await expect(fork).rejects.toMatchObject({ code: 'conflict', message: expect.stringContaining('values of a session') })
    expect(await hf.memory.session.of('new').get('a')).toBe('mine')
    expect(await codeOfRejection(hf.thread('new').stateAt('new@1'))).toBe('invalid_id')
    await hf.memory.session.of('new').delete('a')
    await hf.thread('t').fork(first?.checkpoint as string, { threadId: 'new' })
    expect(await hf.memory.session.of('new').get('a')).toBe(1)
  })

  it('is copied to a fork with its history: the fork can go back, too', async () => {
    const work = workflow('work', async (ctx) => {
      await ctx.memory.session.set('a', 1)
      await ctx.checkpoint('middle')
      await ctx.memory.session.set('b', 2)
      await ctx.checkpoint('end')
      await ctx.waitFor('never')
    })
    const hf = await open({ workflows: [work] })
    await hf.memory.session.of('t').set('before', 0)
    const run = await hf.start(work, undefined, { id: 't' })
    await hf.memory.session.of('t').set('before', 'the run')
    await becomes(run, 'waiting')
    await hf.memory.session.of('t').set('meanwhile', 3)
    const thread = hf.thread('t')
    const last = (await thread.checkpoints({ limit: 1_000 })).at(-1)?.checkpoint as string
    const fork = await thread.fork(last, { threadId: 'f' })
    const whole = await values(hf, 't')
    expect(whole.map(([key]) => key)).toEqual(['a', 'b', 'before', 'meanwhile'])
    expect(await values(hf, 'f')).toEqual(whole)
    const copy = await hf.runs.get(fork.runId as string)
    await copy.rollback('middle')
    expect((await values(hf, 'f')).filter(([key]) => key !== 'before')).toEqual([['a', 1]])
    expect(await values(hf, 't')).toEqual(whole)
    await run.cancel()
    await copy.cancel()
    const done = await thread.fork((await thread.checkpoints({ limit: 1_000 })).at(-1)?.checkpoint as string, { threadId: 'g' })
    const [first] = await done.checkpoints({ limit: 1_000 })
    await hf.memory.session.of('g').set('a', 'of the fork')
    await done.rewind(first?.checkpoint as string)
    expect(await values(hf, 'g')).toEqual(whole)
    const twice = await done.fork(first?.checkpoint as string, { threadId: 'h' })
    expect(await values(hf, twice.id)).toEqual(whole)
    expect((await hf.verify()).damaged).toEqual([])
  })

  it('of a fork with another result has nothing of what is done again', async () => {
    const work = workflow('work', async (ctx) => {
      await ctx.memory.session.set('a', 1)
      const chosen = await ctx.step('choose', async ({ memory }) => {
        await memory.session.set('chosen', 'x')
        return 'x'
      })
      await ctx.memory.session.set(`did ${chosen}`, true)
      await ctx.waitFor('never')
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, undefined, { id: 't' })
    await becomes(run, 'waiting')
    const thread = hf.thread('t')
    const last = (await thread.checkpoints({ limit: 1_000 })).at(-1)?.checkpoint as string
    const fork = await thread.fork(last, { threadId: 'f', replace: { choose: 'y' } })
    expect(await values(hf, 'f')).toEqual([['a', 1]])
    const copy = await hf.runs.get(fork.runId as string)
    await copy.resume()
    await becomes(copy, 'waiting')
    expect(await values(hf, 'f')).toEqual([
      ['a', 1],
      ['did y', true],
    ])
    await run.cancel()
    await copy.cancel()
  })

  it('goes back when a run is rolled back', async () => {
    const work = workflow('work', async (ctx) => {
      await ctx.memory.session.set('a', 1)
      await ctx.checkpoint('middle')
      await ctx.step('more', async ({ memory }) => {
        await memory.session.set('a', 2)
        await memory.session.set('b', 3)
      })
      await ctx.waitFor('never')
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, undefined, { id: 't' })
    await becomes(run, 'waiting')
    expect(await values(hf, 't')).toEqual([
      ['a', 2],
      ['b', 3],
    ])
    await run.rollback('middle')
    expect(await values(hf, 't')).toEqual([['a', 1]])
    await run.resume()
    await becomes(run, 'waiting')
    expect(await values(hf, 't')).toEqual([
      ['a', 2],
      ['b', 3],
    ])
    await run.cancel()
  })
})

function openElsewhere() {
  return open(createMemoryStore(), { worker: false, logger: false })
}

onEveryStore('a profile', ({ open, openWrapped }) => {
  it('is merged deeply, null deletes, and its history says who changed what and why', async () => {
    const learn = workflow('learn', async (ctx) => {
      await ctx.step('listen', async ({ memory }) => {
        await memory.of('alice').profile.merge({ allergies: { nuts: true }, tone: null }, { why: 'she said so' })
      })
      return ctx.memory.of('alice').profile.get()
    })
    const hf = await open({ workflows: [learn] })
    const { profile } = hf.memory.of('alice')
    expect(await profile.get()).toEqual({})
    expect(await profile.merge({ name: 'Alice', tone: 'kind', allergies: { milk: false } }, { by: 'admin' })).toEqual({
      name: 'Alice',
      tone: 'kind',
      allergies: { milk: false },
    })
    const learnt = { name: 'Alice', allergies: { milk: false, nuts: true } }
    expect(await hf.run(learn, undefined, { id: 'r' })).toEqual(learnt)
    expect(await profile.get()).toEqual(learnt)
    expect(await profile.history()).toEqual([
      {
        version: 2,
        at: expect.any(Number),
        patch: { allergies: { nuts: true }, tone: null },
        why: 'she said so',
        runId: 'r',
        threadId: 'r',
        step: 'listen',
      },
      { version: 1, at: expect.any(Number), patch: { name: 'Alice', tone: 'kind', allergies: { milk: false } }, by: 'admin' },
    ])
    expect(await profile.history({ limit: 1 })).toHaveLength(1)
    expect(await hf.as('ann').memory.of('alice').profile.get()).toEqual({})
    expect(await hf.memory.of('alice/1').profile.get()).toEqual({})
    for (const patch of [null, [1], 'text', new Map()])
      expect(await codeOfRejection(Promise.resolve().then(() => profile.merge(patch as never)))).toBe('invalid_input')
    const schema = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: (value: unknown) => ('age' in (value as object) ? { value } : { issues: [{ message: 'no age' }] }),
      },
    } as const
    expect(await codeOfRejection(profile.merge({ x: 1 }, { schema }))).toBe('invalid_input')
    expect(await profile.get()).toEqual(learnt)
    expect(await profile.merge({ age: 7 }, { schema })).toEqual({ ...learnt, age: 7 })
  })

  it('does without a merge that the schema refuses: a body that hears of it continues, one that does not fails', async () => {
    const schema = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: (value: unknown) => ('bad' in (value as object) ? { issues: [{ message: 'bad' }] } : { value }),
      },
    } as const
    const careful = workflow('careful', (ctx) =>
      ctx.step('try', async ({ memory }) => {
        const { profile } = memory.of('carl')
        const merges = [{ a: 1 }, { bad: 1 }, { b: 2 }].map((patch) => profile.merge(patch, { schema }))
        const told = (await Promise.allSettled(merges)).map(({ status }) => status)
        return [told, await profile.get()]
      }),
    )
    const careless = workflow('careless', (ctx) =>
      ctx.step('try', ({ memory }) => memory.of('cara').profile.merge({ bad: 1 }, { schema }), { retry: { attempts: 1 } }),
    )
    const hf = await open({ workflows: [careful, careless] })
    expect(await hf.run(careful, undefined)).toEqual([['fulfilled', 'rejected', 'fulfilled'], { a: 1, b: 2 }])
    expect(await hf.memory.of('carl').profile.get()).toEqual({ a: 1, b: 2 })
    expect((await hf.memory.of('carl').profile.history()).map(({ patch }) => patch)).toEqual([{ b: 2 }, { a: 1 }])
    const run = await hf.start(careless, undefined)
    await becomes(run, 'failed')
    expect(await hf.memory.of('cara').profile.get()).toEqual({})
  })

  it('does without a merge that is rejected for another reason, too', async () => {
    const validate = (value: unknown) => ({ value: { ...(value as object), unstorable: () => {} } })
    const schema = { '~standard': { version: 1, vendor: 'test', validate } } as const
    const work = workflow('work', (ctx) =>
      ctx.step('try', async ({ memory }) => {
        const { profile } = memory.of('carl')
        const outcome = await codeOfRejection(profile.merge({ bad: 1 }, { schema }))
        await profile.merge({ a: 1 })
        return outcome
      }),
    )
    const hf = await open()
    expect(await hf.run(work)).toBe('value_not_storable')
    expect(await hf.memory.of('carl').profile.get()).toEqual({ a: 1 })
  })

  it('that a schema refuses by the time a merge is written is seen by the body, which begins again', async () => {
    const schema = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: (value: unknown) => ('bad' in (value as object) ? { issues: [{ message: 'bad' }] } : { value }),
      },
    } as const
    const [isAtWork, mayEnd] = [gate(), gate()]
    const seen: unknown[] = []
    const work = workflow('work', (ctx) =>
      ctx.step('try', async ({ memory }) => {
        const { profile, remember } = memory.of('alice')
        seen.push(await profile.get())
        await memory.session.set('seen', seen.length)
        await remember(`Alice was seen ${seen.length} times`)
        const outcome = await codeOfRejection(profile.merge({ a: 1 }, { schema }))
        isAtWork.open()
        await mayEnd.promise
        return outcome
      }),
    )
    const hf = await open({ logger: false })
    const run = await hf.start(work, undefined, { id: 't' })
    await isAtWork.promise
    await hf.memory.of('alice').profile.merge({ bad: 1 })
    mayEnd.open()
    expect(await run.result()).toBe('invalid_input')
    expect(seen).toEqual([{}, { bad: 1 }])
    expect((await run.info()).stepAttempts).toEqual({ try: 1 })
    expect(await hf.memory.session.of('t').get('seen')).toBe(2)
    expect((await hf.memory.of('alice').list()).items.map(({ text }) => text)).toEqual(['Alice was seen 2 times'])
    expect(await hf.memory.of('alice').profile.get()).toEqual({ bad: 1 })
  })

  it('refuses a limit of its history that is none', async () => {
    const { profile } = (await open()).memory.of('alice')
    for (const limit of [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, '1' as never])
      expect(await codeOfRejection(profile.history({ limit }))).toBe('invalid_input')
    expect(await codeOfRejection(profile.history({ limits: 1 } as never))).toBe('invalid_input')
  })

  it('loses none of fifty merges at the same time, from runs and from outside', async () => {
    let bodies = 0
    const merge = workflow<number, void>('merge', async (ctx, n) => {
      await ctx.step('merge', async ({ memory }) => {
        bodies++
        await memory.of('crowd').profile.merge({ [`run ${n}`]: n, nested: { [n]: true } })
      })
    })
    const hf = await open({ workflows: [merge] })
    const runs = Array.from({ length: 25 }, (_, n) => hf.run(merge, n))
    const outside = Array.from({ length: 25 }, (_, n) =>
      hf.memory.of('crowd').profile.merge({ [`outside ${n}`]: n, nested: { [100 + n]: true } }),
    )
    await Promise.all([...runs, ...outside])
    const profile = await hf.memory.of('crowd').profile.get<{ nested: object }>()
    expect(Object.keys(profile)).toHaveLength(51)
    expect(Object.keys(profile.nested)).toHaveLength(50)
    expect(bodies).toBe(25)
    const history = await hf.memory.of('crowd').profile.history()
    expect(history.map(({ version }) => version)).toEqual(Array.from({ length: 50 }, (_, n) => 50 - n))
    const changed = history.flatMap(({ patch }) => Object.keys(patch as object).filter((key) => key !== 'nested'))
    expect(changed.sort()).toEqual(
      Object.keys(profile)
        .filter((key) => key !== 'nested')
        .sort(),
    )
  })

  it('that is contested holds back what its run does later, and no body runs again', async () => {
    const log = state({ version: 1, initial: () => ({ order: [] as string[] }) })
    const bodies: string[] = []
    const names = Array.from({ length: 12 }, (_, n) => `s${n}`)
    const both = workflow({ name: 'both', state: log }, async (ctx) => {
      await Promise.all(
        names.map((name, n) =>
          ctx.step(name, async ({ memory, update }) => {
            bodies.push(name)
            if (n % 2 === 0) await memory.of('alice').profile.merge({ [name]: true })
            else await memory.session.set(name, n)
            update((draft) => void draft.order.push(name))
          }),
        ),
      )
      return ctx.state.order
    })
    let refusals = 0
    const hf = await openWrapped(
      (store) => ({
        ...wrapStore(store, {}),
        // Another writer is faster, time and again.
        commit: async (changes: readonly Change[]): Promise<readonly Committed[]> => {
          const contested = changes.some(
            ({ guard, records = [] }) =>
              guard.kind === 'lease' && records.some((record) => record.kind === 'put' && record.ifVersion !== undefined),
          )
          if (contested && refusals++ % 2 === 0) await rival.memory.of('alice').profile.merge({ [`rival ${refusals}`]: true })
          return store.commit(changes)
        },
      }),
      { workflows: [both] },
    )
    const rival = await open({ worker: false })
    const run = await hf.start(both, undefined, { id: 't' })
    const order = await run.result()
    expect([...order].sort()).toEqual([...names].sort())
    expect([...bodies].sort()).toEqual([...names].sort())
    expect(refusals).toBeGreaterThan(6)
    const profile = await hf.memory.of('alice').profile.get<Record<string, true>>()
    for (const [n, name] of names.entries()) if (n % 2 === 0) expect(profile[name]).toBe(true)
    expect(Object.keys(profile).filter((key) => key.startsWith('rival'))).toHaveLength(Math.ceil(refusals / 2))
    // What the log says step by step is the state: patches stand in the order in which they were made.
    const completed = (await run.events()).filter(({ type }) => type === 'step_completed').map(({ step }) => step)
    expect(completed).toEqual(order)
    expect(await hf.thread('t').state()).toEqual({ order })
    expect(await (await open({ workflows: [both] })).thread('t').state()).toEqual({ order })
  })
})

describe('memory in a body', () => {
  it('is that of the step: a call on ctx is refused there', async () => {
    const hf = await open('memory:', { logger: false })
    const nested = workflow('nested', (ctx) => ctx.step('a', () => ctx.memory.session.set('k', 1), { retry: { attempts: 1 } }))
    const run = await hf.start(nested, undefined, { id: 'r' })
    await becomes(run, 'failed')
    expect((await run.info()).error).toMatchObject({ message: expect.stringContaining('memory') })
    await hf.close()
  })
})
