import { AIMessage, HumanMessage, type ToolMessage } from '@langchain/core/messages'
import { tool } from '@langchain/core/tools'
import { Annotation, Command, interrupt, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph'
import { ToolNode } from '@langchain/langgraph/prebuilt'
import { type Holdfast, NotHappened } from 'holdfast'
import {
  durableTool,
  graphWorkflow,
  HoldfastSaver,
  type NodeConfig,
  type OnceOptions,
  once,
  operationKey,
  type UnsureGraphEffect,
} from 'holdfast/langgraph'
import { describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { codeOfRejection, gate } from '../behaviour/runs.ts'
import { onEveryStore } from '../behaviour/stores.ts'
import { thread } from './defects.ts'

const State = Annotation.Root({ list: Annotation<string[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }) })

onEveryStore('effects of nodes', ({ open, openMortal, advance }) => {
  /** One node, with what it does. */
  function graphOf(hf: Holdfast, node: (config: NodeConfig) => Promise<string>, saver = new HoldfastSaver(hf)) {
    const graph = new StateGraph(State)
      .addNode('act', async (_, config) => ({ list: [await node(config)] }), {
        retryPolicy: { maxAttempts: 2, initialInterval: 1, jitter: false, logWarning: false },
      })
      .addEdge(START, 'act')
      .compile({ checkpointer: saver })
    const listOf = async () => (await graph.getState(thread('t'))).values.list
    return { graph, saver, listOf }
  }

  /** A process that dies while it sends; returns the graph of another one. */
  async function diedWhileSending(options: Omit<OnceOptions<string>, 'run'> = {}) {
    const sent: string[] = []
    const sending = gate()
    const first = await openMortal({ worker: false })
    const { graph } = graphOf(first.hf, (config) =>
      once(config, 'mail', {
        ...options,
        run: (key) => {
          sent.push(key)
          sending.open()
          return new Promise<string>(() => {})
        },
      }),
    )
    void graph.invoke({ list: [] }, thread('t')).catch(() => {})
    await sending.promise
    await first.die()
    const second = graphOf(await open({ worker: false }), (config) =>
      once(config, 'mail', {
        ...options,
        run: (key) => {
          sent.push(key)
          return `sent ${sent.length}`
        },
      }),
    )
    return { ...second, sent }
  }

  async function unsureIn(graph: Pick<ReturnType<typeof graphOf>['graph'], 'getState'>, id = 't'): Promise<UnsureGraphEffect> {
    const { tasks } = await graph.getState(thread(id))
    return tasks[0]?.interrupts[0]?.value as UnsureGraphEffect
  }

  it('are not sent again when their owner is forgotten while they are sent; who comes again begins anew', async () => {
    const [sending, sent] = [gate(), gate()]
    let sends = 0
    const hf = await open({ worker: false })
    const { graph } = graphOf(hf.as('ann'), (config) =>
      once(config, 'mail', {
        run: async () => {
          sending.open()
          await sent.promise
          return `sent ${++sends}`
        },
      }),
    )
    const failed = codeOfRejection(graph.invoke({ list: [] }, thread('t')))
    await sending.promise
    await hf.forgetOwner('ann')
    sent.open()
    expect([await failed, sends]).toEqual(['thread_deleted', 1])
    expect((await graph.invoke({ list: [] }, thread('t'))).list).toEqual(['sent 2'])
  })

  it('happen once when their node runs again: after an interrupt, and after it has failed', async () => {
    const sent: string[] = []
    let failures = 1
    const { graph, listOf } = graphOf(await open({ worker: false }), async (config) => {
      const send = (what: string) => once(config, 'send', { run: () => `${what} ${sent.push(what)}` })
      const [a, b] = [await send('a'), await send('b')]
      if (failures-- > 0) throw new Error('broken')
      const answer = interrupt('go on?')
      const c = await send('c')
      return [a, b, answer, c].join(', ')
    })
    await graph.invoke({ list: [] }, thread('t'))
    await graph.invoke(new Command({ resume: 'yes' }), thread('t'))
    expect(await listOf()).toEqual(['a 1, b 2, yes, c 3'])
    expect(sent).toEqual(['a', 'b', 'c'])
    // Another turn is other effects.
    await graph.invoke({ list: [] }, thread('t'))
    expect(sent).toEqual(['a', 'b', 'c', 'a', 'b'])
  })

  it('are left to a person when their process died, and an answer to an interrupt does not decide them', async () => {
    const { graph, saver, sent, listOf } = await diedWhileSending()
    advance(11_000)
    await graph.invoke(null, thread('t'))
    const unsure = await unsureIn(graph)
    expect(unsure).toMatchObject({ type: 'effect_unsure', effect: 'mail', key: sent[0] })
    expect(await codeOfRejection(graph.invoke(new Command({ resume: { happened: true } }), thread('t')))).toBe('effect_unsure')
    await graph.invoke(null, thread('t'))
    expect(await codeOfRejection(saver.resolve('another', { happened: true }))).toBe('invalid_input')
    await saver.resolve(unsure.key, { happened: true, result: 'found out', by: 'ann' })
    expect(await codeOfRejection(saver.resolve(unsure.key, { happened: false }))).toBe('already_answered')
    await graph.invoke(null, thread('t'))
    expect(await listOf()).toEqual(['found out'])
    expect(sent.length).toBe(1)
  })

  it('are sent again once a person says that they did not happen', async () => {
    const { graph, saver, sent, listOf } = await diedWhileSending()
    advance(11_000)
    await graph.invoke(null, thread('t'))
    await saver.resolve((await unsureIn(graph)).key, { happened: false })
    await graph.invoke(null, thread('t'))
    expect(await listOf()).toEqual(['sent 2'])
    expect(sent[0]).toBe(sent[1])
  })

  it('are sent again under the same key where they are idempotent, and looked up where they can be', async () => {
    const resent = await diedWhileSending({ idempotent: true })
    advance(11_000)
    await resent.graph.invoke(null, thread('t'))
    expect(await resent.listOf()).toEqual(['sent 2'])
    expect(resent.sent[0]).toBe(resent.sent[1])
  })

  it('are looked up where they can be: what happened is not sent again', async () => {
    let failures = 1
    const check = (key: string) => {
      if (failures-- > 0) throw new Error('out of reach')
      return { happened: true, result: `found ${key}` }
    }
    const { graph, sent, listOf } = await diedWhileSending({ check, key: 'mail:\u0000 4711/*%' })
    advance(11_000)
    await graph.invoke(null, thread('t'))
    expect(await listOf()).toEqual(['found mail:\u0000 4711/*%'])
    expect(sent.length).toBe(1)
  })

  it('are waited for while another process sends them, also where it answers the same interrupt', async () => {
    const sent: string[] = []
    const [sending, release, answering] = [gate<string>(), gate(), gate()]
    const another = async () =>
      graphOf(await open({ worker: false }), async (config) => {
        const answer = interrupt('pay?')
        if (answer === 'no') answering.open()
        return once(config, 'pay', {
          run: async (key) => {
            sending.open(key)
            await release.promise
            return `${answer} ${sent.push(String(answer))}`
          },
        })
      })
    const [a, b] = [await another(), await another()]
    await a.graph.invoke({ list: [] }, thread('t'))
    const first = a.graph.invoke(new Command({ resume: 'yes' }), thread('t'))
    const key = await sending.promise
    const others = [b.graph.invoke(null, thread('t')), b.graph.invoke(new Command({ resume: 'no' }), thread('t'))].map(
      codeOfRejection,
    )
    expect(await codeOfRejection(b.saver.resolve(key, { happened: false }))).toBe('conflict')
    // Refused before its node begins, or in it. After the first has ended it would find nothing to answer.
    await Promise.race([answering.promise, others[1]])
    release.open()
    expect(await others[1]).toBe('conflict')
    await Promise.allSettled([first, ...others])
    expect(sent).toEqual(['yes'])
    expect(await a.listOf()).toEqual(['yes 1'])
  })

  it('keep the result of a sender that was taken for dead, unless somebody has decided', async () => {
    for (const decision of [undefined, { happened: true, result: 'decided' }]) {
      const [sending, release] = [gate(), gate()]
      const id = `decided ${decision?.result}`
      const act = (run: () => Promise<string>) => (config: NodeConfig) => once(config, 'slow', { run })
      const a = graphOf(
        await open({ worker: false }),
        act(async () => {
          sending.open()
          await release.promise
          return 'sent'
        }),
      )
      const first = a.graph.invoke({ list: [] }, thread(id)).catch(() => {})
      await sending.promise
      advance(11_000)
      const b = graphOf(
        await open({ worker: false }),
        act(async () => 'sent twice'),
      )
      await b.graph.invoke(null, thread(id))
      const { key } = await unsureIn(b.graph, id)
      if (decision !== undefined) await b.saver.resolve(key, decision)
      release.open()
      await first
      await b.graph.invoke(null, thread(id)).catch(() => {})
      expect((await b.graph.getState(thread(id))).values.list).toEqual([decision?.result ?? 'sent'])
    }
  })

  it('are not sent by a run that was refused, in a deleted thread, outside of a graph, or where nothing is durable', async () => {
    const sent: string[] = []
    const [reached, release] = [gate(), gate()]
    const hf = await open({ worker: false })
    const { graph, saver } = graphOf(hf, async (config) => {
      const { thread_id: id } = config.configurable as { thread_id: string }
      if (id === 'deleted') {
        reached.open()
        await release.promise
      }
      return once(config, 'send', { run: () => String(sent.push(id)) })
    })
    expect(await codeOfRejection(graph.invoke({ list: [] }, { ...thread('exit'), durability: 'exit' }))).toBe('invalid_input')
    expect(await codeOfRejection(once({}, 'send', { run: () => '' }))).toBe('invalid_input')
    expect(await codeOfRejection(saver.resolve('send', { happened: 'yes' } as never))).toBe('invalid_input')
    const strange = graphOf(hf, (config) => once(config, 'send', { key: 7 as never, run: () => '' }))
    expect(await codeOfRejection(strange.graph.invoke({ list: [] }, thread('strange')))).toBe('invalid_input')
    const runs = [graph, graph].map((one) => codeOfRejection(one.invoke({ list: [] }, thread('twice'))))
    expect(await Promise.all(runs)).toContain('conflict')
    expect(sent).toEqual(['twice'])
    const under = graph.invoke({ list: [] }, thread('deleted'))
    await reached.promise
    await saver.deleteThread('deleted')
    release.open()
    expect(await codeOfRejection(under)).toBe('thread_deleted')
    expect(sent).toEqual(['twice'])
  })

  it('have keys of their own, which two threads can share', async () => {
    const sent: string[] = []
    const { graph } = graphOf(await open({ worker: false }), (config) => {
      const { thread_id: id } = config.configurable as { thread_id: string }
      return once(config, id === 'other' ? 'refund' : 'charge', {
        key: 'order:4711',
        run: () => `charged in ${sent[sent.push(id) - 1]}`,
      })
    })
    await graph.invoke({ list: [] }, thread('a'))
    await graph.invoke({ list: [] }, thread('b'))
    expect((await graph.getState(thread('b'))).values.list).toEqual(['charged in a'])
    expect(await codeOfRejection(graph.invoke({ list: [] }, thread('other')))).toBe('input_mismatch')
    expect(sent).toEqual(['a'])
  })

  it('are remembered for a day after their thread was deleted or pruned', async () => {
    const hf = await open({ worker: false })
    const { graph, saver } = graphOf(hf, (config) => once(config, 'send', { run: () => 'sent' }))
    const effects = () => hf.records('langgraph').read({ collection: 'effects', limit: 100 })
    for (const id of ['deleted', 'pruned', 'kept']) await graph.invoke({ list: [] }, thread(id))
    await saver.deleteThread('deleted')
    await saver.prune(['pruned'])
    expect((await effects()).map(({ expiresAt }) => expiresAt !== null).sort()).toEqual([false, true, true])
    advance(25 * 3_600_000)
    expect((await effects()).length).toBe(1)
  })

  describe('that are tools', () => {
    const refund = (acted: string[], act: (order: string) => string) =>
      tool(
        ({ order }: { order: string }, config) => {
          acted.push(`${order} ${operationKey(config).startsWith('lg_')}`)
          return act(order)
        },
        { name: 'refund', description: 'Pays back.', schema: z.object({ order: z.string() }) },
      )

    function agentOf(hf: Holdfast, wrapped: ReturnType<typeof refund>, orders: readonly string[] = ['A', 'B']) {
      const calls = orders.map((order) => ({ name: 'refund', args: { order }, id: `call ${order}` }))
      const saver = new HoldfastSaver(hf)
      const graph = new StateGraph(MessagesAnnotation)
        .addNode('model', () => ({ messages: [new AIMessage({ content: '', tool_calls: calls })] }))
        .addNode('tools', new ToolNode([wrapped]))
        .addEdge(START, 'model')
        .addEdge('model', 'tools')
        .compile({ checkpointer: saver })
      const answers = async () =>
        ((await graph.getState(thread('t'))).values.messages as ToolMessage[]).slice(2).map(({ content }) => content)
      return { graph, saver, answers }
    }

    const input = { messages: [new HumanMessage('refund both')] }

    it('act once a call, also where their node runs again because one of them asks', async () => {
      const acted: string[] = []
      const wrapped = durableTool(
        refund(acted, (order) => (order === 'B' ? String(interrupt('refund B?')) : `${order} refunded`)),
      )
      const { graph, answers } = agentOf(await open({ worker: false }), wrapped)
      await graph.invoke(input, thread('t'))
      await vi.waitUntil(() => acted.length === 2)
      await graph.invoke(new Command({ resume: 'yes' }), thread('t'))
      expect(await answers()).toEqual(['A refunded', 'yes'])
      expect(acted.sort()).toEqual(['A true', 'B true', 'B true'])
    })

    it('interrupt the graph where one throws, unless it says that it did not happen', async () => {
      const acted: string[] = []
      const wrapped = durableTool(
        refund(acted, (order) => {
          throw order === 'A' ? new NotHappened('no such order') : new Error('connection lost')
        }),
      )
      const { graph, saver, answers } = agentOf(await open({ worker: false }), wrapped)
      await graph.invoke(input, thread('t'))
      const { key, message } = await unsureIn(graph)
      expect(message).toContain('connection lost')
      await saver.resolve(key, { happened: true, result: 'B refunded by hand' })
      await graph.invoke(null, thread('t'))
      expect(await answers()).toEqual([expect.stringContaining('no such order'), 'B refunded by hand'])
      expect(acted.sort()).toEqual(['A true', 'A true', 'B true'])
    })

    it('are called directly, too, and are told apart by count and input', async () => {
      const acted: string[] = []
      const wrapped = durableTool(
        refund(acted, (order) => `${order} refunded`),
        { key: ({ order }) => `refund:${order}` },
      )
      expect([wrapped.name, wrapped.description]).toEqual(['refund', 'Pays back.'])
      const { graph, listOf } = graphOf(await open({ worker: false }), async (config) => {
        const made = [await wrapped.invoke({ order: 'A' }, config as object), await wrapped.invoke({ order: 'A' })]
        return `${made.join()} ${interrupt('?')}`
      })
      await graph.invoke({ list: [] }, thread('t'))
      await graph.invoke(new Command({ resume: 'yes' }), thread('t'))
      expect(await listOf()).toEqual(['A refunded,A refunded yes'])
      expect(acted.length).toBe(1)
    })
  })

  it('whose outcome nobody knows are questions in the inbox where the graph is a workflow', async () => {
    const hf = await open()
    const { graph } = graphOf(hf, (config) =>
      once(config, 'mail', {
        run: () => {
          throw new Error('connection lost')
        },
      }),
    )
    const run = await hf.start(graphWorkflow(graph, { name: 'flow' }), { list: [] }, { threadId: 't' })
    const item = await vi.waitUntil(async () => (await hf.inbox()).find(({ kind }) => kind === 'question'))
    if (item.kind !== 'question') throw new Error('no question')
    expect(item.question).toMatchObject({ node: 'act', value: { type: 'effect_unsure', effect: 'mail' } })
    expect(await codeOfRejection(hf.answer(run.id, item.name, 'yes', { id: item.id }))).toBe('invalid_input')
    await hf.answer(run.id, item.name, { happened: true, result: 'mailed' }, { id: item.id })
    await run.result()
    expect((await graph.getState(thread('t'))).values.list).toEqual(['mailed'])
  })
})
