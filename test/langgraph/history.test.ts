import { AIMessage, HumanMessage } from '@langchain/core/messages'
import { Annotation, Command, interrupt, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph'
import { applyChanges } from 'holdfast'
import { HoldfastSaver } from 'holdfast/langgraph'
import { expect, it } from 'vitest'
import { codeOfRejection } from '../behaviour/runs.ts'
import { onEveryStore } from '../behaviour/stores.ts'
import { historyOf, thread } from './defects.ts'

const State = Annotation.Root({
  ...MessagesAnnotation.spec,
  plan: Annotation<{ tool?: string; tries?: number }>({ reducer: (a, b) => ({ ...a, ...b }), default: () => ({}) }),
})

onEveryStore('the debugger over a thread of LangGraph', ({ open }) => {
  /** Two turns of three nodes, the second interrupted and edited. */
  async function talked() {
    const hf = await open({ worker: false })
    const saver = new HoldfastSaver(hf)
    const graph = new StateGraph(State)
      .addNode('think', ({ plan }) => ({ plan: plan.tool === undefined ? { tool: 'search' } : { tries: (plan.tries ?? 0) + 1 } }))
      .addNode('look', () => ({ plan: { tries: 1 } }))
      .addNode('say', ({ messages }) => {
        if (messages.length > 2) interrupt('go on?')
        return { messages: [new AIMessage(`answer ${messages.length}`)] }
      })
      .addEdge(START, 'think')
      .addEdge(START, 'look')
      .addEdge(['think', 'look'], 'say')
      .compile({ checkpointer: saver })
    await graph.invoke({ messages: [new HumanMessage('hello')] }, thread('t'))
    await graph.invoke(
      { messages: [new HumanMessage('again')] },
      { ...thread('t'), runId: '00000000-0000-4000-8000-000000000001' },
    )
    return { hf, saver, graph }
  }

  it('reads its timeline, replays it, and rebuilds the state at each checkpoint', async () => {
    const { hf, saver, graph } = await talked()
    await graph.invoke(new Command({ resume: 'yes' }), thread('t'))
    const history = await saver.history('t')
    const checkpoints = (await historyOf(graph, thread('t'))).toReversed()
    const timeline = await hf.debug.timeline(history)
    expect(timeline.map(({ checkpoint }) => checkpoint)).toEqual(
      checkpoints.map(({ config }) => config.configurable?.['checkpoint_id']),
    )
    expect(timeline.map(({ step, stepCount, messageCount }) => [step, stepCount, messageCount])).toEqual([
      [null, 0, null],
      [null, 0, 1],
      ['look, think', 1, 1],
      ['say', 2, 2],
      [null, 2, 2],
      [null, 2, 3],
      ['look, think', 3, 3],
      ['say', 4, 4],
    ])
    expect(timeline.every(({ bytes }) => bytes > 0)).toBe(true)
    const page = await hf.debug.timeline(history, { after: timeline[2]?.checkpoint as string, limit: 2 })
    expect(page).toEqual(timeline.slice(3, 5))
    const steps = await hf.debug.replay(history)
    for (const [index, { values }] of checkpoints.entries()) {
      const state = (await history.stateAt(timeline[index]?.checkpoint as string)) as {
        messages?: { content: string }[]
        plan?: object
      }
      expect((state.messages ?? []).map(({ content }) => content)).toEqual(
        (values.messages ?? []).map(({ content }: AIMessage) => content),
      )
      expect(state.plan ?? {}).toEqual(values.plan ?? {})
      const step = steps.find(({ checkpoint }) => checkpoint === timeline[index]?.checkpoint)
      if (step !== undefined) expect(step.state).toEqual(state)
    }
    expect(steps.map(({ name }) => name).filter((name) => name !== null)).toEqual(['look, think', 'say', 'look, think', 'say'])
    expect(((await history.stateAt(timeline[1]?.checkpoint as string)) as { messages: unknown[] }).messages[0]).toMatchObject({
      type: 'HumanMessage',
      content: 'hello',
    })
  })

  it('says what differs between two checkpoints, also of two branches, and who wrote a value', async () => {
    const { hf, saver, graph } = await talked()
    const before = await saver.history('t')
    const [, , , said] = await hf.debug.timeline(before)
    const edited = await graph.updateState(
      { configurable: { thread_id: 't', checkpoint_id: said?.checkpoint as string } },
      { plan: { tool: 'ask' } },
      'say',
    )
    await graph.invoke({ messages: [new HumanMessage('other')] }, edited)
    const history = await saver.history('t')
    const rows = await hf.debug.timeline(history)
    const last = rows.at(-1)?.checkpoint as string
    const main = (await hf.debug.timeline(before)).at(-1)?.checkpoint as string
    for (const [a, b] of [
      [said?.checkpoint as string, last],
      [main, last],
      [last, main],
    ] as const) {
      const { changes } = await hf.debug.diff(a, b, { in: history })
      expect(applyChanges(await history.stateAt(a), changes)).toEqual(await history.stateAt(b))
    }
    expect(await hf.debug.diff(main, last, { in: history })).toMatchObject({ messagesAdded: 1, stepsAdded: 1 })
    expect(await hf.debug.blame(last, 'plan.tool', { in: history })).toMatchObject({
      value: 'ask',
      last: { step: null, event: 'state_updated' },
    })
    expect(await hf.debug.blame(main, 'plan.tool', { in: history })).toMatchObject({
      value: 'search',
      last: { step: 'look, think' },
    })
    expect(await hf.debug.blame(main, 'messages[1]', { in: history })).toMatchObject({
      last: { step: 'say', checkpoint: said?.checkpoint },
    })
    expect((await hf.debug.blame(main, 'plan.tries', { in: history })).before.length).toBe(1)
    const branch = await saver.history('t', { checkpointId: main })
    expect(await hf.debug.timeline(branch)).toEqual(await hf.debug.timeline(before))
    expect(await codeOfRejection(history.find('nowhere'))).toBe('invalid_id')
    expect(await codeOfRejection(saver.history('t', { checkpointId: '%' }))).toBe('invalid_id')
    expect(await codeOfRejection(saver.history('t', { ns: 'inner' }))).toBe('run_not_found')
    expect(await codeOfRejection(saver.history(7 as never))).toBe('invalid_input')
  })
})
