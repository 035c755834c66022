import { isDeepStrictEqual } from 'node:util'
import type { JournalEntry } from '../crash/journal.ts'
import type { Account } from '../crash/provider.ts'
import { bodyOf, brokenInDump, callOf, countBy, settledIn } from '../crash/rules.ts'
import type { StoreDump } from '../crash/store-dump.ts'
import { travellerEffects } from '../crash/workflows.ts'
import type { LoadedRun } from './outages.ts'

/** What a traveller's state counts at the end: a step, the effects, two steps side by side. */
const fullCount = 1 + Object.keys(travellerEffects).length + 2

export interface Load {
  readonly runs: readonly LoadedRun[]
  readonly dump: StoreDump
  readonly journal: readonly JournalEntry[]
  readonly account: Account
}

/** What must hold after travellers went through outages: nothing lost, nothing doubled. */
export function brokenUnderLoad(load: Load): string[] {
  return [...brokenInDump(load.dump), ...lostRuns(load), ...lostResults(load), ...doubledBodies(load), ...wrongEffects(load)]
}

/** Every start that was acknowledged is a run that came to its end, with all that it should have done in its state. */
function lostRuns({ runs, dump }: Load): string[] {
  const found = new Map(dump.runs.map((run) => [run.id, run]))
  return runs.flatMap(({ id, count }) => {
    const status = found.get(id)?.status
    return status === 'completed' && count === fullCount ? [] : [`${id} is ${status} and returned ${JSON.stringify(count)}`]
  })
}

/** What a function was given is in the log, once. */
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
  const given = new Set<string>()
  return journal.flatMap((note) => {
    if (note.kind === 'ack') given.add(callOf(note))
    return note.kind === 'body' && given.has(callOf(note)) ? [`${bodyOf(note)} was entered after its result was given`] : []
  })
}

/** Every effect of every run happened once, under one key, whatever its class; one without help was not sent again unasked. */
function wrongEffects({ runs, account, journal }: Load): string[] {
  const broken: string[] = []
  const keys = new Map(account.calls.map(({ key, name }) => [key, name]))
  const names = countBy([...keys.values()], (name) => name)
  for (const name of Object.keys(travellerEffects)) {
    if (names.get(name) !== runs.length) broken.push(`${name} was sent under ${names.get(name)} keys by ${runs.length} runs`)
  }
  const denials = countBy(
    journal.flatMap((note) => (note.kind === 'resolved' && !note.happened ? note.key : [])),
    (key) => key,
  )
  const sent = countBy(account.calls, ({ key }) => key)
  for (const [key, name] of keys) {
    if (account.acted.get(key) !== 1) broken.push(`${name} happened ${account.acted.get(key)} times under ${key}`)
    const allowed = 1 + (denials.get(key) ?? 0)
    if (travellerEffects[name] === 'neither' && (sent.get(key) ?? 0) > allowed)
      broken.push(`${name} was sent ${sent.get(key)} times under ${key}, ${allowed} were allowed`)
  }
  if (account.calls.some(({ key, name }) => !isDeepStrictEqual(keys.get(key), name))) broken.push('a key was used by two effects')
  return broken
}
