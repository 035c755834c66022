import { setTimeout as sleep } from 'node:timers/promises'
import { type Holdfast, HoldfastError, type RunEvent, type RunHandle, type UnsureEffect, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { becomes, eventTypes, gate, logged } from './runs.ts'
import { onLocalStores, onSqlite, type Scene } from './stores.ts'

/** How often each name was noted. */
class Counts {
  readonly #counts = new Map<string, number>()

  note(name: string): number {
    const count = (this.#counts.get(name) ?? 0) + 1
    this.#counts.set(name, count)
    return count
  }

  of(name: string): number {
    return this.#counts.get(name) ?? 0
  }

  get all(): Record<string, number> {
    return Object.fromEntries(this.#counts)
  }
}

/** Forgets once: `remember` where the image is taken, `forget` where it is put back. */
function forgetting({ takeImage }: Pick<Scene, 'takeImage'>) {
  let putBack: (() => void) | undefined
  let hasForgotten = false
  return {
    remember: () => {
      putBack ??= takeImage()
    },
    forget: () => {
      if (hasForgotten || putBack === undefined) return false
      hasForgotten = true
      putBack()
      return true
    },
    get hasForgotten() {
      return hasForgotten
    },
  }
}

/** Its records, without gaps; refused where one is damaged. */
async function expectWhole(run: RunHandle): Promise<void> {
  const seqs = (await run.events()).map(({ seq }) => seq)
  expect(seqs).toEqual(seqs.toSorted((a, b) => a - b))
  expect(new Set(seqs).size).toBe(seqs.length)
}

onLocalStores('a store that forgets its last commits under a living holder', (scene) => {
  const { open, openWrapped, advance } = scene

  it('runs steps again whose results are missing, and no others', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const work = workflow('work', async (ctx) => {
      const values: number[] = []
      for (const name of ['a', 'b', 'c', 'd', 'e']) {
        values.push(
          await ctx.step(name, () => {
            const count = ran.note(name)
            if (name === 'b') remember()
            if (name === 'd') forget()
            return count
          }),
        )
      }
      return values
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    expect(await run.result()).toEqual([1, 2, 2, 2, 1])
    expect(ran.all).toEqual({ a: 1, b: 2, c: 2, d: 2, e: 1 })
    await expectWhole(run)
    expect((await eventTypes(run)).filter((type) => type === 'step_completed')).toHaveLength(5)
  })

  it('finds the state as the store has it, for what the function and its steps update', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const work = workflow('work', async (ctx) => {
      for (const name of ['a', 'b', 'c', 'd']) {
        ctx.update((state: { seen?: string[] }) => {
          state.seen = [...(state.seen ?? []), `before ${name}`]
        })
        await ctx.step(name, (step) => {
          const count = ran.note(name)
          if (name === 'b') remember()
          if (name === 'd') forget()
          step.update((state: { seen?: string[] }) => {
            state.seen = [...(state.seen ?? []), `${name}${count}`]
          })
        })
      }
      return ctx.state as { seen: string[] }
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, undefined, { threadId: 't' })
    const seen = ['before a', 'a1', 'before b', 'b2', 'before c', 'c2', 'before d', 'd2']
    expect(await run.result()).toEqual({ seen })
    expect(await hf.thread('t').state()).toEqual({ seen })
  })

  it('never starts a run from a state of the lost history, also where the log has grown to the same position since', async () => {
    const add = workflow('add', async (ctx, what: string) => {
      await ctx.step('add', (step) => {
        step.update((state: { seen?: string[] }) => {
          state.seen = [...(state.seen ?? []), what]
        })
      })
      return (ctx.state as { seen: string[] }).seen
    })
    const hf = await open({ workflows: [add] })
    const thread = hf.thread('t')
    const start = async (what: string) => (await hf.start(add, what, { threadId: 't' })).result()
    expect(await start('first')).toEqual(['first'])
    const putBack = scene.takeImage()
    expect(await start('lost')).toEqual(['first', 'lost'])
    const lostHead = (await thread.checkpoints()).at(-1)?.seq
    putBack()
    for (let edits = 1; (await thread.checkpoints()).at(-1)?.seq !== lostHead; edits++) {
      expect(edits).toBeLessThan(20)
      await thread.update((state: { edits?: number }) => {
        state.edits = edits
      })
    }
    expect(await start('next')).toEqual(['first', 'next'])
    expect(await thread.state()).toMatchObject({ seen: ['first', 'next'] })
  })

  it('does not begin an effect whose intent it can no longer keep', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => remember())
      await ctx.step('b', () => void ran.note('b'))
      forget()
      return ctx.once('send', { run: () => ran.note('send') })
    })
    const hf = await open({ workflows: [work] })
    expect(await (await hf.start(work)).result()).toBe(1)
    expect(ran.all).toEqual({ b: 2, send: 1 })
  })

  it('takes the outcome of an effect that is being sent from the holder that sends it', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => remember())
      await ctx.step('b', () => void ran.note('b'))
      const beside = ctx.step('c', async () => {
        ran.note('c')
        await vi.waitUntil(() => ran.of('send') > 0, { interval: 1 })
        forget()
      })
      const sent = await ctx.once('send', {
        run: async () => {
          const count = ran.note('send')
          await sleep(100)
          return count
        },
      })
      await beside
      return sent
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    expect(await run.result()).toBe(1)
    expect(ran.all).toEqual({ b: 2, send: 1, c: 2 })
    await expectWhole(run)
  })

  /** An effect that has completed, in a history that is lost. */
  function sending(options: { idempotent?: true; isLookedUp?: true }) {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const keys = new Set<string>()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => remember())
      await ctx.step('b', () => void ran.note('b'))
      const result = await ctx.once('send', {
        ...(options.idempotent && { idempotent: true }),
        ...(options.isLookedUp && {
          check: () => {
            ran.note('check')
            return { happened: true, result: 'found' }
          },
        }),
        run: (key) => {
          keys.add(key)
          return `sent ${ran.note('send')}`
        },
      })
      await ctx.step('c', () => {
        ran.note('c')
        forget()
      })
      return result
    })
    return { work, ran, keys }
  }

  it('treats an effect as hidden that had completed: one with a check is looked up', async () => {
    const { work, ran } = sending({ isLookedUp: true })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    expect(await run.result()).toBe('found')
    expect(ran.all).toEqual({ b: 2, send: 1, c: 2, check: 1 })
    expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_intended', 'effect_completed'])
  })

  it('treats an effect as hidden that had completed: an idempotent one is sent again under its key', async () => {
    const { work, ran, keys } = sending({ idempotent: true })
    const hf = await open({ workflows: [work] })
    expect(await (await hf.start(work)).result()).toBe('sent 2')
    expect(ran.all).toEqual({ b: 2, send: 2, c: 2 })
    expect(keys.size).toBe(1)
  })

  it('treats an effect as hidden that had completed: a person decides about any other, and is shown what it had returned', async () => {
    const { work, ran, keys } = sending({})
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    expect(ran.all).toEqual({ b: 2, send: 1, c: 1 })
    const [unsure] = await unsureEffects(hf)
    expect(unsure).toMatchObject({ key: [...keys][0], evidence: { result: 'sent 1' } })
    await hf.resolve([...keys][0] as string, { happened: true, result: 'sent 1' })
    expect(await run.result()).toBe('sent 1')
    expect(ran.of('send')).toBe(1)
    await expectWhole(run)
  })

  it('does not mind another key, where the steps that it was made of are done again', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const sent: string[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => remember())
      const order = await ctx.step('order', () => `order-${ran.note('order')}`)
      await ctx.once('pay', { key: order, idempotent: true, run: (key) => void sent.push(key) })
      await ctx.step('c', () => void forget())
      return order
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    expect(await run.result()).toBe('order-2')
    expect(sent).toEqual(['order-1', 'order-2'])
    // The end of the run leaves it to a person.
    expect((await unsureEffects(hf)).map(({ key }) => key)).toEqual(['order-1'])
  })

  it('undoes an effect that it had forgotten', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const work = workflow({ name: 'work', undoOnFailure: true }, async (ctx) => {
      await ctx.step('a', () => remember())
      await ctx.step('b', () => void ran.note('b'))
      await ctx.once('send', {
        check: () => ({ happened: true, result: 'found' }),
        run: () => `sent ${ran.note('send')}`,
        undo: (result) => void ran.note(`undo ${String(result)}`),
      })
      if (forget()) await ctx.step('c', () => {})
      await ctx.step('d', () => {
        throw new HoldfastError('invalid_input', 'no')
      })
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    await expect(run.result()).rejects.toThrow()
    expect(ran.all).toEqual({ b: 2, send: 1, 'undo found': 1 })
  })

  it('continues to a tape that it had forgotten; a person decides about the effects that were begun on it', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const work = workflow('work', async (ctx, round: number): Promise<unknown> => {
      if (round === 1) {
        await ctx.step('a', () => remember())
        await ctx.step('b', () => void ran.note('b'))
        return ctx.continueAs(2)
      }
      const result = await ctx.once('send', { check: () => ({ happened: false }), run: () => ran.note('send') })
      await ctx.step('c', () => void forget())
      return result
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, 1)
    await becomes(run, 'waiting')
    const [unsure] = await unsureEffects(hf)
    expect(unsure).toMatchObject({ name: 'send', evidence: { result: 1 } })
    await hf.resolve(unsure?.key ?? '', { happened: true, result: 'decided' })
    expect(await run.result()).toBe('decided')
    expect(ran.all).toEqual({ b: 2, send: 1 })
    await expectWhole(run)
  })

  it('takes a signal again that it has again', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => void ran.note('a'))
      const value = await ctx.waitFor<string>('go')
      await ctx.step('b', () => {
        ran.note('b')
        forget()
      })
      return value
    })
    const hf = await openWrapped(
      (store) =>
        wrapStore(store, { before: (act, _, args) => void (act === 'commit' && isOf(args, 'signal_received') && remember()) }),
      { workflows: [work] },
    )
    const run = await hf.start(work)
    await hf.signal(run.id, 'go', 'now')
    expect(await run.result()).toBe('now')
    expect(ran.all).toEqual({ a: 1, b: 2 })
  })

  it('waits again for a signal that is lost, and takes the next', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const inC = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => void ran.note('a'))
      await ctx.step('b', () => {
        ran.note('b')
        remember()
      })
      const value = await ctx.waitFor<string>('go')
      await ctx.step('c', () => {
        ran.note(`c ${value}`)
        if (forget()) inC.open()
      })
      return value
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    await logged(run, 'step_completed')
    await hf.signal(run.id, 'go', 'lost')
    await inC.promise
    await hf.signal(run.id, 'go', 'again')
    expect(await run.result()).toBe('again')
    expect(ran.all).toEqual({ a: 1, b: 2, 'c lost': 1, 'c again': 1 })
  })

  it('starts a child again that is gone, and takes the end of one anew', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const child = workflow('child', async (ctx, n: number) =>
      ctx.step('double', () => {
        ran.note(`child ${n}`)
        return 2 * n
      }),
    )
    const work = workflow('work', async (ctx) => {
      const first = await ctx.call(child, 1)
      await ctx.step('a', () => remember())
      const second = await ctx.call(child, 2)
      await ctx.step('b', () => {
        ran.note('b')
        forget()
      })
      return [first, second]
    })
    const hf = await open({ workflows: [work, child] })
    const run = await hf.start(work)
    expect(await run.result()).toEqual([2, 4])
    expect(ran.all).toEqual({ 'child 1': 1, 'child 2': 2, b: 2 })
    await expectWhole(run)
  })

  it('lets a child go whose start is lost while it runs', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const child = workflow('child', async (ctx) => {
      await ctx.step('first', () => {
        ran.note('first')
        forget()
      })
      return ctx.step('second', () => 'done')
    })
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => remember())
      return ctx.call(child, undefined)
    })
    const hf = await open({ workflows: [work, child], worker: { leaseMs: 2_000 } })
    const run = await hf.start(work)
    await vi.waitUntil(() => ran.of('first') > 0)
    advance(3_000)
    expect(await run.result()).toBe('done')
    expect(ran.of('first')).toBe(2)
  })

  it('takes a run up again that had begun to wait', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => void ran.note('a'))
      await ctx.step('b', () => {
        ran.note('b')
        remember()
      })
      await ctx.sleep(3_600_000)
      return ctx.step('c', () => ran.note('c'))
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    forget()
    expect((await run.info()).status).toBe('running')
    // The lease that it has again, and that nobody renews.
    advance(40_000)
    await becomes(run, 'waiting')
    expect(ran.all).toEqual({ a: 1, b: 2 })
    advance(3_600_000)
    expect(await run.result()).toBe(1)
    await expectWhole(run)
  })

  it('ends a run again whose end is lost', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => void ran.note('a'))
      await ctx.step('b', () => {
        ran.note('b')
        remember()
      })
      return ctx.step('c', () => ran.note('c'))
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    expect(await run.result()).toBe(1)
    forget()
    advance(40_000)
    expect(await run.result()).toBe(2)
    expect(ran.all).toEqual({ a: 1, b: 2, c: 2 })
    await expectWhole(run)
  })

  it.each(['completes', 'fails', 'is paused', 'begins to wait'])(
    'refuses the commit by which a run %s over a hole',
    async (how) => {
      const { remember, forget } = forgetting(scene)
      const ran = new Counts()
      const work = workflow('work', async (ctx) => {
        await ctx.step('a', () => remember())
        await ctx.step('b', () => void ran.note('b'))
        await ctx.step('c', () => void ran.note('c'))
        if (forget() && how === 'is paused') void run.pause().catch(() => {})
        if (how === 'is paused' || how === 'begins to wait') await ctx.sleep(60_000)
        if (how === 'fails') throw new Error('as it should')
        return 'done'
      })
      const hf = await open({ workflows: [work] })
      const run = await hf.start(work)
      if (how === 'is paused') {
        await becomes(run, 'paused')
        await run.resume()
      }
      if (how === 'is paused' || how === 'begins to wait') {
        await becomes(run, 'waiting')
        advance(61_000)
      }
      if (how === 'fails') await expect(run.result()).rejects.toThrow('as it should')
      else expect(await run.result()).toBe('done')
      expect(ran.all).toEqual({ b: 2, c: 2 })
      await expectWhole(run)
    },
  )

  it('executes a run again whose claim is lost', async () => {
    const ran = new Counts()
    let putBack: (() => void) | undefined
    const work = workflow('work', async (ctx) => {
      for (const name of ['a', 'b'])
        await ctx.step(name, () => {
          ran.note(name)
          if (name === 'b' && putBack !== undefined) {
            putBack()
            putBack = undefined
          }
        })
      return 'done'
    })
    const hf = await openWrapped(
      (store) =>
        wrapStore(store, {
          before: async (act) => {
            if (act === 'claim' && putBack === undefined && ran.of('a') === 0) putBack = await imageOnce(store)
          },
        }),
      { workflows: [work] },
    )
    const run = await hf.start(work)
    expect(await run.result()).toBe('done')
    expect(ran.all).toEqual({ a: 2, b: 2 })

    async function imageOnce(store: Store): Promise<(() => void) | undefined> {
      const { items } = await store.listRuns({ owner: '', limit: 1 })
      return items[0]?.status === 'pending' ? scene.takeImage() : undefined
    }
  })

  it('starts a run anew whose start is lost', async () => {
    const ran = new Counts()
    const inA = gate()
    const release = gate()
    const work = workflow('work', async (ctx) =>
      ctx.step('a', async () => {
        inA.open()
        if (ran.note('a') === 1) await release.promise
        return ran.of('a')
      }),
    )
    const hf = await open({ workflows: [work] })
    const putBack = scene.takeImage()
    await hf.start(work, undefined, { id: 'r' })
    await inA.promise
    putBack()
    const again = await hf.start(work, undefined, { id: 'r' })
    release.open()
    expect(await again.result()).toBe(2)
  })

  it('tells a step that takes long at the next renewal', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const reasons: unknown[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => remember())
      await ctx.step('b', () => void ran.note('b'))
      await ctx.step('c', async (step) => {
        ran.note('c')
        if (!forget()) return
        await new Promise<void>((resolve) => {
          step.signal.addEventListener('abort', () => {
            reasons.push((step.signal.reason as HoldfastError).code)
            resolve()
          })
        })
      })
      return 'done'
    })
    const hf = await open({ workflows: [work], worker: { leaseMs: 600 } })
    expect(await (await hf.start(work)).result()).toBe('done')
    expect(ran.all).toEqual({ b: 2, c: 2 })
    expect(reasons).toEqual(['lease_lost'])
  })

  it.each([
    ['because the lease is older than it was', 0],
    ['also where the store refuses to be told of it at first', 3],
  ])('knows what it had begun of a run that it claims itself, %s', async (_, refusals) => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    let refusalsLeft = 0
    const { promise: hasForgotten, open: tell } = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => remember())
      const sent = await ctx.once('plain', { run: () => ran.note('plain') })
      await ctx.once('checked', { run: () => ran.note('checked'), check: () => ({ happened: ran.of('checked') > 0, result: 1 }) })
      await ctx.step('b', async (step) => {
        ran.note('b')
        if (!forget()) return
        // Over before its holder renews it: the next claim takes it from the holder itself.
        advance(60_000)
        refusalsLeft = refusals
        tell()
        await new Promise((resolve) => step.signal.addEventListener('abort', resolve))
      })
      return sent
    })
    const refusing = (store: Store) =>
      wrapStore(store, {
        before: (act, _, args) => {
          if (act !== 'commit' || refusalsLeft === 0 || !isOf(args, 'effect_intended')) return
          refusalsLeft--
          throw new HoldfastError('store_unavailable', 'The store is down.', { retryable: true })
        },
      })
    const hf = await openWrapped(refusing, { workflows: [work], worker: { leaseMs: 30_000, pollMs: 10 } })
    const run = await hf.start(work)
    await hasForgotten
    await vi.waitUntil(async () => (await hf.inbox()).length === 1, { timeout: 15_000 })
    const [item] = (await hf.inbox()) as UnsureEffect[]
    await hf.resolve(item?.key as string, { happened: true, result: 1 })
    expect(await run.result()).toBe(1)
    expect(ran.all).toEqual({ plain: 1, checked: 1, b: 2 })
    await expectWhole(run)
  })

  it('is noticed after an outage, when what could not be written is sent again', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    let isDown = false
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => remember())
      await ctx.step('b', () => void ran.note('b'))
      await ctx.once('send', { idempotent: true, run: () => ran.note('send') })
      await ctx.step('c', () => {
        ran.note('c')
        if (forget()) {
          isDown = true
          setTimeout(() => {
            isDown = false
          }, 100)
        }
      })
      return 'done'
    })
    const hf = await openWrapped(
      (store) =>
        wrapStore(store, {
          before: (act) => {
            if (isDown && act !== 'close') throw new HoldfastError('store_unavailable', 'The store is down.', { retryable: true })
          },
        }),
      { workflows: [work] },
    )
    const run = await hf.start(work)
    expect(await run.result()).toBe('done')
    expect(ran.all).toEqual({ b: 2, send: 2, c: 2 })
    await expectWhole(run)
  })

  it('is noticed after a write whose outcome nobody knows', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const keys: string[] = []
    let isLost = false
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => remember())
      await ctx.once('send', { idempotent: true, run: (key) => void keys.push(key) })
      await ctx.step('b', () => void ran.note('b'))
      return 'done'
    })
    const hf = await openWrapped(
      (store) =>
        wrapStore(store, {
          after: (act, _, args) => {
            if (act !== 'commit' || isLost || ran.of('b') === 0 || !isOf(args, 'step_completed')) return
            isLost = true
            forget()
            throw new HoldfastError('outcome_unknown', 'The answer got lost.')
          },
        }),
      { workflows: [work] },
    )
    expect(await (await hf.start(work)).result()).toBe('done')
    expect(ran.all).toEqual({ b: 2 })
    expect(keys).toHaveLength(2)
    expect(new Set(keys).size).toBe(1)
  })

  it('starts over where an operation is refused under its own lease, and throws nothing into the function', async () => {
    const thrown: unknown[] = []
    let refusals = 1
    let sent = 0
    const work = workflow('work', async (ctx) => {
      try {
        return await ctx.once('send', { idempotent: true, run: () => ++sent })
      } catch (error) {
        thrown.push(error)
        throw error
      }
    })
    // As a store that has lost the operation alone.
    const hf = await openWrapped(
      (store) => ({
        ...wrapStore(store, {}),
        commit: async (changes) => {
          const isMeant = changes.some(({ operation }) => operation?.kind === 'complete') && refusals > 0
          if (!isMeant) return store.commit(changes)
          refusals--
          return changes.map(() => ({ ok: false, refusal: 'conflict' }))
        },
      }),
      { workflows: [work] },
    )
    const run = await hf.start(work)
    expect(await run.result()).toBe(2)
    expect(thrown).toEqual([])
    expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_completed'])
  })

  it('hands a run to another process with the intents that were forgotten', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const isSent = gate()
    const make = (name: string) =>
      workflow('work', async (ctx) => {
        await ctx.step('a', () => remember())
        await ctx.step('b', () => void ran.note(`b ${name}`))
        const result = await ctx.once('send', { run: () => `sent by ${name}, ${ran.note('send')}` })
        await ctx.step('c', async () => {
          if (name === 'first') isSent.open()
          if (name === 'first') await sleep(300)
        })
        return result
      })
    const first = await open({ workflows: [make('first')], worker: { leaseMs: 600 } })
    const run = await first.start('work', undefined)
    await isSent.promise
    const second = await open({ workflows: [make('second')], worker: { leaseMs: 600 } })
    forget()
    await becomes(run, 'waiting')
    const [unsure] = await unsureEffects(second)
    expect(unsure).toMatchObject({ name: 'send', evidence: { result: 'sent by first, 1' } })
    await second.resolve(unsure?.key ?? '', { happened: true, result: 'decided' })
    expect(await run.result()).toBe('decided')
    expect(ran.of('send')).toBe(1)
  })

  it('tells of an effect that it has forgotten, also where one that an earlier holder began has been answered since', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const isBegun = gate()
    const hasSent = gate()
    const make = (name: string) =>
      workflow('work', async (ctx) => {
        const slow = ctx.once('slow', {
          idempotent: true,
          run: async () => {
            ran.note(`slow ${name}`)
            isBegun.open()
            if (name === 'first') await new Promise(() => {})
            await hasSent.promise
            forget()
          },
        })
        await ctx.step('a', async () => {
          if (name === 'first') await new Promise(() => {})
        })
        await ctx.step('b', () => remember())
        await ctx.step('c', () => {})
        const result = await ctx.once('send', { run: () => ran.note('send') })
        await ctx.step('d', () => hasSent.open())
        await slow
        return result
      })
    const first = await scene.openMortal({ workflows: [make('first')] })
    const run = await first.hf.start('work', undefined, { id: 'r' })
    await isBegun.promise
    await first.die()
    advance(20_000)
    const hf = await open({ workflows: [make('second')] })
    const again = await hf.runs.get(run.id)
    await becomes(again, 'waiting')
    const [unsure] = await unsureEffects(hf)
    expect(unsure).toMatchObject({ name: 'send', evidence: { result: 1 } })
    expect(ran.of('send')).toBe(1)
  })

  it.each(['cancel', 'rollback'] as const)('comes to the end of a %s that is asked for after commits were lost', async (what) => {
    const { remember, forget } = forgetting(scene)
    const isThere = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => {})
      await ctx.step('b', () => remember())
      await ctx.step('c', () => {})
      isThere.open()
      await ctx.sleep(4_000)
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, undefined, { threadId: 't' })
    await isThere.promise
    forget()
    if (what === 'cancel') await run.cancel()
    else await run.rollback(`t@${(await run.events()).find(({ type }) => type === 'step_completed')?.seq}`)
    expect((await run.info()).status).toBe(what === 'cancel' ? 'cancelled' : 'paused')
    await expectWhole(run)
  })

  it('shows whoever watches a run what happens instead of what was lost', async () => {
    const { remember, forget } = forgetting(scene)
    const release = gate()
    const inC = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => remember())
      for (const name of ['b', 'c', 'd'])
        await ctx.step(name, async () => {
          if (name !== 'c') return
          inC.open()
          await release.promise
        })
      return 'done'
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    const watched: RunEvent[] = []
    const watching = (async () => {
      for await (const event of run.watch()) watched.push(event)
    })()
    await inC.promise
    await vi.waitUntil(() => watched.some(({ type, step }) => type === 'step_started' && step === 'c'))
    forget()
    release.open()
    expect(await run.result()).toBe('done')
    await watching
    const afterFirst = (await run.events()).filter(({ seq }) => seq >= (watched[0]?.seq ?? 0))
    const named = (events: readonly RunEvent[]) => events.map(({ seq, at, type, step }) => `${seq} ${at} ${type} ${step ?? ''}`)
    expect(named(watched)).toEqual(expect.arrayContaining(named(afterFirst)))
    expect(watched.at(-1)?.type).toBe('run_completed')
    expect(watched.length).toBeGreaterThan(afterFirst.length)
  })

  it('fences nobody whose commits it has kept', async () => {
    const ran = new Counts()
    const inB = gate()
    const release = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => void ran.note('a'))
      await ctx.step('b', async () => {
        ran.note('b')
        inB.open()
        await release.promise
      })
      return ctx.step('c', () => ran.note('c'))
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, undefined, { threadId: 't' })
    await inB.promise
    await sleep(200)
    const putBack = scene.takeImage()
    // What others write, and is lost.
    await hf.start(work, undefined, { id: 'lost', threadId: 't' })
    await hf.signal(run.id, 'nothing', 1)
    putBack()
    await hf.start(work, undefined, { id: 'second', threadId: 't' })
    release.open()
    expect(await run.result()).toBe(1)
    expect(await (await hf.runs.get('second')).result()).toBe(2)
    expect(ran.all).toEqual({ a: 2, b: 2, c: 2 })
  })

  it('keeps a merge into a profile that came after it, where a step had read one that is lost', async () => {
    const { remember, forget } = forgetting(scene)
    const profileOf = (hf: Holdfast) => hf.memory.of('ann').profile
    let outside: Holdfast | undefined
    let bodies = 0
    const work = workflow('work', (ctx) =>
      ctx.step('learn', async ({ memory }) => {
        bodies++
        remember()
        await profileOf(outside as Holdfast).merge({ lost: true })
        const { profile } = memory.of('ann')
        await profile.merge({ learnt: await profile.get() })
        advance(1_000)
        forget()
        await profileOf(outside as Holdfast).merge({ kept: true })
      }),
    )
    outside = await open({ worker: false })
    await profileOf(outside).merge({ first: true })
    const hf = await open({ workflows: [work] })
    await hf.run(work, undefined)
    const learnt = { first: true, lost: true }
    expect([bodies, await profileOf(hf).get()]).toEqual([1, { first: true, kept: true, learnt }])
    expect((await profileOf(hf).history()).map(({ version, patch }) => [version, patch])).toEqual([
      [3, { learnt }],
      [2, { kept: true }],
      [1, { first: true }],
    ])
  })

  it('ends every run right, wherever it forgets', async () => {
    const applied = new Counts()
    const child = workflow('child', async (ctx, n: number) => ctx.step('square', () => n * n))
    const work = workflow('work', async (ctx, n: number) => {
      let sum = 0
      for (let i = 0; i < 10; i++) {
        sum += await ctx.step(`step-${i}`, async (step) => {
          await sleep(Math.random() * 16)
          step.update((state: { sum?: number }) => {
            state.sum = (state.sum ?? 0) + i
          })
          return i
        })
        if (i === 2) sum += await ctx.call(child, n)
        if (i === 3) await ctx.sleep(5)
        if (i === 4)
          await ctx.once('apply', {
            idempotent: true,
            run: async (key) => {
              applied.note(key)
              await sleep(Math.random() * 4)
            },
          })
      }
      return { sum, state: (ctx.state as { sum: number }).sum }
    })
    const hf = await open({ workflows: [work, child], worker: { concurrency: 20, leaseMs: 3_000 } })
    const ids = Array.from({ length: 12 }, (_, n) => `r-${n}`)
    for (const [n, id] of ids.entries()) await hf.start(work, n, { id })
    for (let round = 1; round <= 12; round++) {
      await sleep(10 + Math.random() * 20)
      const putBack = scene.takeImage()
      await sleep(2 + Math.random() * 15)
      putBack()
      // Runs that had begun to wait, or had ended, are held again by nobody.
      if (round % 4 === 0) advance(4_000)
    }
    for (const [n, id] of ids.entries()) {
      const run = await hf.runs.get(id)
      await vi.waitUntil(async () => {
        const { status } = await run.info()
        if (status === 'running') advance(200)
        return status === 'completed' || status === 'failed' || status === 'paused'
      })
      expect(await run.result()).toEqual({ sum: 45 + n * n, state: 45 })
      await expectWhole(run)
    }
    for (const count of Object.values(applied.all)) expect(count).toBeGreaterThan(0)
    expect(Object.keys(applied.all)).toHaveLength(ids.length)
  })
})

