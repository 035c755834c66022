import { isDeepStrictEqual } from 'node:util'
import type { Account } from '../crash/bed/provider.ts'
import { callOf, countBy, settledIn } from '../crash/rules/recorded.ts'
import { violationsInDump } from '../crash/rules/store-contents.ts'
import type { WantedRun } from './client.ts'
import type { KeptDump } from './forgetful-store.ts'
import type { Entry } from './journal.ts'
import { type AgentOutput, classOf, type Made, namesOf, permitOf } from './workflows.ts'

/** What a scenario left behind. */
export interface Evidence {
  readonly runs: readonly WantedRun[]
  /** What the store still knew when it was back, before anybody was let in. */
  readonly kept: KeptDump
  readonly final: KeptDump
  readonly entries: readonly Entry[]
  readonly account: Account
  readonly hasSql: boolean
}

export interface Verdict {
  readonly figures: {
    /** Runs that clients wanted. */
    readonly runs: number
    /** Starts that were acknowledged and forgotten. */
    readonly lostStarts: number
    /** Results that were acknowledged and forgotten, of steps, transactions and effects. */
    readonly lostResults: number
    /** How often a holder was told that it has lost its run, after the store was back. */
    readonly fenced: number
    /** Steps and transactions that were executed again. */
    readonly repeatedSteps: number
    /** Effects whose outcome or intent was forgotten while their holder lived, and which therefore counted as hidden. */
    readonly hiddenEffects: number
    /** Effects that were sent again without anybody knowing: their holders had let go before, or their leases were forgotten. */
    readonly unknowable: number
  }
  readonly violations: readonly string[]
}

/** What must hold after a store has forgotten its last commits. */
export function judge(evidence: Evidence, problems: readonly string[]): Verdict {
  const { runs, kept, final, entries } = evidence
  const back = entries.findIndex((entry) => entry.of === 'moment' && entry.what === 'back')
  const before = entries.slice(0, back)
  const after = entries.slice(back)
  const known = settledIn(kept).results
  const lost = new Set(before.flatMap((entry) => (entry.of === 'ack' && !known.has(callOf(entry)) ? callOf(entry) : [])))
  const repeated = after.filter((entry) => entry.of === 'body' && lost.has(callOf(entry)))
  const keptRuns = new Set(kept.runs.map(({ id }) => id))
  const started = new Set(before.flatMap((entry) => (entry.of === 'started' ? entry.run : [])))
  const effects = judgeEffects(evidence, { before, after })
  return {
    figures: {
      runs: runs.length,
      lostStarts: [...started].filter((id) => !keptRuns.has(id)).length,
      lostResults: lost.size,
      fenced: after.filter(({ of }) => of === 'fenced').length,
      repeatedSteps: repeated.filter((entry) => entry.of === 'body' && classOf(entry.path) === undefined).length,
      hiddenEffects: effects.hidden,
      unknowable: effects.unknowable,
    },
    violations: [
      ...problems,
      ...runs.flatMap((run) => violationsOfRun(run, evidence)),
      ...final.runs.flatMap(({ id, status }) => (status === 'completed' ? [] : [`${id} is ${status} at the end`])),
      ...violationsInDump(final),
      ...changedPast(kept, final),
      ...violationsOfSteps({ lost, known, after, final }),
      ...effects.violations,
      ...violationsOfOrders(evidence),
      ...new Set(
        after.flatMap((entry) => (entry.of === 'said' && isAlarming(entry.message) ? `a worker said: ${entry.message}` : [])),
      ),
    ],
  }
}

function isAlarming(message: string): boolean {
  return /duplicate key|corrupt_record|mismatch|invariant/.test(message)
}

/** It ended, and returned what its function yields; its state says the same. */
function violationsOfRun({ id, workflow, output, problem }: WantedRun, { runs, entries, hasSql }: Evidence): string[] {
  if (problem !== undefined) return [`${id} did not end: ${problem}`]
  if (workflow === 'trifle') return []
  if (workflow === 'reader') {
    const agent = runs.find((run) => `${run.id}-reader` === id)?.output as AgentOutput
    const { tokens, count } = output as Made
    const isSame = isDeepStrictEqual(sorted(tokens), sorted(agent.made)) && count === agent.count
    return isSame ? [] : [`${id} saw a state that is not what the run before it returned: ${difference(tokens, agent.made)}`]
  }
  const { made, count } = output as AgentOutput
  const names = namesOf(workflow, hasSql)
  const violations: string[] = []
  if (!isDeepStrictEqual(Object.keys(made).sort(), names.toSorted())) violations.push(`${id} returned ${Object.keys(made)}`)
  if (count !== names.length) violations.push(`${id} counted ${count} changes of its state instead of ${names.length}`)
  if (workflow === 'agent' && made['1.permit'] !== permitOf(id))
    violations.push(`${id} was given ${made['1.permit']} as its permit`)
  const tokens = new Set(entries.flatMap((entry) => (entry.of === 'body' && entry.run === id ? entry.token : [])))
  for (const [name, token] of Object.entries(made)) {
    if (/work|left|right|order/.test(name) && !tokens.has(token))
      violations.push(`${id}: ${name} returned ${token}, which no body made`)
  }
  return violations
}

