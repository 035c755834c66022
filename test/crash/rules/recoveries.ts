import { isDeepStrictEqual } from 'node:util'
import type { ProcessResult, ScenarioResult } from '../bed/crash-test-bed.ts'
import { recordsOf } from './recorded.ts'

/** The log only grows, and epochs never decrease. */
export function violationsOverTime({ processes }: ScenarioResult): string[] {
  const violations: string[] = []
  processes.slice(1).forEach(({ dump, number }, index) => {
    const before = (processes[index] as ProcessResult).dump
    for (const { thread, log } of before.threads) {
      const now = dump.threads.find((other) => other.thread.threadId === thread.threadId)
      if (!isDeepStrictEqual(now?.log.slice(0, log.length), log))
        violations.push(`process ${number} changed the past of thread ${thread.threadId}`)
    }
    for (const run of before.runs) {
      const now = dump.runs.find(({ id }) => id === run.id)
      if (now === undefined || now.epoch < run.epoch)
        violations.push(`process ${number}: epoch of ${run.id} fell from ${run.epoch} to ${now?.epoch}`)
    }
  })
  return violations
}

/**
 * A process that continues a run whose holder was killed records a recovery that names the holder. The holder may be an earlier process
 * than the last: one that was killed in between did something else until the lease expired.
 */
export function violationsOfRecoveries({ processes, takeover }: ScenarioResult): string[] {
  const violations: string[] = []
  processes.slice(0, -1).forEach(({ dump, number }, index) => {
    const pids = processes.slice(0, index + 1).map(({ pid }) => pid)
    const next = (processes[index + 1] as ProcessResult).dump
    for (const run of dump.runs) {
      if (run.status !== 'running') continue
      const written = recordsOf(next, run.id).slice(recordsOf(dump, run.id).length)
      if (written.length === 0) continue
      const recovered = written.filter(({ type }) => type === 'run_recovered')
      const { holder, why } = (recovered[0]?.data ?? {}) as { holder?: string; why?: string }
      if (recovered.length !== 1)
        violations.push(`process ${number + 1} continued ${run.id} and recorded ${recovered.length} recoveries`)
      else if (
        holder !== run.leaseHolder ||
        why !== takeover ||
        !pids.some((pid) => pid === null || holder?.includes(`:${pid}:`))
      ) {
        violations.push(
          `process ${number + 1} took ${run.id} from ${holder} (${why}); its holder was ${run.leaseHolder}, and the processes before had the pids ${pids.join(', ')}`,
        )
      }
    }
  })
  return violations
}
