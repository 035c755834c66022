import { type ErrorCode, HoldfastError, open as openHoldfast, workflow } from 'holdfast'
import { type StoreAct, wrapStore } from 'holdfast/testing'
import { expect, it, onTestFinished, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { patience } from '../patience.ts'
import { startRelay } from '../servers/relay.ts'
import { becomes, codeOfRejection, eventTypes, gate, logged } from './runs.ts'
import { onEveryRemoteStore, onEverySharedStore, onEveryStore, onLocalStores } from './stores.ts'

/** A store that refuses what it is asked while it is down. */
function breakable(code: ErrorCode = 'store_unavailable') {
  const outage = {
    isDown: false,
    /** Which acts fail. Default all. */
    acts: undefined as readonly StoreAct[] | undefined,
    refused: new Map<StoreAct, number>(),
    refusals: (act: StoreAct) => outage.refused.get(act) ?? 0,
  }
  const wrap = (store: Store): Store =>
    wrapStore(store, {
      before: (act) => {
        if (!outage.isDown || act === 'close' || outage.acts?.includes(act) === false) return
        outage.refused.set(act, outage.refusals(act) + 1)
        throw new HoldfastError(code, 'The store is down.', { retryable: true })
      },
    })
  return { outage, wrap }
}

/** Fails the first commit with an event of this type: after it was written, or instead of writing it. */
function losing(
  type: string,
  isWritten: boolean,
): { wrap: (store: Store) => Store; claims: () => number; isLost: () => boolean } {
  let isLost = false
  let claims = 0
  const lose = (act: StoreAct, args: readonly unknown[]) => {
    const events =
      act === 'commit'
        ? (args[0] as Change[]).flatMap((change) => [...change.events, ...(change.creates ?? []).map((run) => run.queued)])
        : []
    if (isLost || !events.some((event) => event.type === type)) return
    isLost = true
    throw new HoldfastError('outcome_unknown', 'The answer got lost.')
  }
  const wrap = (store: Store) =>
    wrapStore(store, {
      before: (act, _, args) => (isWritten ? undefined : lose(act, args)),
      after: (act, _, args, answer) => {
        if (act === 'claim') claims += (answer as unknown[]).length
        if (isWritten) lose(act, args)
      },
    })
  return { wrap, claims: () => claims, isLost: () => isLost }
}

onLocalStores('an outage of the store', ({ open, openWrapped, advance }) => {
  it.each(['store_unavailable', 'storage_full'] as const)(
    'with %s is waited for by the runs, which then go on as if nothing had been',
    async (code) => {
      const { outage, wrap } = breakable(code)
      const ran: string[] = []
      const inFirst = gate()
      const release = gate()
      const work = workflow('work', async (ctx) => {
        await ctx.step('first', async () => {
          ran.push('first')
          inFirst.open()
          await release.promise
        })
        await ctx.once('second', { run: () => void ran.push('second') })
        return 'done'
      })
      const hf = await openWrapped(wrap, { workflows: [work] })
      const run = await hf.start(work)
      await inFirst.promise
      outage.isDown = true
      release.open()
      await vi.waitUntil(() => outage.refusals('commit') >= 3, { timeout: 10_000, interval: 5 })
      outage.isDown = false
      expect(await run.result()).toBe('done')
      expect(ran).toEqual(['first', 'second'])
      expect(await eventTypes(run)).not.toContain('run_recovered')
    },
  )

  it('while an effect is under way does not lose its result, and nothing is sent twice', async () => {
    const { outage, wrap } = breakable()
    let sent = 0
    const mail = workflow('mail', (ctx) =>
      ctx.once('send', {
        run: () => {
          outage.isDown = true
          return `mail ${++sent}`
        },
      }),
    )
    const hf = await openWrapped(wrap, { workflows: [mail] })
    const run = await hf.start(mail)
    await vi.waitUntil(() => outage.refusals('commit') >= 2, { timeout: 10_000, interval: 5 })
    outage.isDown = false
    expect(await run.result()).toBe('mail 1')
    expect(sent).toBe(1)
    expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_completed'])
  })

  it('is an error to callers, who can try again', async () => {
    const { outage, wrap } = breakable()
    const quick = workflow('quick', () => 'done')
    const hf = await openWrapped(wrap, { workflows: [quick] })
    outage.isDown = true
    const error = await hf.start(quick, undefined, { id: 'r' }).catch((thrown: HoldfastError) => thrown)
    expect(error).toMatchObject({ code: 'store_unavailable', retryable: true })
    outage.isDown = false
    expect(await hf.run(quick, undefined, { id: 'r' })).toBe('done')
  })

  it('does not end result(), which waits for the run as long as it may', async () => {
    const { outage, wrap } = breakable()
    const sleeper = workflow('sleeper', async (ctx) => {
      await ctx.sleep(60_000)
      return 'rested'
    })
    const hf = await openWrapped(wrap, { workflows: [sleeper] })
    const run = await hf.start(sleeper)
    await becomes(run, 'waiting')
    outage.isDown = true
    expect(await codeOfRejection(run.result({ timeoutMs: 50 }))).toBe('store_unavailable')
    const result = run.result()
    await vi.waitUntil(() => outage.refusals('readRun') >= 3, { timeout: 10_000, interval: 5 })
    outage.isDown = false
    advance(60_001)
    expect(await result).toBe('rested')
  })

  it('does not keep close() from ending, and the run goes on elsewhere', async () => {
    const { outage, wrap } = breakable()
    const inBody = gate()
    const ran: string[] = []
    const work = workflow('work', (ctx) =>
      ctx.step('a', () => {
        if (ran.push('a') > 1) return 'done'
        inBody.open()
        return new Promise<string>(() => {})
      }),
    )
    const hf = await openWrapped(wrap, { workflows: [work], worker: { closeGraceMs: 50, leaseMs: patience(1_000) } })
    await hf.start(work, undefined, { id: 'r' })
    await inBody.promise
    outage.isDown = true
    await hf.close()
    const heir = await open({ workflows: [work] })
    expect(await (await heir.runs.get('r')).result()).toBe('done')
  })
})

onEverySharedStore('leases in an outage', ({ open, openWrapped, advance }) => {
  /** A run with a body that runs until it is released, and says how often it began. */
  const holding = () => {
    const inBody = gate()
    const release = gate()
    const ran: string[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.step('long', async () => {
        ran.push('long')
        inBody.open()
        await release.promise
      })
      return 'done'
    })
    return { work, inBody, release, ran }
  }

  it('are renewed as soon as the store is back, before they are over', async () => {
    const { work, inBody, release, ran } = holding()
    const { outage, wrap } = breakable()
    const renewed = gate()
    const noting = (store: Store) =>
      wrapStore(store, { after: (act) => act === 'renew' && outage.refusals('renew') > 0 && renewed.open() })
    const hf = await openWrapped((store) => noting(wrap(store)), { workflows: [work], worker: { leaseMs: patience(3_000) } })
    const run = await hf.start(work)
    await inBody.promise
    const other = await open({ workflows: [work], worker: { pollMs: 20 } })
    outage.isDown = true
    // The first renewal, after a third of the lease, fails; the second would come when the lease is over and somebody has taken it.
    advance(patience(1_300))
    await vi.waitUntil(() => outage.refusals('renew') >= 1, { timeout: 10_000, interval: 5 })
    outage.isDown = false
    await renewed.promise
    advance(patience(1_300))
    expect(await other.run(workflow('probe', () => 'the other worker has looked'))).toBe('the other worker has looked')
    release.open()
    expect(await run.result()).toBe('done')
    expect(ran).toEqual(['long'])
    expect(await eventTypes(run)).not.toContain('run_recovered')
  })

  it('that are over when it ends are kept all the same by holders that live: neither they nor others claim first', async () => {
    const { work, inBody, release, ran } = holding()
    const { outage, wrap } = breakable()
    const leaseMs = patience(1_000)
    const options = { workflows: [work], worker: { leaseMs, pollMs: 20 } }
    const hf = await openWrapped(wrap, options)
    const run = await hf.start(work)
    await inBody.promise
    await openWrapped(wrap, options)
    outage.isDown = true
    // Each of the two asks every tenth of the lease whether the store is back.
    await vi.waitUntil(() => outage.refusals('now') >= 24, { timeout: 20_000, interval: 5 })
    advance(leaseMs)
    outage.isDown = false
    expect(await hf.run(workflow('probe', () => 'claimed again'))).toBe('claimed again')
    release.open()
    expect(await run.result()).toBe('done')
    expect(ran).toEqual(['long'])
    expect(await eventTypes(run)).not.toContain('run_recovered')
  })

  it('are renewed at once where the answer of the claim took its time', async () => {
    const leaseMs = patience(900)
    const acts: StoreAct[] = []
    const answeringLate = (store: Store) =>
      wrapStore(store, {
        before: (act) => void acts.push(act),
        after: async (act, _, __, answer) => {
          if (act !== 'claim' || (answer as unknown[]).length === 0) return
          await new Promise((resolve) => setTimeout(resolve, leaseMs / 2))
          acts.length = 0
        },
      })
    const { work, inBody, release } = holding()
    const hf = await openWrapped(answeringLate, { workflows: [work], worker: { leaseMs } })
    const run = await hf.start(work)
    await inBody.promise
    // Before the run itself asks for anything; the renewals that come by the clock would be later.
    expect(acts[0]).toBe('renew')
    release.open()
    expect(await run.result()).toBe('done')
  })

  it('outlast the pauses between the tries: a worker asks for runs ten times a lease', async () => {
    const { outage, wrap } = breakable()
    const leaseMs = 1_000
    const triedAt: number[] = []
    const noting = (store: Store) =>
      wrapStore(store, { before: (act) => void ((act === 'claim' || act === 'now') && triedAt.push(performance.now())) })
    await openWrapped((store) => noting(wrap(store)), { workflows: [workflow('work', () => 'done')], worker: { leaseMs } })
    outage.isDown = true
    triedAt.length = 0
    await vi.waitUntil(() => triedAt.length >= 12, { interval: 5 })
    // The shortest of the last pauses: any of them may be longer on a busy machine, and none would be short if they grew.
    const pauses = triedAt.slice(1).map((at, index) => at - (triedAt[index] as number))
    expect(Math.min(...pauses.slice(-6))).toBeLessThan(leaseMs / 4)
  })
})

