// Runs that go to sleep: 10,000 in one go, and 1,000 one after the other in a queue of concurrency 1; time, processor time and memory
//
// Options: --store=sqlite, postgres or redis, --runs=N (default 10,000), --queued=N (default 1,000).

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Holdfast, open, workflow } from 'holdfast'
import { printLoad, printMachine } from './measuring/machine.ts'
import { placesOf } from './measuring/places.ts'

const runCount = Number(optionOf('runs') ?? 10_000)
const queuedCount = Number(optionOf('queued') ?? 1_000)
const chosen = optionOf('store')
const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
const sleeper = workflow('sleeper', (ctx) => ctx.sleep(86_400_000))

printMachine(folder)
console.log(
  `settings  one worker with the defaults, which holds each run of a queue without a limit for its quiet time (1 s) before it is persisted`,
)
try {
  for (const [name, openPlaces] of Object.entries(placesOf)) {
    if (chosen !== undefined && chosen !== name) continue
    const places = await openPlaces(folder)
    try {
      console.log(`\n${places.description}`)
      await measure(places.next(), 'default', runCount)
      await measure(places.next(), 'one', queuedCount)
    } finally {
      await places.close()
    }
  }
  console.log(`
not measured
  A network between this process and the server, several workers on one store, runs that do work before they sleep.`)
  printLoad('end')
} finally {
  rmSync(folder, { recursive: true, force: true })
}

async function measure(url: string, queue: string, count: number): Promise<void> {
  const client = await open(url, { worker: false })
  if (queue === 'one') await client.queues.set(queue, { concurrency: 1 })
  await client.startMany(Array.from({ length: count }, () => ({ workflow: 'sleeper', input: undefined, options: { queue } })))
  const cpu = process.cpuUsage()
  const startedAt = performance.now()
  const worker = await open(url, { workflows: [sleeper] })
  const claimedMs = await until(client, queue, ({ pending }) => pending === 0, startedAt)
  const asleepMs = await until(client, queue, ({ waiting }) => waiting === count, startedAt)
  const { user, system } = process.cpuUsage(cpu)
  console.log(
    `  ${String(count).padStart(6)} runs ${queue === 'one' ? 'in a queue of concurrency 1' : 'in a queue without a limit '}  all begun after ${claimedMs.toFixed(0)} ms, ` +
      `all persisted as waiting after ${asleepMs.toFixed(0)} ms; processor ${((user + system) / count).toFixed(0)} µs a run; ` +
      `${Math.round(process.memoryUsage.rss() / 2 ** 20)} MiB`,
  )
  await worker.close()
  await client.close()
}

async function until(
  client: Holdfast,
  queue: string,
  isSo: (counts: { pending: number; waiting: number }) => boolean,
  startedAt: number,
): Promise<number> {
  while (!isSo((await client.queues.get(queue)).counts)) await sleep(100)
  return performance.now() - startedAt
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
