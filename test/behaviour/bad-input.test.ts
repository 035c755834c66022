import assert from 'node:assert/strict'
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { inspect } from 'node:util'
import { type Context, type HoldfastError, open as openHoldfast, state, workflow } from 'holdfast'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { startProgramMounted } from './programs.ts'
import { becomes, codeOfRejection, eventTypes, failureOf } from './runs.ts'
import { onEveryStore, onLocalStores, onSqlite } from './stores.ts'

/** What no store keeps, and the code that says so. Made anew each time, since a few of them are large. */
const refusedValues: Record<string, () => [value: unknown, code: string]> = {
  'a cycle': () => {
    const value: Record<string, unknown> = { list: [] }
    ;(value['list'] as unknown[]).push(value)
    return [value, 'value_not_storable']
  },
  'a function': () => [{ f: () => 1 }, 'value_not_storable'],
  'a symbol': () => [[Symbol('s')], 'value_not_storable'],
  'an instance of a class': () => [new (class Money {})(), 'value_not_storable'],
  'a promise': () => [{ later: Promise.resolve(1) }, 'value_not_storable'],
  'a RegExp': () => [/x/, 'value_not_storable'],
  'a hole in an array': () => [new Array(3), 'value_not_storable'],
  'a getter that throws': () => [
    {
      get x() {
        throw new Error('no')
      },
    },
    'value_not_storable',
  ],
  'a proxy that throws': () => [
    new Proxy(
      {},
      {
        ownKeys: () => {
          throw new Error('no')
        },
      },
    ),
    'value_not_storable',
  ],
  '10,000 levels': () => {
    let value: unknown = 'bottom'
    for (let i = 0; i < 10_000; i++) value = i % 2 ? { value } : [value]
    return [value, 'value_not_storable']
  },
  '100 MB of text': () => ['x'.repeat(100 * 1024 * 1024), 'value_too_large'],
  '100 MB of bytes': () => [new Uint8Array(100 * 1024 * 1024), 'value_too_large'],
}

/** What looks dangerous and is kept exactly. */
const keptValues: Record<string, unknown> = {
  BigInt: -(2n ** 200n),
  'NaN and its kin': [Number.NaN, -0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 5e-324, Number.MAX_SAFE_INTEGER],
  'lone surrogates': ['\ud800', '\udfff', { '\ud800': 'a\udc00b' }],
  NUL: { 'a\u0000b': '\u0000', text: 'x\u0000' },
  'own __proto__': JSON.parse(
    '{ "__proto__": { "polluted": true }, "constructor": { "prototype": { "polluted": true } } }',
  ) as unknown,
  'shapes of our own tags': [{ $hf: ['date', 'x'] }, { $hf: 1, other: 2 }, { $hf: ['object', { $hf: ['undefined'] }] }],
  'shapes of other libraries': JSON.parse('{ "lc": 1, "type": "constructor", "id": ["a"], "toJSON": 1, "then": 2 }') as unknown,
  undefined: [undefined, { a: undefined }],
  'an invalid date': new Date(Number.NaN),
  'SQL and wildcards': ["'; DROP TABLE holdfast_runs; --", '%', '_', '*', '{{7*7}}'],
  'all of Unicode': '\u{1F600}\u202E\u200B\uFEFF\u2028é\u0065\u0301',
}

afterEach(() => {
  expect((Object.prototype as Record<string, unknown>)['polluted']).toBeUndefined()
})

