// Agents on the AI SDK: bytes of a conversation, time a turn, first word and whole answer against the SDK alone
//
// Options: --turns=N (default 200), --slices=N (default 5).

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { streamText, toUIMessageStream } from 'ai'
import { MockLanguageModelV4 } from 'ai/test'
import { open, workflow } from 'holdfast'
import { chatWorkflow, runAgent, uiStream } from 'holdfast/ai'
import { accountFor, bytesOnDisk } from './measuring/disk.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { randomText } from './measuring/random-text.ts'
import { formatSpread, medianOf, spreadOf } from './measuring/spread.ts'

const turns = Math.max(20, Number(optionOf('turns') ?? 200))
const sliceCount = Math.max(3, Number(optionOf('slices') ?? 5))
const tokens = 1_000
const msPerToken = 2
const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))

try {
  printMachine(folder)
  console.log('settings  sqlite, durability full, defaults otherwise')
  await measureConversation()
  await measureAnswers()
  console.log('\nnot measured\n  A network, a real provider, many conversations at once.')
  printLoad('end')
} finally {
  rmSync(folder, { recursive: true, force: true })
}

/** A conversation in which both sides say 500 characters a turn: what is kept, and what a turn costs at the beginning and at the end. */
async function measureConversation(): Promise<void> {
  const file = join(folder, 'chat.db')
  let answer = ''
  const chat = chatWorkflow({ name: 'chat', agent: { model: speaking(() => answer.match(/.{1,5}/g) ?? []) } })
  await (await open(`sqlite:${file}`, { worker: false })).close()
  const empty = bytesOnDisk(file)
  const hf = await open(`sqlite:${file}`, { workflows: [chat] })
  const ms: number[] = []
  let said = 0
  for (let turn = 0; turn < turns; turn++) {
    const text = randomText(500)
    answer = randomText(500)
    said += text.length + answer.length
    const startedAt = performance.now()
    await hf.thread('c').run(chat, { message: { id: `m${turn}`, role: 'user', parts: [{ type: 'text', text }] } })
    ms.push(performance.now() - startedAt)
  }
  await hf.close()
  const kept = bytesOnDisk(file)
  const tenth = Math.ceil(turns / 10)
  console.log(`
a conversation of ${turns} turns, ${(said / turns / 1_000).toFixed(2)} kB each, streamed
    kept     ${(kept / 1e6).toFixed(2)} MB for ${(said / 1e6).toFixed(2)} MB that were said: ${(kept / said).toFixed(2)} times; ${((kept - empty) / said).toFixed(2)} without the ${(empty / 1e6).toFixed(2)} MB of an empty store
    a turn   ${medianOf(ms.slice(tenth, 2 * tenth)).toFixed(1)} ms near the beginning, ${medianOf(ms.slice(-tenth)).toFixed(1)} ms at the end`)
  for (const { what, bytes } of accountFor(file).slice(0, 8))
    console.log(`    ${(bytes / said).toFixed(2).padStart(6)}   ${what}`)
}

/** The first word, and an answer of 1,000 tokens, at a reader in the same process: through a run, and through the SDK alone, in turns. */
async function measureAnswers(): Promise<void> {
  const words = Array.from({ length: tokens }, (_, index) => `w${index} `)
  let spokeAt = 0
  const model = () =>
    speaking(
      () => words,
      msPerToken,
      () => {
        spokeAt = performance.now()
      },
    )
  const agent = workflow(
    'agent',
    async (ctx) => (await runAgent(ctx, { model: model() }, { prompt: 'Speak', stream: 'ui' })).text.length,
  )
  const hf = await open(`sqlite:${join(folder, 'answers.db')}`, { workflows: [agent] })
  const slices: { first: number; firstAlone: number; whole: number; wholeAlone: number }[] = []
  for (let slice = -1; slice < sliceCount; slice++) {
    const begun = performance.now()
    const run = await hf.start(agent)
    const firstAt = await readToEnd(uiStream(run).body)
    const whole = performance.now() - begun
    const first = firstAt - spokeAt
    const begunAlone = performance.now()
    const { stream } = streamText({ model: model(), prompt: 'Speak' })
    const firstAloneAt = await readToEnd(toUIMessageStream({ stream }))
    const wholeAlone = performance.now() - begunAlone
    if (slice >= 0) slices.push({ first, firstAlone: firstAloneAt - spokeAt, whole, wholeAlone })
  }
  await hf.close()
  const row = (pick: (slice: (typeof slices)[number]) => number, digits = 1) => formatSpread(spreadOf(slices.map(pick)), digits)
  console.log(`
an answer of ${tokens} tokens, one every ${msPerToken} ms, read in the same process
    first token, after the model has said it
      alone  ${row(({ firstAlone }) => firstAlone)} ms
      run    ${row(({ first }) => first)} ms
      added  ${row(({ first, firstAlone }) => first - firstAlone)} ms
    the whole answer
      alone  ${row(({ wholeAlone }) => wholeAlone, 0)} ms
      run    ${row(({ whole }) => whole, 0)} ms
      ratio  ${row(({ whole, wholeAlone }) => whole / wholeAlone, 3)}`)
}

/** When the first word came. */
async function readToEnd(stream: ReadableStream | null): Promise<number> {
  let firstAt = 0
  for await (const piece of stream ?? []) {
    const text = piece instanceof Uint8Array ? new TextDecoder().decode(piece) : JSON.stringify(piece)
    if (firstAt === 0 && text.includes('"text-delta"')) firstAt = performance.now()
  }
  return firstAt
}

function speaking(words: () => readonly string[], ms = 0, onFirst = () => {}): MockLanguageModelV4 {
  const usage = {
    inputTokens: { total: 100, noCache: 100, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: tokens, text: tokens, reasoning: 0 },
  }
  async function* speak() {
    yield { type: 'text-start', id: '0' } as const
    if (ms > 0) await sleep(100)
    let due = performance.now()
    onFirst()
    for (const delta of words()) {
      yield { type: 'text-delta', id: '0', delta } as const
      due += ms
      const wait = due - performance.now()
      if (ms > 0 && wait > 0) await sleep(wait)
    }
    yield { type: 'text-end', id: '0' } as const
    yield { type: 'finish', finishReason: { unified: 'stop', raw: undefined }, usage } as const
  }
  return new MockLanguageModelV4({ doStream: async () => ({ stream: ReadableStream.from(speak()) as never }) })
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
