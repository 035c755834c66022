import { endOfCopy } from './judge-copies.ts'
import type { View, Violation } from './oracle.ts'
import type { ObservedRun } from './run-case.ts'

const kinds = { run_completed: 'completed', run_failed: 'failed', question_asked: 'waiting_for_person' } as const

/** What a run has to say is said, each thing under an id of its own; what somebody did, and what its parent hears, is not. */
export function judgeNotifications(view: View): Violation[] {
  if (!view.given.notifies || view.isDeleted) return []
  return view.seen.runs.flatMap((run) => [...unsaid(view, run), ...saidInVain(view, run)])
}

/** How many messages of each kind a run's log stands for. */
function dueMessages(view: View, run: ObservedRun): Map<string, number> {
  const events = run.events.filter(({ seq }) => seq > endOfCopy(run))
  const due = new Map<string, number>()
  for (const { type } of events) {
    const kind = kinds[type as keyof typeof kinds]
    if (kind === undefined || (isAttached(view, run) && kind !== 'waiting_for_person')) continue
    due.set(kind, (due.get(kind) ?? 0) + 1)
  }
  return due
}

function unsaid(view: View, run: ObservedRun): Violation[] {
  return [...dueMessages(view, run)].flatMap(([kind, count]) => {
    const ids = new Set(
      view.journal.notes.flatMap((note) =>
        note.of === 'told' && note.run === run.info.id && note.kind === kind ? [note.id] : [],
      ),
    )
    if (ids.size >= count) return []
    return [
      {
        rule: 'message_lost',
        what: `run "${run.info.id}" has ${count} times something to say as ${kind}, and said it ${ids.size} times`,
      },
    ]
  })
}

function saidInVain(view: View, run: ObservedRun): Violation[] {
  const { info, events } = run
  return view.journal.notes.flatMap((note) => {
    if (note.of !== 'told' || note.run !== info.id) return []
    const isEnd = note.kind === 'completed' || note.kind === 'failed'
    const isTrue = events.some(({ type }) => kinds[type as keyof typeof kinds] === note.kind)
    if (!isEnd || (isTrue && !isAttached(view, run))) return []
    return [{ rule: 'message_false', what: `run "${info.id}" said that it is ${note.kind}` }]
  })
}

/** A child that another run waits for. A copy belongs to nobody. */
function isAttached(view: View, { info }: ObservedRun): boolean {
  const { workflow } = info
  if (info.forkedFrom !== undefined) return false
  for (const { node } of view.nodes.values()) {
    if (node.kind === 'call' && workflow.replace(/-.*$/, '') === node.child.name) return !node.isDetached
  }
  return false
}
