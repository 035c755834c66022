// Many queues: what a run takes with 5,000 of them against one; how long the longest script is when 200,000 timers are overdue (Redis)
//
// Options: --queues=N (default 5,000), --overdue=N (default 200,000), --slices=N (default 7), --only=runs or --only=overdue, --strict (a missed
// target is exit code 1).

import { type Holdfast, open, workflow } from 'holdfast'
import { createClient } from 'redis'
import { openRedisStore } from '../src/stores/redis/redis-store.ts'
import { startRedis } from '../test/servers/redis.ts'
import { claimRequest, creating } from '../test/stores/sqlite-scene.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { Scorecard } from './measuring/scorecard.ts'
import { formatSpread, type Spread, spreadOf } from './measuring/spread.ts'

const queueCount = Number(optionOf('queues') ?? 5_000)
const overdueCount = Number(optionOf('overdue') ?? 200_000)
const sliceCount = Math.max(5, Number(optionOf('slices') ?? 7))
const only = optionOf('only')
/** Runs one after the other, in a queue that is one of many. */
const loneRuns = 50
const dayMs = 86_400_000
const scorecard = new Scorecard()

let executed = 0
const noop = workflow('noop', () => {
  executed++
})
const server = await startRedis({ fsync: 'always' })
const admin = await createClient({ url: server.url }).connect()
printMachine('')
console.log(`settings  Redis through redis, over loopback, appendfsync always; one worker of the same process with the defaults`)
try {
  if (only !== 'overdue') await measureRuns()
  if (only !== 'runs') await measureOverdue()
  console.log(`
not measured
  A network between this process and the server, several workers on one store, runs that do work.`)
  printLoad('end')
  scorecard.print()
} finally {
  admin.destroy()
  await server.stop()
}

async function measureRuns(): Promise<void> {
  const [one, many] = [await openFilled('one', 1), await openFilled('many', queueCount)]
  const limited = await openFilled('limited', queueCount)
  for (let index = 0; index < queueCount; index++) await limited.hf.queues.set(`q-${index}`, { concurrency: 1 })
  const kinds = { one, many, limited }
  const results = { together: timesOf(), lone: timesOf() }
  // They take turns, so that all meet the machine in the same mood; the first slices are not counted.
  for (let slice = -2; slice < sliceCount; slice++) {
    for (const [name, { hf, queueAt }] of Object.entries(kinds) as [keyof typeof kinds, Filled][]) {
      const together = await timeTogether(hf, queueAt)
      const lone = await timeLone(hf, queueAt)
      if (slice < 0) continue
      results.together[name].push(together)
      results.lone[name].push(lone)
    }
  }
  for (const { hf } of Object.values(kinds)) await hf.close()
  console.log(`\n${queueCount} queues against one; in each queue sleeps a run, ${sliceCount} slices`)
  report('runs started together, one in each queue', results.together)
  report('runs one after the other', results.lone)
}

interface Filled {
  readonly hf: Holdfast
  readonly queueAt: (index: number) => string
}

async function openFilled(namespace: string, queues: number): Promise<Filled> {
  const hf = await open(`${server.url}?namespace=${namespace}`, { workflows: [noop], logger: false })
  const queueAt = (index: number) => `q-${index % queues}`
  await hf.startMany(
    Array.from({ length: queueCount }, (_, index) => ({
      workflow: noop,
      options: { queue: queueAt(index), delayMs: dayMs + index },
    })),
  )
  return { hf, queueAt }
}

function timesOf(): Record<'one' | 'many' | 'limited', number[]> {
  return { one: [], many: [], limited: [] }
}

/** Ms a run, from startMany to the last one executed. */
async function timeTogether(hf: Holdfast, queueAt: (index: number) => string): Promise<number> {
  const beganAt = performance.now()
  executed = 0
  await hf.startMany(Array.from({ length: queueCount }, (_, index) => ({ workflow: noop, options: { queue: queueAt(index) } })))
  while (executed < queueCount) await new Promise((resolve) => setTimeout(resolve, 1))
  return (performance.now() - beganAt) / queueCount
}