onLocalStores('values', ({ open }) => {
  /** Every place where a value enters, as a function that gives the error with which it is refused there. */
  const echo = workflow('echo', (ctx, input: unknown) => ctx.step('echo', () => input))
  let made: unknown
  const places = workflow({ name: 'places', retry: { attempts: 1 } }, async (ctx, place: string) => {
    await ctx.step('before', () => 'kept')
    if (place === 'step result') await ctx.step('make', () => made)
    if (place === 'step input') await ctx.step('make', () => 1, { input: made })
    if (place === 'effect result') await ctx.once('make', { run: () => made })
    if (place === 'map result') await ctx.map('make', [1], () => made)
    if (place === 'begin') await (await ctx.begin('make')).complete(made)
    if (place === 'continueAs') await ctx.continueAs(made as never)
    if (place === 'ctx.update') {
      ctx.update((draft) => {
        draft['made'] = made
      })
    }
    if (place === 'step.update') {
      await ctx.step('make', (step) =>
        step.update((draft) => {
          draft['made'] = made
        }),
      )
    }
    return place === 'output' ? made : 'fine'
  })
  const placeNames = [
    'step result',
    'step input',
    'effect result',
    'map result',
    'begin',
    'continueAs',
    'ctx.update',
    'step.update',
    'output',
  ]

  for (const [name, make] of Object.entries(refusedValues)) {
    it(`${name} is refused with a code and its path wherever it comes in; what was recorded stays, and the next run works`, async () => {
      const hf = await open({ workflows: [echo, places] })
      const [value, code] = make()
      const error = await hf.start(echo, value, { id: 'input' }).catch((thrown: HoldfastError) => thrown)
      expect(error).toMatchObject({ code })
      expect((error as HoldfastError).message).toMatch(/\$|bytes/)
      expect(await codeOfRejection(hf.runs.get('input'))).toBe('run_not_found')

      made = value
      for (const place of placeNames) {
        const run = await hf.start(places, place, { id: place })
        expect([place, (await failureOf(run)).code]).toEqual([place, code])
        expect((await run.info()).completedSteps).toEqual(['before'])
        expect(await hf.thread(place).state()).toEqual(await hf.thread('output').state())
      }
      made = undefined
      await hf.thread('t').update((draft) => {
        draft['n'] = 1
      })
      const edit = hf.thread('t').update((draft) => {
        draft['n'] = value
      })
      expect(await codeOfRejection(edit)).toBe(code)
      expect(await hf.thread('t').state()).toEqual({ n: 1 })
      expect(await hf.run(echo, 'the next ordinary run')).toBe('the next ordinary run')
    })
  }

  it('that look dangerous are kept exactly: input, result, output, state, events', async () => {
    const keep = workflow('keep', async (ctx, input: unknown) => {
      const result = await ctx.step('keep', () => input)
      ctx.update((draft) => {
        draft['value'] = result
      })
      return { result, inState: ctx.state['value'] }
    })
    const hf = await open()
    for (const [name, value] of Object.entries(keptValues)) {
      const run = await hf.start(keep, value, { id: name })
      assertSame(await run.result(), { result: value, inState: value })
      assertSame(await hf.thread(name).state(), { value })
      const events = await run.events()
      assertSame(events[0]?.data, { input: value })
      assertSame(events.find(({ type }) => type === 'step_completed')?.data, { result: value })
    }
    await hf.close()
    const again = await open({ workflows: [keep] })
    for (const [name, value] of Object.entries(keptValues)) {
      assertSame(await (await again.runs.get(name)).result(), { result: value, inState: value })
      assertSame(await again.thread(name).state(), { value })
    }
  })

  it('that differ only where JSON or UTF-8 would blur them are different inputs', async () => {
    const hf = await open({ workflows: [echo], worker: false })
    const pairs: [unknown, unknown][] = [
      ['\ud800', '\ud801'],
      ['\ud800', '\ufffd'],
      ['a\u0000', 'a'],
      ['\u00e9', 'e\u0301'],
      [Number.NaN, null],
      [{ $hf: ['undefined'] }, undefined],
    ]
    for (const [index, [one, other]] of pairs.entries()) {
      await hf.start(echo, one, { id: `r${index}` })
      expect([index, await codeOfRejection(hf.start(echo, other, { id: `r${index}` }))]).toEqual([index, 'input_mismatch'])
    }
  })

  it('are read once, when they are handed in: what the caller does to them afterwards changes nothing', async () => {
    const hf = await open({ workflows: [echo] })
    let reads = 0
    const input = {
      list: [1],
      get counted() {
        return ++reads
      },
    }
    const starting = hf.start(echo, input, { id: 'r' })
    input.list.push(2)
    expect(await (await starting).result()).toEqual({ list: [1], counted: 1 })
    expect(await hf.run(echo, { counted: 1, list: [1] }, { id: 'r' })).toEqual({ list: [1], counted: 1 })
  })

  it('of a state as large as 40 MB do not lose what was there', async () => {
    const grow = workflow(
      { name: 'grow', state: state({ version: 1, initial: () => ({ parts: [] as string[] }) }) },
      async (ctx, n: number) => {
        for (let i = 0; i < n; i++) {
          await ctx.step('grow', (step) =>
            step.update((draft) => {
              draft.parts.push(String(i % 10).repeat(4 * 1024 * 1024))
            }),
          )
        }
        return ctx.state.parts.length
      },
    )
    const hf = await open()
    const run = await hf.start(grow, 10, { id: 'r' })
    const outcome = await run.result().catch((error: HoldfastError) => (error.cause as HoldfastError).code)
    expect(['value_too_large', 10]).toContain(outcome)
    const { parts } = await hf.thread('r').state<{ parts: string[] }>()
    expect(parts).toHaveLength((await run.info()).completedSteps.length)
    expect(await hf.run(echo, 'the next ordinary run')).toBe('the next ordinary run')
  })
})

