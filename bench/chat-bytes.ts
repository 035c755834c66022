// What a chat keeps: bytes of each store against what was said, and where they are
//
// Options: --turns=N (default 400), --bytes=N that each side says in a turn (default 1024), --chat=readme (default: the chat of the README, whose input,
// state, step result and output say the same) or --chat=agent (chatWorkflow of holdfast/ai), --only=sqlite, postgres or redis.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { MockLanguageModelV4 } from 'ai/test'
import { open, state, workflow } from 'holdfast'
import { chatWorkflow } from 'holdfast/ai'
import pg from 'pg'
import { createClient } from 'redis'
import { openTarget } from '../src/open.ts'
import { accountFor, bytesOnDisk } from './measuring/disk.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { placesOf } from './measuring/places.ts'
import { randomText } from './measuring/random-text.ts'

const turns = Math.max(1, Number(optionOf('turns') ?? 400))
const bytes = Math.max(1, Number(optionOf('bytes') ?? 1_024))
const kind = optionOf('chat') ?? 'readme'
const said = turns * 2 * bytes
const threadId = 'alice'

interface Part {
  readonly what: string
  readonly bytes: number
}

/** Where the bytes of a store are, by what its tools say. */
const physicalOf: Readonly<Record<string, (url: string) => Promise<readonly Part[]>>> = {
  sqlite: async (url) => {
    const file = url.slice('sqlite:'.length)
    const trees = accountFor(file).filter(({ what }) => what.startsWith('table ') || what.startsWith('index '))
    const others = trees.reduce((sum, one) => sum + one.bytes, 0)
    return [{ what: 'table holdfast_log', bytes: bytesOnDisk(file) - others }, ...trees]
  },
  postgres: async (url) => {
    const client = new pg.Client({ connectionString: url.replace(/\?.*$/, '') })
    await client.connect()
    const { rows } = await client.query<{ what: string; bytes: string }>(
      `SELECT k.kind || c.relname AS what, CASE k.kind WHEN 'table ' THEN pg_table_size(c.oid) ELSE pg_indexes_size(c.oid) END AS bytes
       FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN (VALUES ('table '), ('indexes of ')) AS k (kind)
       WHERE n.nspname = $1 AND c.relkind = 'r'`,
      [new URL(url).searchParams.get('schema')],
    )
    await client.end()
    return rows.map((row) => ({ what: row.what, bytes: Number(row.bytes) }))
  },
  redis: async (url) => {
    const client = await createClient({ url: url.replace(/\?.*$/, '') }).connect()
    const sums = new Map<string, number>()
    const prefix = `holdfast:{${new URL(url).searchParams.get('namespace')}}:`
    for await (const keys of client.scanIterator({ MATCH: `${prefix}*`, COUNT: 1_000 })) {
      for (const key of keys) {
        const what = `keys ${key.slice(prefix.length).split(':', 1)[0]}`
        sums.set(what, (sums.get(what) ?? 0) + ((await client.memoryUsage(key, { SAMPLES: 0 })) ?? 0))
      }
    }
    client.destroy()
    return [...sums].map(([what, sum]) => ({ what, bytes: sum }))
  },
}

const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
try {
  printMachine(folder)
  console.log(`settings  the ${kind} chat: ${turns} turns, in each of which both sides say ${bytes} bytes of random printable ASCII; durability full,
          defaults otherwise. Redis: what MEMORY USAGE says of its keys. Postgres: as it is after the last turn, without a VACUUM by hand`)
  for (const [name, measure] of Object.entries(physicalOf)) {
    if ((optionOf('only') ?? name) !== name) continue
    const places = await placesOf[name]?.(folder)
    if (places === undefined) continue
    try {
      await measureChat(name, places.next(), measure)
    } finally {
      await places.close()
    }
  }
  console.log(`
not measured
  Text that compresses: on Postgres, values above 2 kB do by themselves. Retention. The AOF of Redis, which grows until it is rewritten.`)
  printLoad('end')
} finally {
  rmSync(folder, { recursive: true, force: true })
}

