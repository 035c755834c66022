import type { Codec } from '../model/codec.ts'
import type { LogRecord } from '../model/event.ts'
import { isTerminal, type Run } from '../model/run.ts'
import { refuseWrongEnd, refuseWrongInput } from '../model/run-end.ts'
import type { ThreadKey } from '../store/store.ts'
import type { RunImage, ThreadImage } from '../store/thread-image.ts'
import type { Findings, Source } from './findings.ts'
import { attempt } from './findings.ts'
import type { LogCheck, RecordAt } from './log-check.ts'

/** Positions of the log that rows of runs refer to. */
export function positionsOf(runs: readonly RunImage[]): Set<number> {
  return new Set(runs.flatMap(({ run: { inputSeq, tapeSeq, endSeq } }) => [inputSeq, tapeSeq ?? 0, endSeq ?? 0]))
}

/** Rows of runs against each other and against the log. `found` is what the log has at `positionsOf` them. */
export function checkRuns(
  { owner, threadId }: ThreadKey,
  runs: readonly RunImage[],
  found: ReadonlyMap<number, RecordAt>,
  findings: Findings,
): void {
  for (const { run } of runs) {
    const at = { runId: run.id }
    const tape = run.tapeSeq === null ? undefined : found.get(run.tapeSeq)
    refusing(findings, run, () => refuseWrongInput(run, found.get(run.inputSeq) as LogRecord | undefined))
    refusing(findings, run, () => refuseWrongEnd(run, found.get(run.endSeq ?? 0) as LogRecord | undefined))
    if (run.tapeSeq !== null && tape?.runId !== run.id)
      findings.note('run', `Run "${run.id}" began its tape at ${run.tapeSeq}, and the log does not have it there.`, at)
    if (run.owner !== owner || run.threadId !== threadId)
      findings.note('run', `Run "${run.id}" is listed in thread "${threadId}", and its row names another thread or owner.`, at)
    if (isTerminal(run.status) !== (run.finishedAt !== null))
      findings.note('run', `Run "${run.id}" is ${run.status}, and its row does not agree about when it ended.`, at)
    checkLease(run, findings)
  }
  const running = runs.filter(({ run }) => run.status === 'running').map(({ run }) => `"${run.id}"`)
  if (running.length > 1) findings.note('lease', `Runs ${running.join(' and ')} of the thread are running at once.`)
}

function checkLease({ id, status, leaseId, leaseUntil }: Run, findings: Findings): void {
  const at = { runId: id }
  if ((status === 'running') !== (leaseId !== null))
    findings.note('lease', `Run "${id}" is ${status} ${leaseId === null ? 'without' : 'with'} a lease.`, at)
  else if ((leaseId === null) !== (leaseUntil === null))
    findings.note('lease', `Run "${id}" is ${status}, and its row does not say until when its lease is valid.`, at)
}

/** Runs that the log speaks of have to be there. */
export function checkLostRuns(runs: readonly RunImage[], log: LogCheck, findings: Findings): void {
  const known = new Set(runs.map(({ run }) => run.id))
  for (const [runId, seq] of log.runs)
    if (!known.has(runId)) findings.note('run', `Run "${runId}" is in the log, and its row is missing.`, { runId, seq })
}

function refusing(findings: Findings, run: Run, check: () => void): void {
  try {
    check()
  } catch (error) {
    findings.note('run', (error as Error).message, { runId: run.id })
  }
}

/** Operations of the thread, against its runs. */
export function checkOperations({ thread, runs, operations }: ThreadImage, codec: Codec, findings: Findings): void {
  const known = new Map(runs.map(({ run }) => [run.id, run]))
  // Those of earlier lives are kept; their runs are not.
  const hasAllRuns = thread.incarnation === 1 && thread.deletedAt === null
  for (const { key, runId, status, result, evidence } of operations) {
    const run = known.get(runId)
    const note = (message: string) => findings.note('operation', `Operation "${key}" ${message}`, { runId })
    // One that is left open when its run ends is unsure: a person decides.
    if (status === 'intended' && (run === undefined || isTerminal(run.status)))
      note(`is open, and its run "${runId}" is ${run?.status ?? 'not there'}.`)
    else if (run === undefined && hasAllRuns && runId !== '') note(`belongs to run "${runId}", which is not there.`)
    for (const payload of [result, evidence]) {
      try {
        if (payload !== null) codec.decode(payload)
      } catch (error) {
        note(`has a result that can't be read: ${(error as Error).message}`)
      }
    }
  }
}

/**
 * Operations that the log or a waiting run speaks of have to be there, whatever became of them; under a key that was free again, in
 * another thread perhaps.
 */
export async function checkLostOperations(
  { store, signal }: Source,
  { thread: { owner }, runs, operations }: ThreadImage,
  { log, findings }: { readonly log: LogCheck; readonly findings: Findings },
): Promise<void> {
  const known = new Set(operations.map(({ key }) => key))
  const asked = new Map(
    [...log.operations].map(([key, { seq, runId }]) => [key, { seq, runId } as { seq?: number; runId: string | null }]),
  )
  for (const { run, waitKey } of runs)
    if (run.status === 'waiting' && waitKey !== null && !asked.has(waitKey)) asked.set(waitKey, { runId: run.id })
  for (const [key, at] of asked) {
    if (known.has(key)) continue
    signal?.throwIfAborted()
    const read = await attempt(store, () => store.readOperation({ owner, key }))
    if ('damage' in read) findings.note('operation', read.damage.message, at)
    else if (read.value === null) {
      const who = at.seq === undefined ? `Run "${at.runId}" waits for operation "${key}"` : `The log opened operation "${key}"`
      findings.note('operation', `${who}, which is not there.`, at)
    }
  }
}
