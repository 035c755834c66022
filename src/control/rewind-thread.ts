import { takeBackArtifacts } from '../artifacts/thread-artifacts.ts'
import { loadState } from '../engine/state/thread-state.ts'
import { takeBackMemory } from '../memory/take-back-memory.ts'
import { HoldfastError } from '../model/errors.ts'
import type { LogRecord } from '../model/event.ts'
import { formatCheckpoint } from '../model/ids.ts'
import { diffUpdate, replaceState } from '../model/patch.ts'
import type { Run } from '../model/run.ts'
import { standingOf } from '../model/standing.ts'
import type { Thread, ThreadKey } from '../store/store.ts'
import { checkpointSeq } from './checkpoint-seq.ts'
import type { Core } from './core.ts'
import { newEvent } from './new-event.ts'

/** Takes a thread's state back to a checkpoint, with the version that it had there. No code of a user runs. */
export async function rewindThread(core: Core, key: ThreadKey, checkpoint: string, by: string | undefined): Promise<void> {
  const { store, codec, committer } = core
  for (let tries = 0; tries < 50; tries++) {
    const to = await checkpointSeq(core, key, checkpoint)
    const thread = (await store.readThread(key)) as Thread
    const { headSeq } = thread
    if (to === headSeq) return
    // Whoever starts a run after this writes to the log, and the commit is refused.
    const [open] = await unfinishedRuns(core, key)
    if (open !== undefined) throw isBusy(open, formatCheckpoint(key.threadId, to))
    const [now, then] = await Promise.all([headSeq, to].map((seq) => loadState(store, codec, thread, seq)))
    const version = then?.version ?? 0
    const value = then?.value
    const isWhole = value === undefined || now?.value === undefined
    const patch = isWhole ? replaceState(value) : (diffUpdate(now.value, () => value) ?? [])
    const event = await newEvent(core, 'thread_rewound', { to, ...(by !== undefined && { by }) })
    const { records: ofMemory, logged } = await takeBackMemory({ store, codec, now: event.at }, key, { to, headSeq, by })
    const records = [...ofMemory, ...(await takeBackArtifacts(core, key, to))]
    const memory = logged.map((data) => ({ ...event, type: 'memory_written' as const, payload: codec.encode(data) }))
    const answer = await committer.commit({
      ...{ ...key, runId: null, guard: { kind: 'thread', headSeq }, isCheckpoint: true, stateVersion: version },
      events: [...memory, { ...event, count: version, patch: codec.encode(patch) }],
      ...(records.length > 0 && { records }),
    })
    if (answer.ok) return
  }
  throw new HoldfastError('conflict', `Thread "${key.threadId}" keeps changing; try again.`, { retryable: true })
}

/** Refuses to continue a run that has ended, once its thread was rewound: its state is another one now. Says where the log ended. */
export async function refuseRewound({ store }: Core, run: Run, verb: string): Promise<{ readonly headSeq: number }> {
  const { threadId } = run
  const { headSeq, rewound } = await rewoundSince(store, run)
  if (rewound === undefined) return { headSeq }
  throw new HoldfastError(
    'conflict',
    `Run "${run.id}" can't be ${verb}: thread "${threadId}" was rewound since it ended (${formatCheckpoint(threadId, rewound.seq)}). Start a new run, or fork the thread at a checkpoint of this one.`,
    { details: { runId: run.id, threadId } },
  )
}

/** What took the thread back since a run ended, if anything did, and where the log ended then. */
export async function rewoundSince(
  store: Core['store'],
  { owner, threadId, endSeq }: Run,
): Promise<{ readonly headSeq: number; readonly rewound: LogRecord | undefined }> {
  const headSeq = (await store.readThread({ owner, threadId }))?.headSeq ?? 0
  const [rewound] = await store.readLog({
    ...{ owner, threadId, afterSeq: endSeq ?? 0, toSeq: headSeq, types: ['thread_rewound'] as const, bare: true, limit: 1 },
  })
  return { headSeq, rewound }
}

async function unfinishedRuns({ store }: Core, key: ThreadKey): Promise<readonly Run[]> {
  const statuses = ['pending', 'running', 'waiting', 'paused'] as const
  return (await store.listRuns({ ...key, statuses, limit: 1 })).items
}

function isBusy(run: Run, checkpoint: string): HoldfastError {
  return new HoldfastError(
    'conflict',
    `Thread "${run.threadId}" can't be rewound to ${checkpoint}: run "${run.id}" is ${standingOf(run).is}. Wait for it, or cancel it; ` +
      `run.rollback(checkpoint) takes back what it did; thread.fork(checkpoint) leaves it alone.`,
    { details: { runId: run.id, threadId: run.threadId, status: run.status }, retryable: run.status !== 'paused' },
  )
}
