import { setTimeout as sleep } from 'node:timers/promises'
import { MockLanguageModelV4 } from 'ai/test'

type Prompt = Parameters<MockLanguageModelV4['doStream']>[0]['prompt']
type Part = Awaited<ReturnType<MockLanguageModelV4['doStream']>>['stream'] extends ReadableStream<infer Part> ? Part : never

/** Stands for a real model, so that the example needs no key: it knows two conversations, and takes its time. */
export function scriptedModel({ msPerWord = 80 } = {}): MockLanguageModelV4 {
  return new MockLanguageModelV4({
    modelId: 'scripted',
    doGenerate: async ({ prompt }) => answerOf(turnFor(prompt)),
    doStream: async ({ prompt, abortSignal }) => ({
      stream: ReadableStream.from(speak(turnFor(prompt), msPerWord, abortSignal)) as ReadableStream<Part>,
    }),
  })
}

interface Turn {
  readonly text: string
  readonly call?: { readonly tool: string; readonly input: unknown; readonly id?: string }
}

const story =
  'Of course. Every word of this answer is written to the store before the page shows it, so the process that makes it may go away at ' +
  'any moment. Another one takes over, asks the model again, and the page puts the new words in the place of the old ones. Nothing is ' +
  'said twice, and nothing is missing at the end. Try the button that kills the worker while I am still talking.'

/** The same in every process, as its answers depend on nothing but the conversation. */
function turnFor(prompt: Prompt): Turn {
  const turn = scriptFor(prompt)
  return turn.call === undefined ? turn : { ...turn, call: { ...turn.call, id: `call-${prompt.length}` } }
}

function scriptFor(prompt: Prompt): Turn {
  const lastUser = prompt.findLastIndex(({ role }) => role === 'user')
  const question = JSON.stringify(prompt[lastUser]?.content ?? '').toLowerCase()
  const results = prompt.slice(lastUser).flatMap(({ role, content }) => (role === 'tool' ? content : []))
  const [, name] = /my name is (\w+)/i.exec(JSON.stringify(prompt[lastUser]?.content ?? '')) ?? []
  if (name !== undefined && results.length === 0)
    return { text: 'Let me write that down. ', call: { tool: 'remember', input: { name } } }
  if (name !== undefined) return { text: `Nice to meet you, ${name}. I will know you in every chat.` }
  const [, known] = /"name":"(\w+)"/.exec(String(prompt[0]?.content)) ?? []
  if (question.includes('who am i')) return { text: known === undefined ? 'You have not told me yet.' : `You are ${known}.` }
  if (!question.includes('refund')) return { text: story }
  const [, order = '4711'] = /(\d+)/.exec(question) ?? []
  if (results.length === 0) return { text: 'Let me look at your order. ', call: { tool: 'findOrder', input: { order } } }
  if (results.length === 1)
    return { text: 'It can be refunded. I will ask a colleague. ', call: { tool: 'refund', input: { order, amount: 120 } } }
  const isDenied = JSON.stringify(results).includes('execution-denied')
  return { text: isDenied ? 'I am sorry, this was not approved.' : `Your 120 euros for order ${order} are on their way.` }
}

async function* speak({ text, call }: Turn, msPerWord: number, signal: AbortSignal | undefined): AsyncGenerator<Part> {
  yield { type: 'stream-start', warnings: [] }
  yield { type: 'text-start', id: '0' }
  for (const word of text.match(/\S+\s*/g) ?? []) {
    await sleep(msPerWord, undefined, { signal })
    yield { type: 'text-delta', id: '0', delta: word }
  }
  yield { type: 'text-end', id: '0' }
  if (call !== undefined) yield toolCall(call)
  yield { type: 'finish', ...endOf({ text, ...(call !== undefined && { call }) }) }
}

function answerOf(turn: Turn): Awaited<ReturnType<MockLanguageModelV4['doGenerate']>> {
  const calls = turn.call === undefined ? [] : [toolCall(turn.call)]
  return { content: [{ type: 'text', text: turn.text }, ...calls], ...endOf(turn), warnings: [] }
}

function toolCall({ tool, input, id = '' }: NonNullable<Turn['call']>) {
  return { type: 'tool-call' as const, toolCallId: id, toolName: tool, input: JSON.stringify(input) }
}

function endOf({ text, call }: Turn) {
  const outputTokens = Math.ceil(text.length / 4)
  return {
    finishReason: { unified: call === undefined ? ('stop' as const) : ('tool-calls' as const), raw: undefined },
    usage: {
      inputTokens: { total: 200, noCache: 200, cacheRead: 0, cacheWrite: 0 },
      outputTokens: { total: outputTokens, text: outputTokens, reasoning: 0 },
    },
  }
}
