import { type Context, type HoldfastError, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import type { Store } from '../../src/store/store.ts'
import { patience } from '../patience.ts'
import { makePoison } from './programs/poisonous.ts'
import { startProgram } from './programs.ts'
import { becomes, codeOfRejection, eventTypes, failureOf, gate, logged } from './runs.ts'
import { onEverySharedStore, onEveryStore } from './stores.ts'

onEveryStore('closing', ({ open, openWrapped, advance }) => {
  it('lets the running step finish, hands the run over, and the run goes on in the next open', async () => {
    const ran: string[] = []
    const inFirst = gate()
    const release = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('first', async () => {
        ran.push('first')
        inFirst.open()
        await release.promise
        return 'kept'
      })
      await ctx.step('second', () => void ran.push('second'))
      return 'done'
    })
    const first = await open({ workflows: [work] })
    await first.start(work, undefined, { id: 'r' })
    await inFirst.promise
    const closing = first.close()
    release.open()
    await closing
    expect(ran).toEqual(['first'])

    const second = await open({ workflows: [work] })
    const run = await second.runs.get('r')
    expect(await run.result()).toBe('done')
    expect(ran).toEqual(['first', 'second'])
    // It was handed over, which is no death.
    expect(await eventTypes(run)).not.toContain('run_recovered')
  })

  it('after its grace period aborts what still runs and hands the run over all the same', async () => {
    const attempts: number[] = []
    const inBody = gate()
    const reasons: unknown[] = []
    const work = workflow('work', (ctx) =>
      ctx.step('slow', (step) => {
        attempts.push(step.attempt)
        if (attempts.length > 1) return 'done'
        step.signal.addEventListener('abort', () => reasons.push((step.signal.reason as HoldfastError).code))
        inBody.open()
        return new Promise<string>(() => {})
      }),
    )
    const first = await open({ workflows: [work], worker: { closeGraceMs: 20 } })
    await first.start(work, undefined, { id: 'r' })
    await inBody.promise
    await first.close()
    expect(reasons).toEqual(['closed'])
    const second = await open({ workflows: [work] })
    expect(await (await second.runs.get('r')).result()).toBe('done')
    expect(attempts).toEqual([1, 1])
  })

  it('right after many starts loses none of them, and none has to wait for a lease', async () => {
    const quick = workflow('quick', (ctx, n: number) => ctx.step('a', () => n))
    const first = await open({ workflows: [quick] })
    await Promise.all(Array.from({ length: 60 }, (_, n) => first.start(quick, n, { id: `r${n}` })))
    await first.close()
    const second = await open({ workflows: [quick] })
    for (let n = 0; n < 60; n++) {
      const run = await second.runs.get(`r${n}`)
      expect(await run.result()).toBe(n)
      expect(await eventTypes(run)).not.toContain('run_recovered')
    }
  })

  it('while runs are being claimed leaves none of them behind', async () => {
    const quick = workflow('quick', async (ctx) => {
      await ctx.step('a', () => {})
      await ctx.step('b', () => {})
    })
    const client = await open({ worker: false })
    for (let n = 0; n < 30; n++) await client.start(quick, undefined, { id: `r${n}` })
    // Closed at different moments of the claim, the loading and the first steps.
    for (let turns = 0; turns < 12; turns++) {
      const hf = await open({ workflows: [quick] })
      for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve))
      await hf.close()
      const { items } = await client.runs.list({ status: 'running' })
      expect(items.map(({ id }) => id)).toEqual([])
    }
  })

  it('while the tape of a run is being read hands that run over as well', async () => {
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => {})
      await ctx.sleep(60_000)
    })
    const first = await open({ workflows: [work] })
    const run = await first.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await first.close()
    advance(61_000)
    for (const closeGraceMs of [1_000, 0]) {
      const reading = gate()
      const read = gate()
      const hf = await openWrapped(
        (store) =>
          Object.assign(Object.create(store) as Store, {
            readLog: async (query: Parameters<Store['readLog']>[0]) => {
              reading.open()
              await read.promise
              return store.readLog(query)
            },
          }),
        { workflows: [work], worker: { closeGraceMs } },
      )
      await reading.promise
      const closing = hf.close()
      read.open()
      await closing
      const { items } = await (await open({ worker: false })).runs.list({ status: 'running' })
      expect(items).toEqual([])
    }
  })

  it('ends every call that waits, and refuses later ones, with closed', async () => {
    const sleeper = workflow('sleeper', (ctx) => ctx.sleep(3_600_000))
    const hf = await open()
    const run = await hf.start(sleeper)
    await becomes(run, 'waiting')
    const waiting = codeOfRejection(run.result())
    const watching = (async () => {
      for await (const event of run.watch()) expect(event).toBeUndefined()
    })()
    await hf.close()
    expect(await waiting).toBe('closed')
    await watching
    expect(await codeOfRejection(hf.start(sleeper))).toBe('closed')
    expect(await codeOfRejection(run.result())).toBe('closed')
    await hf.close()
  })

  it('works with await using', async () => {
    const quick = workflow('quick', () => 'done')
    async function start() {
      await using hf = await open({ workflows: [quick] })
      const started = await hf.start(quick)
      await started.result()
      return started
    }
    const run = await start()
    expect(await codeOfRejection(run.result())).toBe('closed')
  })
})

