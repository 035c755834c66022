import { type EventType, type Holdfast, HoldfastError, type RunHandle, workflow } from 'holdfast'
import { type StoreAct, wrapStore } from 'holdfast/testing'
import { expect, it, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { becomes, failureOf, gate, logged, noting } from './runs.ts'
import { onEveryStore, onSqlite } from './stores.ts'

const listening = workflow('listening', async (ctx) => {
  await ctx.waitFor('never')
})
/** Waits for a child and for a person. */
const parent = workflow('parent', async (ctx) => {
  await ctx.step('begin', () => {})
  await Promise.all([ctx.call(listening, undefined), ctx.ask('ok', { question: '?' })])
})

function writes(changes: unknown, type: EventType): boolean {
  return (changes as readonly Change[]).some(({ events }) => events.some((event) => event.type === type))
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
}

async function statusOf(hf: Holdfast, id: string): Promise<string> {
  return (await (await hf.runs.get(id)).info()).status
}

async function questions(hf: Holdfast): Promise<string[]> {
  return (await hf.inbox()).flatMap((item) => (item.kind === 'question' ? [item.runId] : []))
}

onEveryStore('what a run waits for ends with it', ({ open, openWrapped }) => {
  it('when it is cancelled with undo: false, executed or not', async () => {
    const hf = await open({ workflows: [listening, parent] })
    const run = await hf.start(parent, undefined, { id: 'p' })
    await becomes(run, 'waiting')
    await run.cancel({ undo: false })
    expect(await statusOf(hf, 'p')).toBe('cancelled')
    expect(await statusOf(hf, 'p/listening#1')).toBe('cancelled')
    expect(await questions(hf)).toEqual([])

    const begun = gate()
    const busy = workflow('busy', async (ctx) => {
      const work = () => new Promise((resolve) => begun.open() ?? setTimeout(resolve, 60_000).unref())
      await Promise.all([ctx.call(listening, undefined), ctx.ask('ok', { question: '?' }), ctx.step('work', work)])
    })
    const other = await hf.start(busy, undefined, { id: 'b' })
    await begun.promise
    await logged(other, 'question_asked')
    await logged(other, 'child_started')
    await other.cancel({ undo: false })
    expect(await statusOf(hf, 'b/listening#1')).toBe('cancelled')
    expect(await questions(hf)).toEqual([])
  })

  for (const first of ['child', 'question'] as const) {
    it(`and whoever resumes it once its ${first} has ended lets it end as cancelled, too`, async () => {
      let isResumed = false
      const isFirstEnd = ({ runId, events, operation }: Change) =>
        first === 'question'
          ? operation?.kind === 'fail'
          : runId === 'p/listening#1' && events.some(({ type }) => type === 'run_cancelled')
      const after = async (act: StoreAct, _nth: number, [changes]: readonly unknown[]) => {
        if (act !== 'commit' || isResumed || !(changes as readonly Change[]).some(isFirstEnd)) return
        isResumed = true
        await run.resume()
        await run.result().catch(() => {})
      }
      const hf = await open({ workflows: [listening, parent] })
      const client = await openWrapped((store) => wrapStore(store, { after }), { worker: false })
      const run = await hf.start(parent, undefined, { id: 'p' })
      await becomes(run, 'waiting')
      // Nobody holds it: the client ends it by itself.
      await becomes(await hf.runs.get('p/listening#1'), 'waiting')
      await run.pause()
      await (await client.runs.get('p')).cancel({ undo: false })
      expect(isResumed).toBe(true)
      expect(await statusOf(hf, 'p')).toBe('cancelled')
      expect(await statusOf(hf, 'p/listening#1')).toBe('cancelled')
      expect(await questions(hf)).toEqual([])
    })
  }

  it('and whoever resumes it after a client that died while it cancelled it lets it end as cancelled', async () => {
    const before = (act: StoreAct, _nth: number, [changes]: readonly unknown[]) => {
      const isLast = ({ runId, events }: Change) => runId === 'p' && events.some(({ type }) => type === 'run_cancelled')
      if (act === 'commit' && (changes as readonly Change[]).some(isLast))
        throw new HoldfastError('closed', 'The client ends here.')
    }
    const hf = await open({ workflows: [listening, parent] })
    const client = await openWrapped((store) => wrapStore(store, { before }), { worker: false })
    const run = await hf.start(parent, undefined, { id: 'p' })
    await becomes(run, 'waiting')
    await run.pause()
    await expect((await client.runs.get('p')).cancel({ undo: false })).rejects.toMatchObject({ code: 'closed' })
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'undo' })
    await run.resume()
    await expect(run.result()).rejects.toMatchObject({ code: 'run_cancelled' })
    expect(await statusOf(hf, 'p/listening#1')).toBe('cancelled')
    expect(await questions(hf)).toEqual([])
  })

  it('when its function can’t be replayed', async () => {
    const first = await open({ workflows: [listening, parent] })
    const run = await first.start(parent, undefined, { id: 'p' })
    await becomes(run, 'waiting')
    await first.close()
    const changed = workflow('parent', async (ctx) => {
      await ctx.step('begin elsewhere', () => {})
    })
    const hf = await open({ workflows: [listening, changed] })
    await hf.signal('p', 'wake')
    const again = await hf.runs.get('p')
    await becomes(again, 'paused')
    expect(await again.info()).toMatchObject({ reason: 'mismatch' })
    await again.cancel()
    expect(await statusOf(hf, 'p')).toBe('cancelled')
    expect(await statusOf(hf, 'p/listening#1')).toBe('cancelled')
    expect(await questions(hf)).toEqual([])
  })

  it('also what it began before continueAs; questions end with their tape', async () => {
    const moved = gate()
    const tapes = workflow('tapes', async (ctx, n: number): Promise<unknown> => {
      if (n === 1) {
        const waits = [ctx.call(listening, undefined), ctx.ask('ok', { question: '?' })]
        for (const wait of waits) wait.catch(() => {})
        await ctx.step('begun', async () => {
          const run = await hf.runs.get(ctx.runId)
          await logged(run, 'child_started')
          await logged(run, 'question_asked')
        })
        return ctx.continueAs(2)
      }
      moved.open()
      return ctx.waitFor('never')
    })
    const hf = await open({ workflows: [listening, tapes] })
    const run = await hf.start(tapes, 1, { id: 't' })
    await moved.promise
    expect(await questions(hf)).toEqual([])
    expect(await statusOf(hf, 't/listening#1')).not.toBe('cancelled')
    await run.cancel()
    expect(await statusOf(hf, 't')).toBe('cancelled')
    expect(await statusOf(hf, 't/listening#1')).toBe('cancelled')
  })

  it('also a question that lost a race, when the run completes', async () => {
    const racing = workflow('racing', async (ctx) => {
      await Promise.race([ctx.ask('ok', { question: '?' }), ctx.waitFor('go')])
      return 'done'
    })
    const hf = await open()
    const run = await hf.start(racing)
    await logged(run, 'question_asked')
    await hf.signal(run.id, 'go')
    expect(await run.result()).toBe('done')
    expect(await questions(hf)).toEqual([])
  })

  it('also a child whose start is being written when the run is cancelled', async () => {
    const parentOfOne = workflow('one', async (ctx) => {
      const untilAborted = ({ signal }: { signal: AbortSignal }) =>
        new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
      await Promise.all([ctx.step('long', untilAborted), ctx.call(listening, undefined)])
    })
    const client = await open({ worker: false })
    const read = gate()
    let cancelled = Promise.resolve()
    const hf = await openWrapped(
      (store) =>
        wrapStore(store, {
          before: async (act, _, [changes]) => {
            if (act !== 'commit' || !writes(changes, 'child_started')) return
            cancelled = client.runs.get('o').then((run) => run.cancel())
            await read.promise
            // The function ends in these turns.
            for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve))
          },
          after: (act, _, __, answer) => act === 'readInbox' && (answer as unknown[]).length > 0 && read.open(),
        }),
      { workflows: [listening, parentOfOne] },
    )
    await client.start(parentOfOne, undefined, { id: 'o' })
    await read.promise
    await cancelled
    expect(await statusOf(hf, 'o')).toBe('cancelled')
    expect(await statusOf(hf, 'o/listening#1')).toBe('cancelled')
  })

  it('also children that have something to undo, in a worker with a single place; they undo first', async () => {
    const undone: string[] = []
    const inner = workflow('inner', async (ctx) => {
      await ctx.step('b', () => 1, { undo: () => void undone.push('inner') })
      await ctx.waitFor('never')
    })
    const outer = workflow('outer', async (ctx) => {
      await ctx.step('a', () => 1, { undo: () => void undone.push('outer') })
      await ctx.call(inner, undefined)
    })
    const hf = await open({ workflows: [inner, outer], worker: { concurrency: 1 } })
    const run = await hf.start(outer, undefined, { id: 'o' })
    await becomes(run, 'waiting')
    await becomes(await hf.runs.get('o/inner#1'), 'waiting')
    await run.cancel()
    expect(await statusOf(hf, 'o/inner#1')).toBe('cancelled')
    expect(undone).toEqual(['inner', 'outer'])
  })

  it('one whose undo fails holds its parent up, which says so; resumed, both come to their end', async () => {
    const undone: string[] = []
    let isDown = true
    const inner = workflow('inner', async (ctx) => {
      const undo = () => {
        if (isDown) throw Object.assign(new Error('provider down'), { retryable: false })
        undone.push('inner')
      }
      await ctx.step('b', () => 1, { undo })
      await ctx.waitFor('never')
    })
    const outer = workflow('outer', async (ctx) => {
      await ctx.step('a', () => 1, { undo: () => void undone.push('outer') })
      await ctx.call(inner, undefined)
    })
    const hf = await open({ workflows: [inner, outer] })
    const run = await hf.start(outer, undefined, { id: 'o' })
    const child = await hf.runs.get('o/inner#1').catch(async () => {
      await logged(run, 'child_started')
      return hf.runs.get('o/inner#1')
    })
    await becomes(child, 'waiting')
    await becomes(run, 'waiting')
    const refusal = await run.cancel().catch((error: Error) => error)
    expect(String(refusal)).toMatch(/"o\/inner#1".*provider down/)
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'undo' })
    expect(await child.info()).toMatchObject({ status: 'paused', reason: 'undo' })
    expect(undone).toEqual([])
    isDown = false
    await child.resume()
    await becomes(child, 'cancelled')
    await run.resume()
    await becomes(run, 'cancelled')
    expect(undone).toEqual(['inner', 'outer'])
  })

  it('a child that is started before the checkpoint of a rollback lives on', async () => {
    const isStarted = gate()
    const work = workflow('work', async (ctx) => {
      const child = ctx.call(listening, undefined)
      await ctx.step('a', () => isStarted.promise)
      await ctx.checkpoint('here')
      await ctx.step('b', () => 1)
      await child
    })
    const hf = await open({ workflows: [listening, work] })
    const run = await hf.start(work, undefined, { id: 'w' })
    await logged(run, 'child_started')
    isStarted.open()
    await becomes(run, 'waiting')
    await run.rollback('here')
    expect(await statusOf(hf, 'w/listening#1')).not.toBe('cancelled')
  })
})

