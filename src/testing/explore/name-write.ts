import type { EventType, NewEvent } from '../../model/event.ts'
import type { Change } from '../../store/change.ts'

/** A write of a worker, in the words of the log. */
export interface NamedWrite {
  /** What it is about: `effect_completed send #1`. The first of what it writes. */
  readonly name: string
  /** All that it writes, in order. */
  readonly names: readonly string[]
  /** It only brings what would have been written with the next one: whether it is made depends on how long a body takes. */
  readonly isFlush: boolean
}

/** Events that are written along with others, whenever those are: they name a write only where it has nothing else. */
const alongside: ReadonlySet<EventType> = new Set<EventType>([
  ...(['run_started', 'run_recovered', 'step_started', 'value_recorded', 'usage_recorded'] as const),
  ...(['progress_reported', 'stream_opened', 'memory_written', 'memory_recalled', 'artifact_saved', 'artifact_deleted'] as const),
  ...(['state_updated', 'state_migrated'] as const),
])

/** Names a commit. Of runs other than `runId` their id is said, too. */
export function nameWrite(changes: readonly Change[], runId: string): NamedWrite {
  const all = changes.flatMap((change) => {
    const of = change.runId === runId ? '' : ` of run "${change.runId}"`
    return change.events.map((event) => ({ event, name: `${nameEvent(event)}${of}` }))
  })
  const telling = all.filter(({ event }) => isTelling(event))
  const events = telling.length > 0 ? telling : all
  const names = events.length > 0 ? events.map(({ name }) => name) : changes.map(nameBareChange)
  const [name = 'nothing'] = names
  const isFlush = telling.length === 0 && changes.every(({ run, creates }) => run?.status === undefined && creates === undefined)
  return { name, names, isFlush }
}

/** Whether a write can be told by it. */
export function isTelling({ type, step }: Pick<NewEvent, 'type' | 'step'>): boolean {
  return !alongside.has(type) || (type === 'value_recorded' && step !== null && /(^|\/)checkpoint$/.test(step))
}

export function nameEvent({ type, step, count, attempt }: Pick<NewEvent, 'type' | 'step' | 'count' | 'attempt'>): string {
  if (step === null) return type
  return `${type} ${step}${count > 0 ? ` #${count}` : ''}${attempt > 1 ? ` (attempt ${attempt})` : ''}`
}

/** A change that adds nothing to the log. */
function nameBareChange({ run, operation, chunks }: Change): string {
  if (run?.status !== undefined) return `the run as ${run.status}${run.reason == null ? '' : ` (${run.reason})`}`
  if (operation !== undefined) return `the operation "${operation.key}" (${operation.kind})`
  return chunks === undefined ? 'a sign of life' : 'chunks of a stream'
}
