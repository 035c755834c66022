import { setTimeout as delay } from 'node:timers/promises'
import { type Context, state, workflow } from 'holdfast'
import { expect, it, vi } from 'vitest'
import { patience } from '../patience.ts'
import { becomes, eventTypes, failureOf, gate, logged } from './runs.ts'
import { onEveryStore } from './stores.ts'

const once = { attempts: 1 }

onEveryStore('the order of kept results', (scene) => {
  const { open, openMortal, advance } = scene
  /** `fast` is recorded first though it is asked for second. */
  const race = async (ctx: Context<unknown>) => {
    const first = gate()
    const branch = async (name: string, body: () => Promise<void>) => {
      await ctx.step(name, body)
      return { name, id: ctx.uuid() }
    }
    const slow = branch('slow', () => first.promise)
    const fast = branch('fast', async () => {})
    const winner = await Promise.race([slow, fast])
    const used = await ctx.step('use', () => {
      first.open()
      return winner
    })
    const both = await Promise.all([slow, fast])
    return { winner, used, ids: both.map(({ id }) => id) }
  }

  it('is that of the log in another attempt of a section: a race has the same winner', async () => {
    const hf = await open()
    const seen: unknown[] = []
    const work = workflow('work', (ctx) =>
      ctx.section(
        'p',
        async () => {
          const raced = await race(ctx)
          seen.push(raced.ids)
          await ctx.step(
            'later',
            ({ attempt }) => {
              if (attempt === 1) throw new Error('once')
            },
            { retry: once },
          )
          return raced
        },
        { retry: { attempts: 3, minMs: 1 } },
      ),
    )
    const { winner, used } = await hf.run(work)
    expect(winner.name).toBe('fast')
    expect(winner).toEqual(used)
    expect(seen[1]).toEqual(seen[0])
  })

  it('is that of the log after run.retry(), and what is new comes after what was asked for before', async () => {
    const hf = await open()
    let isDown = true
    const work = workflow('work', async (ctx) => {
      const side = ctx
        .step(
          'side',
          () => {
            if (isDown) throw new Error('side')
          },
          { retry: once },
        )
        .then(
          () => null,
          (error: unknown) => error,
        )
      const raced = await race(ctx)
      const error = await side
      if (error !== null) throw error
      await ctx.waitFor('go')
      return raced
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await failureOf(run)
    isDown = false
    await run.retry()
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    const { winner, used } = await run.result()
    expect(winner.name).toBe('fast')
    expect(winner).toEqual(used)
  })

  it('does not keep ctx.begin from returning: steps that it encloses and others may come before its end', async () => {
    const hf = await open()
    const work = workflow('work', async (ctx) => {
      const outer = await ctx.begin<string>('outer')
      const other = await ctx.begin<string>('other')
      const inner = await ctx.step('inner', () => 1)
      const second = other.recorded ?? (await other.complete(`other ${inner}`))
      const first = outer.recorded ?? (await outer.complete(`outer ${inner}`))
      await ctx.waitFor('go')
      return [first, second]
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    expect(await run.result()).toEqual(['outer 1', 'other 1'])
  })

  it.each(['in another attempt of a section', 'after the run has waited'])(
    'holds for the end of what ctx.begin began, %s',
    async (when) => {
      const hf = await open({ worker: { quietMs: 20 } })
      const list = state({ version: 1, initial: () => ({ list: [] as string[] }) })
      const seen: unknown[] = []
      const work = workflow({ name: 'work', state: list, retry: once }, async (ctx) => {
        const body = async () => {
          const first = gate()
          const begun = (async () => {
            const step = await ctx.begin<string>('begun')
            ctx.update((draft) => void draft.list.push('inside'))
            if (step.recorded === undefined) await first.promise
            await step.complete(step.recorded ?? 'ended')
            ctx.update((draft) => void draft.list.push('after'))
            return 'begun'
          })()
          const fast = (async () => {
            await ctx.step('fast', () => 1)
            ctx.update((draft) => void draft.list.push('fast'))
            return 'fast'
          })()
          const winner = await Promise.race([begun, fast])
          await ctx.step('use', () => first.open())
          await begun
          seen.push([winner, ...ctx.state.list])
          if (when === 'after the run has waited') await ctx.waitFor('go')
          else
            await ctx.step('once', ({ attempt }) => {
              if (attempt === 1) throw new Error('once')
            })
          return ctx.state.list
        }
        return ctx.section('p', body, { retry: { attempts: 2, minMs: 1 } })
      })
      const run = await hf.start(work, undefined, { id: 'r' })
      if (when === 'after the run has waited') {
        await becomes(run, 'waiting')
        await hf.signal('r', 'go')
      }
      expect(await run.result()).toEqual(['inside', 'fast', 'after'])
      expect(seen).toEqual([
        ['fast', 'inside', 'fast', 'after'],
        ['fast', 'inside', 'fast', 'after'],
      ])
    },
  )

  it('holds for the failure of what ctx.begin began', async () => {
    const hf = await open({ worker: { quietMs: 20 } })
    const seen: unknown[] = []
    const work = workflow('work', async (ctx) => {
      const first = gate()
      const failing = (async () => {
        const step = await ctx.begin<string>('begun')
        await first.promise
        const error = new Error('down')
        await step.fail(error)
        throw error
      })()
      const told = failing.catch(() => 'failed')
      const fast = ctx.step('fast', () => 'fast')
      const winner = await Promise.race([failing, fast]).catch(() => 'failed')
      await ctx.step('use', () => first.open())
      seen.push([winner, await told])
      await ctx.waitFor('go')
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    await run.result()
    expect(seen).toEqual([
      ['fast', 'failed'],
      ['fast', 'failed'],
    ])
  })

  it('waits for a branch that awaits something of its own and lost, where the function ends before it', async () => {
    const alive = { isFirst: true, isRecorded: gate() }
    const bodies: string[] = []
    const work = workflow('work', async (ctx) => {
      const late = (async () => {
        await new Promise((resolve) => setTimeout(resolve, 20))
        await ctx.step('late', () => void bodies.push('late'))
        alive.isRecorded.open()
        return 'late'
      })()
      const winner = await Promise.race([late, ctx.step('main', () => 'main')])
      if (alive.isFirst) {
        alive.isFirst = false
        await new Promise(() => {})
      }
      return winner
    })
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 'r' })
    await alive.isRecorded.promise
    await die()
    advance(11_000)
    const heir = await open({ workflows: [work] })
    expect(await (await heir.runs.get('r')).result()).toBe('main')
    expect(bodies).toEqual(['late'])
  })

  it.each(['in another attempt of a section', 'after the run has waited'])(
    'holds for the failure of what ctx.begin began around other calls, %s',
    async (when) => {
      const hf = await open({ worker: { quietMs: 20 } })
      const list = state({ version: 1, initial: () => ({ list: [] as string[] }) })
      const seen: unknown[] = []
      const bodies: string[] = []
      const work = workflow({ name: 'work', state: list, retry: once }, async (ctx) => {
        const failing = async (name: string, inside: () => Promise<unknown> | unknown) => {
          const step = await ctx.begin<string>(name)
          const inner = await inside()
          const error = new Error(`${name} ${inner}`)
          await step.fail(error)
          ctx.update((draft) => void draft.list.push(`after ${name}`))
          throw error
        }
        const told = (name: string, inside: () => Promise<unknown> | unknown) =>
          failing(name, inside).catch((error: Error) => error.message)
        const step = (name: string) =>
          ctx.step(name, () => {
            bodies.push(name)
            return name
          })
        const update = () => ctx.update((draft) => void draft.list.push('inside'))
        const body = async () => {
          const steps = await told('steps', async () => [await step('one'), await step('two')])
          const nested = await told('outer', () => told('inner', () => step('three')))
          const updated = await told('update', update)
          const [id, other] = [await told('id', () => ctx.uuid()), ctx.uuid()]
          const beside = await Promise.race([told('beside', () => step('four')), step('five').then(() => step('six'))])
          seen.push([steps, nested, updated, id, other, beside, ...ctx.state.list])
          if (when === 'after the run has waited') await ctx.waitFor('go')
          else
            await ctx.step('once', ({ attempt }) => {
              if (attempt === 1) throw new Error('once')
            })
          return [other, ...ctx.state.list]
        }
        return when === 'after the run has waited' ? body() : ctx.section('part', body, { retry: { attempts: 2, minMs: 1 } })
      })
      const run = await hf.start(work, undefined, { id: 'r' })
      if (when === 'after the run has waited') {
        await becomes(run, 'waiting')
        await hf.signal('r', 'go')
      }
      const [other, ...changes] = await run.result({ timeoutMs: patience(10_000) })
      const early = ['after steps', 'after inner', 'after outer', 'inside', 'after update', 'after id']
      const told = ['steps one,two', 'outer inner three', 'update undefined', expect.stringMatching(/^id ./), other]
      expect(seen).toHaveLength(2)
      expect(seen[1]).toEqual(seen[0])
      expect(seen[0]).toEqual(expect.arrayContaining([...told, ...early]))
      expect(changes).toEqual([...early, 'after beside'])
      expect(bodies.toSorted()).toEqual(['five', 'four', 'one', 'six', 'three', 'two'])
    },
  )

  it('waits for a branch in which ctx.begin began something around other calls, where the function ends before it', async () => {
    const alive = { isFirst: true, isRecorded: gate() }
    const bodies: string[] = []
    const work = workflow('work', async (ctx) => {
      const late = async () => {
        const step = await ctx.begin('begun')
        await ctx.step('late', () => void bodies.push('late'))
        await step.fail(new Error('down'))
        alive.isRecorded.open()
        return 'late'
      }
      const winner = await Promise.race([late(), 'main'])
      if (alive.isFirst) {
        alive.isFirst = false
        await new Promise(() => {})
      }
      return winner
    })
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 'r' })
    await alive.isRecorded.promise
    await die()
    advance(11_000)
    const heir = await open({ workflows: [work] })
    expect(await (await heir.runs.get('r')).result({ timeoutMs: patience(10_000) })).toBe('main')
    expect(bodies).toEqual(['late'])
  })

  it('lets what ctx.begin began around other calls fail once more where it is completed this time', async () => {
    const hf = await open({ worker: { quietMs: 20 } })
    let executions = 0
    const work = workflow('work', async (ctx) => {
      const isFirst = ++executions === 1
      const step = await ctx.begin<string>('outer')
      expect(step.recorded).toBeUndefined()
      await ctx.step('inner', () => 1)
      const ended = isFirst ? step.fail(new Error('down')).then(() => 'failed') : step.complete('done')
      const told = await ended.catch((error: Error) => error.message)
      await expect(step.fail(new Error('again'))).rejects.toMatchObject({ code: 'conflict' })
      await ctx.waitFor('go')
      return told
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    expect(await run.result({ timeoutMs: patience(10_000) })).toBe('down')
  })

  it('lets run.retry() begin anew what ctx.begin began around other calls and failed the run', async () => {
    const hf = await open()
    const bodies: string[] = []
    let isDown = true
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      const step = await ctx.begin<string>('outer')
      await ctx.step('inner', () => void bodies.push('inner'))
      if (!isDown) return step.complete('up')
      const error = new Error('down')
      await step.fail(error)
      throw error
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'failed')
    isDown = false
    await run.retry()
    expect(await run.result({ timeoutMs: patience(10_000) })).toBe('up')
    expect(bodies).toEqual(['inner'])
  })

  it('holds for what fails once more after run.retry(), beside a step that was kept', async () => {
    const hf = await open({ worker: { quietMs: 20 } })
    let executions = 0
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      const hasFailed = gate()
      executions++
      const failing = async () => {
        const step = await ctx.begin<string>('begun')
        await ctx.step('inner', () => 1)
        const error = new Error('down')
        await step.fail(error)
        hasFailed.open()
        throw error
      }
      // Kept, and recorded before the second failure: the race of the second attempt is won by it, in every replay.
      const kept = ctx.step('kept', () => hasFailed.promise).then(() => 'kept')
      const winner = await Promise.race([failing(), kept])
      await ctx.waitFor('go')
      return winner
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'failed')
    await run.retry()
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    expect(await run.result({ timeoutMs: patience(10_000) })).toBe('kept')
    expect(executions).toBe(3)
  })

  it.each(['in another attempt of a section', 'after the run has waited', 'after run.retry()'])(
    'has in its place what the function made as soon as ctx.begin had begun a step that failed, %s',
    async (when) => {
      const hf = await open({ worker: { quietMs: 20 } })
      const list = state({ version: 1, initial: () => ({ list: [] as string[] }) })
      const seen: unknown[] = []
      let isDown = true
      const work = workflow({ name: 'work', state: list, retry: once }, async (ctx) => {
        const down = new Error('down')
        let inside = ''
        const begun = async () => {
          const step = await ctx.begin<string>('begun')
          inside = ctx.uuid()
          ctx.update((draft) => void draft.list.push('inside'))
          await ctx.step('work', () => {})
          if (!isDown) return step.complete('up')
          await step.fail(down)
          throw down
        }
        const body = async () => {
          const failing = begun()
          failing.catch(() => {})
          // Over in this turn: the function sees what the other branch has done by then.
          await Promise.race([failing, (async () => {})()])
          const sawAtOnce = [...ctx.state.list]
          await ctx.step('beside', () => {})
          const outside = ctx.uuid()
          const ended = await failing.catch((error: Error) => error.message)
          seen.push({ sawAtOnce, inside, outside, list: [...ctx.state.list] })
          if (when === 'after the run has waited') await ctx.waitFor('go')
          else if (when === 'after run.retry()') await failing
          else
            await ctx.step('once', ({ attempt }) => {
              if (attempt === 1) throw new Error('once')
            })
          return ended
        }
        return when === 'in another attempt of a section'
          ? ctx.section('part', body, { retry: { attempts: 2, minMs: 1 } })
          : body()
      })
      const run = await hf.start(work, undefined, { id: 'r' })
      if (when === 'after the run has waited') {
        await becomes(run, 'waiting')
        await hf.signal('r', 'go')
      } else if (when === 'after run.retry()') {
        await becomes(run, 'failed')
        isDown = false
        await run.retry()
      }
      expect(await run.result({ timeoutMs: patience(10_000) })).toBe(isDown ? 'down' : 'up')
      expect(seen).toHaveLength(2)
      expect(seen[1]).toEqual(seen[0])
      expect(seen[0]).toMatchObject({ sawAtOnce: ['inside'], list: ['inside'] })
    },
  )

  it('does not take for part of a begun step what a branch beside it made before that had begun', async () => {
    const hf = await open({ worker: { quietMs: 20 } })
    const list = state({ version: 1, initial: () => ({ list: [] as string[] }) })
    const bodies: string[] = []
    const work = workflow({ name: 'work', state: list }, async (ctx) => {
      const call = async (name: string) => {
        ctx.update((draft) => void draft.list.push(name))
        const step = await ctx.begin<string>(name)
        if (step.recorded === undefined) bodies.push(name)
        if (name === 'second') return step.complete(step.recorded ?? name)
        const error = new Error(name)
        await step.fail(error)
        throw error
      }
      await Promise.allSettled([call('first'), call('second')])
      await ctx.waitFor('go')
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    await run.result({ timeoutMs: patience(10_000) })
    expect(bodies).toEqual(['first', 'second'])
  })

  it('does not keep ctx.begin from returning after a crash inside it', async () => {
    const alive = { isFirst: true, isInside: gate() }
    const bodies: string[] = []
    const work = workflow('work', async (ctx) => {
      const outer = await ctx.begin<string>('outer')
      await ctx.step('inner', () => void bodies.push('inner'))
      if (alive.isFirst) {
        alive.isFirst = false
        alive.isInside.open()
        await new Promise(() => {})
      }
      return outer.recorded ?? (await outer.complete('ended'))
    })
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 'r' })
    await alive.isInside.promise
    await die()
    advance(11_000)
    const heir = await open({ workflows: [work] })
    expect(await (await heir.runs.get('r')).result()).toBe('ended')
    expect(bodies).toEqual(['inner'])
  })

  it('does not keep ctx.begin from returning after a crash inside it, however soon the function continues beside it', async () => {
    const isOver = gate()
    const work = workflow('work', (ctx) =>
      ctx.section('part', () => {
        const begun = async () => {
          await ctx.begin<string>('begun')
          await ctx.step('inner', () => 'inner')
          return new Promise<never>(() => {})
        }
        const beside = async () => {
          for (let ticks = 0; ticks < 50; ticks++) await null
          await isOver.promise
          return 'won'
        }
        return Promise.race([begun(), beside()])
      }),
    )
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 'r' })
    await logged(await hf.runs.get('r'), 'step_completed')
    await die()
    isOver.open()
    advance(11_000)
    const heir = await open({ workflows: [work] })
    expect(await (await heir.runs.get('r')).result({ timeoutMs: patience(10_000) })).toBe('won')
  })

  it('has in its place what the function made after ctx.begin had recorded the beginning of a step first, after a death', async () => {
    const list = state({ version: 1, initial: () => ({ list: [] as string[] }) })
    const seen: string[] = []
    const hasBegun = gate()
    let isFirst = true
    const work = workflow({ name: 'work', state: list }, async (ctx) => {
      if (isFirst) {
        isFirst = false
        hasBegun.open()
        await new Promise(() => {})
      }
      const begun = async () => {
        const step = await ctx.begin<string>('begun')
        ctx.update((draft) => void draft.list.push('inside'))
        return step.complete(step.recorded ?? 'begun')
      }
      const beside = begun()
      // Over in this turn: the function sees what the other branch has done by then.
      await Promise.race([beside, (async () => {})()])
      seen.push(ctx.state.list.join())
      await ctx.step(ctx.state.list.length === 0 ? 'before' : 'after', () => {})
      await beside
      await ctx.waitFor('go')
    })
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 'r' })
    await hasBegun.promise
    await die()
    advance(11_000)
    const heir = await open({ workflows: [work], worker: { quietMs: 20 } })
    const run = await heir.runs.get('r')
    await becomes(run, 'waiting')
    await heir.signal('r', 'go')
    await run.result({ timeoutMs: patience(10_000) })
    expect(seen[1]).toBe(seen[0])
  })

  it('is waited for where ctx.begin gave a later result at once and the function ended sooner than it did', async () => {
    const isFirst = { value: true }
    const isSlow = gate()
    const work = workflow('work', async (ctx) => {
      const begun = async () => {
        const step = await ctx.begin<string>('begun')
        if (step.recorded !== undefined) return step.recorded
        await isSlow.promise
        return step.complete('ended')
      }
      const beside = async () => {
        await delay(20)
        await ctx.step('beside', () => 'beside')
        isSlow.open()
        return new Promise<never>(() => {})
      }
      const won = await Promise.race([begun(), beside()])
      if (isFirst.value) await new Promise(() => {})
      return won
    })
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 'r' })
    const run = await hf.runs.get<string>('r')
    await vi.waitUntil(async () => (await eventTypes(run)).filter((type) => type === 'step_completed').length === 2)
    await die()
    isFirst.value = false
    advance(11_000)
    const heir = await open({ workflows: [work] })
    expect(await (await heir.runs.get('r')).result({ timeoutMs: patience(10_000) })).toBe('ended')
  })
})
