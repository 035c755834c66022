import { isDeepStrictEqual } from 'node:util'
import type { Notification } from 'holdfast'
import { patience } from '../../patience.ts'
import type { ProcessResult, ScenarioResult } from '../bed/crash-test-bed.ts'
import type { DumpedRecord, StoreDump } from '../bed/store-dump.ts'
import type { AllFeaturesOutput } from '../workflows/all-features.ts'
import type { Diary } from '../workflows/recorded-calls.ts'
import { countBy, recordsOf } from './recorded.ts'

/** Outputs, states, records, streams and notifications are those of the undisturbed scenario. */
export function violationsOfOutcome(result: ScenarioResult, undisturbed: ScenarioResult): string[] {
  const [last, model] = [result.processes.at(-1), undisturbed.processes.at(-1)]
  if (last?.report == null || model?.report == null) return []
  const violations: string[] = []
  for (const { id } of result.runs) {
    const [output, expected] = [last.report.outputs[id], model.report.outputs[id]].map(withoutChance)
    if (!isDeepStrictEqual(output, expected))
      violations.push(`output of ${id} is ${JSON.stringify(output)}, should be ${JSON.stringify(expected)}`)
  }
  const [states, expectedStates] = [last.report.states, model.report.states].map(withoutOrder)
  if (!isDeepStrictEqual(states, expectedStates))
    violations.push(`state is ${JSON.stringify(states)}, should be ${JSON.stringify(expectedStates)}`)
  const [results, expectedResults] = [last.dump, model.dump].map(resultsOf) as [Map<string, number>, Map<string, number>]
  for (const key of new Set([...results.keys(), ...expectedResults.keys()])) {
    const [found = 0, expected = 0] = [results.get(key), expectedResults.get(key)]
    if (found !== expected) violations.push(`${key} is in the log ${found} times, should be ${expected}`)
  }
  if (!isDeepStrictEqual(last.report.streams, model.report.streams))
    violations.push(`streams are ${JSON.stringify(last.report.streams)}, should be ${JSON.stringify(model.report.streams)}`)
  const [sent, expectedSent] = [result, undisturbed].map(notificationsIn)
  if (!isDeepStrictEqual(sent, expectedSent)) violations.push(`notifications are ${sent}, should be ${expectedSent}`)
  const recoveryMs = result.processes.length > 1 ? last.report.tookMs : 0
  if (recoveryMs > patience(10_000)) violations.push(`the recovery took ${recoveryMs} ms`)
  return [...violations, ...violationsOfOrder(result, last)]
}

/** The notifications that the provider received, each once. */
function notificationsIn({ account }: ScenarioResult): string[] {
  const messages = new Map(
    account.calls.flatMap(({ name, key, body }) => (name === 'notify' ? [[key, body as Notification]] : [])),
  )
  return [...messages.values()].map(({ kind, runId }) => `${kind} of ${runId}`).sort()
}

/** Recorded values, winners of races and the order of updates are as in the log. */
function violationsOfOrder({ runs, account }: ScenarioResult, { report, dump }: ProcessResult): string[] {
  if (report === null) return []
  const violations: string[] = []
  for (const { id, workflow, threadId } of runs) {
    if (workflow !== 'allFeatures') continue
    const records = recordsOf(dump, id)
    const { values, echoed, winners } = report.outputs[id] as AllFeaturesOutput
    const echoes = records
      .filter(({ type, step }) => type === 'step_completed' && step === 'echo')
      .map(({ data }) => data['result'])
    if (!isDeepStrictEqual(values, echoed) || !isDeepStrictEqual(values, echoes.at(-1)))
      violations.push('recorded values changed')
    const diary = report.states[threadId] as Diary
    if (!isDeepStrictEqual(diary.values, echoes[0])) violations.push('the values in the state are not those that were recorded')
    const sent = account.calls.find(({ name }) => name === 'pay')?.body
    if (!isDeepStrictEqual(sent, echoes[0])) violations.push('the values that were sent are not those that were recorded')
    winners.forEach((winner, index) => {
      const isRunner = ({ type, step, tape }: DumpedRecord) =>
        type === 'step_completed' && tape === index + 1 && (step === 'hare' || step === 'tortoise')
      const first = records.find(isRunner)?.step
      if (winner !== first) violations.push(`${winner} won round ${index + 1}, the log has ${first} first`)
    })
    const writers = records.filter(({ type, patch }) => type === 'step_completed' && patch !== null).map(({ step }) => step)
    const written = diary.entries.filter((entry) => writers.includes(entry))
    if (!isDeepStrictEqual(written, writers)) violations.push(`the state has ${written}, the log ${writers}`)
  }
  return violations
}

/** What every run leaves in the log exactly once. Starts, intents and recoveries may occur more often. */
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
    // The id of a message contains the claim that wrote it.
    ({ type, runId, tape, step, count, attempt }) =>
      `${type} ${runId?.replace(/\/msg_.*/, '')}~${tape}/${step}#${count} attempt ${attempt}`,
  )
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
