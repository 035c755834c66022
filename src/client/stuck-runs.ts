import type { Core } from '../control/core.ts'
import type { Run } from '../model/run.ts'
import { allPages } from './all-pages.ts'

/** A run that makes no progress, although it is neither paused nor waiting. */
export interface StuckRun {
  readonly runId: string
  readonly threadId: string
  readonly workflow: string
  readonly version: number
  readonly queue: string
  /** `working`: its worker renews the lease but has recorded nothing since. `unclaimed`: it is due, and no worker claims it. */
  readonly why: 'working' | 'unclaimed'
  readonly since: number
  readonly step?: string
  readonly holder?: string
}

/** How long a run may record nothing before it counts as stuck. */
const defaultAfterMs = 15 * 60_000

/** Runs of an owner that should make progress and have recorded nothing for long, the longest first. */
export async function findStuckRuns(core: Core, owner: string, afterMs = defaultAfterMs): Promise<StuckRun[]> {
  const now = await core.now()
  const runs = await allPages<Run>((cursor) =>
    core.store.listRuns({ owner, statuses: ['running', 'pending', 'waiting'], limit: 200, ...cursor }),
  )
  const described = await Promise.all(runs.map((run) => describe(core, run, now)))
  return described
    .filter((stuck) => stuck !== null)
    .filter(({ since }) => now - since >= afterMs)
    .sort((a, b) => a.since - b.since)
}

async function describe(core: Core, run: Run, now: number): Promise<StuckRun | null> {
  const { id: runId, threadId, workflow, version, queue, status, dueAt, currentStep, leaseHolder } = run
  const about = { runId, threadId, workflow, version, queue }
  if (status !== 'running') {
    if (dueAt === null || dueAt > now || !(await isNext(core, run))) return null
    return { ...about, why: 'unclaimed', since: dueAt }
  }
  const records = await core.store.readLog({ owner: run.owner, threadId, runId, afterSeq: run.inputSeq - 1, bare: true })
  return {
    ...{ ...about, why: 'working', since: records.at(-1)?.at ?? run.createdAt },
    ...(currentStep !== null && { step: currentStep }),
    ...(leaseHolder !== null && { holder: leaseHolder }),
  }
}

/** A run behind another one of its thread is not stuck. */
async function isNext(core: Core, run: Run): Promise<boolean> {
  const { owner, threadId } = run
  const { items } = await core.store.listRuns({
    owner,
    threadId,
    statuses: ['pending', 'running', 'waiting', 'paused'],
    limit: 1_000,
  })
  return items.at(-1)?.id === run.id
}