onSqlite('a transaction in a store that forgets', (scene) => {
  it('takes effect once, with the step that it belongs to', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => remember())
      await ctx.transaction('pay', async (tx) => {
        ran.note('pay')
        await tx.query('INSERT INTO payments (amount) VALUES (?)', [10])
      })
      await ctx.step('b', () => {
        ran.note('b')
        forget()
      })
      await ctx.transaction('pay again', async (tx) => {
        ran.note('pay again')
        await tx.query('INSERT INTO payments (amount) VALUES (?)', [20])
      })
      return 'done'
    })
    await scene.sql('CREATE TABLE payments (amount INTEGER)')
    const hf = await scene.open({ workflows: [work] })
    expect(await (await hf.start(work)).result()).toBe('done')
    expect(await scene.sql('SELECT amount FROM payments ORDER BY amount')).toEqual([{ amount: 10 }, { amount: 20 }])
    expect(ran.all).toEqual({ pay: 2, b: 2, 'pay again': 1 })
  })

  it('is not begun over a hole', async () => {
    const { remember, forget } = forgetting(scene)
    const ran = new Counts()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => remember())
      await ctx.step('b', () => void ran.note('b'))
      forget()
      await ctx.transaction('pay', async (tx) => {
        ran.note('pay')
        await tx.query('INSERT INTO payments (amount) VALUES (?)', [10])
      })
      return 'done'
    })
    await scene.sql('CREATE TABLE payments (amount INTEGER)')
    const hf = await scene.open({ workflows: [work] })
    expect(await (await hf.start(work)).result()).toBe('done')
    expect(ran.all).toEqual({ b: 2, pay: 1 })
    expect(await scene.sql('SELECT amount FROM payments')).toEqual([{ amount: 10 }])
  })
})

async function unsureEffects(hf: Holdfast): Promise<UnsureEffect[]> {
  return (await hf.inbox()).filter((item) => item.kind === 'effect')
}

function isOf([changes]: readonly unknown[], type: string): boolean {
  return (changes as Change[]).some(({ events }) => events.some((event) => event.type === type))
}
