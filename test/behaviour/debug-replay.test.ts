import { type ReplayedStep, state, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { becomes, codeOfRejection } from './runs.ts'
import { onEveryStore } from './stores.ts'

const notes = state({ version: 1, initial: () => ({ notes: [] as string[] }) })

onEveryStore('replaying', ({ open }) => {
  it('reads name, kind, attempt, input, output, error and the state after each step, and executes nothing', async () => {
    const hf = await open()
    let bodies = 0
    let flaws = 1
    const child = workflow('child', async () => 'from child')
    const agent = workflow({ name: 'agent', state: notes }, async (ctx, topic: string) => {
      bodies++
      await ctx.step(
        'think',
        (step) => {
          bodies++
          if (flaws-- > 0) throw new Error('busy')
          step.update((draft) => void draft.notes.push('thought'))
          return { text: 'use search', toolCalls: [{ name: 'search' }] }
        },
        { kind: 'model', input: { topic }, retry: { minMs: 1 } },
      )
      ctx.update((draft) => void draft.notes.push('noted'))
      await ctx.step('search', () => 'found', { kind: 'tool' })
      await ctx.scope('tell', () => ctx.once('send', { key: 'send:1', run: () => 'sent', idempotent: true }))
      await ctx.call(child, undefined, { id: 'c' })
      const answer = await ctx.ask<string>('ok', { question: 'Good?' })
      ctx.uuid()
      return answer
    })
    const run = await hf.start(agent, 'tea', { id: 'a' })
    await expect.poll(async () => (await hf.inbox()).length).toBe(1)
    await hf.answer('a', 'ok', 'yes', { by: 'ada' })
    await run.result()
    const before = { bodies, events: (await run.events()).length }
    const steps = await hf.debug.replay('a')
    expect(steps.map(short)).toEqual([
      'run_queued run null in="tea" notes=',
      'state_migrated migration null notes=',
      'step_failed model think 1 in={"topic":"tea"} error=busy notes=',
      'step_completed model think 2 in={"topic":"tea"} out={"text":"use search","toolCalls":[{"name":"search"}]} notes=thought',
      'state_updated update null notes=thought,noted',
      'step_completed tool search 1 out="found" notes=thought,noted',
      'effect_completed effect tell/send 1 in="send:1" out="sent" notes=thought,noted',
      'child_completed child child in={"runId":"c","workflow":"child"} out="from child" notes=thought,noted',
      'question_answered question ok in="Good?" out="yes" by=ada notes=thought,noted',
      expect.stringMatching(/^value_recorded value \S+ out="[0-9a-f-]{36}" notes=thought,noted$/),
      'run_completed run null out="yes" notes=thought,noted',
    ])
    expect(steps.find(({ toolCalls }) => toolCalls !== undefined)?.toolCalls).toEqual([{ name: 'search' }])
    for (const { checkpoint, state: after } of steps) expect(after).toEqual(await hf.thread('a').stateAt(checkpoint))
    expect({ bodies, events: (await run.events()).length }).toEqual(before)
  })

  it('stops at a checkpoint, shows edits by hand, and says what a rollback took back', async () => {
    const hf = await open()
    const work = workflow({ name: 'work', state: notes }, async (ctx) => {
      for (const name of ['one', 'two'])
        await ctx.step(name, (step) => {
          step.update((draft) => void draft.notes.push(name))
        })
      await ctx.waitFor('done')
    })
    const run = await hf.start(work, undefined, { id: 'r', threadId: 't' })
    await becomes(run, 'waiting')
    await hf.thread('t').update<{ notes: string[] }>((draft) => void draft.notes.push('by hand'))
    const steps = await hf.debug.replay('r')
    const one = steps.find(({ name }) => name === 'one') as ReplayedStep
    expect((await hf.debug.replay('r', { to: one.checkpoint })).at(-1)).toEqual(one)
    expect(steps.at(-1)).toMatchObject({ kind: 'edit', runId: null, state: { notes: ['one', 'two', 'by hand'] } })
    await run.rollback(one.checkpoint, { by: 'ada' })
    const after: ReplayedStep[] = []
    for await (const step of hf.debug.replay('t')) after.push(step)
    expect(after.filter(({ name }) => name === 'two').map(({ isForgotten }) => isForgotten)).toEqual([true])
    expect(after.filter(({ name }) => name === 'one').map(({ isForgotten }) => isForgotten)).toEqual([false])
    expect(after.at(-1)).toMatchObject({ kind: 'rollback', by: 'ada', state: { notes: ['one'] } })
  })

  it('shows rewinds and forks, what they took back, and what a later rewind brought back', async () => {
    const hf = await open()
    const add = workflow({ name: 'add', state: notes }, async (ctx, text: string) => {
      await ctx.step('add', (step) => step.update((draft) => void draft.notes.push(text)))
    })
    const thread = hf.thread('t')
    const after = async (text: string) => {
      await thread.run(add, text)
      return (await thread.info()).checkpoint as string
    }
    const [one, two] = [await after('one'), await after('two')]
    await thread.rewind(one, { by: 'ada' })
    await after('three')
    const gone = async () => (await hf.debug.replay('t')).filter(({ name }) => name === 'add').map((step) => step.isForgotten)
    expect(await gone()).toEqual([false, true, false])
    await thread.rewind(two)
    expect(await gone()).toEqual([false, false, true])
    const steps = await hf.debug.replay('t')
    expect(steps.filter(({ kind }) => kind === 'rewind')).toMatchObject([
      { name: null, runId: null, input: one, by: 'ada', state: { notes: ['one'] }, isForgotten: true },
      { name: null, runId: null, input: two, state: { notes: ['one', 'two'] }, isForgotten: false },
    ])
    for (const { checkpoint, state: then } of steps) expect(then).toEqual(await thread.stateAt(checkpoint))
    const fork = await thread.fork(one, { by: 'bob' })
    expect(await hf.debug.replay(fork.id)).toMatchObject([
      { kind: 'fork', event: 'thread_forked', input: one, by: 'bob', state: { notes: ['one'] }, isForgotten: false },
    ])
  })

  it('of what is not there is refused', async () => {
    const hf = await open()
    await hf.run(
      workflow('work', async () => 1),
      undefined,
      { id: 'a' },
    )
    const all = async (id: string, to?: string) => (await hf.debug.replay(id, to === undefined ? {} : { to })).length
    expect(await codeOfRejection(all('b'))).toBe('run_not_found')
    expect(await codeOfRejection(all('a', 'a@99'))).toBe('invalid_id')
    expect(await all('a', 'a@1')).toBe(1)
    await hf.thread('a').delete()
    expect(await codeOfRejection(all('a'))).toBe('thread_deleted')
  })
})

function short({ event, kind, name, attempt, input, output, error, by, state: after }: ReplayedStep): string {
  return [
    ...[event, kind, name ?? 'null', ...(attempt > 0 ? [attempt] : [])],
    ...(input === undefined ? [] : [`in=${JSON.stringify(input)}`]),
    ...(output === undefined ? [] : [`out=${JSON.stringify(output)}`]),
    ...(error === undefined ? [] : [`error=${error.message}`]),
    ...(by === undefined ? [] : [`by=${by}`]),
    `notes=${((after as { notes?: string[] } | undefined)?.notes ?? []).join(',')}`,
  ].join(' ')
}
