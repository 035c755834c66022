import { diffStates, type StateChange } from '../model/state-diff.ts'
import { allEvents } from './all-events.ts'
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
  /** What was written to memory by the second and not by the first. */
  readonly memory: readonly MemoryWrite[]
  /** Artifacts that were saved or deleted by the second and not by the first. */
  readonly artifacts: readonly ArtifactWrite[]
}

/** A write of memory, as the log has it: a session value, a patch of a profile, or an act on facts. */
export interface MemoryWrite {
  readonly checkpoint: string
  readonly at: number
  readonly runId: string | null
  readonly step: string | null
  readonly data: Readonly<Record<string, unknown>>
}

/** An artifact that was saved or deleted, as the log has it. */
export interface ArtifactWrite extends MemoryWrite {
  readonly type: 'artifact_saved' | 'artifact_deleted'
}

interface Place {
  readonly history: History
  readonly id: string
}

export async function diffCheckpoints(a: Place, b: Place): Promise<CheckpointDiff> {
  // A state that was never written is the empty one.
  const [before = {}, after = {}] = await Promise.all([a.history.stateAt(a.id), b.history.stateAt(b.id)])
  const changes = diffStates(before, after)
  const [stepsAdded, memory, artifacts] = await Promise.all([countSteps(a, b), memoryAdded(a, b), artifactsAdded(a, b)])
  return { messagesAdded: countMessages(changes), stepsAdded, changes, memory, artifacts }
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
  if (isAfter(b, a)) {
    await found.read(b.history, { after: a.id, to: b.id })
    return found.count
  }
  const known = new StepsInForce()
  await Promise.all([known.read(a.history, { to: a.id }), found.read(b.history, { to: b.id })])
  const nameOf = ({ id, step, count }: HistoryEvent) => (isOneHistory ? id : `${step}#${count}`)
  const names = new Set(known.steps.map(nameOf))
  return found.steps.filter((step) => !names.has(nameOf(step))).length
}

function memoryAdded(a: Place, b: Place): Promise<MemoryWrite[]> {
  return added(a, b, readMemory, ({ step, data }) => JSON.stringify([step, data]))
}

/** In a fork it has the id that it has in the thread that this was forked from. */
function artifactsAdded(a: Place, b: Place): Promise<ArtifactWrite[]> {
  return added(a, b, readArtifacts, ({ type, data }) => `${type} ${String(data['id'])}`)
}

async function added<Write>(
  a: Place,
  b: Place,
  read: (place: Place, after?: string) => Promise<Write[]>,
  nameOf: (write: Write) => string,
): Promise<Write[]> {
  if (isAfter(b, a)) return read(b, a.id)
  const [known, found] = await Promise.all([read(a), read(b)])
  const names = new Set(known.map(nameOf))
  return found.filter((write) => !names.has(nameOf(write)))
}

async function readMemory({ history, id }: Place, after?: string): Promise<MemoryWrite[]> {
  const writes: MemoryWrite[] = []
  const query = { to: id, types: ['memory_written'] as const, ...(after !== undefined && { after }) }
  for await (const { id: checkpoint, at, runId, step, data } of allEvents(history, query))
    writes.push({ checkpoint, at, runId, step, data })
  return writes
}

async function readArtifacts({ history, id }: Place, after?: string): Promise<ArtifactWrite[]> {
  const writes: ArtifactWrite[] = []
  const types = ['artifact_saved', 'artifact_deleted'] as const
  for await (const { id: checkpoint, type, at, runId, step, data } of allEvents(history, {
    ...{ to: id, types },
    ...(after !== undefined && { after }),
  }))
    writes.push({ checkpoint, type: type as ArtifactWrite['type'], at, runId, step, data })
  return writes
}

/** Whether it is in the same history, there or later. */
function isAfter(later: Place, earlier: Place): boolean {
  return (
    later.history.name === earlier.history.name && later.history.positionOf(later.id) >= earlier.history.positionOf(earlier.id)
  )
}