async function measureChat(name: string, url: string, measure: (url: string) => Promise<readonly Part[]>): Promise<void> {
  await (await open(url, { worker: false })).close()
  const before = await measure(url)
  await (kind === 'agent' ? agentChat : readmeChat)(url)
  const after = await measure(url)
  const empty = sum(before)
  const kept = sum(after)
  console.log(
    `\n${name}: ${factor(kept)} × what was said; ${factor(kept - empty)} × without the ${(empty / 1e6).toFixed(2)} MB of an empty store`,
  )
  console.log('  what the log says, encoded')
  for (const part of await contentsOf(url)) print(part)
  console.log('  what the store has grown by')
  const grown = after.map((part) => ({
    ...part,
    bytes: part.bytes - (before.find(({ what }) => what === part.what)?.bytes ?? 0),
  }))
  for (const part of grown.sort((a, b) => b.bytes - a.bytes)) if (part.bytes >= said / 200) print(part)
}

async function readmeChat(url: string): Promise<void> {
  const conversation = state({ version: 1, initial: () => ({ messages: [] as string[] }) })
  const chat = workflow({ name: 'chat', state: conversation }, async (ctx, text: string) => {
    ctx.update((draft) => {
      draft.messages.push(text)
    })
    const reply = await ctx.step('reply', () => randomText(bytes))
    ctx.update((draft) => {
      draft.messages.push(reply)
    })
    return reply
  })
  const hf = await open(url, { workflows: [chat] })
  for (let turn = 0; turn < turns; turn++) await hf.thread(threadId).run(chat, randomText(bytes))
  await hf.close()
}

async function agentChat(url: string): Promise<void> {
  const chat = chatWorkflow({ name: 'chat', agent: { model: speaking() } })
  const hf = await open(url, { workflows: [chat] })
  for (let turn = 0; turn < turns; turn++) {
    const parts = [{ type: 'text' as const, text: randomText(bytes) }]
    await hf.thread(threadId).run(chat, { message: { id: `m${turn}`, role: 'user', parts } })
  }
  await hf.close()
}

/** A model that says that many bytes, five at a time. */
function speaking(): MockLanguageModelV4 {
  const inputTokens = { total: 100, noCache: 100, cacheRead: 0, cacheWrite: 0 }
  const usage = { inputTokens, outputTokens: { total: 200, text: 200, reasoning: 0 } }
  async function* speak() {
    yield { type: 'text-start', id: '0' } as const
    for (const delta of randomText(bytes).match(/.{1,5}/g) ?? []) yield { type: 'text-delta', id: '0', delta } as const
    yield { type: 'text-end', id: '0' } as const
    yield { type: 'finish', finishReason: { unified: 'stop', raw: undefined }, usage } as const
  }
  return new MockLanguageModelV4({ doStream: async () => ({ stream: ReadableStream.from(speak()) as never }) })
}

/** Payloads and patches by what they are, as the store keeps them. */
async function contentsOf(url: string): Promise<readonly Part[]> {
  const { store, close } = await openTarget(url, { durability: 'full', clockOffsetMs: () => 0 })
  const sums = new Map<string, number>()
  const names = { run_queued: 'inputs', step_completed: 'results of steps', run_completed: 'outputs' } as const
  const add = (what: string, value: string | Uint8Array | null) => {
    if (value !== null) sums.set(what, (sums.get(what) ?? 0) + Buffer.byteLength(value))
  }
  const records = await store.readLog({ owner: '', threadId })
  for (const { type, payload, patch } of records) {
    add(names[type as keyof typeof names] ?? 'data of other events', payload)
    add('patches of the state', patch)
  }
  await close()
  const parts = [...sums].map(([what, total]) => ({ what, bytes: total }))
  const row = { what: `together, in ${records.length} records`, bytes: sum(parts) }
  return [...parts.sort((a, b) => b.bytes - a.bytes), row]
}

function print({ what, bytes: size }: Part): void {
  console.log(`    ${factor(size).padStart(6)} ×  ${what}`)
}

function sum(parts: readonly Part[]): number {
  return parts.reduce((total, part) => total + part.bytes, 0)
}

function factor(size: number): string {
  return (size / said).toFixed(2)
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
