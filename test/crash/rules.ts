import { isDeepStrictEqual } from 'node:util'
import type { Notification } from 'holdfast'
import { isTerminal } from '../../src/model/run.ts'
import { patience } from '../patience.ts'
import { describeFault } from './fault.ts'
import type { PlayedLife, PlayedScene } from './stage.ts'
import type { DumpedRecord, StoreDump } from './store-dump.ts'
import { type Diary, type EverythingOutput, speech } from './workflows.ts'

/** The classes of the effects in the workflows, by name. */
const classOf: Readonly<Record<string, 'idempotent' | 'check' | 'neither'>> = {
  pay: 'idempotent',
  share: 'idempotent',
  mail: 'check',
  post: 'neither',
  book: 'neither',
  tell: 'idempotent',
}

/**
 * What must hold after a scene, whatever was killed in it. Each broken rule is a sentence; `undisturbed` is the same scene
 * without a fault.
 */
export function brokenRules(scene: PlayedScene, undisturbed: PlayedScene): string[] {
  const faults = scene.lives.map(({ fault }) => describeFault(fault)).join(', then ')
  return [...brokenAnywhere(scene), ...brokenAtTheEnd(scene, undisturbed)].map((broken) => `${faults}: ${broken}`)
}

/** Rules that hold for any workflows, after every life. */
export function brokenAnywhere(scene: PlayedScene): string[] {
  return [
    ...scene.lives.flatMap(({ problem }) => problem ?? []),
    ...scene.lives.flatMap(({ dump, number }) => brokenInDump(dump).map((broken) => `after life ${number}: ${broken}`)),
    ...brokenOverTime(scene),
    ...brokenAcknowledgements(scene),
    ...brokenBodies(scene),
    ...brokenRecoveries(scene),
    ...brokenEffects(scene),
    ...brokenSpeeches(scene),
    ...brokenUndos(scene),
  ]
}

/** The log is whole, and rows, operations and the user's table say what it says. */
export function brokenInDump(dump: StoreDump): string[] {
  const broken: string[] = []
  for (const { thread, log } of dump.threads) {
    log.forEach(({ seq }, index) => {
      if (seq !== index + 1) broken.push(`log of ${thread.threadId} has ${seq} in place ${index + 1}`)
    })
    if (thread.headSeq !== log.length)
      broken.push(`thread ${thread.threadId} says head ${thread.headSeq}, its log has ${log.length}`)
  }
  const records = dump.threads.flatMap(({ log }) => log)
  const byRun = Map.groupBy(records, ({ runId }) => runId ?? '')
  for (const run of dump.runs) {
    const own = byRun.get(run.id) ?? []
    const ends = own.filter(({ type }) => type === 'run_completed' || type === 'run_failed')
    if (ends.length !== (isTerminal(run.status) ? 1 : 0))
      broken.push(`run ${run.id} is ${run.status} with ${ends.length} ends in the log`)
    const epochs = own.filter(({ type }) => type === 'run_recovered').map(({ data }) => data['epoch'] as number)
    if (epochs.some((epoch, index) => index > 0 && epoch <= (epochs[index - 1] as number)))
      broken.push(`epochs of ${run.id} go back: ${epochs}`)
    if (epochs.some((epoch) => epoch > run.epoch)) broken.push(`epoch of ${run.id} is ${run.epoch}, its log knows ${epochs}`)
  }
  for (const operation of dump.operations) {
    const expected = statusInLog(byRun.get(operation.runId) ?? [], operation.key)
    if (operation.status !== expected) broken.push(`operation ${operation.key} is ${operation.status}, its log says ${expected}`)
  }
  for (const [key, times] of countBy(dump.orders, ({ run, round }) => `${run} round ${round}`)) {
    if (times !== 1) broken.push(`order of ${key} is there ${times} times`)
  }
  const committed = records.filter(({ type, step }) => type === 'step_completed' && step === 'order')
  if (committed.length !== dump.orders.length) broken.push(`${dump.orders.length} orders, ${committed.length} of them in the log`)
  return broken
}