onEveryStore('a worker', ({ open, advance }) => {
  it('never executes more runs at a time than its concurrency', async () => {
    let atWork = 0
    let most = 0
    const full = gate()
    const busy = workflow('busy', (ctx) =>
      ctx.step('a', async () => {
        most = Math.max(most, ++atWork)
        if (atWork === 3) full.open()
        await full.promise
        await new Promise((resolve) => setTimeout(resolve, 5))
        atWork--
      }),
    )
    const hf = await open({ workflows: [busy], worker: { concurrency: 3 } })
    const runs = await Promise.all(Array.from({ length: 20 }, () => hf.start(busy)))
    await Promise.all(runs.map((run) => run.result()))
    expect(most).toBe(3)
  })

  it('is not held by runs that wait: more of them than its concurrency can wait at a time', async () => {
    const sleeper = workflow('sleeper', async (ctx, n: number) => {
      await ctx.sleep(60_000)
      return n
    })
    const hf = await open({ workflows: [sleeper], worker: { concurrency: 2 } })
    const runs = await Promise.all(Array.from({ length: 10 }, (_, n) => hf.start(sleeper, n)))
    for (const run of runs) await becomes(run, 'waiting')
    advance(61_000)
    expect(await Promise.all(runs.map((run) => run.result()))).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  })

  it('takes only the queues that it was given', async () => {
    const quick = workflow('quick', () => 'done')
    const client = await open({ worker: false })
    const mail = await client.start(quick, undefined, { queue: 'mail' })
    const other = await client.start(quick, undefined, { queue: 'other' })
    await open({ workflows: [quick], worker: { queues: ['mail'] } })
    expect(await mail.result()).toBe('done')
    expect(await other.info()).toMatchObject({ status: 'pending' })
  })

  it('that lost its lease learns it at once: its signal is aborted, its calls throw, its result is not taken', async () => {
    const inBody = gate()
    const release = gate()
    const lost = gate<unknown>()
    const executions: string[] = []
    let slowOnes = 0
    const work = workflow('work', async (ctx) => {
      const isFirst = slowOnes++ === 0
      if (isFirst) ctx.signal.addEventListener('abort', () => executions.push((ctx.signal.reason as HoldfastError).code))
      try {
        const by = await ctx.step('slow', async () => {
          if (!isFirst) return 'the second'
          inBody.open()
          await release.promise
          return 'the first'
        })
        return by
      } catch (error) {
        if (isFirst) lost.open((error as HoldfastError).code)
        throw error
      }
    })
    // With one place, which is taken, the first worker does not claim its own run again.
    const first = await open({ workflows: [work], worker: { concurrency: 1, leaseMs: 60_000 } })
    // What it writes extends its lease, so the start of the step has to be written before the clock moves.
    await logged(await first.start(work, undefined, { id: 'r' }), 'step_started')
    await inBody.promise
    advance(61_000)
    const second = await open({ workflows: [work] })
    const run = await second.runs.get('r')
    expect(await run.result()).toBe('the second')
    release.open()
    expect(await lost.promise).toBe('lease_lost')
    expect(executions).toEqual(['lease_lost'])
    expect((await run.events()).filter(({ type }) => type === 'step_completed')).toHaveLength(1)
    expect((await run.events()).find(({ type }) => type === 'run_recovered')?.data).toMatchObject({ why: 'lease_expired' })
  })

  it('survives a step that nobody awaits and that fails, and a function that throws what is no error', async () => {
    const careless = workflow({ name: 'careless', retry: { attempts: 1 } }, async (ctx) => {
      void ctx.step('forgotten', () => {
        throw new Error('nobody cares')
      })
      await ctx.step('a', () => {})
      throw { plain: 'object' }
    })
    const hf = await open()
    expect((await failureOf(await hf.start(careless))).message).toContain('object')
    expect(await hf.run(workflow('other', () => 'fine'))).toBe('fine')
  })
})

