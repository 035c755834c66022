import { diffStates, type StateChange } from '../model/state-diff.ts'
import type { History, HistoryEvent } from './history.ts'
import { StepsInForce } from './steps-in-force.ts'

/** What differs between two checkpoints, from the first to the second. */
export interface CheckpointDiff {
  /** Items of `state.messages` in the second that the first does not have. */
  readonly messagesAdded: number
  /** Steps and effects whose results count at the second and not at the first. */
  readonly stepsAdded: number
  /** What differs in the state, path by path. Applied in order, they make the first state the second. */
  readonly changes: readonly StateChange[]
}

interface Place {
  readonly history: History
  readonly id: string
}

export async function diffCheckpoints(a: Place, b: Place): Promise<CheckpointDiff> {
  // A state that was never written is the empty one.
  const [before = {}, after = {}] = await Promise.all([a.history.stateAt(a.id), b.history.stateAt(b.id)])
  const changes = diffStates(before, after)
  return { messagesAdded: countMessages(changes), stepsAdded: await countSteps(a, b), changes }
}

function countMessages(changes: readonly StateChange[]): number {
  let count = 0
  for (const change of changes) {
    const { path } = change
    if (path.length > 0 && path[0] !== 'messages') continue
    if (path.length === 2) count += change.change === 'added' && typeof path[1] === 'number' ? 1 : 0
    else if (change.change === 'added' && path.length === 1) count += lengthOf(change.value)
    else if (change.change === 'replaced' && path.length === 1) count += lengthOf(change.after)
    else if (change.change === 'replaced' && path.length === 0)
      count += lengthOf((change.after as { messages?: unknown } | null)?.messages)
  }
  return count
}

function lengthOf(list: unknown): number {
  return Array.isArray(list) ? list.length : 0
}

async function countSteps(a: Place, b: Place): Promise<number> {
  const isOneHistory = a.history.name === b.history.name
  const found = new StepsInForce()
  // What is forgotten by a checkpoint stays forgotten: what comes after it in the same history is all that can be new.
  if (isOneHistory && b.history.positionOf(b.id) >= a.history.positionOf(a.id)) {
    await found.read(b.history, { after: a.id, to: b.id })
    return found.count
  }
  const known = new StepsInForce()
  await Promise.all([known.read(a.history, { to: a.id }), found.read(b.history, { to: b.id })])
  const nameOf = ({ id, step, count }: HistoryEvent) => (isOneHistory ? id : `${step}#${count}`)
  const names = new Set(known.steps.map(nameOf))
  return found.steps.filter((step) => !names.has(nameOf(step))).length
}