/** The status of an operation as the records of its run have it. */
function statusInLog(records: readonly DumpedRecord[], key: string): string | undefined {
  let status: string | undefined
  let place: string | undefined
  for (const { type, step, count, tape, data } of records) {
    const here = `${tape}:${step}#${count}`
    if (type === 'effect_intended' && data['key'] === key) [status, place] = ['intended', here]
    else if (data['key'] === undefined ? place !== here : data['key'] !== key) continue
    else if (type === 'effect_completed') status = 'completed'
    else if (type === 'effect_unsure') status = 'unsure'
    else if (type === 'effect_failed') status = data['open'] === true ? 'intended' : 'failed'
    else if (type === 'effect_resolved') status = data['happened'] === true ? 'completed' : 'failed'
  }
  return status
}

/** The log only grows, epochs never fall. */
function brokenOverTime({ lives }: PlayedScene): string[] {
  const broken: string[] = []
  lives.slice(1).forEach(({ dump, number }, index) => {
    const before = (lives[index] as PlayedLife).dump
    for (const { thread, log } of before.threads) {
      const now = dump.threads.find((other) => other.thread.threadId === thread.threadId)
      if (!isDeepStrictEqual(now?.log.slice(0, log.length), log))
        broken.push(`life ${number} changed the past of thread ${thread.threadId}`)
    }
    for (const run of before.runs) {
      const now = dump.runs.find(({ id }) => id === run.id)
      if (now === undefined || now.epoch < run.epoch)
        broken.push(`life ${number}: epoch of ${run.id} fell from ${run.epoch} to ${now?.epoch}`)
    }
  })
  return broken
}

/** What a function was given is in the log. */
function brokenAcknowledgements({ lives, journal }: PlayedScene): string[] {
  const broken: string[] = []
  for (const { number, dump } of lives) {
    const { results } = settledIn(dump)
    for (const note of journal) {
      if (note.kind !== 'ack' || note.life !== number) continue
      const call = callOf(note)
      if (!results.has(call)) broken.push(`life ${number} was given the result of ${call}, which is not in the log`)
    }
  }
  return broken
}

/** A recorded result is never made again; what is not recorded is made once a life. */
function brokenBodies({ lives, journal }: PlayedScene): string[] {
  const broken: string[] = []
  for (const { number } of lives) {
    const bodies = journal.filter((note) => note.kind === 'body' && note.life === number) as Extract<
      (typeof journal)[number],
      { kind: 'body' }
    >[]
    // A store that failed is like a death: what was under way is done again, what was written is not.
    const strikes = journal.flatMap((note, index) => (note.kind === 'struck' && note.life === number ? index : []))
    for (const [body, times] of countBy(bodies, bodyOf)) {
      if (times > 1 + strikes.length) broken.push(`life ${number} entered ${body} ${times} times`)
    }
    for (const strike of strikes) broken.push(...brokenAfterStrike(journal, strike))
    const before = lives[number - 2]
    if (before === undefined) continue
    const { results, attempts } = settledIn(before.dump)
    for (const body of bodies) {
      if (results.has(callOf(body))) broken.push(`life ${number} entered ${bodyOf(body)}, whose result was recorded`)
      else if (attempts.has(bodyOf(body))) broken.push(`life ${number} entered ${bodyOf(body)}, whose failure was recorded`)
    }
  }
  return broken
}

/** What the failed call had written is not made again. */
function brokenAfterStrike(journal: PlayedScene['journal'], struck: number): string[] {
  const note = journal[struck]
  const [before, after] = [journal.slice(0, struck), journal.slice(struck)].map((notes) =>
    notes.flatMap((one) => (one.kind === 'body' ? { path: one.path, body: bodyOf(one) } : [])),
  )
  const written = note?.kind === 'struck' ? note.written : []
  return written.flatMap((path) => {
    const made = before?.findLast((one) => one.path === path)?.body
    return after?.some(({ body }) => body === made) ? [`${made} was entered again although its result was written`] : []
  })
}