onEveryStore(
  'a child that ended before its parent was taken up again is noticed at once, with other mail in the inbox',
  ({ open }) => {
    it.each(['retried', 'rolled back', 'rolled back to before the end of the child was recorded'] as const)('%s', async (how) => {
      let isDown = how === 'retried'
      const child = workflow('child', (ctx) => ctx.waitFor<string>('go'))
      const parent = workflow('parent', async (ctx) => {
        const called = ctx.call(child, undefined)
        called.catch(() => {})
        await ctx.waitFor('begin')
        await ctx.checkpoint('called')
        await ctx.step(
          'down',
          () => {
            if (isDown) throw new Error('down')
          },
          { retry: { attempts: 1 } },
        )
        if (how.endsWith('recorded')) await called
        await ctx.waitFor('mail')
        return how === 'rolled back' && isFirst ? 'early' : called
      })
      let isFirst = true
      const hf = await open({ workflows: [child] })
      const run = await hf.start(parent, undefined, { id: 'p' })
      await logged(run, 'child_started')
      await hf.signal('p', 'begin', 1)
      const endChild = async () => {
        await hf.signal('p/child#1', 'go', 'done')
        expect(await (await hf.runs.get('p/child#1')).result()).toBe('done')
      }
      if (how === 'retried') {
        await failureOf(run)
        await endChild()
        isDown = false
        await run.retry()
        await hf.signal('p', 'mail', 1)
      } else if (how === 'rolled back') {
        await hf.signal('p', 'mail', 1)
        expect(await run.result()).toBe('early')
        await endChild()
      } else {
        await endChild()
        await logged(run, 'child_completed')
        await hf.signal('p', 'mail', 1)
        expect(await run.result()).toBe('done')
      }
      if (how !== 'retried') {
        isFirst = false
        // The signal is put back into the inbox.
        await run.rollback('called')
        await run.resume()
      }
      expect(await run.result()).toBe('done')
    })
  },
)