onEveryStore('two Holdfasts in one process', ({ open }) => {
  it('on one store share its runs, each executed once', async () => {
    const executed: string[] = []
    const note = workflow('note', (ctx) => ctx.step('a', () => void executed.push(ctx.runId)))
    const first = await open({ workflows: [note], worker: { concurrency: 2 } })
    const second = await open({ workflows: [note], worker: { concurrency: 2 } })
    const runs = await Promise.all(Array.from({ length: 40 }, (_, n) => (n % 2 ? first : second).start(note)))
    await Promise.all(runs.map((run) => run.result()))
    expect(executed).toHaveLength(40)
    expect(new Set(executed).size).toBe(40)
  })

  it('can register different functions under one name, since nothing is global', async () => {
    const one = await open({ workflows: [workflow('flow', () => 'one')] })
    expect(await one.run('flow')).toBe('one')
    await one.close()
    const two = await open({ workflows: [workflow('flow', () => 'two')] })
    expect(await two.run('flow')).toBe('two')
  })
})

onEveryStore('a run that brings its worker down', ({ open, openMortal, advance }) => {
  it('is not poisoned while it records results, be they without a checkpoint of their own', async () => {
    const lives = 7
    const life = { number: 0 }
    const work = workflow('work', async (ctx) => {
      for (let i = 1; i <= 3 * lives; i++) {
        await ctx.step('s', () => i, { checkpoint: false })
        if (i === 3 * life.number) await new Promise(() => {})
      }
      return 'done'
    })
    const client = await open({ worker: false })
    const run = await client.start(work, undefined, { id: 'r' })
    for (life.number = 1; life.number < lives; life.number++) {
      const { die } = await openMortal({ workflows: [work] })
      const recorded = async () => (await run.events()).filter(({ type }) => type === 'step_completed').length
      await expect.poll(recorded, { timeout: 15_000 }).toBe(3 * life.number)
      await die()
      advance(11_000)
    }
    life.number = 0
    await open({ workflows: [work] })
    expect(await run.result()).toBe('done')
  })

  it('is paused as poisoned after five claims without progress; resume() gives it a fresh count', async () => {
    let isPoisonous = true
    let claims = 0
    const claimed = { next: gate() }
    const poison = workflow('poison', (ctx) => {
      claims++
      claimed.next.open()
      return isPoisonous ? new Promise<string>(() => {}) : ctx.step('work', () => 'worked')
    })
    const client = await open({ worker: false })
    const run = await client.start(poison, undefined, { id: 'r' })
    for (let death = 1; death <= 5; death++) {
      const { die } = await openMortal({ workflows: [poison] })
      await claimed.next.promise
      claimed.next = gate()
      await die()
      advance(11_000)
    }
    const survivor = await open({ workflows: [poison] })
    await becomes(run, 'paused')
    expect(claims).toBe(5)
    expect(await run.info()).toMatchObject({ reason: 'poisoned', error: { code: 'worker_died' } })
    await expect(run.result()).rejects.toMatchObject({
      code: 'worker_died',
      details: { runId: 'r', status: 'paused', reason: 'poisoned' },
    })
    expect(await survivor.run(workflow('other', () => 'fine'))).toBe('fine')
    isPoisonous = false
    await run.resume()
    expect(await run.result()).toBe('worked')
  })

  const deadly: Readonly<Record<string, (ctx: Context, die: () => Promise<never>) => Promise<unknown>>> = {
    'the body of a step': (ctx, die) => ctx.step('work', die),
    'a fallback': (ctx, die) =>
      ctx.step(
        'work',
        () => {
          throw new Error('no')
        },
        { retry: { attempts: 1 }, fallback: die },
      ),
    'what ctx.begin began': async (ctx, die) => {
      await ctx.begin('work')
      return die()
    },
  }
  it.each(Object.entries(deadly))('in %s: it fails with worker_died before the run is poisoned', async (_, work) => {
    const dying = { next: gate() }
    const deaths = workflow('deaths', (ctx) =>
      work(ctx, () => {
        dying.next.open()
        return new Promise<never>(() => {})
      }),
    )
    const client = await open({ worker: false })
    const run = await client.start(deaths)
    let lives = 0
    for (; lives < 5 && (await run.info()).status !== 'failed'; lives++) {
      const { die } = await openMortal({ workflows: [deaths] })
      await Promise.race([dying.next.promise, becomes(run, 'failed')])
      dying.next = gate()
      await die()
      advance(11_000)
    }
    expect(await failureOf(run)).toMatchObject({ code: 'worker_died', details: { step: 'work' } })
    expect(lives).toBeGreaterThan(3)
  })

  it('in a step inside what ctx.begin began: that step fails with worker_died, which a replay finds again', async () => {
    const dying = { next: gate() }
    const work = workflow('work', async (ctx) => {
      const outer = await ctx.begin<string>('outer')
      await ctx.step('before', () => {})
      try {
        await ctx.step('deadly', () => {
          dying.next.open()
          return new Promise<never>(() => {})
        })
      } catch (error) {
        await outer.fail(error)
      }
      return await ctx.waitFor('go')
    })
    const client = await open({ worker: false })
    const run = await client.start(work)
    const isWaiting = becomes(run, 'waiting')
    for (let lives = 0; lives < 5 && (await run.info()).status !== 'waiting'; lives++) {
      const { die } = await openMortal({ workflows: [work] })
      await Promise.race([dying.next.promise, isWaiting])
      dying.next = gate()
      die()
      advance(11_000)
    }
    await isWaiting
    const failed = (await run.events()).filter(({ type }) => type === 'step_failed')
    expect(failed.map(({ step, error }) => [step, error])).toMatchObject([
      ['deadly', { code: 'worker_died', details: { step: 'deadly' } }],
      ['outer', { code: 'worker_died', details: { step: 'deadly' } }],
    ])
    await open({ workflows: [work] })
    await client.signal(run.id, 'go', 'gone')
    expect(await run.result({ timeoutMs: patience(10_000) })).toBe('gone')
  })

  it('between calls inside what ctx.begin began: it is paused as poisoned, and resume() continues it there', async () => {
    let isDeadly = true
    const dying = { next: gate() }
    const bodies: string[] = []
    const work = workflow('work', async (ctx) => {
      const outer = await ctx.begin<string>('outer')
      await ctx.step('before', () => void bodies.push('before'))
      if (isDeadly) {
        dying.next.open()
        await new Promise(() => {})
      }
      await ctx.step('after', () => void bodies.push('after'))
      return outer.recorded ?? (await outer.complete('ended'))
    })
    const client = await open({ worker: false })
    const run = await client.start(work)
    const isPaused = becomes(run, 'paused')
    for (let lives = 0; lives < 8 && (await run.info()).status !== 'paused'; lives++) {
      const { die } = await openMortal({ workflows: [work] })
      await Promise.race([dying.next.promise, isPaused])
      dying.next = gate()
      die()
      advance(11_000)
    }
    await isPaused
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'poisoned' })
    isDeadly = false
    await open({ workflows: [work] })
    await run.resume()
    expect(await run.result({ timeoutMs: patience(10_000) })).toBe('ended')
    expect(bodies).toEqual(['before', 'after'])
  })

  it('is not poisoned when each worker records something before it dies', async () => {
    let life = 0
    const hanging = { next: gate() }
    const work = workflow('work', async (ctx) => {
      for (let n = 0; n < 7; n++) {
        await ctx.step('tick', () => {})
        if (n !== life) continue
        hanging.next.open()
        await new Promise(() => {})
      }
      return 'done'
    })
    const client = await open({ worker: false })
    const run = await client.start(work)
    for (life = 0; life < 7; life++) {
      const { die } = await openMortal({ workflows: [work] })
      await hanging.next.promise
      hanging.next = gate()
      await die()
      advance(11_000)
    }
    await open({ workflows: [work] })
    expect(await run.result()).toBe('done')
    expect((await eventTypes(run)).filter((type) => type === 'run_recovered')).toHaveLength(7)
  })
})

