import { open, state, workflow } from 'holdfast'
import { createMemoryStore } from 'holdfast/testing'
import type { Store } from '../../src/store/store.ts'

/** A thread of an agent, as the product wrote it. */
export interface LongThread {
  readonly store: Store
  readonly threadId: string
  readonly runs: number
  /** The run with the longest tape. */
  readonly longRunId: string
  readonly seconds: number
}

interface Message {
  id: number
  role: 'user' | 'assistant' | 'tool'
  text: string
  rating?: number
}

interface AgentState {
  messages: Message[]
  /** By path; each is read and written again. */
  files: Map<string, { size: number; hash: string; readAt: Date }>
  /** By name; each is written a few times. */
  facts: Record<string, string>
  tasks: Map<number, { title: string; status: 'open' | 'done' }>
  turn: number
}

/** Messages of some 550 bytes: with as many the state is about 1 MB. */
const [mostMessages, forgottenAtOnce] = [1_800, 100]
const agentState = state({
  version: 1,
  initial: (): AgentState => ({ messages: [], files: new Map(), facts: {}, tasks: new Map(), turn: 0 }),
})

/**
 * Real runs in memory, until the log has so many events: turns of an agent that gets a message, asks a model, uses a tool, takes notes, edits an
 * earlier message now and then, and forgets the oldest messages when there are too many. All runs are short but one, in the middle.
 */
export async function makeLongThread(events: number): Promise<LongThread> {
  const startedAt = performance.now()
  const words = new Words(7)
  const agent = workflow({ name: 'agent', state: agentState }, async (ctx, input: { turns: number; text: string }) => {
    for (let turn = 0; turn < input.turns; turn++) {
      const reply = await ctx.step(
        'think',
        (step) => {
          step.usage({ model: 'm-1', inputTokens: 1_200 + words.below(400), outputTokens: 80 + words.below(100), cost: 0.004 })
          const text = words.text(480 + words.below(120))
          step.update((draft) => {
            draft.turn += 1
            draft.messages.push({ id: draft.turn, role: 'assistant', text })
          })
          return { stop: 'tool_use', tool: 'read', characters: text.length }
        },
        { kind: 'model' },
      )
      await ctx.step(
        'read',
        (step) => {
          const path = `src/part-${words.below(40)}/file-${words.below(20)}.ts`
          step.update((draft) => {
            draft.files.set(path, {
              size: words.below(90_000),
              hash: words.hash(),
              readAt: new Date(1_700_000_000_000 + draft.turn),
            })
            draft.messages.push({ id: draft.turn, role: 'tool', text: words.text(450 + words.below(150)) })
          })
          return { path, characters: reply.characters }
        },
        { kind: 'tool' },
      )
      ctx.update((draft) => {
        if (draft.turn % 5 === 0) draft.facts[`fact-${words.below(300)}`] = words.text(60)
        if (draft.turn % 3 === 0)
          draft.tasks.set(words.below(400), { title: words.text(40), status: words.below(2) === 0 ? 'open' : 'done' })
        const edited = draft.messages[words.below(draft.messages.length)]
        if (edited !== undefined && draft.turn % 2 === 0) edited.rating = words.below(6)
        else if (edited !== undefined) edited.text = `${edited.text.slice(0, 400)} ${words.text(30)}`
        if (draft.messages.length > mostMessages) draft.messages.splice(0, forgottenAtOnce)
      })
    }
    return ctx.state.messages.length
  })

  const store = createMemoryStore()
  const hf = await open(store, { workflows: [agent] })
  const threadId = 'agent'
  const thread = hf.thread(threadId)
  const [longFrom, longRunId] = [Math.floor(events * 0.4), 'the-long-run']
  let runs = 0
  for (;;) {
    const { headSeq = 0 } = (await store.readThread({ owner: '', threadId })) ?? {}
    if (headSeq >= events) break
    runs += 1
    const isLong = headSeq >= longFrom && (await store.readRun({ owner: '', runId: longRunId })) === null
    // A turn is seven events; the last run ends just where the log is long enough.
    const turns = isLong ? Math.ceil((events * 0.2) / 7) : Math.max(1, Math.min(100, Math.floor((events - headSeq - 3) / 7)))
    await thread.run(agent, { turns, text: words.text(200) }, isLong ? { id: longRunId } : {})
  }
  await hf.close()
  return { store, threadId, runs, longRunId, seconds: (performance.now() - startedAt) / 1_000 }
}

/** Text of made-up words, some of them much more often than others: it compresses about as prose does. The same at every run. */
export class Words {
  #seed: number
  readonly #words: readonly string[]

  constructor(seed: number) {
    this.#seed = seed
    this.#words = Array.from({ length: 3_000 }, () => this.#word())
  }

  /** A whole number from 0 on. */
  below(count: number): number {
    // xorshift32
    this.#seed ^= this.#seed << 13
    this.#seed ^= this.#seed >>> 17
    this.#seed ^= this.#seed << 5
    return (this.#seed >>> 0) % count
  }

  text(length: number): string {
    let text = ''
    while (text.length < length) {
      const rank = Math.floor(3_000 ** (this.below(100_000) / 100_000)) - 1
      text += `${this.#words[rank]}${this.below(12) === 0 ? '. ' : ' '}`
    }
    return text.slice(0, length)
  }

  hash(): string {
    return (
      this.below(2 ** 32)
        .toString(16)
        .padStart(8, '0') +
      this.below(2 ** 32)
        .toString(16)
        .padStart(8, '0')
    )
  }

  #word(): string {
    return Array.from({ length: 2 + this.below(8) }, () => String.fromCharCode(97 + this.below(26))).join('')
  }
}
