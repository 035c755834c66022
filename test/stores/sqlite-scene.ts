import type { EventType, NewEvent } from '../../src/model/event.ts'
import type { Change, NewRun } from '../../src/store/change.ts'
import type { Claim, ClaimRequest, Store } from '../../src/store/store.ts'

/** Short words for the changes that the tests of the SQLite store and the processes they start write. */

export function event(type: EventType, fields: Partial<NewEvent> = {}): NewEvent {
  return { type, step: null, count: 0, attempt: 0, at: Date.now(), durationMs: null, payload: null, patch: null, ...fields }
}

export function creating(id: string, fields: Partial<NewRun> = {}): Change {
  const run: NewRun = {
    ...{ owner: '', id, threadId: id, workflow: 'report', version: 1, queue: 'default', priority: 0, fingerprint: 'f' },
    ...{ due: { inMs: 0 }, ifBusy: 'queue', queued: event('run_queued', { payload: `"input of ${id}"` }) },
    ...fields,
  }
  return {
    owner: '',
    threadId: run.threadId,
    runId: null,
    guard: { kind: 'none' },
    events: [],
    isCheckpoint: true,
    creates: [run],
  }
}

export function stepping({ run, leaseId }: Claim, fields: Partial<Change> = {}): Change {
  return {
    ...{
      owner: run.owner,
      threadId: run.threadId,
      runId: run.id,
      guard: { kind: 'lease', epoch: run.epoch, leaseId },
      isCheckpoint: true,
    },
    events: [event('step_completed', { step: 'work', count: 1, attempt: 1, payload: '{"done":true}' })],
    ...fields,
  }
}

export function claimRequest(fields: Partial<ClaimRequest> = {}): ClaimRequest {
  return { workerId: 'worker-1', leaseMs: 60_000, limit: 100, workflows: [{ name: 'report', version: 1 }], ...fields }
}

/** Creates a run and claims it. Nothing else may be claimable. */
export async function createAndClaim(store: Store, id: string): Promise<Claim> {
  await store.commit([creating(id)])
  const [claim] = await store.claim(claimRequest())
  if (claim === undefined) throw new Error(`run ${id} was not claimed`)
  return claim
}