onEverySharedStore('poison and outages', ({ open, openWrapped, advance }) => {
  const sleeper = workflow('sleeper', async (ctx) => {
    await ctx.step('before', () => 'recorded')
    await ctx.sleep(60_000)
    return 'rested'
  })

  it.each(['store_unavailable', 'storage_full', 'outcome_unknown', 'timeout'] as const)(
    'a run that can not be read for %s is tried again and again, and not poisoned',
    async (code) => {
      const { outage, wrap } = breakable(code)
      const hf = await openWrapped(wrap, { workflows: [sleeper], worker: { pollMs: 10 } })
      const run = await hf.start(sleeper)
      await becomes(run, 'waiting')
      const seen = await (await open({ worker: false })).runs.get(run.id)
      outage.acts = ['readLog']
      outage.isDown = true
      advance(60_001)
      for (let tries = 1; tries <= 8; tries++) {
        await vi.waitUntil(() => outage.refusals('readLog') >= tries, { timeout: 10_000, interval: 5 })
        await becomes(seen, 'pending')
        if (tries < 8) advance(1_001)
      }
      outage.isDown = false
      advance(1_001)
      expect(await run.result()).toBe('rested')
      expect(await eventTypes(run)).not.toContain('run_paused')
    },
  )

  it('a run that can not be read for a reason that nobody knows is paused as poisoned after some tries', async () => {
    let isBroken = false
    let tries = 0
    const wrap = (store: Store) =>
      wrapStore(store, {
        before: (act) => {
          if (!isBroken || act !== 'readLog') return
          tries++
          throw new Error('a driver with a bug')
        },
      })
    const hf = await openWrapped(wrap, { workflows: [sleeper], worker: { pollMs: 10 } })
    const run = await hf.start(sleeper)
    await becomes(run, 'waiting')
    const seen = await (await open({ worker: false })).runs.get(run.id)
    isBroken = true
    advance(60_001)
    await vi.waitUntil(
      async () => {
        advance(200)
        return (await seen.info()).status === 'paused'
      },
      { timeout: 20_000, interval: 20 },
    )
    isBroken = false
    expect(tries).toBe(5)
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'poisoned' })
    await run.resume()
    expect(await run.result()).toBe('rested')
  })
})

