import type { Core } from '../control/core.ts'
import type { Run } from '../model/run.ts'
import { allPages } from './all-pages.ts'

/** A run that does not get on, although nobody stopped it. */
export interface StuckRun {
  readonly runId: string
  readonly threadId: string
  readonly workflow: string
  readonly version: number
  readonly queue: string
  /** `working`: its holder is alive and has recorded nothing since. `unclaimed`: it is due, and no worker takes it. */
  readonly why: 'working' | 'unclaimed'
  readonly since: number
  readonly step?: string
  readonly holder?: string
}

/** How long nothing may happen before a run counts as stuck. */
const defaultAfterMs = 15 * 60_000

/** Runs of an owner in which nothing has happened for long although something should, longest first. */
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

/** Behind another run of its thread it waits rightly. */
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