onEverySharedStore('several processes on one store', (scene) => {
  it('each claim different runs, and every run is executed once', async () => {
    const programs = [1, 2, 3].map(() => startProgram('worker', scene.url, '4'))
    await Promise.all(programs.map((program) => program.said('ready')))
    const client = await scene.open({ worker: false })
    const runs = await Promise.all(Array.from({ length: 60 }, (_, n) => client.start('where', undefined, { id: `r${n}` })))
    const pids = (await Promise.all(runs.map((run) => run.result()))) as number[]
    expect(new Set(pids).size).toBe(3)
    for (const program of programs) program.signal('SIGTERM')
    expect(await Promise.all(programs.map((program) => program.ended))).toEqual([0, 0, 0])
    const executed: unknown[] = []
    for (const program of programs) {
      for (;;) {
        const id = await program.said('executed').catch(() => undefined)
        if (id === undefined) break
        executed.push(id)
      }
    }
    expect(executed).toHaveLength(60)
    expect(new Set(executed).size).toBe(60)
  })

  it('take over what a killed one held, and lose nothing', async () => {
    const [victim, survivor] = [startProgram('worker', scene.url, '10', '1500'), startProgram('worker', scene.url, '1')]
    await Promise.all([victim.said('ready'), survivor.said('ready')])
    const client = await scene.open({ worker: false })
    const runs = await Promise.all(Array.from({ length: 40 }, (_, n) => client.start('where', undefined, { id: `r${n}` })))
    await victim.said('executed')
    await victim.kill()
    const pids = await Promise.all(runs.map((run) => run.result()))
    expect(pids).toHaveLength(40)
    expect(pids).toContain(survivor.pid)
  })

  it('a run of another process can be watched from here, until its end', async () => {
    const client = await scene.open({ worker: false })
    const run = await client.start('where')
    const watch = run.watch()
    startProgram('worker', scene.url, '1')
    const types: string[] = []
    for await (const { type } of watch) types.push(type)
    expect(types).toEqual(['run_started', 'step_started', 'step_completed', 'run_completed'])
  })

  it('a run of another process can be paused, resumed and cancelled from here', async () => {
    const program = startProgram('chat-and-hang', scene.url)
    await program.said('in the second turn')
    const client = await scene.open({ worker: false })
    const run = await client.runs.get('second-turn')
    await run.cancel()
    expect(await run.info()).toMatchObject({ status: 'cancelled' })
    expect(await codeOfRejection(run.result())).toBe('run_cancelled')

    const waiting = await client.thread('bob').start('chat', { say: 'second' }, { delayMs: 3_600_000 })
    await waiting.pause()
    await waiting.resume()
    await program.said('in the second turn')
    await waiting.cancel()
    expect(await waiting.info()).toMatchObject({ status: 'cancelled' })
  })

  it('boot at once on a store that is not there yet', async () => {
    await scene.clear()
    const programs = Array.from({ length: 4 }, () => startProgram('worker', scene.url, '1'))
    await Promise.all(programs.map((program) => program.said('ready')))
    const client = await scene.open({ worker: false })
    expect(await (await client.start('where')).result()).toEqual(expect.any(Number))
  })
})