onEverySharedStore('a write whose outcome is not known', ({ openWrapped }) => {
  const types = ['step_completed', 'effect_intended', 'effect_completed', 'run_completed'] as const

  for (const type of types) {
    for (const isWritten of [true, false]) {
      it(`(${type}, ${isWritten ? 'written' : 'not written'}) is looked at anew under a new claim; what was written is not made again`, async () => {
        const { wrap, claims } = losing(type, isWritten)
        const ran: string[] = []
        const sent: string[] = []
        const work = workflow('work', async (ctx) => {
          await ctx.step('a', () => void ran.push('a'))
          return ctx.once('send', {
            run: (key) => {
              sent.push(key)
              return 'sent'
            },
            check: (key) => ({ happened: sent.includes(key), result: 'sent' }),
          })
        })
        const hf = await openWrapped(wrap, { workflows: [work] })
        const run = await hf.start(work)
        expect(await run.result()).toBe('sent')
        expect(ran).toEqual(type === 'step_completed' && !isWritten ? ['a', 'a'] : ['a'])
        expect(sent).toHaveLength(1)
        expect(claims()).toBe(type === 'run_completed' && isWritten ? 1 : 2)
        const logged = await eventTypes(run)
        for (const once of ['step_completed', 'effect_completed', 'run_completed']) {
          expect(logged.filter((name) => name === once)).toHaveLength(1)
        }
        expect(logged).not.toContain('run_recovered')
      })
    }
  }

  it('never sends an effect a second time that has neither check nor idempotent: a person decides', async () => {
    const { wrap } = losing('effect_completed', false)
    let sent = 0
    const mail = workflow('mail', (ctx) => ctx.once('send', { key: 'k', run: () => `mail ${++sent}` }))
    const hf = await openWrapped(wrap, { workflows: [mail] })
    const run = await hf.start(mail)
    await logged(run, 'effect_unsure')
    expect(sent).toBe(1)
    await hf.resolve('k', { happened: true, result: 'mail 1', by: 'olga' })
    expect(await run.result()).toBe('mail 1')
    expect(sent).toBe(1)
  })

  it.each([
    ['written', true],
    ['not written', false],
  ] as const)('of a start (%s) is outcome_unknown to the caller; with the same id it is the same run', async (_, isWritten) => {
    const { wrap } = losing('run_queued', isWritten)
    const ran: string[] = []
    const work = workflow('work', (ctx) => ctx.step('a', () => void ran.push('a')))
    const hf = await openWrapped(wrap, { workflows: [work] })
    expect(await codeOfRejection(hf.start(work, undefined, { id: 'r' }))).toBe('outcome_unknown')
    await hf.run(work, undefined, { id: 'r' })
    expect(ran).toEqual(['a'])
  })

  it('many times in a row is no death: nothing is poisoned', async () => {
    let failures = 0
    const hf = await openWrapped((store) =>
      wrapStore(store, {
        before: (act, _, args) => {
          const isResult =
            act === 'commit' && (args[0] as Change[]).some(({ events }) => events.some(({ type }) => type === 'step_completed'))
          if (isResult && failures++ < 8) throw new HoldfastError('outcome_unknown', 'The answer got lost.')
        },
      }),
    )
    const run = await hf.start(workflow('work', (ctx) => ctx.step('a', () => 'done')))
    expect(await run.result()).toBe('done')
    expect(failures).toBe(9)
    expect(await eventTypes(run)).not.toContain('run_paused')
  })
})

