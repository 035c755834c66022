// Recovery: 1,000 runs whose process was killed, finished by a new one; the time, the reads a run, the bodies repeated
//
// Options: --store=sqlite, postgres or redis, --rounds=N (default 7), --strict (a missed target is exit code 1).

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { printLoad, printMachine } from './measuring/machine.ts'
import { placesOf } from './measuring/places.ts'
import { Scorecard } from './measuring/scorecard.ts'
import { formatSpread, spreadOf } from './measuring/spread.ts'
import { type MeasuredRecovery, measureRecovery, runCount, stepCount } from './recovery/recovery.ts'

const roundCount = Math.max(1, Number(optionOf('rounds') ?? 7))
const chosen = optionOf('store')
const scorecard = new Scorecard()
const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))

printMachine(folder)
console.log(
  `settings  ${runCount} runs with ${stepCount} recorded steps each, in the middle of the next when their process is killed (SIGKILL); ` +
    'a new process with the defaults is started when their leases are over (on SQLite at once: the store sees the death)',
)
try {
  for (const [name, openPlaces] of Object.entries(placesOf)) {
    if (chosen !== undefined && chosen !== name) continue
    const places = await openPlaces(folder)
    try {
      console.log(`\n${places.description}`)
      const rounds: MeasuredRecovery[] = []
      for (let round = 0; round < roundCount; round++) rounds.push(await measureRecovery(places.next()))
      print(name, rounds)
    } finally {
      await places.close()
    }
  }
  console.log(`
not measured
  A network between the process and the server, large results and states, bodies that take time, several processes that recover at once.`)
  printLoad('end')
  scorecard.print()
} finally {
  rmSync(folder, { recursive: true, force: true })
}

function print(name: string, rounds: readonly MeasuredRecovery[]): void {
  const spread = (of: (round: MeasuredRecovery) => number) => formatSpread(spreadOf(rounds.map(of)), 0, 'rounds')
  const most = (of: (round: MeasuredRecovery) => number) => Math.max(...rounds.map(of))
  const readsARun = most((round) => round.readsARun)
  const repeated = most(({ bodies }) => bodies.recorded)
  const { acts } = rounds[0] as MeasuredRecovery
  console.log(`  all ${runCount} finished after ${spread(({ tookMs }) => tookMs)} ms from the start of the process:
    its code loaded after ${spread(({ loadedMs }) => loadedMs)} ms, its store open after ${spread(({ openedMs }) => openedMs)} ms
    processor time of the process ${spread(({ cpuMs }) => cpuMs)} ms, of which ${spread(({ loadingCpuMs }) => loadingCpuMs)} ms for loading its code
  reads      ${readsARun.toFixed(3)} a run (the tape); of one round: ${acts['claim']} claims, ${acts['commit']} commits
  bodies     ${repeated} of ${runCount * stepCount} recorded ones repeated; the interrupted ones entered again: ${most(({ bodies }) => bodies.interrupted)}`)
  const isTarget = name !== 'redis'
  if (isTarget)
    scorecard.atMost(`${name}: ${runCount} runs taken up and finished, ms`, spreadOf(rounds.map((r) => r.tookMs)).median, 2_000)
  scorecard.atMost(`${name}: reads a run`, readsARun, 1)
  scorecard.atMost(`${name}: bodies of recorded steps repeated`, repeated, 0)
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
