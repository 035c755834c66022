import type { NewEvent } from '../../model/event.ts'
import type { Budget } from '../../model/usage.ts'
import type { Change } from '../../store/change.ts'
import type { Message } from '../../store/store.ts'
import type { Execution } from '../execution/execution.ts'
import type { Order } from '../replay/tape.ts'
import { outranks } from './outranks.ts'

/**
 * Looks for a cancel or a resume that came after the inbox was last read, and before the commit that paused the run: whoever asked for it may be
 * gone, or was answered while the run was still running, and nobody else reads the inbox of a paused run. The run is taken up once more, unless
 * somebody has done something about it since.
 */
export async function takeUpLateRequest(execution: Execution, pause: Change): Promise<void> {
  const { owner, runId, store, log } = execution
  try {
    const messages = (await store.readInbox({ owner, runId })).filter(({ id }) => id > (pause.mailSeen ?? 0))
    const taken = takeUpCancel(execution, messages, pause) ?? takeUpResume(execution, messages, pause)
    if (taken === null) return
    const { threadId, epoch } = execution.claim.run
    const change: Change = {
      ...{ owner, threadId, runId, isCheckpoint: true, ...taken },
      guard: { kind: 'run', epoch, status: 'paused' },
      run: { status: 'pending', reason: null, due: { inMs: 0 }, hasProgress: true },
    }
    const [answer] = await store.commit([change])
    if (answer?.ok) execution.wakeWorker()
  } catch (error) {
    const help = 'run.resume() continues it, run.cancel() ends it'
    log.warn(`a run was paused, and whether it was resumed or cancelled meanwhile could not be read: ${help}`, { runId, error })
  }
}

type TakenUp = Pick<Change, 'events' | 'readMessages'>

function takeUpCancel(execution: Execution, messages: readonly Message[], { run }: Change): TakenUp | null {
  let highest: Extract<Order, { kind: 'cancel' }> | undefined
  for (const message of messages) {
    if (message.kind !== 'cancel') continue
    const { by, undo } = read<{ by?: string; undo?: false }>(execution, message)
    const order = { kind: 'cancel', by, ...(undo === false && { undo }) } as const
    if (highest === undefined || outranks(order, highest)) highest = order
  }
  // An undo that has just failed is not tried again for it: whoever asked is told that it did.
  if (highest === undefined || (run?.reason === 'undo' && highest.undo !== false)) return null
  // A function that brought its workers down is not called again for this.
  const data = { order: run?.reason === 'poisoned' ? { ...highest, replays: false } : highest }
  return { events: [execution.event('run_resumed', null, { data })] }
}

/** The last one counts: who has asked for a pause after it has one. */
function takeUpResume(execution: Execution, messages: readonly Message[], { events, run }: Change): TakenUp | null {
  const requests = messages.filter(({ kind }) => kind === 'pause' || kind === 'resume')
  const last = requests.at(-1)
  if (last?.kind !== 'resume' || !events.some(({ type }) => type === 'run_paused')) return null
  const raised: NewEvent[] = []
  for (const request of requests) {
    const { by, budget } = read<{ by?: string; budget?: Budget }>(execution, request)
    if (budget !== undefined)
      raised.push(execution.event('budget_raised', null, { data: { budget, ...(by !== undefined && { by }) } }))
  }
  const reason = run?.reason
  if (reason !== 'asked' && (reason !== 'budget' || raised.length === 0)) return null
  const { by } = read<{ by?: string }>(execution, last)
  const resumed = execution.event('run_resumed', null, { data: by === undefined ? {} : { by } })
  return { events: [...raised, resumed], readMessages: requests.map(({ id }) => id) }
}

function read<Data>({ codec }: Execution, { payload }: Message): Partial<Data> {
  return (payload === null ? {} : codec.decode(payload)) as Partial<Data>
}
