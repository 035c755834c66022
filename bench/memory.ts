// Facts: remembering and recalling among 120,000 of them, how good recall is, and what a step that remembers costs
//
// Options: --only=memory, sqlite, postgres or redis; --facts=N over 1,000 subjects (default 100,000); --large=N of one subject (default 20,000);
// --recalls=N of each kind (default 300); --strict (a missed target is exit code 1). Does not measure a model that makes vectors: they are made here,
// from the spelling of words (bench/memory/embed-locally.ts), so the quality of `vector` and `hybrid` says that the machinery works, and no more.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Holdfast, open, workflow } from 'holdfast'
import { startPostgres } from '../test/servers/postgres.ts'
import { startRedis } from '../test/servers/redis.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { Scorecard } from './measuring/scorecard.ts'
import { formatSpread, spreadOf } from './measuring/spread.ts'
import { embedLocally } from './memory/embed-locally.ts'
import { measureQuality } from './memory/recall-quality.ts'

const only = optionOf('only')
const factCount = Number(optionOf('facts') ?? 100_000)
const largeCount = Number(optionOf('large') ?? 20_000)
const recallCount = Number(optionOf('recalls') ?? 300)
const subjectCount = 1_000
const sliceSize = 10_000
const scorecard = new Scorecard()

const folder = mkdtempSync(join(tmpdir(), 'holdfast-memory-'))
printMachine(folder)
try {
  if (isAsked('memory')) await measure('memory', 'memory:')
  if (isAsked('sqlite')) await measure('SQLite', `sqlite:${join(folder, 'facts.db')}`)
  if (isAsked('postgres')) await withServer(startPostgres({ settings: {} }), (url) => measure('Postgres', url))
  if (isAsked('redis')) await withServer(startRedis({ fsync: 'always' }), (url) => measure('Redis', url))
  await quality()
} finally {
  rmSync(folder, { recursive: true, force: true })
}
printLoad('end')
scorecard.print()

async function measure(name: string, url: string): Promise<void> {
  console.log(`\n${name}`)
  const hf = await open(url, { worker: false, logger: false })
  const random = randomNumbers(1)
  const text = () => Array.from({ length: 10 }, () => wordAt(random())).join(' ')
  const subjects = Array.from({ length: factCount }, (_, index) => `subject ${index % subjectCount}`)
  const large = Array.from({ length: largeCount }, () => 'large')
  const rates: number[] = []
  const all = [...subjects, ...large]
  for (let start = 0; start < all.length; start += sliceSize) {
    const slice = all.slice(start, start + sliceSize)
    const startedAt = performance.now()
    await inParallel(slice, 200, (subject) => hf.memory.of(subject).remember(text(), { tags: ['bench'] }))
    rates.push((slice.length / (performance.now() - startedAt)) * 1000)
  }
  console.log(`  remember, 200 at once    ${formatSpread(spreadOf(rates), 0)} a second`)
  await times('remember, one by one', 200, (index) => hf.memory.of(`subject ${index}`).remember(text()))
  // A question of five words.
  const question = () => Array.from({ length: 5 }, () => wordAt(random())).join(' ')
  await times('recall of 100 facts', recallCount, (index) => hf.memory.of(`subject ${index}`).recall(question()))
  const lexical = await times(`recall of ${largeCount} facts`, recallCount, () => hf.memory.of('large').recall(question()))
  scorecard.atMost(`${name}: p50 of a recall among ${largeCount} facts, ms`, lexical, 50)
  await hf.close()
  if (url === 'memory:') return
  const near = await open(url, { worker: false, embed: embedLocally, logger: false })
  const startedAt = performance.now()
  for (const [subject, count] of [
    ['large', largeCount],
    ['subject 1', factCount / subjectCount],
  ] as const) {
    while (!(await isEmbedded(near, subject, count))) await sleep(100)
  }
  console.log(`  vectors made in          ${((performance.now() - startedAt) / 1000).toFixed(1)} s`)
  await times('hybrid among 100', recallCount, () => near.memory.of('subject 1').recall(question()))
  await times(`hybrid among ${largeCount}`, recallCount, () => near.memory.of('large').recall(question()))
  await near.close()
  await measureSteps(url)
}