/**
 * A run whose holder was killed is taken from it, by name, when somebody goes on with it. The holder may have been killed before the
 * last life that was: that one did something else until the lease was over, and did not get to see the end of it.
 */
function brokenRecoveries({ lives, takeover }: PlayedScene): string[] {
  const broken: string[] = []
  lives.slice(0, -1).forEach(({ dump, number }, index) => {
    const pids = lives.slice(0, index + 1).map(({ pid }) => pid)
    const next = (lives[index + 1] as PlayedLife).dump
    for (const run of dump.runs) {
      if (run.status !== 'running') continue
      const written = recordsOf(next, run.id).slice(recordsOf(dump, run.id).length)
      if (written.length === 0) continue
      const recovered = written.filter(({ type }) => type === 'run_recovered')
      const { holder, why } = (recovered[0]?.data ?? {}) as { holder?: string; why?: string }
      if (recovered.length !== 1)
        broken.push(`life ${number + 1} went on with ${run.id} and logged ${recovered.length} recoveries`)
      else if (
        holder !== run.leaseHolder ||
        why !== takeover ||
        !pids.some((pid) => pid === null || holder?.includes(`:${pid}:`))
      ) {
        broken.push(
          `life ${number + 1} took ${run.id} from ${holder} (${why}); its holder was ${run.leaseHolder}, and the lives before ${pids.join(', ')}`,
        )
      }
    }
  })
  return broken
}

/** failure-model 2.3: what each class of effect promises, counted at the provider. */
function brokenEffects({ account, lives, journal }: PlayedScene): string[] {
  const broken: string[] = []
  const end = lives.at(-1)?.dump
  for (const key of new Set(account.calls.map((call) => call.key))) {
    const calls = account.calls.filter((call) => call.key === key)
    const name = calls[0]?.name ?? ''
    const acted = account.acted.get(key) ?? 0
    const declared = classOf[name]
    if (calls.some((call) => call.name !== name)) broken.push(`key ${key} was used by several effects`)
    if (calls.some((call) => !isDeepStrictEqual(call.body, calls[0]?.body)))
      broken.push(`key ${key} was sent with different bodies`)
    if (declared === undefined) continue
    if (acted > 1) broken.push(`${name} happened ${acted} times under ${key}`)
    if (end?.runs.every(({ status }) => status === 'completed') && acted !== 1)
      broken.push(`${name} happened ${acted} times under ${key}`)
    const denials = journal.filter((note) => note.kind === 'resolved' && note.key === key && !note.happened).length
    if (declared === 'neither' && calls.length > 1 + denials) {
      broken.push(`${name} was sent ${calls.length} times under ${key}, and a person allowed ${denials} more`)
    }
  }
  return broken
}

/** What is recorded as undone was undone before. */
function brokenUndos({ lives, journal }: PlayedScene): string[] {
  return lives.flatMap(({ dump, number }) => {
    const recorded = dump.threads.flatMap(({ log }) => log).filter(({ type }) => type === 'step_undone')
    const isDone = ({ runId, step }: DumpedRecord) =>
      journal.some((note) => note.kind === 'undone' && note.life <= number && note.run === runId && note.path === step)
    return recorded.flatMap((record) =>
      isDone(record) ? [] : [`life ${number} recorded an undo of ${record.step} that was not made`],
    )
  })
}

