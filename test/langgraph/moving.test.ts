import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { HumanMessage } from '@langchain/core/messages'
import { Annotation, Command, interrupt, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph'
import { copyStore, type Holdfast, open as openAnywhere } from 'holdfast'
import { HoldfastSaver, once } from 'holdfast/langgraph'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { codeOfRejection } from '../behaviour/runs.ts'
import { onEverySharedStore, onEverySqlStore, onEveryStore } from '../behaviour/stores.ts'
import { historyOf, thread } from './defects.ts'

const State = Annotation.Root({
  ...MessagesAnnotation.spec,
  list: Annotation<unknown[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }),
})

/** Waits for an answer in a sub-graph after an effect; bytes and strange names in its state. */
function graphOver(hf: Holdfast, sent: string[] = []) {
  const inner = new StateGraph(State)
    .addNode('ask', async (_, config) => {
      const receipt = await once(config, 'send', { run: () => `sent ${sent.push('sent')}` })
      return { list: [receipt, interrupt('go on?'), new Uint8Array([0, 255]), 'long '.repeat(200)] }
    })
    .addEdge(START, 'ask')
    .compile()
  const saver = new HoldfastSaver(hf)
  const graph = new StateGraph(State).addNode('inner', inner).addEdge(START, 'inner').compile({ checkpointer: saver })
  return { saver, graph }
}

const name = 'über/\u0000*%:t'

async function goOn(graph: ReturnType<typeof graphOver>['graph'], id = name): Promise<unknown> {
  await graph.invoke(new Command({ resume: 'yes' }), thread(id))
  return (await graph.getState(thread(id))).values.list.slice(1, 4)
}

onEveryStore('a thread of LangGraph that is exported', ({ open }) => {
  it('continues in another store as it would have here, without its effects being repeated, and a damaged or double one is refused', async () => {
    const sent: string[] = []
    const hf = await open({ worker: false })
    const here = graphOver(hf, sent)
    await here.graph.invoke({ messages: [new HumanMessage('hello')], list: ['x'.repeat(500)] }, thread(name))
    const json = JSON.stringify(await here.saver.exportThread(name))
    await using other = await openAnywhere('memory:', { worker: false })
    const there = graphOver(other, sent)
    await there.saver.importThread(json)
    const histories = await Promise.all([here, there].map(({ graph }) => historyOf(graph, thread(name))))
    expect(histories[1]).toEqual(histories[0])
    expect((await goOn(there.graph)) as unknown[]).toEqual(['x'.repeat(500), 'sent 1', 'yes'])
    expect(sent.length).toBe(1)
    expect(await codeOfRejection(there.saver.importThread(json))).toBe('conflict')
    await there.saver.importThread(json, { threadId: 'copy' })
    expect(((await goOn(there.graph, 'copy')) as unknown[]).slice(1)).toEqual(['sent 2', 'yes'])
    expect(await codeOfRejection(there.saver.importThread(json.replace('hello', 'howdy')))).toBe('corrupt_record')
    expect(await codeOfRejection(there.saver.importThread(json.slice(0, -9)))).toBe('invalid_input')
    expect(await codeOfRejection(there.saver.importThread({} as never))).toBe('invalid_input')
    expect(await codeOfRejection(there.saver.exportThread('nobody'))).toBe('run_not_found')
    // And back, after it was deleted here.
    await here.saver.deleteThread(name)
    await here.saver.importThread(await there.saver.exportThread('copy'), { threadId: name })
    expect((await here.graph.getState(thread(name))).next).toEqual([])
  })
})

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-langgraph-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

onEverySharedStore('a store with threads of LangGraph', (scene) => {
  it('is copied with them, and they continue in the copy', async () => {
    const sent: string[] = []
    const hf = await scene.open({ worker: false })
    const { graph } = graphOver(hf, sent)
    await graph.invoke({ messages: [], list: ['in'] }, thread(name))
    await graphOver(hf.as('bob'), sent).graph.invoke({ messages: [], list: ['bob'] }, thread(name))
    await hf.close()
    const target = `sqlite:${join(folder, 'copy.db')}`
    const report = await copyStore(scene.url, target)
    expect(report.memories).toBeGreaterThan(10)
    expect((await copyStore(scene.url, target)).sha256).toBe(report.sha256)
    await using copy = await openAnywhere(target, { worker: false })
    expect(await copy.verify()).toMatchObject({ damaged: [] })
    expect(await goOn(graphOver(copy, sent).graph)).toEqual(['in', 'sent 1', 'yes'])
    expect(await goOn(graphOver(copy.as('bob'), sent).graph)).toEqual(['bob', 'sent 2', 'yes'])
    expect(sent.length).toBe(2)
  })
})

onEverySqlStore('a damaged record of a LangGraph thread', ({ open, sql, parameter }) => {
  it('is found by verify, and never comes back as data', async () => {
    const hf = await open({ worker: false })
    const { saver, graph } = graphOver(hf)
    await graph.invoke({ messages: [], list: ['damage me, please'] }, thread('t'))
    expect(await hf.verify()).toMatchObject({ damaged: [] })
    // The schema in which every test has its tables on Postgres.
    const table = parameter(1) === '?' ? 'holdfast_records' : 'tables.records'
    await sql(`UPDATE ${table} SET payload = replace(payload, 'damage me', 'damaged ') WHERE payload LIKE '%damage me%'`)
    const { damaged } = await hf.verify()
    expect(damaged.length).toBeGreaterThan(0)
    expect(damaged[0]?.message).toContain('langgraph.')
    expect(await codeOfRejection(new HoldfastSaver(hf).getTuple(thread('t')))).toBe('corrupt_record')
    expect(await codeOfRejection(saver.exportThread('t'))).toBe('corrupt_record')
  })
})
