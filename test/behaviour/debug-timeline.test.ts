import { applyChanges, type Holdfast, state, type TimelineRow, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { becomes, codeOfRejection } from './runs.ts'
import { onEveryStore } from './stores.ts'

interface Message {
  readonly id: number
  readonly text: string
}

const chatState = state({ version: 1, initial: () => ({ messages: [] as Message[], seen: new Map<string, Date>() }) })

/** Three turns: a step that adds a message and books what it used, and an update of the function's own. */
const chat = workflow({ name: 'chat', state: chatState }, async (ctx, input: { turns: number; wait?: boolean }) => {
  for (let turn = 1; turn <= input.turns; turn++) {
    await ctx.step('reply', (step) => {
      step.usage({ model: 'm', inputTokens: 10, outputTokens: turn, cost: 0.01 })
      step.update((draft) => {
        draft.messages.push({ id: turn, text: `message ${turn}` })
      })
      return turn
    })
    ctx.update((draft) => {
      draft.seen.set(`turn ${turn}`, new Date(turn))
    })
  }
  await ctx.once('send', { run: () => 'sent', idempotent: true })
  if (input.wait) await ctx.waitFor('done')
})

onEveryStore('a timeline', ({ open }) => {
  it('has a row for each checkpoint: when, what, steps, messages, bytes, tokens and cost', async () => {
    const hf = await open()
    await hf.run(chat, { turns: 3 }, { id: 'a' })
    const rows = await hf.debug.timeline('a')
    expect(rows).toEqual(await naiveTimeline(hf, 'a'))
    const replies = rows.filter(({ step }) => step === 'reply')
    expect(replies.map(({ stepCount, messageCount, tokens, cost }) => ({ stepCount, messageCount, tokens, cost }))).toEqual([
      { stepCount: 1, messageCount: 1, tokens: 11, cost: 0.01 },
      { stepCount: 2, messageCount: 2, tokens: 12, cost: 0.01 },
      { stepCount: 3, messageCount: 3, tokens: 13, cost: 0.01 },
    ])
    expect(replies.every(({ durationMs, bytes }) => durationMs !== null && bytes > 0)).toBe(true)
  })

  it('comes in pages, each as it is in the whole, and is folded into buckets', async () => {
    const hf = await open()
    await hf.run(chat, { turns: 5 }, { id: 'a' })
    const whole = await hf.debug.timeline('a')
    const pages: TimelineRow[] = []
    for (;;) {
      const last = pages.at(-1)
      const page = await hf.debug.timeline('a', { limit: 2, ...(last && { after: last.checkpoint }) })
      pages.push(...page)
      if (page.length < 2) break
    }
    expect(pages).toEqual(whole)
    for (const buckets of [1, 3, whole.length, 1_000]) {
      const folded = await hf.debug.timeline('a', { buckets })
      expect(folded.length).toBe(Math.min(buckets, whole.length))
      const { checkpoint, stepCount, messageCount } = whole.at(-1) as TimelineRow
      expect(folded.at(-1)).toMatchObject({ checkpoint, stepCount, messageCount })
      for (const column of ['bytes', 'tokens', 'cost', 'durationMs', 'checkpoints'] as const) {
        expect(sum(folded, column)).toBeCloseTo(sum(whole, column), 9)
      }
    }
  })

  it('of a run has that run alone, and after a rollback the steps that still count', async () => {
    const hf = await open()
    const thread = hf.thread('talk')
    await thread.run(chat, { turns: 2 }, { id: 'first' })
    await thread.update<{ messages: Message[] }>((draft) => {
      draft.messages.push({ id: 99, text: 'by hand' })
    })
    const second = await thread.start(chat, { turns: 2, wait: true }, { id: 'second' })
    await becomes(second, 'waiting')
    const rows = await hf.debug.timeline('second')
    expect(rows.every(({ runId }) => runId === 'second')).toBe(true)
    expect(rows.filter(({ step }) => step === 'reply').map(({ stepCount, messageCount }) => [stepCount, messageCount])).toEqual([
      [1, 4],
      [2, 5],
    ])
    await second.rollback(rows.find(({ step }) => step === 'reply')?.checkpoint as string)
    expect((await hf.debug.timeline('second')).at(-1)).toMatchObject({ stepCount: 1, messageCount: 4 })
    expect(await hf.debug.timeline('talk')).toEqual(await naiveTimeline(hf, 'talk'))
    expect((await hf.debug.timeline('first')).at(-1)).toMatchObject({ stepCount: 3, messageCount: 2 })
  })

  it('counts after a rewind the steps that counted there, whatever had been rewound before', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    const after = async () => {
      await thread.run(chat, { turns: 1 })
      return (await thread.info()).checkpoint as string
    }
    const one = await after()
    await after()
    await thread.rewind(one)
    const there = await after()
    await after()
    await thread.rewind(there)
    const rows = await hf.debug.timeline('t')
    const counted = rows.find(({ checkpoint }) => checkpoint === there)
    expect(counted).toMatchObject({ stepCount: 4, messageCount: 2 })
    expect(rows.at(-1)).toMatchObject({ stepCount: 4, messageCount: 2 })
    expect(await hf.debug.timeline('t', { after: rows.at(-2)?.checkpoint as string })).toEqual([rows.at(-1)])
  })

  it('refuses what is no id, no checkpoint, deleted, or of another owner', async () => {
    const hf = await open()
    await hf.run(chat, { turns: 1 }, { id: 'a' })
    const code = (call: Promise<unknown>) => codeOfRejection(call)
    expect(await code(hf.debug.timeline('b'))).toBe('run_not_found')
    expect(await code(hf.debug.timeline(''))).toBe('invalid_id')
    expect(await code(hf.as('other').debug.timeline('a'))).toBe('run_not_found')
    expect(await code(hf.debug.timeline('a', { after: 'a@9999' }))).toBe('invalid_id')
    expect(await code(hf.debug.timeline('a', { after: 'b@1' }))).toBe('invalid_id')
    expect(await code(hf.debug.timeline('a', { limit: 0 }))).toBe('invalid_input')
    expect(await code(hf.debug.timeline('a', { buckets: 1.5 }))).toBe('invalid_input')
    expect(await code(hf.debug.timeline('a', { pages: 1 } as never))).toBe('invalid_input')
    expect(await code(hf.debug.diff('a@1', 'b@1'))).toBe('invalid_id')
    expect(await code(hf.debug.diff('a@1', 'a@99'))).toBe('invalid_id')
    expect(await code(hf.as('other').debug.diff('a@1', 'a@2'))).toBe('invalid_id')
    await hf.thread('a').delete()
    expect(await code(hf.debug.timeline('a'))).toBe('thread_deleted')
    expect(await code(hf.debug.diff('a@1', 'a@2'))).toBe('thread_deleted')
  })
})