/** What is valid of a stream is a beginning of what was to be said, in order and once; all of it where a result was recorded. */
function brokenSpeeches({ lives }: PlayedScene): string[] {
  return lives.flatMap(({ dump, number }) =>
    dump.speeches.flatMap(({ runId, records }) => {
      const broken: string[] = []
      const { results } = settledIn(dump)
      const hasEnded = recordsOf(dump, runId).some(({ type }) => type === 'run_completed')
      for (const part of Map.groupBy(records, ({ step, attempt }) => `${step} attempt ${attempt}`).values()) {
        const [step, attempt] = [part[0]?.step ?? null, part[0]?.attempt]
        const valid = part.slice(part.findLastIndex(({ chunks }) => chunks === null) + 1).flatMap(({ chunks }) => chunks ?? [])
        const meant: readonly unknown[] = step === null ? speech.ofFunction : speech.ofStep
        const isRecorded = step === null ? hasEnded : attempt === 2 && results.has(callOf({ run: runId, tape: 1, path: step }))
        const expected = isRecorded ? meant : meant.slice(0, valid.length)
        if (!isDeepStrictEqual(valid, expected))
          broken.push(`after life ${number} ${step ?? 'the function'} of ${runId} has said ${valid}, should have ${expected}`)
        if (hasEnded && attempt === 1 && valid.length > 0)
          broken.push(`the attempt of ${runId} that failed has said ${valid}, which is not void`)
      }
      return broken
    }),
  )
}

function brokenAtTheEnd(scene: PlayedScene, undisturbed: PlayedScene): string[] {
  const [last, model] = [scene.lives.at(-1), undisturbed.lives.at(-1)]
  if (last?.report == null || model?.report == null) return []
  const broken: string[] = []
  for (const { id } of scene.runs) {
    const [output, expected] = [last.report.outputs[id], model.report.outputs[id]].map(withoutChance)
    if (!isDeepStrictEqual(output, expected))
      broken.push(`output of ${id} is ${JSON.stringify(output)}, should be ${JSON.stringify(expected)}`)
  }
  const [states, expectedStates] = [last.report.states, model.report.states].map(withoutOrder)
  if (!isDeepStrictEqual(states, expectedStates))
    broken.push(`state is ${JSON.stringify(states)}, should be ${JSON.stringify(expectedStates)}`)
  const [results, expectedResults] = [last.dump, model.dump].map(resultsOf) as [Map<string, number>, Map<string, number>]
  for (const key of new Set([...results.keys(), ...expectedResults.keys()])) {
    const [found = 0, expected = 0] = [results.get(key), expectedResults.get(key)]
    if (found !== expected) broken.push(`${key} is in the log ${found} times, should be ${expected}`)
  }
  if (!isDeepStrictEqual(last.report.heard, model.report.heard))
    broken.push(`${JSON.stringify(last.report.heard)} was heard, should be ${JSON.stringify(model.report.heard)}`)
  const [told, expectedTold] = [scene, undisturbed].map(kindsTold)
  if (!isDeepStrictEqual(told, expectedTold)) broken.push(`others heard of ${told}, should have of ${expectedTold}`)
  const recoveryMs = scene.lives.length > 1 ? last.report.tookMs : 0
  if (recoveryMs > patience(10_000)) broken.push(`the recovery took ${recoveryMs} ms`)
  return [...broken, ...brokenOrder(scene, last)]
}

/** What others heard, each message once. */
function kindsTold({ account }: PlayedScene): string[] {
  const messages = new Map(account.calls.flatMap(({ name, key, body }) => (name === 'tell' ? [[key, body as Notification]] : [])))
  return [...messages.values()].map(({ kind, runId }) => `${kind} of ${runId}`).sort()
}