onEveryStore('an effect that is under way', ({ openWrapped }) => {
  it.each([
    ['check', { check: true }],
    ['idempotent', { idempotent: true }],
    ['neither check nor idempotent', {}],
  ])('with %s, while a write of its run gets lost: its answer is awaited, and it is not sent again', async (_, declared) => {
    const { wrap, isLost } = losing('step_completed', true)
    const isSending = gate()
    const delivered = gate()
    const answered = gate()
    const sent: string[] = []
    const mails: string[] = []
    let looks = 0
    const mail = workflow('mail', (ctx) =>
      Promise.all([
        ctx.once('send', {
          key: 'k',
          run: async (key) => {
            sent.push(key)
            isSending.open()
            await delivered.promise
            mails.push(key)
            return `mail ${mails.length}`
          },
          ...('idempotent' in declared && { idempotent: true }),
          ...('check' in declared && { check: (key: string) => ({ happened: mails.includes(key), looks: ++looks }) }),
        }),
        ctx.step('beside', () => isSending.promise),
        ctx.step('after', () => answered.promise),
      ]),
    )
    const hf = await openWrapped(wrap, { workflows: [mail], worker: { pollMs: 10 } })
    const run = await hf.start(mail)
    await isSending.promise
    await vi.waitUntil(isLost, { timeout: patience(10_000) })
    delivered.open()
    answered.open()
    expect((await run.result({ timeoutMs: patience(10_000) }))[0]).toBe('mail 1')
    expect(sent).toEqual(['k'])
    expect(mails).toEqual(['k'])
    expect(looks).toBe(0)
    expect(await eventTypes(run)).not.toContain('effect_unsure')
  })

  it('keeps its run with the worker that sends it: another one would look for what has not happened yet, and send it again', async () => {
    const { wrap, claims, isLost } = losing('step_completed', true)
    const claimOnce = (act: StoreAct) => {
      if (act === 'claim' && claims() > 0) throw new HoldfastError('store_unavailable', 'It claims nothing more.')
    }
    const isSending = gate()
    const isWatched = gate()
    const delivered = gate()
    const mails: string[] = []
    const mail = workflow('mail', (ctx) =>
      Promise.all([
        ctx.once('send', {
          key: 'k',
          run: async (key) => {
            isSending.open()
            await delivered.promise
            return mails.push(key)
          },
          check: (key) => ({ happened: mails.includes(key), result: mails.length }),
        }),
        ctx.step('beside', () => isWatched.promise),
      ]),
    )
    const worker = { pollMs: 10 }
    const hf = await openWrapped((store) => wrapStore(wrap(store), { before: claimOnce }), { workflows: [mail], worker })
    const run = await hf.start(mail)
    await isSending.promise
    let looks = 0
    const count = (act: StoreAct) => {
      if (act === 'claim' && isLost()) looks++
    }
    await openWrapped((store) => wrapStore(store, { after: count }), { workflows: [mail], worker })
    isWatched.open()
    await vi.waitUntil(() => looks >= 10, { timeout: patience(10_000) })
    delivered.open()
    expect((await run.result({ timeoutMs: patience(10_000) }))[0]).toBe(1)
    expect(mails).toEqual(['k'])
  })
})

