// node --conditions=holdfast-source test/langgraph/killed-program.ts URL JOURNAL KILL_AT
//
// Two turns of a graph, from wherever the thread is. Kills itself at the n-th moment at which it begins to write or has written; 0: never.
// The journal says which nodes ran, which effects happened, and of which nodes the writes were acknowledged.

import { appendFileSync, readFileSync } from 'node:fs'
import { HumanMessage } from '@langchain/core/messages'
import { Annotation, Command, interrupt, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph'
import { open } from 'holdfast'
import { HoldfastSaver, type NodeConfig, once } from 'holdfast/langgraph'

const [url, journal, killAt] = process.argv.slice(2) as [string, string, string]

let moments = 0
function moment(): void {
  moments += 1
  if (moments === Number(killAt)) process.kill(process.pid, 'SIGKILL')
}

/** Says when writes begin and when they are acknowledged; adds nothing to what is written. */
class WatchedSaver extends HoldfastSaver {
  override async put(...args: Parameters<HoldfastSaver['put']>): ReturnType<HoldfastSaver['put']> {
    moment()
    const config = await super.put(...args)
    moment()
    return config
  }

  override async putWrites(...args: Parameters<HoldfastSaver['putWrites']>): Promise<void> {
    moment()
    await super.putWrites(...args)
    const [, writes] = args
    const list = writes.find(([channel]) => channel === 'list')?.[1] as string[] | undefined
    if (list !== undefined) appendFileSync(journal, `acknowledged ${list[0]}\n`)
    moment()
  }
}

const State = Annotation.Root({
  ...MessagesAnnotation.spec,
  turn: Annotation<number>,
  list: Annotation<string[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }),
})

function node(name: string, isAsking = false) {
  return async ({ turn }: typeof State.State, config: NodeConfig) => {
    const line = `effect of ${name}${turn}\n`
    await once(config, 'effect', {
      run: () => appendFileSync(journal, line),
      check: () => ({ happened: readFileSync(journal, 'utf8').includes(line) }),
    })
    moment()
    const answer = isAsking ? ` ${interrupt('go on?')}` : ''
    appendFileSync(journal, `ran ${name}${turn}${answer}\n`)
    await new Promise((resolve) => setTimeout(resolve, name === 'c' ? 5 : 0))
    return {
      list: [`${name}${turn}${answer}`],
      messages: [{ role: 'assistant', content: `${name}${turn}`, id: `${name}${turn}` }],
    }
  }
}

const hf = await open(url, { worker: false, logger: false })
const graph = new StateGraph(State)
  .addNode('a', node('a'))
  .addNode('b', node('b'))
  .addNode('c', node('c'))
  .addNode('ask', node('ask', true))
  .addNode('d', node('d'))
  .addEdge(START, 'a')
  .addEdge('a', 'b')
  .addEdge('a', 'c')
  .addEdge(['b', 'c'], 'ask')
  .addEdge('ask', 'd')
  .compile({ checkpointer: new WatchedSaver(hf, { effectLeaseMs: 100 }) })
const config = { configurable: { thread_id: 't' } }

for (;;) {
  const state = await graph.getState(config)
  // `next` leaves out tasks that are done and were not applied yet.
  const isDone = state.tasks.length === 0
  const turn = (state.values.turn as number | undefined) ?? 0
  if (isDone && turn === 2) break
  if (isDone) {
    await graph.invoke(
      { turn: turn + 1, messages: [new HumanMessage({ content: `turn ${turn + 1}`, id: `h${turn + 1}` })] },
      config,
    )
  } else if (state.tasks.some(({ interrupts }) => interrupts.length > 0)) {
    await graph.invoke(new Command({ resume: 'yes' }), config).catch(async (error: { code?: string }) => {
      if (error.code !== 'conflict') throw error
      await graph.invoke(null, config)
    })
  } else await graph.invoke(null, config)
}
const { values } = await graph.getState(config)
process.stdout.write(
  JSON.stringify({ list: values.list, messages: values.messages.map(({ id }: { id?: string }) => id), moments }),
)
await hf.close()