function sorted(tokens: Readonly<Record<string, string>>): [string, string][] {
  return Object.entries(tokens).sort(([a], [b]) => (a < b ? -1 : 1))
}

function difference(found: Readonly<Record<string, string>>, wanted: Readonly<Record<string, string>>): string {
  const names = new Set([...Object.keys(found), ...Object.keys(wanted)])
  return [...names]
    .filter((name) => found[name] !== wanted[name])
    .map((name) => `${name} ${found[name]}, not ${wanted[name]}`)
    .join('; ')
}

/** What the store still knew when it was back stands as it was. */
function changedPast(kept: KeptDump, final: KeptDump): string[] {
  const now = new Map(final.threads.map(({ thread, log }) => [thread.threadId, log]))
  return kept.threads.flatMap(({ thread, log }) =>
    isDeepStrictEqual(now.get(thread.threadId)?.slice(0, log.length), log)
      ? []
      : [`the past of thread ${thread.threadId} was changed`],
  )
}

/** Each result that is missing was made again; what is still recorded, or was recorded since, was not. */
function violationsOfSteps(of: {
  lost: ReadonlySet<string>
  known: ReadonlySet<string>
  after: readonly Entry[]
  final: KeptDump
}): string[] {
  const { lost, known, after, final } = of
  const recorded = settledIn(final).results
  const entered = new Set<string>()
  const given = new Set<string>()
  /** What a worker has claimed, or begun, since: of what it had read before, it may still give results that are gone. */
  const since = new Set<string>()
  const violations: string[] = []
  for (const entry of after) {
    if (entry.of === 'claimed') since.add(`${entry.by} ${entry.run}`)
    // What an execution gives that had read the log before is neither there any more nor made again.
    const isOfBefore = entry.of === 'ack' && lost.has(callOf(entry)) && !entered.has(callOf(entry))
    if (isOfBefore) continue
    if (entry.of === 'ack' && (since.has(`${entry.by} ${entry.run}`) || since.has(`${entry.by} ${callOf(entry)}`))) {
      given.add(callOf(entry))
      if (!recorded.has(callOf(entry))) violations.push(`${callOf(entry)} was acknowledged since, and is not in the log`)
    }
    if (entry.of !== 'body') continue
    const call = callOf(entry)
    entered.add(call)
    since.add(`${entry.by} ${call}`)
    if (known.has(call)) violations.push(`${call} was executed again, though its result was still recorded`)
    if (given.has(call)) violations.push(`${call} was executed again after its result was given`)
  }
  const isEffect = (call: string) => classOf(call.slice(call.lastIndexOf('/') + 1)) !== undefined
  for (const call of lost) {
    if (!isEffect(call) && !entered.has(call)) violations.push(`${call} was forgotten, and not executed again`)
    if (!recorded.has(call)) violations.push(`${call} was forgotten, and is still missing`)
  }
  const completed = final.threads.flatMap(({ log }) => log).filter(({ type }) => /^(step|effect|run)_completed$/.test(type))
  for (const [what, times] of countBy(
    completed,
    (one) => `${one.type} of ${callOf({ run: `${one.runId}`, tape: one.tape, path: `${one.step}` })}`,
  )) {
    if (times > 1) violations.push(`${what} is in the log ${times} times`)
  }
  return violations
}