onLocalStores('errors that user code throws', ({ open }) => {
  const hostile: Record<string, () => unknown> = {
    undefined: () => undefined,
    null: () => null,
    'a string': () => 'just text',
    'an object': () => ({ status: 500 }),
    'a cyclic object': () => {
      const value: Record<string, unknown> = {}
      value['self'] = value
      return value
    },
    'a function': () => () => 1,
    'a symbol': () => Symbol('s'),
    'an error that causes itself': () => {
      const error = new Error('loop')
      error.cause = error
      return error
    },
    'an error with a socket and a function': () =>
      Object.assign(new Error('http'), { request: new WeakMap(), retry: () => 1, status: 503 }),
    'an error whose message throws': () =>
      Object.defineProperty(new Error(), 'message', {
        get: () => {
          throw new Error('no message')
        },
      }),
    'an error whose message is no text': () => Object.assign(new Error(), { message: { a: 1 }, name: 7, stack: [] }),
    'a proxy': () =>
      new Proxy(new Error('proxy'), {
        get: () => {
          throw new Error('no')
        },
      }),
    'a proxy that lets nothing be asked': () => {
      const { proxy, revoke } = Proxy.revocable(new Error('revoked'), {})
      revoke()
      return proxy
    },
    'an error whose message is no text and can not be made one': () =>
      Object.defineProperty(new Error(), 'message', { value: Object.create(null) }),
    'an error of 100 MB': () => new Error('x'.repeat(100 * 1024 * 1024)),
    'an error with a lone surrogate and NUL': () => new Error('\ud800 \u0000'),
    'an error with own __proto__': () => Object.assign(new Error('p'), JSON.parse('{ "__proto__": { "polluted": true } }')),
    'ten thousand causes': () => {
      let error = new Error('first')
      for (let i = 0; i < 10_000; i++) error = new Error(`cause ${i}`, { cause: error })
      return error
    },
    'an aggregate': () => new AggregateError([new Error('one'), new Error('two')], 'both'),
    'an error that looks like ours': () => Object.assign(new Error('forged'), { name: 'HoldfastError', code: 'lease_lost' }),
  }
  for (const [name, make] of Object.entries(hostile)) {
    it(`(${name}) fail the step and the run, and the process lives`, async () => {
      const inStep = workflow({ name: 'in_step', retry: { attempts: 1 } }, (ctx) =>
        ctx.step('throw', () => {
          throw make()
        }),
      )
      const inFunction = workflow('in_function', () => {
        throw make()
      })
      const inEffect = workflow({ name: 'in_effect', retry: { attempts: 1 } }, (ctx) =>
        ctx.once('throw', {
          run: () => {
            throw make()
          },
          check: () => ({ happened: true, result: 'it happened' }),
        }),
      )
      const hf = await open({ workflows: [inStep, inFunction, inEffect] })
      for (const work of [inStep, inFunction]) {
        const run = await hf.start(work)
        expect(await codeOfRejection(run.result())).toBe('run_failed')
        const { error, status } = await run.info()
        expect(status).toBe('failed')
        expect(typeof error?.message).toBe('string')
      }
      expect(await hf.run(inEffect)).toBe('it happened')
      expect(await hf.run(workflow('other', () => 'fine'))).toBe('fine')
    })
  }

  it('in an undo pause the run as undo, whatever they are', async () => {
    const work = workflow('work', async (ctx, name: string) => {
      await ctx.step('a', () => {}, {
        undo: () => {
          throw hostile[name]?.()
        },
      })
      await ctx.waitFor('never')
    })
    const hf = await open()
    const cancels = Object.keys(hostile).map(async (name) => {
      const run = await hf.start(work, name)
      await becomes(run, 'waiting')
      expect(await codeOfRejection(run.cancel())).toBe('conflict')
      expect(await run.info()).toMatchObject({ status: 'paused', reason: 'undo' })
    })
    await Promise.all(cancels)
  })

  it('are tried again as the retry policy says, whatever they are', async () => {
    const work = workflow({ name: 'work', retry: { attempts: 2, minMs: 1 } }, async (ctx, name: string) =>
      ctx.step('a', ({ attempt }) => {
        if (attempt === 1) throw hostile[name]?.()
        return attempt
      }),
    )
    const hf = await open()
    for (const name of Object.keys(hostile)) expect([name, await hf.run(work, name)]).toEqual([name, 2])
  })
})

