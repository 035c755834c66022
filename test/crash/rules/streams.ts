import { isDeepStrictEqual } from 'node:util'
import type { ScenarioResult } from '../bed/crash-test-bed.ts'
import { transcript } from '../workflows/notifies-others.ts'
import { callOf, recordsOf, settledIn } from './recorded.ts'

/** The valid chunks of a stream are a prefix of what is written to it, in order and once; all of it if the result was recorded. */
export function violationsOfStreams({ processes }: ScenarioResult): string[] {
  return processes.flatMap(({ dump, number }) =>
    dump.streams.flatMap(({ runId, records }) => {
      const violations: string[] = []
      const { results } = settledIn(dump)
      const hasEnded = recordsOf(dump, runId).some(({ type }) => type === 'run_completed')
      for (const part of Map.groupBy(records, ({ step, attempt }) => `${step} attempt ${attempt}`).values()) {
        const [step, attempt] = [part[0]?.step ?? null, part[0]?.attempt]
        const valid = part.slice(part.findLastIndex(({ chunks }) => chunks === null) + 1).flatMap(({ chunks }) => chunks ?? [])
        const meant: readonly unknown[] = step === null ? transcript.ofFunction : transcript.ofStep
        const isRecorded = step === null ? hasEnded : attempt === 2 && results.has(callOf({ run: runId, tape: 1, path: step }))
        const expected = isRecorded ? meant : meant.slice(0, valid.length)
        if (!isDeepStrictEqual(valid, expected))
          violations.push(
            `after process ${number} ${step ?? 'the function'} of ${runId} has written ${valid}, should have written ${expected}`,
          )
        if (hasEnded && attempt === 1 && valid.length > 0)
          violations.push(`the failed attempt of ${runId} has written ${valid}, which is not void`)
      }
      return violations
    }),
  )
}
