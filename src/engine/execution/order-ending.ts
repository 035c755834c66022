import { takeBackArtifacts } from '../../artifacts/thread-artifacts.ts'
import { type TakenBack, takeBackMemory } from '../../memory/take-back-memory.ts'
import { toStorableError } from '../../model/stored-error.ts'
import type { Playback } from '../replay/playback.ts'
import type { Order } from '../replay/tape.ts'
import { loadState, valueFor } from '../state/thread-state.ts'
import type { Finish, UnwoundRun } from '../undo/unwinding.ts'
import type { Ending } from './ending.ts'
import type { RunClock } from './run-clock.ts'
import type { StateUpdates } from './state-updates.ts'
import type { Suspension } from './suspension.ts'

/** The parts of a run that an order is carried out on. */
export interface OrderedRun extends UnwoundRun {
  readonly playback: Playback
  readonly state: StateUpdates
  readonly suspension: Suspension
  readonly ending: Ending
  readonly clock: RunClock
}

/** How a run ends, or stops, once what an order says is undone. What has to be read for it is read here. */
export async function orderEnding(run: OrderedRun, order: Order): Promise<Finish> {
  if (order.kind === 'cancel') return cancelled(run, order)
  return order.kind === 'fail' ? failed(run, order) : rolledBack(run, order)
}

function cancelled({ ending, journal }: OrderedRun, { by }: Extract<Order, { kind: 'cancel' }>): Finish {
  return (_, headSeq) => {
    const data = { ...(by !== undefined && { by }), ...ending.usageSoFar }
    const run = { status: 'cancelled', reason: null, currentStep: null, setsEnd: true } as const
    return ending.endWith(() => [journal.event('run_cancelled', null, { data })], run, { kind: 'cancelled' }, { headSeq })
  }
}

function failed({ ending, journal }: OrderedRun, { error, failed, undo }: Extract<Order, { kind: 'fail' }>): Finish {
  return (_, headSeq) => {
    const isUndone = undo !== false
    const data = { error: toStorableError(error), failed, ...(isUndone && { isUndone }), ...ending.usageSoFar }
    return ending.finish('failed', journal.event('run_failed', null, { data }), headSeq)
  }
}

async function rolledBack(ordered: OrderedRun, { to, by }: Extract<Order, { kind: 'rollback' }>): Promise<Finish> {
  const { ending, journal, undos, state, inbox } = ordered
  const before = await stateAt(ordered, to)
  const { records, logged } = await memoryAt(ordered, { to, by })
  return (taken, headSeq) => {
    const eventsOf = () => {
      const data = { to, undone: undos.undone(to), ...(by !== undefined && { by }) }
      if (before.isMigrated) state.migrate()
      const patch = state.timeline.replace(before.value)
      inbox.messages.forget('rollback')
      const memory = logged.map((value) => journal.event('memory_written', null, { data: { ...value } }))
      return [...memory, journal.event('run_rolled_back', null, { data, patch })]
    }
    const run = { status: 'paused', reason: 'asked', due: 'never', setsEnd: true, currentStep: null } as const
    return ending.endWith(
      eventsOf,
      { ...run, uncountClaim: true },
      { kind: 'paused' },
      { delivers: taken, headSeq, writes: { records } },
    )
  }
}

/** The thread's own session goes back with it, and so does what it did to facts and artifacts. */
async function memoryAt(
  { run, clock, journal }: OrderedRun,
  place: { readonly to: number; readonly by?: string | undefined },
): Promise<TakenBack> {
  const { owner, threadId, store, codec } = run
  const thread = { owner, threadId }
  const memory = await takeBackMemory({ store, codec, now: clock.now() }, thread, { ...place, headSeq: journal.lastSeq })
  return { ...memory, records: [...memory.records, ...(await takeBackArtifacts({ store, codec }, thread, place.to))] }
}

/** What the state is taken back to, at the version that the workflow knows. */
async function stateAt({ run, state }: OrderedRun, seq: number): Promise<{ value: unknown; isMigrated: boolean }> {
  const { owner, threadId, store, codec, workflow } = run
  const { timeline } = state
  const { state: definition } = workflow.options
  const thread = await store.readThread({ owner, threadId })
  if (thread === null) return { value: timeline.whole(0).value, isMigrated: true }
  const at = await loadState(store, codec, thread, seq)
  try {
    timeline.checkMigration()
    return { value: valueFor(definition, at), isMigrated: true }
  } catch {
    // A migration that throws must not keep a run from going back. The thread's version never goes down.
    const ofThread = definition === undefined ? undefined : { ...definition, version: timeline.version }
    return { value: valueFor(ofThread, at), isMigrated: false }
  }
}