onEveryStore('a control call says what became of it', ({ open, openWrapped }) => {
  it('cancel({ undo: false }) of a run that executes undoes nothing', async () => {
    const undone: string[] = []
    const begun = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => 1, { undo: () => void undone.push('a') })
      await ctx.step('long', ({ signal }) => {
        begun.open()
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
      })
    })
    const hf = await open()
    const run = await hf.start(work)
    await begun.promise
    await run.cancel({ undo: false })
    expect((await run.info()).status).toBe('cancelled')
    expect(undone).toEqual([])
  })

  it('a pause says at once what came of it when the step that is running ends: paused, or conflict where it was the last one', async () => {
    for (const isLast of [false, true]) {
      const [begun, end] = [gate(), gate()]
      const work = workflow(`work-${isLast}`, async (ctx) => {
        await ctx.step('long', () => begun.open() ?? end.promise)
        if (!isLast) await ctx.step('next', () => 1)
      })
      await open({ workflows: [work] })
      const client = await openWrapped(noting('deliver', end.open), { worker: false })
      const run = await client.start(work, undefined, { id: `r-${isLast}` })
      await begun.promise
      // The second for which it waits at most does not end, however busy the machine is.
      const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now())
      const outcome = await run
        .pause()
        .then(
          () => 'resolved',
          (error: { code: string }) => error.code,
        )
        .finally(() => clock.mockRestore())
      expect(outcome).toBe(isLast ? 'conflict' : 'resolved')
      expect((await run.info()).status).toBe(isLast ? 'completed' : 'paused')
    }
  })

  it('a rollback that meets the end of the run is carried out all the same', async () => {
    const undone: string[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('start')
      await ctx.step('a', () => 1, { undo: () => void undone.push('a') })
      return 'out'
    })
    const delivered = gate()
    const client = await openWrapped(noting('deliver', delivered.open), { worker: false })
    const asked = gate<Promise<void>>()
    const endsLate = (store: Store) =>
      wrapStore(store, {
        before: async (act, _, [changes]) => {
          if (act !== 'commit' || !writes(changes, 'run_completed')) return
          asked.open(client.runs.get('w').then((run) => run.rollback('start')))
          await delivered.promise
        },
      })
    await openWrapped(endsLate, { workflows: [work] })
    const run = await client.start(work, undefined, { id: 'w' })
    await asked.promise
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'asked' })
    expect(undone).toEqual(['a'])
  })

  it('a rollback of a run that no longer matches its code is carried out, and leaves nothing for a later resume', async () => {
    let question = 'pay 10?'
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('before')
      const [answer] = await Promise.all([ctx.ask('ok', { question }), ctx.waitFor('go')])
      return answer
    })
    const first = await open({ workflows: [work] })
    const run = await first.start(work, undefined, { id: 'w' })
    await becomes(run, 'waiting')
    await first.close()
    question = 'pay 20?'
    const hf = await open({ workflows: [work] })
    await hf.signal('w', 'go')
    const again = await hf.runs.get('w')
    await becomes(again, 'paused')
    expect(await again.info()).toMatchObject({ reason: 'mismatch' })
    const stopped = (await hf.inbox()).find(({ kind }) => kind === 'run')
    expect(stopped?.actions).toEqual(['resume', 'cancel', 'rollback'])
    await again.rollback('before')
    expect(await again.info()).toMatchObject({ status: 'paused', reason: 'asked' })
    await again.resume()
    await becomes(again, 'waiting')
    await hf.answer('w', 'ok', true)
    await hf.signal('w', 'go')
    expect(await again.result()).toBe(true)
    expect((await again.events()).filter(({ type }) => type === 'run_rolled_back')).toHaveLength(1)
  })
})

