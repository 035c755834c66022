// node --conditions=holdfast-source test/model/main.ts [--store NAME] [--programs N] [--seed N] [--lanes N] [--show]
//   [--rules RULE,…] [--shrink N] [--coverage] [--json] [--kill] [--url URL] [--enough N]
//
// Plays the cases of so many seeds and prints what was wrong in them, the first N of each rule made small. --show prints all that happened in
// each. --kill has processes of their own execute the runs, which are killed. HOLDFAST_MODEL_ON=FOLDER tries the Holdfast of another checkout.

import { parseArgs } from 'node:util'
import { Coverage } from './coverage.ts'
import type { StoreName } from './grounds.ts'
import { type KillManyOptions, killMany } from './kill-many.ts'
import type { Violation } from './oracle.ts'
import { printCase } from './print.ts'
import type { Observation } from './run-case.ts'
import { type Finding, runMany, tryCase } from './run-many.ts'
import { shrink } from './shrink.ts'

const { values } = parseArgs({
  options: {
    store: { type: 'string', default: 'memory' },
    url: { type: 'string' },
    programs: { type: 'string', default: '200' },
    seed: { type: 'string', default: '1' },
    lanes: { type: 'string', default: '40' },
    show: { type: 'boolean', default: false },
    rules: { type: 'string', default: '' },
    shrink: { type: 'string', default: '0' },
    coverage: { type: 'boolean', default: false },
    kill: { type: 'boolean', default: false },
    enough: { type: 'string', default: '1000000' },
    json: { type: 'boolean', default: false },
  },
})
const startedAt = performance.now()
const rules = values.rules === '' ? null : values.rules.split(',')
const coverage = new Coverage()
const unhandled: string[] = []
process.on('unhandledRejection', (reason) => {
  unhandled.push(String((reason as Error)?.stack ?? reason))
})
let played = 0
const options = {
  ...{ store: values.store as StoreName, programs: Number(values.programs), seed: Number(values.seed) },
  ...(values.url !== undefined && { url: values.url }),
  onCase: (given: Finding['given'], seen: Observation | undefined, violations: readonly Violation[]) => {
    played++
    if (seen !== undefined) coverage.add(given, seen.journal)
    if (values.show) show(given, seen, violations)
  },
}
const findings = values.kill
  ? await killMany(options as KillManyOptions)
  : await runMany({ ...options, lanes: Number(values.lanes), isEnough: (found) => found >= Number(values.enough) })
const isMeant = ({ rule }: Violation) => rules === null || rules.includes(rule)
if (values.json) {
  const found = findings.map(({ given, violations }) => ({ seed: given.seed, store: given.store, violations }))
  console.log(JSON.stringify({ played, findings: found, unhandled, coverage: coverage.toJSON() }))
} else {
  const byRule = Map.groupBy(
    findings.flatMap((finding) => finding.violations.filter(isMeant).map((violation) => ({ finding, ...violation }))),
    ({ rule }) => rule,
  )
  for (const [rule, found] of [...byRule].sort((a, b) => b[1].length - a[1].length)) {
    const seeds = [...new Set(found.map(({ finding }) => finding.given.seed))]
    const example = found[0]?.what.slice(0, 300)
    console.log(`${String(seeds.length).padStart(5)} ${rule.padEnd(18)} seeds ${seeds.slice(0, 8).join(' ')}  e.g. ${example}`)
  }
  for (const [rule, found] of byRule)
    for (const finding of new Set(found.slice(0, Number(values.shrink)).map((one) => one.finding))) await showSmall(rule, finding)
  if (values.coverage) console.log(coverage.print())
  for (const reason of unhandled.slice(0, 3)) console.log(`unhandled rejection: ${reason}`)
  console.log(`${played} programs, ${((performance.now() - startedAt) / 1000).toFixed(1)} s`)
}
process.exit(findings.some(({ violations }) => violations.some(isMeant)) || unhandled.length > 0 ? 1 : 0)

async function showSmall(rule: string, { given, violations }: Finding): Promise<void> {
  const breaks = async (candidate: typeof given) => (await tryCase(candidate)).violations.some((one) => one.rule === rule)
  const small = await shrink(given, breaks)
  console.log(`\n── ${rule}: ${violations.find((one) => one.rule === rule)?.what}\n${printCase(small)}`)
  for (const { rule: other, what } of (await tryCase(small)).violations) console.log(`// ${other}: ${what}`)
}

function show(given: Finding['given'], seen: Observation | undefined, violations: readonly Violation[]): void {
  console.log(printCase(given))
  for (const note of seen?.journal.notes ?? []) console.log(JSON.stringify(note))
  for (const { info, output, state, events, error } of seen?.runs ?? []) {
    console.log(info.id, info.status, info.reason, JSON.stringify(output), JSON.stringify(state), error)
    for (const { seq, type, step, attempt, data, error: thrown } of events)
      console.log('  ', seq, type, step ?? '', attempt ?? '', JSON.stringify(data ?? {}), thrown?.message ?? '')
  }
  for (const violation of violations) console.log(violation)
}
