import type { NewEvent } from '../../model/event.ts'
import type { Budget } from '../../model/usage.ts'
import type { Change } from '../../store/change.ts'
import type { Message } from '../../store/store.ts'
import type { HeldRun } from '../execution/held-run.ts'
import type { RunJournal } from '../execution/run-journal.ts'
import type { Order } from '../replay/tape.ts'
import { outranks } from './outranks.ts'

/**
 * Looks for a cancel or a resume that came after the inbox was last read, and before the commit that paused the run: the client that asked for it may be
 * gone, or was answered while the run was still running, and nothing else reads the inbox of a paused run. The run is made due once more, unless
 * something was done about it since.
 */
export async function takeUpLateRequest(paused: PausedRun, pause: Change): Promise<void> {
  const { owner, runId, store, log } = paused.run
  try {
    const messages = (await store.readInbox({ owner, runId })).filter(({ id }) => id > (pause.mailSeen ?? 0))
    const taken = takeUpCancel(paused, messages, pause) ?? takeUpResume(paused, messages, pause)
    if (taken === null) return
    const { threadId, epoch } = paused.run.claim.run
    const change: Change = {
      ...{ owner, threadId, runId, isCheckpoint: true, ...taken },
      guard: { kind: 'run', epoch, status: 'paused' },
      run: { status: 'pending', reason: null, due: { inMs: 0 }, hasProgress: true },
    }
    const [answer] = await store.commit([change])
    if (answer?.ok) paused.run.engine.wakeWorker()
  } catch (error) {
    const help = 'run.resume() continues it, run.cancel() ends it'
    log.warn(`a run was paused, and whether it was resumed or cancelled meanwhile could not be read: ${help}`, { runId, error })
  }
}

type TakenUp = Pick<Change, 'events' | 'readMessages'>

function takeUpCancel(paused: PausedRun, messages: readonly Message[], { run }: Change): TakenUp | null {
  let highest: Extract<Order, { kind: 'cancel' }> | undefined
  for (const message of messages) {
    if (message.kind !== 'cancel') continue
    const { by, undo } = read<{ by?: string; undo?: false }>(paused, message)
    const order = { kind: 'cancel', by, ...(undo === false && { undo }) } as const
    if (highest === undefined || outranks(order, highest)) highest = order
  }
  // An undo that has just failed is not tried again for it: the client that asked is told that it did.
  if (highest === undefined || (run?.reason === 'undo' && highest.undo !== false)) return null
  // A function that brought its workers down is not called again for this.
  const data = { order: run?.reason === 'poisoned' ? { ...highest, replays: false } : highest }
  return { events: [paused.journal.event('run_resumed', null, { data })] }
}

/** The last one counts: a pause that was asked for after it stays. */
function takeUpResume(paused: PausedRun, messages: readonly Message[], { events, run }: Change): TakenUp | null {
  const requests = messages.filter(({ kind }) => kind === 'pause' || kind === 'resume')
  const last = requests.at(-1)
  if (last?.kind !== 'resume' || !events.some(({ type }) => type === 'run_paused')) return null
  const raised: NewEvent[] = []
  for (const request of requests) {
    const { by, budget } = read<{ by?: string; budget?: Budget }>(paused, request)
    if (budget !== undefined)
      raised.push(paused.journal.event('budget_raised', null, { data: { budget, ...(by !== undefined && { by }) } }))
  }
  const reason = run?.reason
  if (reason !== 'asked' && (reason !== 'budget' || raised.length === 0)) return null
  const { by } = read<{ by?: string }>(paused, last)
  const resumed = paused.journal.event('run_resumed', null, { data: by === undefined ? {} : { by } })
  return { events: [...raised, resumed], readMessages: requests.map(({ id }) => id) }
}

function read<Data>({ run: { codec } }: PausedRun, { payload }: Message): Partial<Data> {
  return (payload === null ? {} : codec.decode(payload)) as Partial<Data>
}

interface PausedRun {
  readonly run: HeldRun
  readonly journal: RunJournal
}