onEveryStore('what a child used that ends with its run is booked to the run', ({ open, openMortal, outlastKilled, advance }) => {
  /** Has spent 7 when it waits. */
  const spender = workflow('spender', async (ctx) => {
    await ctx.step('spend', (step) => step.usage({ cost: 7, inputTokens: 70 }))
    await ctx.waitFor('never')
  })
  const hasSpent = async (hf: Holdfast, id: string) => {
    await vi.waitUntil(async () => (await hf.runs.list({ workflow: 'spender' })).items.some((item) => item.id === id))
    const child = await hf.runs.get(id)
    await vi.waitUntil(async () => ['waiting', 'paused'].includes((await child.info()).status))
  }
  const costOf = async (run: RunHandle) => (await run.info()).usage.cost

  it('when it fails with undoOnFailure; a retry finds its budget used', async () => {
    const go = gate()
    const outer = workflow({ name: 'outer', undoOnFailure: true, budget: { cost: 5 } }, async (ctx) => {
      const child = ctx.call(spender, undefined)
      await ctx.step('own', (step) => step.usage({ cost: 1 }))
      await ctx.step('wait', () => go.promise)
      await Promise.all([child, ctx.step('fail', () => Promise.reject(new Error('no')), { retry: { attempts: 1 } })])
    })
    const top = workflow('top', async (ctx) => {
      await ctx.call(outer, undefined, { id: 'o' }).catch(() => {})
    })
    const hf = await open({ workflows: [spender, outer, top] })
    const run = await hf.start(top, undefined, { id: 't' })
    await hasSpent(hf, 'o/spender#1')
    go.open()
    await run.result()
    const failed = await hf.runs.get('o')
    expect((await failed.info()).status).toBe('failed')
    expect((await failed.info()).usage).toMatchObject({ cost: 8, tokens: 70 })
    expect(await costOf(run)).toBe(8)
    await failed.retry()
    await becomes(failed, 'paused')
    expect(await failed.info()).toMatchObject({ reason: 'budget', usage: { cost: 8 } })
  })

  it('when it is cancelled, executed or not; whoever called it adds it to its own', async () => {
    const outer = workflow('outer', async (ctx, isBusy: boolean) => {
      const child = ctx.call(spender, undefined)
      await Promise.all([child, isBusy ? ctx.step('long', ({ signal }) => aborted(signal)) : undefined])
    })
    const top = workflow('top', async (ctx, isBusy: boolean) => {
      await ctx.call(outer, isBusy).catch(() => {})
    })
    const hf = await open({ workflows: [spender, outer, top] })
    for (const [isBusy, options] of [[true, {}] as const, [false, {}] as const, [false, { undo: false }] as const]) {
      const id = `t-${isBusy}-${'undo' in options}`
      const run = await hf.start(top, isBusy, { id })
      await hasSpent(hf, `${id}%2fouter#1/spender#1`)
      const middle = await hf.runs.get(`${id}/outer#1`)
      if (!isBusy) await becomes(middle, 'waiting')
      await middle.cancel(options)
      expect(await costOf(middle)).toBe(7)
      await run.result()
      expect(await costOf(run)).toBe(7)
    }
  })

  it('when it is rolled back over the call, and the child that is called then comes on top', async () => {
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('before')
      await ctx.call(spender, undefined)
    })
    const hf = await open({ workflows: [spender, work] })
    const run = await hf.start(work, undefined, { id: 'w' })
    await hasSpent(hf, 'w/spender#1')
    await becomes(run, 'waiting')
    await run.rollback('before')
    expect(await costOf(run)).toBe(7)
    await run.resume()
    await vi.waitUntil(async () => (await hf.runs.list({ workflow: 'spender', status: 'waiting' })).items.length === 1)
    await becomes(run, 'waiting')
    await run.cancel()
    expect(await costOf(run)).toBe(14)
  })

  it('once, also when its worker dies in the middle of it', async () => {
    const undone: string[] = []
    const work = workflow({ name: 'work', undos: { back: () => void undone.push('a') } }, async (ctx) => {
      await ctx.step('a', () => 1, { undo: 'back' })
      await ctx.call(spender, undefined)
    })
    const mortal = await openMortal({ workflows: [spender, work] }, { after: 'step_undone' })
    const { id } = await mortal.hf.start(work, undefined, { id: 'w' })
    await hasSpent(mortal.hf, 'w/spender#1')
    await becomes(await mortal.hf.runs.get(id), 'waiting')
    void (await mortal.hf.runs.get(id)).cancel().catch(() => {})
    await mortal.dead
    outlastKilled()
    advance(11_000)
    const hf = await open({ workflows: [spender, work] })
    const run = await hf.runs.get(id)
    await becomes(run, 'cancelled')
    expect([await costOf(run), undone]).toEqual([7, ['a']])
  })
})