onEveryRemoteStore('connections', (scene) => {
  it('that are closed again and again, and refused for a while, hold runs up and do them no harm', async () => {
    const relay = await startRelay(scene.url)
    const hf = await openHoldfast(relay.url)
    onTestFinished(async () => {
      await hf.close()
      await relay.stop()
    })
    const sent: string[] = []
    const work = workflow('work', async (ctx) => {
      for (let n = 0; n < 8; n++) await ctx.step(`step${n}`, () => new Promise((resolve) => setTimeout(resolve, 5)))
      return ctx.once('send', {
        run: (key) => `mail ${sent.push(key)}`,
        check: (key) => ({ happened: sent.includes(key), result: 'found' }),
      })
    })
    const runs = await Promise.all(Array.from({ length: 10 }, () => hf.start(work)))
    const results = Promise.all(runs.map((run) => run.result()))
    for (let times = 1; times <= 6; times++) {
      relay.refuse(times % 3 === 0)
      expect(relay.cut()).toBeGreaterThan(0)
      await new Promise((resolve) => setTimeout(resolve, 60))
      relay.refuse(false)
      await vi.waitUntil(
        () =>
          hf.runs.list({}).then(
            () => true,
            () => false,
          ),
        { timeout: 20_000, interval: 10 },
      )
    }
    expect(await results).toHaveLength(10)
    expect(sent).toHaveLength(10)
    for (const run of runs) {
      const types = await eventTypes(run)
      expect(types.filter((type) => type === 'step_completed')).toHaveLength(8)
      expect(types).not.toContain('run_recovered')
    }
  })
})