onEveryStore('the difference of two checkpoints', ({ open }) => {
  it('counts messages and steps, and its changes make the one state the other', async () => {
    const hf = await open()
    await hf.run(chat, { turns: 3 }, { id: 'a' })
    const thread = hf.thread('a')
    const replies = (await hf.debug.timeline('a')).filter(({ step }) => step === 'reply')
    const [first, , third] = replies.map(({ checkpoint }) => checkpoint) as [string, string, string]
    const diff = await hf.debug.diff(first, third)
    expect(diff).toMatchObject({ messagesAdded: 2, stepsAdded: 2 })
    expect(diff.changes.map(({ change, path }) => [change, ...path])).toEqual([
      ['added', 'messages', 1],
      ['added', 'messages', 2],
      ['added', 'seen', 'turn 1'],
      ['added', 'seen', 'turn 2'],
    ])
    expect(applyChanges(await thread.stateAt(first), diff.changes)).toEqual(await thread.stateAt(third))
    const back = await hf.debug.diff(third, first)
    expect(back).toMatchObject({ messagesAdded: 0, stepsAdded: 0 })
    expect(applyChanges(await thread.stateAt(third), back.changes)).toEqual(await thread.stateAt(first))
    expect(await hf.debug.diff(first, first)).toEqual({ messagesAdded: 0, stepsAdded: 0, changes: [], memory: [], artifacts: [] })
  })

  it('may be of two threads, and takes labels of one', async () => {
    const hf = await open()
    await hf.run(chat, { turns: 1 }, { id: 'a' })
    await hf.run(chat, { turns: 3 }, { id: 'b' })
    const [a, b] = [await hf.debug.timeline('a'), await hf.debug.timeline('b')].map((rows) => rows.at(-1)?.checkpoint as string)
    expect(await hf.debug.diff(a as string, b as string)).toMatchObject({ messagesAdded: 2, stepsAdded: 2 })
    const early = (await hf.debug.timeline('b')).find(({ step }) => step === 'reply')?.checkpoint as string
    await hf.thread('b').tag(early, 'early')
    await hf.thread('b').tag(b as string, 'late')
    expect(await hf.debug.diff('early', 'late', { in: 'b' })).toEqual(await hf.debug.diff(early, b as string))
    expect(await codeOfRejection(hf.debug.diff('early', 'late'))).toBe('invalid_id')
  })
})

function sum(rows: readonly TimelineRow[], column: 'bytes' | 'tokens' | 'cost' | 'durationMs' | 'checkpoints'): number {
  return rows.reduce((total, row) => total + (row[column] ?? 0), 0)
}

/** The same from what else the client says: a whole state and all events for each row. */
async function naiveTimeline(hf: Holdfast, threadId: string): Promise<TimelineRow[]> {
  const { items } = await hf.runs.list({ threadId })
  const events = (await Promise.all(items.map(async ({ id }) => (await hf.runs.get(id)).events()))).flat()
  const checkpoints = await hf.thread(threadId).checkpoints()
  return Promise.all(
    checkpoints.map(async ({ checkpoint, seq, at, runId, step, label, bytes }, index) => {
      const before = checkpoints[index - 1]?.seq ?? 0
      const state = (await hf.thread(threadId).stateAt(checkpoint)) as { messages?: unknown[] } | undefined
      const isForgotten = (event: { seq: number; runId: string | null }) =>
        events.some(
          ({ type, seq: back, runId: own, data }) =>
            type === 'run_rolled_back' &&
            own === event.runId &&
            back <= seq &&
            event.seq < back &&
            event.seq > (data?.['to'] as number),
        )
      const done = events.filter(
        (event) => /^(step|effect)_completed$/.test(event.type) && event.seq <= seq && !isForgotten(event),
      )
      const since = events.filter((event) => event.seq > before && event.seq <= seq)
      const used = since.filter(({ type }) => type === 'usage_recorded').map(({ data }) => data as Record<string, number>)
      const timed = since.filter(({ durationMs }) => durationMs !== undefined)
      return {
        ...{ checkpoint, at, runId, step: step ?? null, label: label ?? null, bytes, checkpoints: 1 },
        stepCount: done.length,
        messageCount: state?.messages?.length ?? null,
        durationMs: timed.length === 0 ? null : timed.reduce((total, { durationMs = 0 }) => total + durationMs, 0),
        tokens: used.reduce((total, { inputTokens = 0, outputTokens = 0 }) => total + inputTokens + outputTokens, 0),
        cost: used.reduce((total, { cost = 0 }) => total + cost, 0),
      }
    }),
  )
}
