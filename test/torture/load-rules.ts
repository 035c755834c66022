import { isDeepStrictEqual } from 'node:util'
import type { JournalEntry } from '../crash/bed/journal.ts'
import type { Account } from '../crash/bed/provider.ts'
import type { StoreDump } from '../crash/bed/store-dump.ts'
import { bodyOf, callOf, countBy, settledIn } from '../crash/rules/recorded.ts'
import { violationsInDump } from '../crash/rules/store-contents.ts'
import { mixedWorkEffects } from '../crash/workflows/mixed-work.ts'
import type { LoadedRun } from './outages.ts'

/** What the state of a run of `mixedWork` counts at the end: a step, the effects, two parallel steps. */
const fullCount = 1 + Object.keys(mixedWorkEffects).length + 2

export interface Load {
  readonly runs: readonly LoadedRun[]
  readonly dump: StoreDump
  readonly journal: readonly JournalEntry[]
  readonly account: Account
}

/** What must hold after runs of `mixedWork` went through outages: nothing lost, nothing doubled. */
export function violationsUnderLoad(load: Load): string[] {
  return [...violationsInDump(load.dump), ...lostRuns(load), ...lostResults(load), ...doubledBodies(load), ...wrongEffects(load)]
}

/** Every acknowledged start is a run that completed, with everything it should have done in its state. */
function lostRuns({ runs, dump }: Load): string[] {
  const found = new Map(dump.runs.map((run) => [run.id, run]))
  return runs.flatMap(({ id, count }) => {
    const status = found.get(id)?.status
    return status === 'completed' && count === fullCount ? [] : [`${id} is ${status} and returned ${JSON.stringify(count)}`]
  })
}

/** Every result that a function received is in the log, once. */
function lostResults({ dump, journal }: Load): string[] {
  const { results } = settledIn(dump)
  const lost = journal.flatMap((note) =>
    note.kind === 'ack' && !results.has(callOf(note)) ? [`${callOf(note)} was acknowledged and is not in the log`] : [],
  )
  const completed = dump.threads
    .flatMap(({ log }) => log)
    .filter(({ type }) => type === 'step_completed' || type === 'effect_completed' || type === 'run_completed')
  const doubled = [...countBy(completed, ({ runId, type, step, count }) => `${type} of ${runId} ${step}#${count}`)]
    .filter(([, times]) => times > 1)
    .map(([what, times]) => `${what} is in the log ${times} times`)
  return [...lost, ...doubled]
}

/** A body whose result was acknowledged is not entered again. */
function doubledBodies({ journal }: Load): string[] {
  const received = new Set<string>()
  return journal.flatMap((note) => {
    if (note.kind === 'ack') received.add(callOf(note))
    return note.kind === 'body' && received.has(callOf(note)) ? [`${bodyOf(note)} was entered after its result was received`] : []
  })
}

/** Every effect of every run happened once, under one key, whatever its class; one of class `neither` was sent again only on request. */
function wrongEffects({ runs, account, journal }: Load): string[] {
  const violations: string[] = []
  const keys = new Map(account.calls.map(({ key, name }) => [key, name]))
  const names = countBy([...keys.values()], (name) => name)
  for (const name of Object.keys(mixedWorkEffects)) {
    if (names.get(name) !== runs.length) violations.push(`${name} was sent under ${names.get(name)} keys by ${runs.length} runs`)
  }
  const denials = countBy(
    journal.flatMap((note) => (note.kind === 'resolved' && !note.happened ? note.key : [])),
    (key) => key,
  )
  const sent = countBy(account.calls, ({ key }) => key)
  for (const [key, name] of keys) {
    if (account.acted.get(key) !== 1) violations.push(`${name} happened ${account.acted.get(key)} times under ${key}`)
    const allowed = 1 + (denials.get(key) ?? 0)
    if (mixedWorkEffects[name] === 'neither' && (sent.get(key) ?? 0) > allowed)
      violations.push(`${name} was sent ${sent.get(key)} times under ${key}, ${allowed} were allowed`)
  }
  if (account.calls.some(({ key, name }) => !isDeepStrictEqual(keys.get(key), name)))
    violations.push('a key was used by two effects')
  return violations
}