onLocalStores('ids', ({ open }) => {
  const plain = [
    "'",
    '"; DROP TABLE holdfast_runs; --',
    '%',
    '_',
    '*',
    '?',
    'a/b',
    '../../etc/passwd',
    'a:b',
    'a@1',
    '\\',
    '{}',
    '[object Object]',
    '__proto__',
    'constructor',
    ' ',
    'é',
    'e\u0301',
    '\u{1F600}',
    '\u202Ereversed',
    'undefined',
    '0',
    'x'.repeat(512),
    'é'.repeat(256),
  ]
  const refused: unknown[] = [
    '',
    'x'.repeat(513),
    'é'.repeat(257),
    'a\u0000',
    'a\nb',
    '\u007f',
    '\u0085',
    '\ud800',
    'a\udc00',
    7,
    null,
    {},
    ['a'],
    1n,
  ]

  it('of every shape are plain data: each names its own run, thread and owner, and no other', async () => {
    const own = workflow('own', async (ctx) => {
      ctx.update((draft) => {
        draft['id'] = ctx.runId
      })
      return [ctx.runId, ctx.threadId, ctx.owner]
    })
    const hf = await open({ workflows: [own] })
    for (const id of plain) expect(await hf.as(id).run(own, undefined, { id })).toEqual([id, id, id])
    for (const id of plain) {
      const mine = hf.as(id)
      expect((await mine.runs.list()).items.map((item) => item.id)).toEqual([id])
      expect((await mine.runs.list({ threadId: id, workflow: 'own' })).items).toHaveLength(1)
      expect(await mine.thread(id).state()).toEqual({ id })
      expect(await (await mine.runs.get(id)).result()).toEqual([id, id, id])
    }
    expect((await hf.runs.list()).items).toEqual([])
  })

  it('of workflows, steps, effects, queues and labels are plain data as well', async () => {
    const names = plain.filter((name) => !name.includes('/') && !name.includes('['))
    const hf = await open()
    for (const name of names) {
      const work = workflow({ name, queue: name }, async (ctx) => {
        await ctx.step(name, () => 1)
        await ctx.once(name, { key: name, run: () => 2 })
        await ctx.scope(name, () => ctx.map('m', [1], (x) => x))
        await ctx.checkpoint(name)
        return name
      })
      const run = await hf.start(work, undefined, { id: `run of ${names.indexOf(name)}` })
      expect(await run.result()).toBe(name)
      expect((await run.info()).completedSteps).toEqual([name, name, `${name}/m[0]`])
      expect((await hf.runs.list({ queue: name })).items).toHaveLength(1)
      expect((await hf.thread(run.threadId).checkpoints()).filter(({ label }) => label === name)).toHaveLength(1)
    }
  })

  it('that are none are refused with invalid_id, which says what is allowed', async () => {
    const quick = workflow('quick', () => 'done')
    const hf = await open({ workflows: [quick] })
    for (const value of refused) {
      const id = value as string
      const shown = typeof value === 'bigint' ? '1n' : JSON.stringify(value)
      for (const [what, act] of Object.entries({
        'run id': () => hf.start(quick, undefined, { id }),
        'thread id': () => hf.start(quick, undefined, { threadId: id }),
        'handle of a thread': async () => hf.thread(id),
        'runs.get': () => hf.runs.get(id),
        'workflow name': async () => workflow(id, () => 1),
        'effect key': () => hf.resolve(id, { happened: true }),
        ...(value === ''
          ? {}
          : { owner: async () => hf.as(id), 'owner of a start': () => hf.start(quick, undefined, { owner: id }) }),
      })) {
        const error = await (act as () => Promise<unknown>)().then(
          () => undefined,
          (thrown: HoldfastError) => thrown,
        )
        expect([shown, what, error?.code]).toEqual([shown, what, 'invalid_id'])
        expect(error?.message).toContain('512')
      }
    }
    expect((await hf.runs.list()).items).toEqual([])
    expect(await hf.run(quick)).toBe('done')
  })
})

