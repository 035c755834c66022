// Postgres: this version against another checkout, in pairs that take turns: processor time of client and server, and wall time
//
// Options: --base=PATH, a checkout with its packages installed; --here=PATH (default this one); --pairs=N (default 15),
// --durability=full (default) or relaxed, --only=PART of a load's name.

import { readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import type * as holdfast from 'holdfast'
import { startPostgres } from '../test/servers/postgres.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { formatSpread, spreadOf } from './measuring/spread.ts'

type Api = typeof holdfast

interface Measured {
  readonly clientUs: number
  readonly serverUs: number
  readonly wallUs: number
}

interface Version {
  readonly hf: holdfast.Holdfast
  readonly workflow: Api['workflow']
}

interface Load {
  readonly name: string
  readonly unit: string
  /** Operations per slice. */
  readonly size: number
  run(version: Version, size: number): Promise<unknown>
}

const stepsPerRun = 10
const pairCount = Math.max(1, Number(optionOf('pairs') ?? 15))
const durability = optionOf('durability') === 'relaxed' ? 'relaxed' : 'full'
const only = optionOf('only') ?? ''
const base = resolve(optionOf('base') ?? '')
const here = resolve(optionOf('here') ?? join(import.meta.dirname, '..'))

const loads: readonly Load[] = [
  {
    name: 'lone step',
    unit: 'step',
    size: 300,
    run: ({ hf }, size) => hf.run<number, number>('lone', size),
  },
  {
    name: '500 runs of 10 steps at once',
    unit: 'step',
    size: 500 * stepsPerRun,
    run: ({ hf }, size) => runAll(hf, 'ten-steps', size / stepsPerRun),
  },
  {
    name: '1000 runs without steps at once',
    unit: 'run',
    size: 1_000,
    run: ({ hf }, size) => runAll(hf, 'no-steps', size),
  },
]

printMachine()
const server = await startPostgres()
const versions = { base: await openVersion(base, 'base'), here: await openVersion(here, 'here') }
console.log(`settings  Postgres over loopback, durability ${durability}, both versions in this process, ${pairCount} pairs of slices
          server time is that of all processes of the server`)
for (const load of loads) if (load.name.includes(only)) await compare(load)
printLoad('end')
await versions.base.hf.close()
await versions.here.hf.close()
await server.stop()

async function openVersion(root: string, schema: string): Promise<Version> {
  const { open, workflow } = (await import(pathToFileURL(join(root, 'src/index.ts')).href)) as Api
  const lone = workflow('lone', async (ctx, steps: number) => {
    for (let n = 0; n < steps; n++) await ctx.step('s', () => n)
    return steps
  })
  const tenSteps = workflow('ten-steps', async (ctx) => {
    for (let n = 0; n < stepsPerRun; n++) await ctx.step('s', () => n)
  })
  const noSteps = workflow('no-steps', () => {})
  const url = `${server.url}?schema=${schema}`
  const hf = await open(url, { durability, workflows: [lone, tenSteps, noSteps], worker: { concurrency: 500 } })
  return { hf, workflow }
}

async function runAll(hf: holdfast.Holdfast, workflow: string, count: number): Promise<void> {
  const handles = await hf.startMany(Array.from({ length: count }, () => ({ workflow })))
  await Promise.all(handles.map((handle) => handle.result()))
}

async function compare(load: Load): Promise<void> {
  const pairs: { base: Measured; here: Measured }[] = []
  for (let pair = -2; pair < pairCount; pair++) {
    const isBaseFirst = pair % 2 === 0
    const first = await measure(isBaseFirst ? versions.base : versions.here, load)
    const second = await measure(isBaseFirst ? versions.here : versions.base, load)
    if (pair >= 0) pairs.push(isBaseFirst ? { base: first, here: second } : { base: second, here: first })
  }
  console.log(`\n${load.name}: µs per ${load.unit}, median (least–most)`)
  for (const part of ['clientUs', 'serverUs', 'wallUs'] as const) {
    const spread = (of: (pair: (typeof pairs)[number]) => number, digits: number) =>
      formatSpread(spreadOf(pairs.map(of)), digits, 'pairs')
    console.log(`  ${part.slice(0, -2).padEnd(7)} base ${spread((pair) => pair.base[part], 1)}, here ${spread((pair) => pair.here[part], 1)}
          here / base ${spread((pair) => pair.here[part] / pair.base[part], 3)}`)
  }
}

async function measure(version: Version, { size, run }: Load): Promise<Measured> {
  await sleep(100)
  const before = { server: serverTimes(), client: process.cpuUsage(), at: performance.now() }
  await run(version, size)
  const wallUs = (performance.now() - before.at) * 1_000
  const { user, system } = process.cpuUsage(before.client)
  let serverUs = 0
  for (const [processId, us] of serverTimes()) serverUs += us - (before.server.get(processId) ?? 0)
  return { wallUs: wallUs / size, clientUs: (user + system) / size, serverUs: serverUs / size }
}

/** Processor time in µs of each process of the server. */
function serverTimes(): Map<string, number> {
  const times = new Map<string, number>()
  for (const processId of readdirSync('/proc')) {
    if (!/^\d+$/.test(processId)) continue
    try {
      const stat = readFileSync(`/proc/${processId}/stat`, 'latin1')
      const parent = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
      if (parent !== server.processId) continue
      times.set(processId, Number(readFileSync(`/proc/${processId}/schedstat`, 'latin1').split(' ')[0]) / 1_000)
    } catch {
      // A process that has ended.
    }
  }
  return times
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
