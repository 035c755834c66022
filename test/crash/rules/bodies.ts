import type { ScenarioResult } from '../bed/crash-test-bed.ts'
import type { DumpedRecord } from '../bed/store-dump.ts'
import { bodyOf, callOf, countBy, settledIn } from './recorded.ts'

/** Every result that a function received is in the log. */
export function violationsOfAcknowledgements({ processes, journal }: ScenarioResult): string[] {
  const violations: string[] = []
  for (const { number, dump } of processes) {
    const { results } = settledIn(dump)
    for (const note of journal) {
      if (note.kind !== 'ack' || note.processNumber !== number) continue
      const call = callOf(note)
      if (!results.has(call)) violations.push(`process ${number} received the result of ${call}, which is not in the log`)
    }
  }
  return violations
}

/** A body whose result was recorded is never entered again; any other is entered once per process. */
export function violationsOfBodies({ processes, journal }: ScenarioResult): string[] {
  const violations: string[] = []
  for (const { number } of processes) {
    const bodies = journal.filter((note) => note.kind === 'body' && note.processNumber === number) as Extract<
      (typeof journal)[number],
      { kind: 'body' }
    >[]
    // A failure of the store is like a death: what was in progress is repeated, what was written is not.
    const faults = journal.flatMap((note, index) => (note.kind === 'fault' && note.processNumber === number ? index : []))
    for (const [body, times] of countBy(bodies, bodyOf)) {
      if (times > 1 + faults.length) violations.push(`process ${number} entered ${body} ${times} times`)
    }
    for (const fault of faults) violations.push(...violationsAfterFault(journal, fault))
    const before = processes[number - 2]
    if (before === undefined) continue
    const { results, attempts } = settledIn(before.dump)
    for (const body of bodies) {
      if (results.has(callOf(body))) violations.push(`process ${number} entered ${bodyOf(body)}, whose result was recorded`)
      else if (attempts.has(bodyOf(body)))
        violations.push(`process ${number} entered ${bodyOf(body)}, whose failure was recorded`)
    }
  }
  return violations
}

/** What the failed call had written is not executed again. */
function violationsAfterFault(journal: ScenarioResult['journal'], faultIndex: number): string[] {
  const note = journal[faultIndex]
  const [before, after] = [journal.slice(0, faultIndex), journal.slice(faultIndex)].map((notes) =>
    notes.flatMap((one) => (one.kind === 'body' ? { path: one.path, body: bodyOf(one) } : [])),
  )
  const written = note?.kind === 'fault' ? note.written : []
  return written.flatMap((path) => {
    const entered = before?.findLast((one) => one.path === path)?.body
    return after?.some(({ body }) => body === entered) ? [`${entered} was entered again although its result was written`] : []
  })
}

/** What is recorded as undone was undone before. */
export function violationsOfUndos({ processes, journal }: ScenarioResult): string[] {
  return processes.flatMap(({ dump, number }) => {
    const recorded = dump.threads.flatMap(({ log }) => log).filter(({ type }) => type === 'step_undone')
    const isDone = ({ runId, step }: DumpedRecord) =>
      journal.some((note) => note.kind === 'undone' && note.processNumber <= number && note.run === runId && note.path === step)
    return recorded.flatMap((record) =>
      isDone(record) ? [] : [`process ${number} recorded an undo of ${record.step} that did not happen`],
    )
  })
}
