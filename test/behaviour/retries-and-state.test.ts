import { setTimeout as delay } from 'node:timers/promises'
import { type Holdfast, plan, type RunHandle, state, workflow } from 'holdfast'
import { expect, it, vi } from 'vitest'
import { becomes, codeOfRejection, eventTypes, failureOf, gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

const once = { attempts: 1 }
const listed = state({ version: 1, initial: () => ({ list: [] as string[], n: 0 }) })

onEveryStore('another attempt and the state', (scene) => {
  const { open, openMortal, advance } = scene
  const rebuilds = async (run: RunHandle) =>
    (await run.events()).filter(({ type, data }) => type === 'state_updated' && data?.['rebuilt'] !== undefined)
  /** Fails as long as `broken.is`; `a` is recorded after the failure of `b`, and both are put into the state. */
  const makePartial = () => {
    const broken = { is: true }
    const partial = workflow({ name: 'partial', state: listed }, async (ctx) => {
      const failed = gate()
      const settled = await Promise.allSettled([
        ctx
          .step(
            'b',
            () => {
              if (broken.is) throw new Error('down')
              return 'b'
            },
            { retry: once },
          )
          .finally(() => failed.open()),
        ctx.step('a', async () => {
          await failed.promise
          return 'a'
        }),
      ])
      for (const one of settled) {
        if (one.status === 'fulfilled')
          ctx.update((draft) => {
            draft.list.push(one.value)
            draft.n++
          })
      }
      if (settled.some(({ status }) => status === 'rejected')) throw new Error('partial')
      return ctx.state
    })
    return { broken, partial }
  }

  it('run.retry() applies no update twice, and other readers see what the run sees', async () => {
    const hf = await open()
    const { broken, partial } = makePartial()
    const run = await hf.start(partial, undefined, { id: 'r' })
    await failureOf(run)
    expect(await hf.thread('r').state()).toEqual({ list: ['a'], n: 1 })
    broken.is = false
    await run.retry()
    expect(await run.result()).toEqual({ list: ['b', 'a'], n: 2 })
    expect(await hf.thread('r').state()).toEqual({ list: ['b', 'a'], n: 2 })
    const next = workflow({ name: 'next', state: listed }, async (ctx) => ctx.state)
    expect(await hf.run(next, undefined, { threadId: 'r' })).toEqual({ list: ['b', 'a'], n: 2 })
    expect(await rebuilds(run)).toHaveLength(1)
    // The past stays readable as it was.
    const [before] = (await hf.thread('r').checkpoints()).filter(({ checkpoint }) => checkpoint.endsWith('@9'))
    expect(before && (await hf.thread('r').stateAt(before.checkpoint))).toEqual({ list: ['a'], n: 1 })
  })

  it('a second and a third retry apply no update twice either', async () => {
    const hf = await open()
    const { broken, partial } = makePartial()
    const run = await hf.start(partial, undefined, { id: 'r' })
    await failureOf(run)
    for (let i = 0; i < 2; i++) {
      await run.retry()
      await failureOf(run)
      expect(await hf.thread('r').state()).toEqual({ list: ['a'], n: 1 })
    }
    broken.is = false
    await run.retry()
    expect(await run.result()).toEqual({ list: ['b', 'a'], n: 2 })
  })

  it('a retry that drops nothing writes nothing', async () => {
    const hf = await open()
    let isDown = true
    const work = workflow({ name: 'work', state: listed }, async (ctx) => {
      ctx.update((draft) => void draft.list.push('before'))
      await ctx.step(
        's',
        () => {
          if (isDown) throw new Error('down')
        },
        { retry: once },
      )
      ctx.update((draft) => void draft.list.push('after'))
      return ctx.state.list
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await failureOf(run)
    isDown = false
    await run.retry()
    expect(await run.result()).toEqual(['before', 'after'])
    expect(await rebuilds(run)).toEqual([])
  })

  for (const death of ['before', 'after'] as const) {
    it(`a worker that dies ${death} the first commit of the new attempt leaves it to the next one`, async () => {
      const { broken, partial } = makePartial()
      const client = await open({ workflows: [partial] })
      const run = await client.start(partial, undefined, { id: 'r' })
      await failureOf(run)
      await client.close()
      broken.is = false
      const caller = await open({ worker: false })
      await (await caller.runs.get('r')).retry()
      // The first write of the new attempt is the one with its first result.
      const mortal = await openMortal(
        { workflows: [partial] },
        death === 'before' ? { before: 'step_completed' } : { after: 'step_completed' },
      )
      await mortal.dead
      expect(await caller.thread('r').state()).toEqual(death === 'before' ? { list: ['a'], n: 1 } : { list: [], n: 0 })
      advance(11_000)
      await open({ workflows: [partial] })
      const taken = await caller.runs.get('r')
      expect(await taken.result()).toEqual({ list: ['b', 'a'], n: 2 })
      expect(await caller.thread('r').state()).toEqual({ list: ['b', 'a'], n: 2 })
      expect(await rebuilds(taken)).toHaveLength(1)
    })
  }

  it('an edit by hand between the failure and the retry stays, and what it appended is appended', async () => {
    const hf = await open()
    const { broken, partial } = makePartial()
    const run = await hf.start(partial, undefined, { id: 'r' })
    await failureOf(run)
    await hf.thread('r').update<{ list: string[]; note?: string }>((draft) => {
      draft.list.push('by hand')
      draft.note = 'checked'
    })
    broken.is = false
    await run.retry()
    expect(await run.result()).toEqual({ list: ['by hand', 'b', 'a'], n: 2, note: 'checked' })
  })

  it('what kept results changed stays: step.update after the failure, in Maps and Sets too', async () => {
    const hf = await open()
    let isDown = true
    const shape = state({
      version: 1,
      initial: () => ({ list: ['first'], map: new Map<string, number>(), set: new Set<string>(['x']) }),
    })
    const work = workflow({ name: 'work', state: shape }, async (ctx) => {
      const failed = gate()
      const bad = ctx
        .step(
          'bad',
          () => {
            if (isDown) throw new Error('down')
          },
          { retry: once },
        )
        .catch((error: unknown) => {
          ctx.update((draft) => {
            draft.list.push('failed')
            draft.map.set('failed', 1)
            draft.set.add('failed').delete('x')
          })
          failed.open()
          throw error
        })
      const good = ctx.step('good', async (step) => {
        if (isDown) await failed.promise
        step.update((draft) => {
          draft.list.push('good')
          draft.map.set('good', 2)
          draft.set.add('good')
        })
      })
      await Promise.allSettled([bad, good])
      await bad
      return ctx.state
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await failureOf(run)
    const { map, set, list } = (await hf.thread('r').state(shape)) ?? {}
    expect([list, map?.size, set?.size]).toEqual([['first', 'failed', 'good'], 2, 2])
    isDown = false
    await run.retry()
    expect(await run.result()).toEqual({ list: ['first', 'good'], map: new Map([['good', 2]]), set: new Set(['x', 'good']) })
  })

  it('of parallel plan steps one is tried again, and what the other changed stays', async () => {
    const hf = await open()
    const [retried, beside] = [gate(), gate()]
    let tries = 0
    const work = plan('work', { state: listed }).parallel([
      [
        'flaky',
        async (_, ctx) => {
          const failure = await ctx
            .step(
              's',
              () => {
                if (++tries === 1) throw new Error('once')
              },
              { retry: once },
            )
            .then(
              () => null,
              (error: unknown) => error,
            )
          ctx.update((draft) => void draft.list.push('flaky'))
          if (failure === null) return
          await ctx.step('wait', () => beside.promise)
          throw failure
        },
        { retry: { attempts: 2, minMs: 1 } },
      ],
      [
        'steady',
        async (_, ctx) => {
          ctx.update((draft) => void draft.list.push('steady 1'))
          await ctx.step('t', () => {})
          ctx.update((draft) => void draft.list.push('steady 2'))
          await ctx.step('u', () => beside.open())
          await ctx.step('v', () => retried.promise)
          ctx.update((draft) => void draft.list.push('steady 3'))
        },
      ],
    ])
    const run = await hf.start(work, {}, { id: 'r' })
    await expect.poll(() => eventTypes(run).then((types) => types.includes('step_failed'))).toBe(true)
    retried.open()
    const { list } = await run.result()
    expect([...list].sort()).toEqual(['flaky', 'steady 1', 'steady 2', 'steady 3'])
    expect(list.filter((one) => one.startsWith('steady'))).toEqual(['steady 1', 'steady 2', 'steady 3'])
    expect(tries).toBe(2)
  })

  it('a plan step that is tried again by its own policy applies no update twice', async () => {
    const hf = await open()
    let tries = 0
    const work = plan('work', { state: listed }).step(
      'gather',
      async (_, ctx) => {
        ctx.update((draft) => void draft.list.push('begun'))
        const failed = await ctx
          .step(
            'b',
            () => {
              if (++tries < 3) throw new Error('down')
            },
            { retry: once },
          )
          .then(
            () => false,
            () => true,
          )
        ctx.update((draft) => void draft.list.push('gathered'))
        if (failed) throw new Error('partial')
        return { n: 1 }
      },
      { retry: { attempts: 3, minMs: 1 } },
    )
    expect(await hf.run(work, {}, { id: 'r' })).toEqual({ list: ['begun', 'gathered'], n: 1 })
  })

  it('nested sections: only what came after the failure in each of them is made again', async () => {
    const hf = await open()
    let tries = 0
    const work = workflow({ name: 'work', state: listed }, async (ctx) => {
      const push = (text: string) => ctx.update((draft) => void draft.list.push(text))
      await ctx.section('done', async () => push('done'))
      await ctx.section(
        'outer',
        async () => {
          push('outer begins')
          await ctx.section('sibling', async () => push('sibling'))
          let failure: unknown
          await ctx
            .section(
              'inner',
              async () => {
                push('inner begins')
                try {
                  await ctx.step(
                    's',
                    () => {
                      if (++tries < 2) throw new Error('down')
                    },
                    { retry: once },
                  )
                } finally {
                  push('inner ends')
                }
              },
              { retry: once },
            )
            .catch((error: unknown) => {
              failure = error
            })
          await ctx.section('after', async () => push('after'))
          push('outer ends')
          if (failure !== undefined) throw failure
        },
        { retry: { attempts: 2, minMs: 1 } },
      )
      return ctx.state.list
    })
    const list = await hf.run(work, undefined, { id: 'r' })
    // What the section "after" recorded is kept where it was.
    expect(list).toEqual(['done', 'outer begins', 'sibling', 'inner begins', 'after', 'inner ends', 'outer ends'])
  })

  it('undoOnFailure and a retry take back what the undone results changed', async () => {
    const hf = await open()
    let isDown = true
    const saga = workflow({ name: 'saga', state: listed, undoOnFailure: true }, async (ctx) => {
      await ctx.step('keep', (step) => step.update((draft: { list: string[] }) => void draft.list.push('kept')))
      await ctx.step(
        'take',
        (step) =>
          step.update((draft: { n: number; list: string[] }) => {
            draft.n += 10
            draft.list.push('taken')
          }),
        { undo: () => {} },
      )
      ctx.update((draft) => void draft.list.push('after'))
      await ctx.step(
        'bad',
        () => {
          if (isDown) throw new Error('down')
        },
        { retry: once },
      )
      return ctx.state
    })
    const run = await hf.start(saga, undefined, { id: 'r' })
    await failureOf(run)
    isDown = false
    await run.retry()
    expect(await run.result()).toEqual({ list: ['kept', 'taken', 'after'], n: 10 })
  })

  it('what is kept comes, after a retry, before results that are done again after it was asked for, as on a replay', async () => {
    const hf = await open()
    let isDown = true
    const push = (word: string) => (step: { update(recipe: (draft: { list: string[] }) => void): void }) =>
      step.update((draft) => void draft.list.push(word))
    const orders: string[][] = []
    const saga = workflow({ name: 'saga', state: listed, undoOnFailure: true }, async (ctx) => {
      const order: string[] = []
      orders.push(order)
      const left = async () => {
        await ctx.step('a', push('a'), { undo: () => {} })
        order.push('a')
        await ctx.step('kept', () => {})
        order.push('kept')
        await ctx.step(`saw ${ctx.state.list.length}`, () => {})
      }
      const right = async () => {
        await ctx.step('b', push('b'), { undo: () => {} })
        order.push('b')
      }
      await Promise.all([left(), right()])
      await ctx.step(
        'bad',
        () => {
          if (isDown) throw new Error('down')
        },
        { retry: once },
      )
      await ctx.waitFor('go')
      return ctx.state.list
    })
    const run = await hf.start(saga, undefined, { id: 'r' })
    await failureOf(run)
    isDown = false
    await run.retry()
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    expect(await run.result()).toEqual(['a', 'b'])
    expect(orders.slice(1).map((order) => order.join(' '))).toEqual(orders.slice(1).map(() => 'a kept b'))
  })

  it('children of one workflow stay with their branches where each has a scope, whichever comes first after what was undone is done again', async () => {
    let isDown = true
    const echo = workflow('echo', (ctx, input: string) => ctx.step('echo', () => input))
    const saga = workflow({ name: 'saga', undoOnFailure: true }, async (ctx) => {
      const isFirst = gate()
      const left = async () => {
        const word = await ctx.step('undone', () => 'left', { undo: () => {} })
        isFirst.open()
        return ctx.call(echo, word)
      }
      const right = async () => {
        const word = await ctx.step('kept', () => isFirst.promise.then(() => 'right'))
        return ctx.call(echo, word)
      }
      const words = await Promise.all([ctx.scope('left', left), ctx.scope('right', right)])
      await ctx.step(
        'bad',
        () => {
          if (isDown) throw new Error('down')
        },
        { retry: once },
      )
      return words
    })
    const hf = await open({ workflows: [echo] })
    const run = await hf.start(saga, undefined, { id: 'r' })
    await failureOf(run)
    isDown = false
    await run.retry()
    expect(await run.result()).toEqual(['left', 'right'])
  })

  it('a section that was under way when its run failed sees what is done again before it', async () => {
    const hf = await open()
    const seen: unknown[] = []
    const entered = gate()
    let isDown = true
    const saga = workflow({ name: 'saga', state: listed, undoOnFailure: true }, async (ctx) => {
      await ctx.step('take', (step) => step.update((draft: { list: string[] }) => void draft.list.push('taken')), {
        undo: () => {},
      })
      const section = ctx.section('section', async () => {
        seen.push(ctx.state.list)
        await ctx.step('inside', () => {})
        entered.open()
        await ctx.waitFor('go')
        return ctx.state.list
      })
      const bad = ctx.step(
        'bad',
        async () => {
          await entered.promise
          if (isDown) throw new Error('down')
        },
        { retry: once },
      )
      const [list] = await Promise.all([section, bad])
      return list
    })
    const run = await hf.start(saga, undefined, { id: 'r' })
    await failureOf(run)
    isDown = false
    await run.retry()
    await hf.signal('r', 'go')
    expect(await run.result()).toEqual(['taken'])
    for (const list of seen) expect(list).toEqual(['taken'])
  })

  it('a section that was under way in a section that failed sees what is updated again before it', async () => {
    const hf = await open()
    const seen: unknown[] = []
    const work = workflow({ name: 'work', state: listed, retry: once }, async (ctx) =>
      ctx.section(
        'outer',
        async () => {
          const bad = await ctx
            .step('bad', ({ attempt }) => {
              if (attempt === 1) throw new Error('down')
            })
            .catch((error: Error) => error)
          ctx.update((draft) => void draft.list.push('after'))
          const inner = ctx.section('inner', async () => {
            seen.push(ctx.state.list)
            await ctx.waitFor('go')
            return ctx.state.list
          })
          await ctx.step('beside', () => {})
          if (bad instanceof Error) throw bad
          return inner
        },
        { retry: { attempts: 2, minMs: 1 } },
      ),
    )
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    expect(await run.result()).toEqual(['after'])
    for (const list of seen) expect(list).toEqual(['after'])
  })

  it.each([
    ['without an undo', {}],
    ['with an undo', { undo: 'release' }],
  ])(
    'what a section %s updates after the one around it has failed is in the state when that is tried again',
    async (_, options) => {
      const hf = await open()
      const failed = gate()
      let isDown = true
      const work = workflow({ name: 'work', state: listed, retry: once, undos: { release: () => {} } }, async (ctx) => {
        try {
          await ctx.section('outer', async () => {
            const inner = ctx.section(
              'inner',
              async () => {
                await ctx.step('reserve', () => {})
                if (isDown) await failed.promise
                ctx.update((draft) => void draft.list.push('reserved'))
              },
              options,
            )
            const bad = ctx.step('bad', async () => {
              await delay(20)
              if (isDown) throw new Error('down')
            })
            await Promise.all([bad, inner])
          })
        } catch (error) {
          failed.open()
          await ctx.step('report', () => delay(20))
          throw error
        }
        return ctx.state.list
      })
      const run = await hf.start(work, undefined, { id: 'r' })
      await failureOf(run)
      isDown = false
      await run.retry()
      expect(await run.result()).toEqual(['reserved'])
    },
  )

  it.each([
    ['falls back', { retry: once, fallback: () => 'other' }],
    ['is skipped', { retry: once, onFailure: 'skip' as const }],
  ])(
    'what a section that %s updated after the one around it had failed is in the state when that is tried again',
    async (_, options) => {
      const hf = await open()
      let attempts = 0
      const work = workflow({ name: 'work', state: listed, retry: once }, async (ctx) => {
        const outer = async () => {
          const attempt = ++attempts
          const inner = ctx.section(
            'inner',
            async () => {
              await ctx.step('reserve', () => {})
              if (attempt === 1) await delay(40)
              ctx.update((draft) => void draft.list.push('reserved'))
              throw new Error('always')
            },
            options,
          )
          const bad = ctx.step('bad', async () => {
            await delay(10)
            if (attempt === 1) throw new Error('down')
          })
          await Promise.all([bad, inner])
        }
        await ctx.section('outer', outer, { retry: { attempts: 2, minMs: 150, jitter: false } })
        return ctx.state.list
      })
      expect(await (await hf.start(work, undefined, { id: 'r' })).result()).toEqual(['reserved'])
    },
  )

  it('a section ends although a branch that it did not wait for updates right after it', async () => {
    const hf = await open()
    const work = workflow({ name: 'work', state: listed }, async (ctx, turns: number) => {
      await ctx.section('outer', async () => {
        void (async () => {
          for (let turn = 0; turn < turns; turn++) await null
          ctx.update((draft) => void draft.list.push('late'))
        })()
      })
      return 'done'
    })
    for (let turns = 0; turns < 12; turns++)
      expect(await (await hf.start(work, turns, { id: `r${turns}` })).result()).toBe('done')
  })

  it.each(['step', 'wait', 'child'])('a %s that fails after its section has failed is tried again with that', async (kind) => {
    const hf = await open()
    let isDown = true
    const fails = async () => {
      await delay(40)
      if (isDown) throw new Error('late')
    }
    const child = workflow({ name: 'child', retry: once }, fails)
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      try {
        await ctx.section('outer', async () => {
          const bad = ctx.step('bad', async () => {
            await delay(10)
            if (isDown) throw new Error('down')
          })
          const late =
            kind === 'step'
              ? ctx.step('late', fails)
              : kind === 'child'
                ? ctx.call(child, undefined)
                : ctx.waitFor('go', { timeoutMs: isDown ? 50 : 15_000 })
          await Promise.all([late, bad])
        })
      } catch (error) {
        await ctx.step('report', () => delay(300))
        throw error
      }
      return 'done'
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await failureOf(run)
    isDown = false
    await run.retry()
    if (kind === 'wait') await hf.signal('r', 'go')
    expect(await run.result()).toBe('done')
  })

  it.each(['own retry', 'run.retry'])(
    'a wait that a section withdrew because it failed or took too long is begun anew: %s',
    async (how) => {
      const hf = await open()
      let attempts = 0
      const retry = how === 'own retry' ? { attempts: 2, minMs: 50, maxMs: 50 } : once
      const work = workflow({ name: 'work', retry: once }, async (ctx, tooLong: boolean) => {
        const options = { retry, ...(tooLong && { timeoutMs: 1_000 }) }
        await ctx.section(
          'outer',
          async () => {
            const attempt = ++attempts
            const abort = new AbortController()
            const bad = ctx.step('bad', () => {
              if (attempt === 1 && !tooLong) throw new Error('down')
            })
            try {
              await Promise.all([bad, ctx.waitFor('go', { signal: tooLong ? ctx.signal : abort.signal })])
            } finally {
              abort.abort(new Error('given up'))
            }
          },
          options,
        )
        return 'done'
      })
      for (const tooLong of [false, true]) {
        attempts = 0
        const id = `r-${tooLong}`
        const run = await hf.start(work, tooLong, { id })
        if (how !== 'own retry') {
          await failureOf(run)
          await run.retry()
        }
        await vi.waitUntil(() => attempts === 2, { timeout: 15_000, interval: 5 })
        await hf.signal(id, 'go')
        expect(await run.result()).toBe('done')
      }
    },
  )

  it('a fallback sends an effect under the key of one that waits for its next attempt in the section that took too long', async () => {
    const hf = await open()
    const charge = { key: 'order-1', idempotent: true }
    const refused = () => {
      throw new Error('503')
    }
    const work = workflow({ name: 'work' }, (ctx) =>
      ctx.section('pay', () => ctx.once('charge', { ...charge, run: refused, retry: { minMs: 60_000, jitter: false } }), {
        ...{ timeoutMs: 50, retry: once },
        fallback: () => ctx.once('charge', { ...charge, run: () => 'paid' }),
      }),
    )
    expect(await (await hf.start(work, undefined, { id: 'r' })).result()).toBe('paid')
  })

  it('a plan step that was undone as a whole is done again as a whole, except for effects that stand', async () => {
    const hf = await open()
    const done: string[] = []
    let isDown = true
    const trip = plan('trip', { state: listed, undoOnFailure: true })
      .step(
        'book',
        async (_, ctx) => {
          ctx.update((draft) => void draft.list.push('begun'))
          await ctx.step('reserve', (step) => {
            done.push('reserve')
            step.update((draft: { list: string[] }) => void draft.list.push('reserved'))
          })
          ctx.update((draft) => void draft.list.push('noted'))
          await ctx.section('inner', async () => {
            await ctx.step('seat', () => void done.push('seat'))
            ctx.update((draft) => void draft.list.push('seated'))
          })
          await ctx.once('mail', { idempotent: true, run: () => void done.push('mail') })
          return { n: 1 }
        },
        { undo: () => void done.push('undo of book') },
      )
      .step(
        'bad',
        () => {
          if (isDown) throw new Error('down')
        },
        { retry: once },
      )
    const run = await hf.start(trip, {}, { id: 'r' })
    await failureOf(run)
    expect(done).toEqual(['reserve', 'seat', 'mail', 'undo of book'])
    isDown = false
    await run.retry()
    expect(await run.result()).toEqual({ list: ['begun', 'reserved', 'noted', 'seated'], n: 1 })
    expect(done).toEqual(['reserve', 'seat', 'mail', 'undo of book', 'reserve', 'seat'])
  })

  const retryOf = async (hf: Holdfast, name: string, end: (failure: Error) => void) => {
    let isDown = true
    let tries = 0
    const work = workflow({ name, state: listed }, async (ctx) => {
      const failure = await ctx
        .step(
          'optional',
          () => {
            tries++
            if (isDown) throw new Error('not needed')
          },
          { retry: once },
        )
        .then(
          () => null,
          (error: Error) => error,
        )
      ctx.update((draft) => void draft.n++)
      await ctx.step('work', () => 1)
      if (isDown && failure !== null) end(failure)
      return ctx.state.n
    })
    const run = await hf.start(work, undefined, { id: name })
    await failureOf(run)
    isDown = false
    await run.retry()
    return { n: await run.result(), tries }
  }

  it('a failure that the function caught stays caught, unless the error that ends it names it as its cause', async () => {
    const hf = await open()
    const ofItsOwn = await retryOf(hf, 'own', () => {
      throw new Error('business rule')
    })
    expect(ofItsOwn).toEqual({ n: 1, tries: 1 })
    const wrapped = await retryOf(hf, 'wrapped', (cause) => {
      throw new Error('in vain', { cause })
    })
    expect(wrapped).toEqual({ n: 1, tries: 2 })
    const several = await retryOf(hf, 'several', (error) => {
      throw new AggregateError([error], 'in vain')
    })
    expect(several).toEqual({ n: 1, tries: 2 })
  })

  it('an error of its own after several failures that nothing came of reopens all of them', async () => {
    const hf = await open()
    let isDown = true
    const ran: string[] = []
    const work = workflow('work', async (ctx) => {
      const lane = async (name: string) => {
        await ctx.step(`${name}1`, () => void ran.push(`${name}1`))
        await ctx.step(
          `${name}2`,
          () => {
            ran.push(`${name}2`)
            if (isDown && name !== 'c') throw new Error('down')
          },
          { retry: once },
        )
        await ctx.step(`${name}3`, () => void ran.push(`${name}3`))
      }
      const settled = await Promise.allSettled([lane('a'), lane('b'), lane('c')])
      if (settled.some(({ status }) => status === 'rejected')) throw new Error('partial')
      return 'done'
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await failureOf(run)
    isDown = false
    await run.retry()
    expect(await run.result()).toBe('done')
    expect([...ran].sort()).toEqual(['a1', 'a2', 'a2', 'a3', 'b1', 'b2', 'b2', 'b3', 'c1', 'c2', 'c3'])
  })

  it('a kept change that no longer fits pauses the run as mismatch; a rollback is the way out', async () => {
    const hf = await open()
    let isDown = true
    const jobs = state({ version: 1, initial: () => ({ jobs: {} as Record<string, { done: boolean }> }) })
    const work = workflow({ name: 'work', state: jobs }, async (ctx) => {
      await ctx.checkpoint('begin')
      const known = gate()
      const bad = ctx
        .step(
          'bad',
          () => {
            if (isDown) throw new Error('down')
          },
          { retry: once },
        )
        .catch((error: unknown) => {
          ctx.update((draft) => void Object.assign(draft.jobs, { a: { done: false } }))
          known.open()
          throw error
        })
      const finish = ctx.step('finish', async (step) => {
        if (!isDown) return
        await known.promise
        step.update((draft) => void Object.assign((draft as { jobs: Record<string, object> }).jobs['a'] ?? {}, { done: true }))
      })
      await Promise.allSettled([bad, finish])
      await bad
      return ctx.state.jobs
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await failureOf(run)
    isDown = false
    await run.retry()
    await becomes(run, 'paused')
    const { reason, error } = await run.info()
    expect([reason, (error as { code?: string }).code]).toEqual(['mismatch', 'nondeterminism'])
    expect(error?.message).toMatch(/"finish".*run "r".*\$\.jobs\.a.*run\.rollback/)
    expect(await hf.thread('r').state()).toEqual({ jobs: { a: { done: true } } })
    await run.rollback('begin')
    await run.resume()
    expect(await run.result()).toEqual({})
    expect(await codeOfRejection(run.retry())).toBe('conflict')
  })
})