onSqlite('a control call that waits for long', ({ open }) => {
  it('a cancel whose undo takes long is a timeout, and is carried out all the same', async () => {
    const end = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => 1, { undo: () => end.promise })
      await ctx.waitFor('never')
    })
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    const refusal = await run.cancel().catch((error: Error) => error)
    expect(refusal).toMatchObject({ code: 'timeout', details: { status: 'running' } })
    end.open()
    await becomes(run, 'cancelled')
  })
})

onEveryStore('a run whose child failed of a child that was cancelled', ({ open }) => {
  it('says what helps: a retry finds it cancelled, the rollback of the run that called it starts another', async () => {
    const leaf = workflow('leaf', (ctx) => ctx.waitFor('go'))
    const middle = workflow('middle', async (ctx) => {
      await ctx.checkpoint('before')
      return await ctx.call(leaf, undefined, { id: 'l' })
    })
    const top = workflow('top', (ctx) => ctx.call(middle, undefined, { id: 'm' }))
    const hf = await open({ workflows: [leaf, middle, top] })
    const run = await hf.start(top, undefined, { id: 't' })
    await logged(run, 'child_started')
    const called = await hf.runs.get('m')
    await logged(called, 'child_started')
    await (await hf.runs.get('l')).cancel()
    const advice = {
      code: 'run_failed',
      message: expect.stringContaining('roll run "m", which called it, back to before the call'),
    }
    await expect(run.result()).rejects.toMatchObject(advice)
    await run.retry()
    await expect(run.result()).rejects.toMatchObject(advice)
    await called.rollback('before')
    await called.resume()
    await run.retry()
    await logged(called, 'child_started')
    await becomes(called, 'waiting')
    await hf.signal('l~1', 'go', 42)
    expect(await run.result()).toBe(42)
  })
})
