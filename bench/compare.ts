// This version against another checkout, in pairs that take turns: processor time per operation of kernel, queue, recovery and timers
//
// Options: --base=PATH, a checkout with its packages installed (git worktree add PATH COMMIT, npm ci); --pairs=N (default 15),
// --store=sqlite (default), postgres or redis, --only=PART,PART of the loads' names, --scale=N for the sizes (default 1), --strict (a missed
// target is exit code 1).

import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Load, leasesAreOverMs, loads, type Measured } from './compare/loads.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { placesOf } from './measuring/places.ts'
import { Scorecard } from './measuring/scorecard.ts'
import { formatSpread, spreadOf } from './measuring/spread.ts'

const here = resolve(import.meta.dirname, '..')
const base = resolve(optionOf('base') ?? '')
const pairCount = Math.max(1, Number(optionOf('pairs') ?? 15))
const store = optionOf('store') ?? 'sqlite'
const only = optionOf('only') ?? ''
const scale = Number(optionOf('scale') ?? 1)
const openPlaces = placesOf[store]
if (optionOf('base') === undefined || !existsSync(join(base, 'src/index.ts'))) {
  console.error('--base=PATH is missing, or has no src/index.ts: it names a checkout of the version to compare with.')
  process.exit(1)
}
if (openPlaces === undefined) {
  console.error(`There is no store "${store}": it is one of ${Object.keys(placesOf).join(', ')}.`)
  process.exit(1)
}

const scorecard = new Scorecard()
const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
printMachine(store === 'sqlite' ? folder : undefined)
const places = await openPlaces(folder)
console.log(`settings  ${places.description}; ${pairCount} pairs, each version in a process and a store of its own, the first of a pair in turn
          processor time is that of the process, and on Redis also that of the server; wall time says more about the machine`)
try {
  for (const [index, load] of loads.entries())
    if (only.split(',').some((part) => load.name.includes(part))) await compare(index, load)
  console.log(`
not measured
  What a Postgres server computes, a network between process and server, steps that do work, large results and states.`)
  printLoad('end')
  scorecard.print()
} finally {
  await places.close()
  rmSync(folder, { recursive: true, force: true })
}

async function compare(index: number, load: Load): Promise<void> {
  const size = Math.max(10, Math.round(load.size * scale))
  const pairs: { base: Measured; here: Measured }[] = []
  for (let pair = 0; pair < pairCount; pair++) {
    const isBaseFirst = pair % 2 === 0
    const first = await measure(isBaseFirst ? base : here, { index, load, size })
    const second = await measure(isBaseFirst ? here : base, { index, load, size })
    pairs.push(isBaseFirst ? { base: first, here: second } : { base: second, here: first })
  }
  const cpuUs = ({ cpuUs, operations }: Measured) => cpuUs / operations
  const wallUs = ({ wallMs, operations }: Measured) => (wallMs * 1_000) / operations
  const spread = (of: (pair: (typeof pairs)[number]) => number, digits: number) =>
    formatSpread(spreadOf(pairs.map(of)), digits, 'pairs')
  console.log(`
${load.name}: ${size} ${load.unit}s
  processor  base ${spread((pair) => cpuUs(pair.base), 1)} µs per ${load.unit}
             here ${spread((pair) => cpuUs(pair.here), 1)} µs per ${load.unit}
             ratio ${spread((pair) => cpuUs(pair.here) / cpuUs(pair.base), 3)}, pair by pair
  wall       base ${spread((pair) => wallUs(pair.base), 1)} µs per ${load.unit}
             here ${spread((pair) => wallUs(pair.here), 1)} µs per ${load.unit}
             ratio ${spread((pair) => wallUs(pair.here) / wallUs(pair.base), 3)}, pair by pair`)
  printServer(load, pairs)
  const ratio = spreadOf(pairs.map((pair) => cpuUs(pair.here) / cpuUs(pair.base)))
  scorecard.atMost(`${load.name}: processor time per ${load.unit}, against the base`, ratio.median, 1.05)
}

/** What a Redis server spent, and its processor time together with that of the process. */
function printServer({ unit }: Load, pairs: readonly { base: Measured; here: Measured }[]): void {
  if (pairs.some(({ base, here }) => base.server === undefined || here.server === undefined)) return
  const both = (measured: Measured) => measured.cpuUs + (measured.server?.cpuUs ?? 0)
  const lines: readonly [name: string, of: (measured: Measured) => number, what: string][] = [
    ['server   ', ({ server }) => server?.cpuUs ?? 0, `µs per ${unit}`],
    ['together ', both, `µs per ${unit}`],
    ['commands ', ({ server }) => server?.commands ?? 0, `per ${unit}`],
    ['memory   ', ({ server }) => server?.bytes ?? 0, `bytes per ${unit}`],
  ]
  for (const [name, of, what] of lines) {
    const each = (side: 'base' | 'here') => pairs.map((pair) => of(pair[side]) / pair[side].operations)
    const ratios = pairs.map(({ base, here }) => of(here) / of(base))
    console.log(`  ${name}  base ${formatSpread(spreadOf(each('base')), 1, 'pairs')}, here ${formatSpread(spreadOf(each('here')), 1, 'pairs')} ${what}
             ratio ${formatSpread(spreadOf(ratios), 3, 'pairs')}, pair by pair`)
  }
}

async function measure(root: string, { index, load, size }: { index: number; load: Load; size: number }): Promise<Measured> {
  const url = places.next()
  const args = (act: string) => [root, String(index), act, url, String(size)]
  if (load.leave !== undefined) {
    await runProcess(args('leave'), load.leavesLeases ? 'SIGKILL' : 0)
    if (load.leavesLeases && store !== 'sqlite') await sleep(leasesAreOverMs)
  }
  return JSON.parse(await runProcess(args('measure'), 0)) as Measured
}

function runProcess(args: readonly string[], expected: string | number): Promise<string> {
  const script = join(import.meta.dirname, 'compare/process.ts')
  const child = spawn(process.execPath, ['--conditions=holdfast-source', script, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let output = ''
  child.stdout.on('data', (chunk) => {
    output += chunk
  })
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code, signal) => {
      if ((signal ?? code) === expected) resolve(output)
      else reject(new Error(`the process ${args.slice(0, 3).join(' ')} ended with ${signal ?? code}`))
    })
  })
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