onEverySharedStore('a process that is really brought down', (scene) => {
  it('by the function: the run is paused as poisoned after five deaths, and other runs are not', async () => {
    for (let death = 1; death <= 5; death++) expect(await startProgram('poison', scene.url, 'function').ended).toBe('SIGKILL')
    const program = startProgram('poison', scene.url, 'function')
    await program.said('survived')
    expect(await program.ended).toBe(0)
    const hf = await scene.open({ workflows: [makePoison('nowhere', () => {})] })
    const run = await hf.runs.get('poison')
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'poisoned' })
    expect(await (await hf.runs.get('harmless')).result()).toBe('worked')
    await run.resume()
    expect(await run.result()).toBe('worked')
  })

  it('by a step: at the third death with it running the step fails with worker_died, and its fallback applies', async () => {
    let deaths = 0
    let ended: number | string = 'SIGKILL'
    while (ended === 'SIGKILL' && deaths < 6) {
      ended = await startProgram('poison', scene.url, 'step').ended
      if (ended === 'SIGKILL') deaths++
    }
    expect(ended).toBe(0)
    expect(deaths).toBeGreaterThanOrEqual(3)
    expect(deaths).toBeLessThanOrEqual(4)
    const hf = await scene.open({ worker: false })
    const run = await hf.runs.get('poison')
    expect(await run.result()).toBe('fell back: worker_died')
    expect((await run.events()).find(({ type }) => type === 'step_failed')).toMatchObject({ error: { code: 'worker_died' } })
  })

  it('after close() exits by itself, whatever its runs were doing', async () => {
    const program = startProgram('close-and-exit', scene.url)
    await program.said('closed')
    const closed = performance.now()
    expect(await program.ended).toBe(0)
    // Anything that it had left would hold it for a minute.
    expect(performance.now() - closed).toBeLessThan(patience(20_000))
  })
})

onEveryStore('a stuck run', ({ open, advance }) => {
  it('is found: one whose step takes for ever, and one that no worker takes', async () => {
    const never = gate()
    const slow = workflow('slow', (ctx) => ctx.step('hang', () => never.promise))
    const waiting = workflow('waiting', (ctx) => ctx.sleep(365 * 86_400_000))
    const hf = await open({ worker: { leaseMs: 86_400_000 } })
    const client = await open({ worker: false })
    await logged(await hf.start(slow, undefined, { id: 'a' }), 'step_started')
    await becomes(await hf.start(waiting, undefined, { id: 'b' }), 'waiting')
    await client.start('nobody has this', 1, { id: 'c', threadId: 't' })
    await client.start('nobody has this', 1, { id: 'd', threadId: 't' })
    expect(await client.runs.stuck()).toEqual([])
    advance(20 * 60_000)
    const stuck = await client.runs.stuck()
    expect(stuck.map(({ runId, why, step }) => [runId, why, step])).toEqual([
      ['a', 'working', 'hang'],
      ['c', 'unclaimed', undefined],
    ])
    expect(await client.runs.stuck({ afterMs: 3_600_000 })).toEqual([])
    never.open()
  })
})