/** Ms a run. */
async function timeLone(hf: Holdfast, queueAt: (index: number) => string): Promise<number> {
  const beganAt = performance.now()
  for (let index = 0; index < loneRuns; index++) await hf.run(noop, undefined, { queue: queueAt(index * 97) })
  return (performance.now() - beganAt) / loneRuns
}

function report(what: string, times: Record<'one' | 'many' | 'limited', readonly number[]>): void {
  const [one, many, limited] = [spreadOf(times.one), spreadOf(times.many), spreadOf(times.limited)] as const
  const line = (name: string, spread: Spread) =>
    console.log(
      `    ${name.padEnd(34)} ${formatSpread(spread, 3, 'slices')} ms a run, ${(spread.median / one.median).toFixed(2)} × one queue`,
    )
  console.log(`  ${what}`)
  line('one queue', one)
  line(`${queueCount} queues`, many)
  line(`${queueCount} queues of concurrency 1`, limited)
  scorecard.atMost(`${what}, ${queueCount} queues against one`, many.median / one.median, 3)
  scorecard.atMost(`${what}, ${queueCount} queues of concurrency 1 against one`, limited.median / one.median, 3)
}

async function measureOverdue(): Promise<void> {
  let clockOffsetMs = 0
  const store = await openRedisStore({
    ...{ url: server.url, namespace: 'overdue', durability: 'full' },
    clockOffsetMs: () => clockOffsetMs,
  })
  await store.migrate()
  for (let from = 0; from < overdueCount; from += 500) {
    const count = Math.min(500, overdueCount - from)
    await store.commit(
      Array.from({ length: count }, (_, index) => creating(`r-${from + index}`, { due: { inMs: dayMs + from + index } })),
    )
  }
  clockOffsetMs = 2 * dayMs
  await admin.sendCommand(['CONFIG', 'SET', 'slowlog-log-slower-than', '0', 'slowlog-max-len', '100000'])
  await admin.sendCommand(['SLOWLOG', 'RESET'])
  const times: number[] = []
  const cpuBefore = await serverCpuMs()
  for (let claimed = 0; claimed < Math.min(overdueCount, 50_000); ) {
    const beganAt = performance.now()
    const claims = await store.claim(claimRequest({ limit: 250, leaseMs: dayMs }))
    times.push(performance.now() - beganAt)
    if (claims.length !== 250) throw new Error(`a claim brought ${claims.length} runs`)
    claimed += claims.length
  }
  const cpuMs = ((await serverCpuMs()) - cpuBefore) / times.length
  const slowLog = (await admin.sendCommand(['SLOWLOG', 'GET', '-1'])) as unknown as [number, number, number, string[]][]
  const scripts = slowLog.filter(([, , , [command = '']]) => /^eval/i.test(command)).map(([, , micros]) => micros / 1_000)
  await store.close()
  const longest = Math.max(...scripts)
  console.log(`\n${overdueCount} runs overdue, claims of 250
    a claim            ${formatSpread(spreadOf(times), 1, 'claims')} ms
    the longest script ${longest.toFixed(1)} ms, by the server's slow log; a claim takes it ${cpuMs.toFixed(1)} ms of processor time`)
  scorecard.atMost(`the longest script with ${overdueCount} runs overdue, in ms`, longest, 100)
}

/** Processor time of the thread that carries commands out. */
async function serverCpuMs(): Promise<number> {
  const info = String(await admin.info('cpu'))
  const seconds = (name: string) => Number(new RegExp(`${name}:([0-9.]+)`).exec(info)?.[1])
  return 1_000 * (seconds('used_cpu_user_main_thread') + seconds('used_cpu_sys_main_thread'))
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