/** Whether all its facts have vectors: then those of the most distant are compared, too. */
async function isEmbedded(hf: Holdfast, subject: string, count: number): Promise<boolean> {
  const facts = await hf.memory.of(subject).recall('zzz', { limit: 1_000 })
  return facts.filter(({ scores }) => scores.vector !== undefined).length >= Math.min(1_000, count)
}

/** What a step costs that remembers something, and one that does not, in a process that does both. */
async function measureSteps(url: string): Promise<void> {
  const count = 300
  const steps = workflow('steps', async (ctx, { run, remembers }: { run: number; remembers: boolean }) => {
    const startedAt = performance.now()
    for (let step = 0; step < count; step++) {
      await ctx.step(`step ${step}`, async ({ memory }) => {
        if (remembers) await memory.of(`of run ${run}`).remember(`step ${step} was taken`)
        return step
      })
    }
    return (performance.now() - startedAt) / count
  })
  const hf = await open(url, { workflows: [steps], logger: false })
  const [plain, remembering]: [number[], number[]] = [[], []]
  for (let run = 0; run < 7; run++) {
    plain.push(await hf.run(steps, { run, remembers: false }))
    remembering.push(await hf.run(steps, { run, remembers: true }))
  }
  await hf.close()
  console.log(`  a plain step             ${formatSpread(spreadOf(plain))} ms`)
  console.log(`  a step that remembers    ${formatSpread(spreadOf(remembering))} ms, one commit as well`)
}

async function quality(): Promise<void> {
  const { facts, questions, ...rankings } = await measureQuality(`sqlite:${join(folder, 'quality.db')}`)
  console.log(`\nrecall@5, ${questions} labelled questions about ${facts} facts (all; in words of the fact; in other words)`)
  for (const [name, { all, sameWords, otherWords }] of Object.entries(rankings))
    console.log(`  ${name.padEnd(10)} ${[all, sameWords, otherWords].map((share) => share.toFixed(3)).join('   ')}`)
  scorecard.atLeast('recall@5 of questions in words of the fact, lexical', rankings.lexical.sameWords, 0.95)
  scorecard.atLeast('recall@5 hybrid against lexical', rankings.hybrid.all / rankings.lexical.all, 1)
}

async function inParallel<T>(items: readonly T[], width: number, act: (item: T) => Promise<unknown>): Promise<void> {
  let next = 0
  const lane = async () => {
    while (next < items.length) await act(items[next++] as T)
  }
  await Promise.all(Array.from({ length: width }, lane))
}

/** The median of so many calls, one after the other. */
async function times(name: string, count: number, call: (index: number) => Promise<unknown>): Promise<number> {
  const took: number[] = []
  for (let index = 0; index < count; index++) {
    const startedAt = performance.now()
    await call(index)
    took.push(performance.now() - startedAt)
  }
  const sorted = took.toSorted((a, b) => a - b)
  const [p50, p99] = [0.5, 0.99].map((share) => sorted[Math.floor(share * (count - 1))] as number) as [number, number]
  console.log(`  ${name.padEnd(24)} p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms (${count} calls)`)
  return p50
}

/** A vocabulary of 5,000 words, of which a few are used often, as in a language. */
function wordAt(random: number): string {
  const index = Math.floor(5_000 ** random)
  return `w${index.toString(36)}${'aeiou'[index % 5]}`
}

function randomNumbers(seed: number): () => number {
  let last = seed
  return () => {
    last = (last * 48_271) % 2_147_483_647
    return last / 2_147_483_647
  }
}

async function withServer(
  starting: Promise<{ readonly url: string; stop(): Promise<void> }>,
  act: (url: string) => Promise<void>,
): Promise<void> {
  const server = await starting
  try {
    await act(server.url)
  } finally {
    await server.stop()
  }
}

function isAsked(store: string): boolean {
  return only === undefined || only === store
}

function optionOf(name: string): string | undefined {
  return process.argv.find((one) => one.startsWith(`--${name}=`))?.slice(name.length + 3)
}
