// Throughput of queues: no-op runs started and finished, against raw batched inserts and updates; what turns between owners cost
//
// Options: --store=sqlite, postgres or redis, --slices=N (default 7), --only=runs or --only=claims, --queued=N for the claims
// (default 100,000), --strict (a missed target is exit code 1).

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { claimSize, measureClaims } from './measuring/claim-speed.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { measureQueue, runsASlice } from './measuring/queue-speed.ts'
import { Scorecard } from './measuring/scorecard.ts'
import { formatSpread } from './measuring/spread.ts'
import { type QueueStore, queueStores } from './queue/stores.ts'

const sliceCount = Math.max(5, Number(optionOf('slices') ?? 7))
const queued = Number(optionOf('queued') ?? 100_000)
const [chosen, only] = [optionOf('store'), optionOf('only')]
const scorecard = new Scorecard()
const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))

printMachine(folder)
try {
  for (const [name, openStore] of Object.entries(queueStores)) {
    if (chosen !== undefined && chosen !== name) continue
    const store = await openStore(folder)
    try {
      console.log(`\n${store.description}`)
      if (only !== 'claims') await measureRuns(name, store)
      if (only !== 'runs') await measureTurns(name, store)
    } finally {
      await store.close()
    }
  }
  console.log(`
not measured
  A network between this process and the server, several workers on one store, runs that do work.`)
  printLoad('end')
  scorecard.print()
} finally {
  rmSync(folder, { recursive: true, force: true })
}

async function measureRuns(name: string, { target, raw }: QueueStore): Promise<void> {
  const { rate, startRate, rawRate, ratio } = await measureQueue({ target, raw, sliceCount })
  console.log(`  ${runsASlice} runs of a workflow without steps, handed to startMany and executed by a worker of the same process; ${sliceCount} slices
    raw: one row a run in a table like that of the runs, with its indexes: inserted, updated as claimed, updated as finished, a batch a transaction
    raw     ${formatSpread(rawRate, 0)} runs/s
    engine  ${formatSpread(rate, 0)} runs/s, from startMany to the last run finished; ${formatSpread(startRate, 0)} runs/s until startMany has returned
    ratio   ${formatSpread(ratio)} engine / raw`)
  scorecard.atLeast(`${name}: no-op runs against raw inserts and updates`, ratio.median, 0.3)
}

async function measureTurns(name: string, { openStore }: QueueStore): Promise<void> {
  console.log(`  a claim of ${claimSize} runs with ${queued} queued`)
  let alone = 0
  for (const { owners, sleeping } of [
    { owners: 1, sleeping: 0 },
    { owners: 10_000, sleeping: 0 },
    { owners: 10_000, sleeping: queued / 2 },
  ]) {
    const store = await openStore()
    const ms = await measureClaims(store, { owners, queued: queued - sleeping, sleeping })
    await store.close()
    alone ||= ms.median
    console.log(
      `    ${String(owners).padStart(6)} owners${sleeping > 0 ? `, ${sleeping} of the runs asleep` : ''}: ${formatSpread(ms, 2, 'claims')} ms, ${(ms.median / alone).toFixed(2)} × that of one owner`,
    )
    if (owners > 1)
      scorecard.atMost(
        `${name}: a claim among ${owners} owners${sleeping > 0 ? ', half asleep' : ''}, against one owner`,
        ms.median / alone,
        3,
      )
  }
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