/** Every effect happened as it was declared, where anybody could know that it had been begun. */
function judgeEffects(
  { kept, final, account, entries }: Evidence,
  { before, after }: { before: readonly Entry[]; after: readonly Entry[] },
): { hidden: number; unknowable: number; violations: string[] } {
  const violations: string[] = []
  const sent = Map.groupBy(
    entries.filter((entry) => entry.of === 'sent'),
    ({ key }) => key,
  )
  const intents = new Set(kept.operations.map(({ key }) => key))
  const settled = new Set(kept.operations.flatMap(({ key, status }) => (status === 'completed' ? key : [])))
  const holders = holdersAtTheEnd(before)
  const senders = holdersWhenSent(before)
  const leases = new Map(kept.runs.map((run) => [run.id, run]))
  const backAt = after[0]?.at ?? 0
  const takenAgainAt = new Map<string, number>()
  for (const entry of after) if (entry.of === 'claimed' && !takenAgainAt.has(entry.run)) takenAgainAt.set(entry.run, entry.at)
  const sentBefore = new Map(before.flatMap((entry) => (entry.of === 'sent' ? [[entry.key, entry] as const] : [])))
  let [hidden, unknowable] = [0, 0]
  for (const [key, calls] of sent) {
    const { name, run } = calls[0] as (typeof calls)[number]
    const isBegun = sentBefore.has(key)
    if (isBegun && settled.has(key) && calls.length > before.filter((entry) => entry.of === 'sent' && entry.key === key).length)
      violations.push(`${name} of ${run} was sent again under ${key}, though its result was still recorded`)
    const holder = holders.get(run)
    const lease = leases.get(run)
    // Who claims it once the store is back, before it was looked at, knows of the effect only in the same process.
    const isTheSender = holder !== undefined && senders.get(key)?.by === holder.by
    // A lease that runs out before its holder is let in again may be another's by then: on a busy machine that is seen by when it was taken.
    const isLeaseKnown =
      isTheSender &&
      lease?.status === 'running' &&
      lease.epoch === holder.epoch &&
      lease.leaseId === holder.leaseId &&
      (lease.leaseUntil ?? 0) > Math.max(backAt + 1_500, takenAgainAt.get(run) ?? 0)
    const isKnowable = !isBegun || intents.has(key) || isLeaseKnown
    if (isBegun && !settled.has(key) && isKnowable) hidden++
    const times = account.acted.get(key) ?? 0
    if (times === 1) continue
    if (!isKnowable) unknowable++
    else violations.push(`${classOf(name)} effect ${name} of ${run} happened ${times} times under ${key}`)
  }
  const early = intendedEarly(final)
  for (const entry of entries) {
    if (entry.of !== 'decided' || classOf(sent.get(entry.key)?.[0]?.name ?? 'plain') === 'plain' || early.has(entry.key)) continue
    violations.push(`a person was asked about ${entry.key}, which could be looked up or sent again`)
  }
  for (const [place, keys] of keysOfEffects(entries)) {
    if (keys.size > 1) violations.push(`${place} was sent under several keys: ${[...keys]}`)
  }
  return { hidden, unknowable, violations }
}

/**
 * Effects of a later tape than the store knew of, intended once more on the one before: when the run continues, that counts as what a tape has
 * left open, and a person may decide about it before the run comes to it.
 */
function intendedEarly(final: KeptDump): Set<string> {
  const keys = new Set<string>()
  for (const { type, data } of final.threads.flatMap(({ log }) => log)) {
    if (type === 'effect_intended' && data['wasForgotten'] === true && /~\d+\//.test(`${data['key']}`)) keys.add(`${data['key']}`)
  }
  return keys
}

type Holder = Extract<Entry, { of: 'claimed' }>

/** Who held the run of each effect when that was sent. */
function holdersWhenSent(before: readonly Entry[]): Map<string, Holder> {
  const holders = new Map<string, Holder>()
  const senders = new Map<string, Holder>()
  for (const entry of before) {
    if (entry.of === 'claimed') holders.set(entry.run, entry)
    const holder = entry.of === 'sent' ? holders.get(entry.run) : undefined
    if (entry.of === 'sent' && holder !== undefined) senders.set(entry.key, holder)
  }
  return senders
}

/** Who held which run, and had not let go, when the store went away. */
function holdersAtTheEnd(before: readonly Entry[]): Map<string, Holder> {
  const holders = new Map<string, Holder>()
  for (const entry of before) {
    if (entry.of === 'claimed') holders.set(entry.run, entry)
    if ((entry.of === 'released' || entry.of === 'fenced') && holders.get(entry.run)?.epoch === entry.epoch)
      holders.delete(entry.run)
  }
  return holders
}

/** The keys under which each effect of each tape of a run was sent. */
function keysOfEffects(entries: readonly Entry[]): Map<string, Set<string>> {
  const keys = new Map<string, Set<string>>()
  const tapes = new Map<string, number>()
  for (const entry of entries) {
    if (entry.of === 'body' && classOf(entry.path) !== undefined) tapes.set(`${entry.run} ${entry.path}`, entry.tape)
    if (entry.of !== 'sent') continue
    const place = `${entry.name} of ${entry.run}, tape ${tapes.get(`${entry.run} ${entry.name}`)}`
    keys.set(place, (keys.get(place) ?? new Set()).add(entry.key))
  }
  return keys
}

/** The user's own rows came with the results of their transactions. */
function violationsOfOrders({ runs, final, hasSql }: Evidence): string[] {
  if (!hasSql) return []
  const agents = runs.filter(({ workflow, output }) => workflow === 'agent' && output !== undefined)
  const wanted = agents.flatMap(({ id, output }) =>
    Object.entries((output as AgentOutput).made).flatMap(([name, token]) =>
      name.endsWith('.order') ? `${id} round ${name.split('.')[0]}: ${token}` : [],
    ),
  )
  const rows = final.orders.map(({ run, round, token }) => `${run} round ${round}: ${token}`)
  const done = new Set(agents.map(({ id }) => id))
  const found = rows.filter((row) => done.has(row.split(' ')[0] as string))
  return isDeepStrictEqual(found.toSorted(), wanted.toSorted())
    ? []
    : [`orders are ${found.length} rows instead of ${wanted.length}, or others`]
}
