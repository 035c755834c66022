import { MockLanguageModelV4 } from 'ai/test'

type Options = Parameters<MockLanguageModelV4['doGenerate']>[0]
type Answer = Awaited<ReturnType<MockLanguageModelV4['doGenerate']>>
type Part = Awaited<ReturnType<MockLanguageModelV4['doStream']>>['stream'] extends ReadableStream<infer P> ? P : never

/** What the model says in one call: a text, calls of tools, or both. An Error is thrown by the call. */
export interface Turn {
  readonly text?: string
  readonly calls?: readonly { readonly id: string; readonly tool: string; readonly input: unknown }[]
  readonly usage?: readonly [input: number, output: number]
}

export interface Script {
  readonly turns: readonly Turn[] | ((prompt: Options['prompt']) => Turn | Promise<Turn>)
  /** Before the n-th call of this model object, from 1, is answered. */
  readonly before?: (call: number, signal: AbortSignal | undefined) => unknown
  /** Before the n-th chunk, from 1, of a streamed answer. */
  readonly beforeChunk?: (chunk: number, call: number, signal: AbortSignal | undefined) => unknown
}

/**
 * A model that knows no more than its prompt, as a real one: its turn is the number of answers that the conversation has since the last
 * message of the user, so that it says the same in every process.
 */
export function scriptedModel({ turns, before, beforeChunk }: Script): MockLanguageModelV4 {
  let calls = 0
  const answer = async ({ prompt, abortSignal }: Options): Promise<{ turn: Turn; call: number }> => {
    const call = ++calls
    await before?.(call, abortSignal)
    if (typeof turns === 'function') return { turn: await turns(prompt), call }
    const lastUser = prompt.findLastIndex(({ role }) => role === 'user')
    const index = prompt.slice(lastUser + 1).filter(({ role }) => role === 'assistant').length
    const turn = turns[index]
    if (turn === undefined) throw new Error(`The script has no turn ${index}`)
    return { turn, call }
  }
  return new MockLanguageModelV4({
    doGenerate: async (options) => answerOf((await answer(options)).turn),
    doStream: async (options) => {
      const { turn, call } = await answer(options)
      return { stream: streamed(turn, (chunk) => beforeChunk?.(chunk, call, options.abortSignal)) }
    },
  })
}

/** For agents that answer without a script of turns: replies with one text. */
export const says = (text: string): Turn => ({ text })
export const calls = (...list: readonly (readonly [tool: string, input: unknown, id?: string])[]): Turn => ({
  calls: list.map(([tool, input, id], index) => ({ tool, input, id: id ?? `${tool}-${index}` })),
})

function answerOf({ text, calls = [], usage: [input, output] = [10, 5] }: Turn): Answer {
  return {
    content: [
      ...(text === undefined ? [] : [{ type: 'text' as const, text }]),
      ...calls.map(({ id, tool, input }) => toolCall(id, tool, input)),
    ],
    finishReason: finishOf(calls.length),
    usage: usageOf(input, output),
    warnings: [],
  }
}

async function* parts({ text, calls = [], usage: [input, output] = [10, 5] }: Turn): AsyncGenerator<Part> {
  yield { type: 'stream-start', warnings: [] }
  if (text !== undefined) {
    yield { type: 'text-start', id: '0' }
    for (const word of text.match(/\S+\s*/g) ?? []) yield { type: 'text-delta', id: '0', delta: word }
    yield { type: 'text-end', id: '0' }
  }
  for (const { id, tool, input } of calls) {
    yield { type: 'tool-input-start', id, toolName: tool }
    yield { type: 'tool-input-delta', id, delta: typeof input === 'string' ? input : JSON.stringify(input) }
    yield { type: 'tool-input-end', id }
    yield toolCall(id, tool, input)
  }
  yield { type: 'finish', finishReason: finishOf(calls.length), usage: usageOf(input, output) }
}

function streamed(turn: Turn, beforeChunk: (chunk: number) => unknown): ReadableStream<Part> {
  const slowly = async function* () {
    let chunk = 0
    for await (const part of parts(turn)) {
      await beforeChunk(++chunk)
      yield part
    }
  }
  return ReadableStream.from(slowly()) as ReadableStream<Part>
}

function toolCall(toolCallId: string, toolName: string, input: unknown) {
  return { type: 'tool-call' as const, toolCallId, toolName, input: typeof input === 'string' ? input : JSON.stringify(input) }
}

function finishOf(calls: number): Answer['finishReason'] {
  return { unified: calls > 0 ? 'tool-calls' : 'stop', raw: undefined }
}

function usageOf(input: number, output: number): Answer['usage'] {
  return {
    inputTokens: { total: input, noCache: input, cacheRead: undefined, cacheWrite: undefined },
    outputTokens: { total: output, text: output, reasoning: undefined },
  }
}
