import type { ScenarioResult } from '../bed/crash-test-bed.ts'
import { describeFault } from '../bed/fault.ts'
import { violationsOfAcknowledgements, violationsOfBodies, violationsOfUndos } from './bodies.ts'
import { violationsOfEffects } from './effects.ts'
import { violationsOfOutcome } from './outcome.ts'
import { violationsOfRecoveries, violationsOverTime } from './recoveries.ts'
import { violationsInDump } from './store-contents.ts'
import { violationsOfStreams } from './streams.ts'

/**
 * What must hold after a scenario, whatever was killed in it. Each violation is a sentence; `undisturbed` is the same scenario without a
 * fault.
 */
export function violationsIn(result: ScenarioResult, undisturbed: ScenarioResult): string[] {
  const faults = result.processes.map(({ fault }) => describeFault(fault)).join(', then ')
  return [...violationsAnywhere(result), ...violationsOfOutcome(result, undisturbed)].map(
    (violation) => `${faults}: ${violation}`,
  )
}

/** Rules that hold for any workflow, after every process. */
export function violationsAnywhere(result: ScenarioResult): string[] {
  return [
    ...result.processes.flatMap(({ problem }) => problem ?? []),
    ...result.processes.flatMap(({ dump, number }) =>
      violationsInDump(dump).map((violation) => `after process ${number}: ${violation}`),
    ),
    ...violationsOverTime(result),
    ...violationsOfAcknowledgements(result),
    ...violationsOfBodies(result),
    ...violationsOfRecoveries(result),
    ...violationsOfEffects(result),
    ...violationsOfStreams(result),
    ...violationsOfUndos(result),
  ]
}