onEveryStore('mistakes in a call', ({ open }) => {
  it('a workflow without a function, or with a version that is none, is refused when it is made', () => {
    expect(() => workflow('w', undefined as never)).toThrow(expect.objectContaining({ code: 'invalid_input' }))
    for (const version of [0, -1, 1.5, Number.NaN, '1' as never]) {
      expect(() => workflow({ name: 'w', version }, () => 1)).toThrow(expect.objectContaining({ code: 'invalid_input' }))
    }
  })

  it('a step without a function fails with invalid_input', async () => {
    const hf = await open()
    const work = workflow('work', (ctx) => ctx.step('a', undefined as never))
    expect(await failureOf(await hf.start(work))).toMatchObject({ code: 'invalid_input' })
    const effect = workflow('effect', (ctx) => ctx.once('a', {} as never))
    expect(await failureOf(await hf.start(effect))).toMatchObject({ code: 'invalid_input' })
  })

  it('retry options that make no sense fail with invalid_input, not with endless attempts', async () => {
    const hf = await open()
    for (const [index, retry] of [
      { attempts: 0 },
      { attempts: 1.5 },
      { attempts: Number.NaN },
      { minMs: Number.NaN },
      { factor: -1 },
    ].entries()) {
      let calls = 0
      const work = workflow(`work-${index}`, (ctx) =>
        ctx.step(
          'a',
          () => {
            calls++
            throw new Error('no')
          },
          { retry },
        ),
      )
      expect([retry, (await failureOf(await hf.start(work))).code]).toEqual([retry, 'invalid_input'])
      expect(calls).toBe(0)
    }
  })

  it('a ctx that is used after the run has ended is refused with closed, does nothing and hurts nobody', async () => {
    let late: Context | undefined
    const leaky = workflow('leaky', async (ctx, how: 'returns' | 'throws') => {
      late = ctx
      if (how === 'throws') throw new Error('no')
      return 'done'
    })
    const told: string[] = []
    const logger = { debug() {}, info() {}, error() {}, warn: (message: string) => void told.push(message) }
    const hf = await open({ logger })
    for (const how of ['returns', 'throws'] as const) {
      const run = await hf.start(leaky, how)
      await run.result().catch(() => {})
      const ctx = late as Context
      for (const call of [() => ctx.step('late', () => 1), () => ctx.sleep(1), () => ctx.waitFor('x')])
        await expect(call()).rejects.toMatchObject({ code: 'closed', details: { runId: run.id } })
      // What returns no promise is told of in the log: thrown in a timer that was left behind it would end the process.
      told.length = 0
      ctx.update(() => {
        throw new Error('not called')
      })
      ctx.usage({ cost: 1 })
      expect(ctx.now()).toBeGreaterThan(0)
      expect(told.map((message) => message.split(' ')[0])).toEqual(['"update"', '"usage"', '"now"'])
      expect((await run.info()).usage.cost).toBe(0)
      const types = await eventTypes(run)
      expect(types.at(-1)).toBe(how === 'returns' ? 'run_completed' : 'run_failed')
    }
    expect(await hf.run(workflow('other', () => 'fine'))).toBe('fine')
  })

  it('the ctx of a tape that has ended is refused with closed', async () => {
    const contexts: Context[] = []
    const leaky = workflow('leaky', async (ctx, n: number) => {
      contexts.push(ctx)
      if (n === 1) await ctx.continueAs(2)
      return 'done'
    })
    const hf = await open()
    expect(await hf.run(leaky, 1)).toBe('done')
    await expect(contexts[0]?.step('late', () => 1)).rejects.toMatchObject({ code: 'closed' })
  })
})

