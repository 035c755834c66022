import { isTerminal } from '../../../src/model/run.ts'
import type { DumpedRecord, StoreDump } from '../bed/store-dump.ts'
import { violationsOfArtifacts } from './artifacts.ts'
import { violationsOfMemory } from './memory.ts'
import { countBy } from './recorded.ts'

/** The log has no gaps, and rows, operations and the user's table agree with it. */
export function violationsInDump(dump: StoreDump): string[] {
  const violations: string[] = []
  for (const { thread, log } of dump.threads) {
    log.forEach(({ seq }, index) => {
      if (seq !== index + 1) violations.push(`log of ${thread.threadId} has ${seq} at position ${index + 1}`)
    })
    if (thread.headSeq !== log.length)
      violations.push(`thread ${thread.threadId} says head ${thread.headSeq}, its log has ${log.length}`)
  }
  const records = dump.threads.flatMap(({ log }) => log)
  const byRun = Map.groupBy(records, ({ runId }) => runId ?? '')
  for (const run of dump.runs) {
    const own = byRun.get(run.id) ?? []
    const ends = own.filter(({ type }) => type === 'run_completed' || type === 'run_failed')
    if (ends.length !== (isTerminal(run.status) ? 1 : 0))
      violations.push(`run ${run.id} is ${run.status} with ${ends.length} ends in the log`)
    const epochs = own.filter(({ type }) => type === 'run_recovered').map(({ data }) => data['epoch'] as number)
    if (epochs.some((epoch, index) => index > 0 && epoch <= (epochs[index - 1] as number)))
      violations.push(`epochs of ${run.id} go back: ${epochs}`)
    if (epochs.some((epoch) => epoch > run.epoch)) violations.push(`epoch of ${run.id} is ${run.epoch}, its log has ${epochs}`)
  }
  for (const operation of dump.operations) {
    const expected = statusInLog(byRun.get(operation.runId) ?? [], operation.key)
    if (operation.status !== expected)
      violations.push(`operation ${operation.key} is ${operation.status}, its log says ${expected}`)
  }
  for (const [key, times] of countBy(dump.orders, ({ run, round }) => `${run} round ${round}`)) {
    if (times !== 1) violations.push(`order of ${key} exists ${times} times`)
  }
  const committed = records.filter(({ type, step }) => type === 'step_completed' && step === 'order')
  if (committed.length !== dump.orders.length)
    violations.push(`${dump.orders.length} orders, ${committed.length} of them in the log`)
  return [...violations, ...violationsOfMemory(dump), ...violationsOfArtifacts(dump)]
}

/** The status of an operation according to the records of its run. */
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
