import { type Holdfast, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { becomes, gate, logged } from './runs.ts'
import { onEveryStore, onSqlite } from './stores.ts'

const listening = workflow('listening', async (ctx) => {
  await ctx.waitFor('never')
})
/** Waits for a child and for a person. */
const parent = workflow('parent', async (ctx) => {
  await ctx.step('begin', () => {})
  await Promise.all([ctx.call(listening, undefined), ctx.ask('ok', { question: '?' })])
})

async function statusOf(hf: Holdfast, id: string): Promise<string> {
  return (await (await hf.runs.get(id)).info()).status
}

async function questions(hf: Holdfast): Promise<string[]> {
  return (await hf.inbox()).flatMap((item) => (item.kind === 'question' ? [item.runId] : []))
}

onEveryStore('what a run waits for ends with it', ({ open }) => {
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

  it('also children whose start is being written when the cancel comes', async () => {
    let moment = () => {}
    const many = workflow('many', async (ctx) => {
      const children: Promise<unknown>[] = []
      for (let i = 0; i < 8; i++) {
        children.push(ctx.call(listening, undefined))
        await ctx.step(`s${i}`, () => moment())
      }
      await Promise.all(children)
    })
    const hf = await open({ workflows: [listening, many] })
    const client = await open({ worker: false })
    for (let nth = 1; nth <= 8; nth++) {
      const id = `m${nth}`
      const asked = gate<Promise<void>>()
      let steps = 0
      moment = () => {
        if (++steps === nth) asked.open(client.runs.get(id).then((run) => run.cancel()))
      }
      await client.start(many, undefined, { id })
      await asked.promise
      const children = (await (await hf.runs.get(id)).events()).flatMap(({ type, data }) =>
        type === 'child_started' ? [data?.['runId'] as string] : [],
      )
      for (const child of children) expect(await statusOf(hf, child), `${child} of ${id}`).toBe('cancelled')
    }
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

onEveryStore('a control call says what became of it', ({ open }) => {
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

  it('a rollback that meets the end of the run is carried out all the same', async () => {
    const undone: string[] = []
    let moment = () => {}
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('start')
      for (let i = 0; i < 3; i++) await ctx.step(`s${i}`, () => moment(), { undo: () => void undone.push(`s${i}`) })
      return 'out'
    })
    await open({ workflows: [work] })
    const client = await open({ worker: false })
    for (let nth = 1; nth <= 9; nth++) {
      undone.length = 0
      const id = `r${nth}`
      const asked = gate<Promise<void>>()
      let steps = 0
      moment = () => {
        if (++steps !== 1 + (nth % 3)) return
        asked.open(client.runs.get(id).then((run) => run.rollback('start')))
      }
      const run = await client.start(work, undefined, { id })
      await asked.promise
      expect(await run.info()).toMatchObject({ status: 'paused', reason: 'asked' })
      const recorded = (await run.events()).filter(({ type }) => type === 'step_completed').map(({ step }) => step)
      expect(undone).toEqual(recorded.reverse())
    }
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