describe('open', () => {
  it('refuses a URL that it does not know with invalid_url, without showing its password', async () => {
    for (const url of [
      '',
      'sqlite:',
      'sqlite',
      'mysql://user:secret@host/db',
      'file.db',
      'sqlite:a?mode=ro',
      7 as never,
      [] as never,
      new Date() as never,
    ]) {
      const error = await openHoldfast(url).catch((thrown: HoldfastError) => thrown)
      expect([url, (error as HoldfastError).code]).toEqual([url, 'invalid_url'])
      expect((error as HoldfastError).message).not.toContain('secret')
    }
  })
})

onSqlite('a store file', (scene) => {
  const fileOf = () => scene.url.replace(/^sqlite:/, '')
  const echo = workflow('echo', (ctx, input: unknown) => ctx.step('echo', () => input))

  it('in a folder that is not there is made with the folder', async () => {
    const hf = await openHoldfast(`sqlite:${join(scene.folder, 'a', 'b', 'holdfast.db')}`)
    expect(await hf.run(echo, 1)).toBe(1)
    await hf.close()
  })

  it('where its folder is a file, or itself a folder, is store_unavailable, and the message names it', async () => {
    writeFileSync(join(scene.folder, 'file'), 'x')
    mkdirSync(join(scene.folder, 'folder.db'))
    for (const path of [join(scene.folder, 'file', 'holdfast.db'), join(scene.folder, 'folder.db')]) {
      const error = await openHoldfast(`sqlite:${path}`).catch((thrown: HoldfastError) => thrown)
      expect(error).toMatchObject({ code: 'store_unavailable' })
      expect((error as HoldfastError).message).toContain(path)
    }
  })

  it('in a read-only folder is store_unavailable, new or not, and what was in it is kept', async () => {
    const hf = await scene.open({ workflows: [echo] })
    await hf.run(echo, 'kept', { id: 'r' })
    await hf.close()
    const { folder, url } = scene
    const makeReadOnly = `mount --bind '${folder}' '${folder}' && mount -o remount,ro,bind '${folder}'`
    const program = startProgramMounted(makeReadOnly, 'try-open', url, `sqlite:${join(folder, 'new.db')}`)
    for (let i = 0; i < 2; i++) {
      const refusal = (await program.said('refused')) as { code: string; message: string }
      expect(refusal.code).toBe('store_unavailable')
      expect(refusal.message).toMatch(/write/)
    }
    expect(await program.ended).toBe(0)
    const again = await scene.open({ workflows: [echo] })
    expect(await (await again.runs.get('r')).result()).toBe('kept')
  })

  it('on a disk that is full is storage_full to callers; runs wait for space and then go on, and nothing is lost', async () => {
    const disk = join(scene.folder, 'disk')
    mkdirSync(disk)
    const program = startProgramMounted(
      `mount -t tmpfs -o size=12m tmpfs '${disk}'`,
      'fill-disk',
      `sqlite:${join(disk, 'holdfast.db')}`,
      join(disk, 'ballast'),
    )
    const refusal = (await program.said('refused')) as { code: string; message: string }
    expect(refusal.code).toBe('storage_full')
    expect(refusal.message).toContain('Free space')
    expect(await program.said('readable')).toEqual({ before: true, status: 'running' })
    expect(await program.said('finished')).toEqual({ length: 100 * 20_000, bodies: 105, distinct: 100 })
    expect(await program.said('next')).toBe(20_000)
    expect(await program.ended).toBe(0)
  })

  it('that is no database is corrupt_record, and is left as it was', async () => {
    const file = join(scene.folder, 'text.db')
    writeFileSync(file, 'this is a letter, not a database. '.repeat(200))
    const error = await openHoldfast(`sqlite:${file}`).catch((thrown: HoldfastError) => thrown)
    expect(error).toMatchObject({ code: 'corrupt_record' })
    expect((error as HoldfastError).message).toContain(file)
  })

  it('with tables of a newer version is schema_too_new, and nothing is changed', async () => {
    const hf = await scene.open({ workflows: [echo] })
    await hf.run(echo, 'kept', { id: 'r' })
    await hf.close()
    const db = new DatabaseSync(fileOf(), { timeout: 5_000 })
    const { version } = db.prepare('SELECT version FROM holdfast_schema').get() as { version: number }
    db.prepare('UPDATE holdfast_schema SET version = ?').run(version + 1)
    const error = await openHoldfast(scene.url).catch((thrown: HoldfastError) => thrown)
    expect(error).toMatchObject({ code: 'schema_too_new' })
    expect((error as HoldfastError).message).toContain('Upgrade')
    expect(db.prepare('SELECT version FROM holdfast_schema').get()).toEqual({ version: version + 1 })
    db.prepare('UPDATE holdfast_schema SET version = ?').run(version)
    db.close()
    const again = await scene.open({ workflows: [echo] })
    expect(await (await again.runs.get('r')).result()).toBe('kept')
  })

  it('with a damaged record: reading it is corrupt_record, never other data, and other runs work', async () => {
    const hf = await scene.open({ workflows: [echo] })
    await hf.run(echo, { balance: 1000 }, { id: 'damaged' })
    await hf.run(echo, { balance: 1000 }, { id: 'sound' })
    await hf.close()
    damage(`type = 'step_completed' AND run = (SELECT id FROM holdfast_runs WHERE run_id = 'damaged')`, 'payload')
    const again = await scene.open({ workflows: [echo] })
    const run = await again.runs.get('damaged')
    expect(await codeOfRejection(run.events())).toBe('corrupt_record')
    expect(await (await again.runs.get('sound')).result()).toEqual({ balance: 1000 })
    expect(await again.run(echo, 'the next ordinary run')).toBe('the next ordinary run')
  })

  it('with a damaged tape of a run in flight: the run is paused with corrupt_record, and others go on', async () => {
    const sleeper = workflow('sleeper', async (ctx) => {
      const n = await ctx.step('a', () => 1000)
      await ctx.sleep(60_000)
      return n
    })
    const hf = await scene.open({ workflows: [sleeper] })
    for (const id of ['damaged', 'sound']) await becomes(await hf.start(sleeper, undefined, { id }), 'waiting')
    await hf.close()
    damage(`type = 'step_completed' AND run = (SELECT id FROM holdfast_runs WHERE run_id = 'damaged')`, 'payload')
    scene.advance(61_000)
    const again = await scene.open({ workflows: [sleeper] })
    expect(await (await again.runs.get('sound')).result()).toBe(1000)
    const run = await again.runs.get('damaged')
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ reason: 'poisoned', error: { code: 'corrupt_record' } })
  })

  it('with a damaged state: state() is corrupt_record, and a run on the thread is paused', async () => {
    const count = workflow('count', async (ctx) => {
      ctx.update((draft) => {
        draft['balance'] = 1000
      })
    })
    const hf = await scene.open({ workflows: [count, echo] })
    await hf.thread('t').run(count)
    await hf.close()
    damage(`patch IS NOT NULL`, 'patch')
    const again = await scene.open({ workflows: [count, echo] })
    expect(await codeOfRejection(again.thread('t').state())).toBe('corrupt_record')
    const run = await again.thread('t').start(echo, 1)
    await becomes(run, 'paused')
    expect(await again.run(echo, 'the next ordinary run')).toBe('the next ordinary run')
  })

  it('that is removed while it is open is store_unavailable, and no new empty one takes its place', async () => {
    const hf = await scene.open({ workflows: [echo], worker: false })
    await hf.start(echo, 1)
    rmSync(fileOf())
    // Looking at the path costs as much as a small read, so it is done every now and then.
    await vi.waitUntil(async () => (await codeOfRejection(hf.start(echo, 2))) === 'store_unavailable', { interval: 5 })
    expect(existsSync(fileOf())).toBe(false)
  })

  /** Changes a digit in a column of one record, as a flipped bit would. */
  function damage(where: string, column: 'payload' | 'patch'): void {
    const db = new DatabaseSync(fileOf(), { timeout: 5_000 })
    const { changes } = db.prepare(`UPDATE holdfast_log SET ${column} = replace(${column}, '1000', '9000') WHERE ${where}`).run()
    expect(changes).toBeGreaterThanOrEqual(1)
    db.close()
  }
})

/** To `deepStrictEqual` of Node 22 two invalid dates are different. */
function assertSame(actual: unknown, expected: unknown): void {
  if (inspect(expected).includes('Invalid Date')) assert.equal(inspect(actual), inspect(expected))
  else assert.deepStrictEqual(actual, expected)
}