/** What was left to chance, or to who was first, is as the log says. */
function brokenOrder({ runs, account }: PlayedScene, { report, dump }: PlayedLife): string[] {
  if (report === null) return []
  const broken: string[] = []
  for (const { id, workflow, threadId } of runs) {
    if (workflow !== 'everything') continue
    const records = recordsOf(dump, id)
    const { values, echoed, winners } = report.outputs[id] as EverythingOutput
    const echoes = records
      .filter(({ type, step }) => type === 'step_completed' && step === 'echo')
      .map(({ data }) => data['result'])
    if (!isDeepStrictEqual(values, echoed) || !isDeepStrictEqual(values, echoes.at(-1))) broken.push('recorded values changed')
    const diary = report.states[threadId] as Diary
    if (!isDeepStrictEqual(diary.values, echoes[0])) broken.push('the values in the state are not those that were recorded')
    const sent = account.calls.find(({ name }) => name === 'pay')?.body
    if (!isDeepStrictEqual(sent, echoes[0])) broken.push('the values that were sent are not those that were recorded')
    winners.forEach((winner, index) => {
      const isRunner = ({ type, step, tape }: DumpedRecord) =>
        type === 'step_completed' && tape === index + 1 && (step === 'hare' || step === 'tortoise')
      const first = records.find(isRunner)?.step
      if (winner !== first) broken.push(`${winner} won round ${index + 1}, the log has ${first} first`)
    })
    const writers = records.filter(({ type, patch }) => type === 'step_completed' && patch !== null).map(({ step }) => step)
    const written = diary.entries.filter((entry) => writers.includes(entry))
    if (!isDeepStrictEqual(written, writers)) broken.push(`the state has ${written}, the log ${writers}`)
  }
  return broken
}

/** What every run leaves in the log exactly once. Starts, intents and recoveries may be there more often. */
function resultsOf(dump: StoreDump): Map<string, number> {
  const repeatable = new Set([
    'run_recovered',
    'step_started',
    'stream_opened',
    'effect_intended',
    'effect_unsure',
    'effect_resolved',
  ])
  const results = dump.threads
    .flatMap(({ log }) => log)
    .filter(({ type, data }) => !repeatable.has(type) && data['counts'] !== false)
  return countBy(
    results,
    // A message is named after the claim that wrote it.
    ({ type, runId, tape, step, count, attempt }) =>
      `${type} ${runId?.replace(/\/msg_.*/, '')}~${tape}/${step}#${count} attempt ${attempt}`,
  )
}

/** Calls with a recorded result, and attempts with a recorded end. */
export function settledIn(dump: StoreDump): { results: Set<string>; attempts: Set<string> } {
  const results = new Set<string>()
  const attempts = new Set<string>()
  for (const { type, runId, tape, step, attempt, data } of dump.threads.flatMap(({ log }) => log)) {
    const call = { run: runId ?? '', tape, path: step ?? '' }
    if (['step_completed', 'effect_completed', 'effect_skipped', 'timer_fired'].includes(type)) results.add(callOf(call))
    if (['step_failed', 'effect_failed'].includes(type) && data['counts'] !== false) attempts.add(bodyOf({ ...call, attempt }))
  }
  return { results, attempts }
}

function recordsOf(dump: StoreDump, runId: string): DumpedRecord[] {
  return dump.threads.flatMap(({ log }) => log).filter((record) => record.runId === runId)
}

export function callOf({ run, tape, path }: { run: string; tape: number; path: string }): string {
  return `${run}~${tape}/${path}`
}

export function bodyOf(body: { run: string; tape: number; path: string; attempt: number }): string {
  return `${callOf(body)} attempt ${body.attempt}`
}

function withoutChance(output: unknown): unknown {
  return typeof output === 'object' && output !== null && 'made' in output ? output.made : output
}

function withoutOrder(states: Record<string, unknown>): unknown {
  return Object.entries(states).map(([threadId, value]) => {
    const { count, entries } = value as Diary
    return [threadId, count, [...entries].sort()]
  })
}

export function countBy<Item>(items: readonly Item[], keyOf: (item: Item) => string): Map<string, number> {
  const counts = new Map<string, number>()
  for (const item of items) counts.set(keyOf(item), (counts.get(keyOf(item)) ?? 0) + 1)
  return counts
}
