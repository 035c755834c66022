import type { PauseReason } from '../model/run.ts'
import type { Change } from '../store/change.ts'
import type { Execution } from './execution.ts'
import { outranks } from './outranks.ts'
import type { Order } from './tape.ts'

/**
 * Looks for a cancel that came after the inbox was last read, and before the commit that paused the run: whoever asked for it may be gone, and
 * nobody else reads the inbox of a paused run. The run is taken up once more to carry it out, unless somebody has done something about it since.
 */
export async function takeUpLateCancel(execution: Execution, reason: PauseReason, mailSeen = 0): Promise<void> {
  const { owner, runId, store, log } = execution
  try {
    const order = await readLateCancel(execution, mailSeen)
    // An undo that has just failed is not tried again for it: whoever asked is told that it did.
    if (order === undefined || (reason === 'undo' && order.undo !== false)) return
    const { threadId, epoch } = execution.claim.run
    // A function that brought its workers down is not called again for this.
    const data = { order: reason === 'poisoned' ? { ...order, replays: false } : order }
    const change: Change = {
      ...{ owner, threadId, runId, isCheckpoint: true, events: [execution.event('run_resumed', null, { data })] },
      guard: { kind: 'run', epoch, status: 'paused' },
      run: { status: 'pending', reason: null, due: { inMs: 0 }, hasProgress: true },
    }
    const [answer] = await store.commit([change])
    if (answer?.ok) execution.wakeWorker()
  } catch (error) {
    log.warn('a run was paused, and whether it was cancelled meanwhile could not be read: run.cancel() ends it', { runId, error })
  }
}

async function readLateCancel({ owner, runId, store, codec }: Execution, mailSeen: number) {
  let highest: Extract<Order, { kind: 'cancel' }> | undefined
  for (const { id, kind, payload } of await store.readInbox({ owner, runId })) {
    if (kind !== 'cancel' || id <= mailSeen) continue
    const { by, undo } = (payload === null ? {} : codec.decode(payload)) as { by?: string; undo?: false }
    const order = { kind, by, ...(undo === false && { undo }) } as const
    if (highest === undefined || outranks(order, highest)) highest = order
  }
  return highest
}
