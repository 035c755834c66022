import type { RunEvent } from 'holdfast'
import { endOfCopy, sharedSections } from './judge-copies.ts'
import type { View, Violation } from './oracle.ts'
import { idOfPath, type Node } from './program.ts'
import { type ObservedRun, rootId } from './run-case.ts'

interface Undoable {
  readonly seq: number
  readonly path: string
  readonly isNamed: boolean
  /** Known from what a person said: the key of the effect, and the tape that intended it. */
  readonly decided?: { readonly key: unknown; readonly tape: number }
}

/**
 * Each result with an undo is undone when its run is cancelled or rolled back over it, or fails with `undoOnFailure`: last in first out, once,
 * and nothing else is.
 */
export function judgeUndos(view: View, run: ObservedRun): Violation[] {
  return [...judgeLog(view, run), ...judgeCalls(view, run)]
}

function judgeLog(view: View, run: ObservedRun): Violation[] {
  const { info, events, program } = run
  const violations: Violation[] = []
  const say = (rule: string, what: string) => violations.push({ rule, what: `run "${info.id}": ${what}` })
  const cancels = view.journal.notes.flatMap((note) => (note.of === 'act' && note.act.kind === 'cancel' ? [note.act.undo] : []))
  const isCertain = info.id === rootId ? !cancels.includes(false) : !cancels.includes(false)
  let stack: Undoable[] = []
  let tapes = 0
  /** Where it was ordered to undo: what a person says later has its undo, too, and not in a certain order. */
  let orderedAt = 0
  const intents = new Map<unknown, number>()
  const copied = endOfCopy(run)
  let shared = sharedSections(events.filter(({ seq }) => seq <= copied))
  const scopes = new Map<string | undefined, unknown>()
  for (const [i, event] of events.entries()) {
    const { type, data } = event
    const undoable = toUndoable(view, event, program.stages !== undefined)
    if (type === 'step_started' && data?.['scope'] !== undefined) scopes.set(event.step, data['scope'])
    if (type === 'effect_intended') intents.set(data?.['key'], tapes)
    // Once the run has come by, its result stands there instead of the decision.
    if (type === 'effect_completed') stack = stack.filter(({ decided }) => decided?.key !== data?.['key'])
    if (type === 'effect_resolved') {
      const decided = { key: data?.['key'], tape: intents.get(data?.['key']) ?? 0 }
      if (undoable !== undefined && (undoable.isNamed || decided.tape === tapes)) stack.push({ ...undoable, decided })
    } else if (undoable !== undefined && !shared.has(scopes.get(undoable.path))) stack.push(undoable)
    const isOfEarlierTape = ({ decided }: Undoable) => decided !== undefined && decided.tape < tapes
    // What is said between the last look at the log and the last commit comes too late.
    const isTooLate = ({ decided, seq }: Undoable) => decided !== undefined && seq === events[i - 1]?.seq
    if (event.seq === copied) {
      // Nothing of what was copied has an undo; whether it was right is judged with the original.
      stack = []
      violations.length = 0
      continue
    }
    switch (type) {
      case 'undo_ordered':
        orderedAt = event.seq
        break
      case 'run_resumed':
        if (data?.['order'] !== undefined) orderedAt = event.seq
        break
      case 'step_undone': {
        const of = data?.['of'] as number | undefined
        const isRollback =
          events.slice(i).find(({ type: end }) => /^run_(?:rolled_back|cancelled|failed)$/.test(end))?.type === 'run_rolled_back'
        const found = stack.findLast(({ seq, path }) => (of === undefined ? path === event.step : seq === of))
        const isFree = (one: Undoable) =>
          one.decided !== undefined && (one.seq > orderedAt || (isRollback && isOfEarlierTape(one)))
        const top = stack.findLast((one) => !isFree(one))
        if (found === undefined) say('undo_unknown', `"${event.step}" was undone, which has no result with an undo`)
        else if (found !== top && !isFree(found))
          say('undo_order', `"${event.step}" was undone before "${top?.path}", which came later`)
        stack = stack.filter((one) => one !== found)
        break
      }
      case 'run_started':
        // A function ends with its tape; a name is known ever after.
        if (++tapes > 1) stack = stack.filter(({ isNamed }) => isNamed)
        break
      case 'run_rolled_back': {
        const to = data?.['to'] as number
        if (event.seq > copied) shared = sharedSections(events.slice(0, i + 1))
        const isLeft = (one: Undoable) => isOfEarlierTape(one) || isTooLate(one)
        for (const one of stack)
          if (one.seq > to && !isLeft(one)) say('undo_missing', `rolled back to ${to}, and "${one.path}" is not undone`)
        stack = stack.filter((one) => one.seq <= to || isLeft(one))
        break
      }
      case 'run_cancelled':
        if (isCertain)
          for (const one of stack) if (!isTooLate(one)) say('undo_missing', `cancelled, and "${one.path}" is not undone`)
        stack = []
        break
      case 'run_failed':
        if (program.undoOnFailure)
          for (const one of stack) if (!isTooLate(one)) say('undo_missing', `failed, and "${one.path}" is not undone`)
        break
      default:
    }
  }
  const isUndone = events.some(({ type, seq }) => type === 'step_undone' && seq > copied)
  const isCancelled = copied > 0 && info.status === 'cancelled'
  const isChild = copied === 0 && info.id !== rootId
  const mayUndo = view.isRolledBack || program.undoOnFailure || cancels.includes(true) || isChild || isCancelled
  if (isUndone && !mayUndo) say('undo_unasked', 'something was undone, and nobody asked for it')
  return violations
}

function toUndoable(view: View, { type, seq, step, data }: RunEvent, isPlan: boolean): Undoable | undefined {
  const isResult =
    type === 'step_completed' || type === 'effect_completed' || (type === 'effect_resolved' && data?.['happened'] === true)
  if (step === undefined || !isResult) return undefined
  const found = view.nodes.get(idOfPath(step))
  const undo = found === undefined ? undefined : undoOf(found.node)
  if (found === undefined || undo === undefined) return undefined
  const isInside = isPlan
    ? found.node.kind !== 'section' || found.above.length > 0
    : found.above.some(({ kind }) => kind === 'section')
  return { seq, path: step, isNamed: view.seen.features.namedUndo && (undo === 'named' || isInside) }
}

function undoOf(node: Node) {
  return 'undo' in node ? node.undo : undefined
}

/** The undos that were called are those on record: once each, without a crash. */
function judgeCalls(view: View, run: ObservedRun): Violation[] {
  const { info, program } = run
  const events = run.events.filter(({ seq }) => seq > endOfCopy(run))
  const violations: Violation[] = []
  if (view.isDeleted) return []
  const say = (rule: string, what: string) => violations.push({ rule, what: `run "${info.id}": ${what}` })
  const called = new Map<number, number>()
  for (const note of view.journal.notes) {
    if (note.of !== 'undo' || note.run !== info.id || !note.ok) continue
    const found = view.nodeAt(note.at)
    if (found === undefined || undoOf(found.node) === undefined)
      say('undo_wrong', `an undo was called with the result of ${note.at}`)
    else called.set(found.node.id, (called.get(found.node.id) ?? 0) + 1)
  }
  const recorded = new Map<number, number>()
  for (const { type, step } of events) {
    if (type !== 'step_undone' || step === undefined) continue
    recorded.set(idOfPath(step), (recorded.get(idOfPath(step)) ?? 0) + 1)
  }
  for (const id of new Set([...called.keys(), ...recorded.keys()])) {
    // One that the original and its copy share has one result.
    const node = view.nodes.get(id)?.node
    if (view.forks.length > 0 && node?.kind === 'effect' && node.key !== undefined) continue
    const calls = called.get(id) ?? 0
    const records = recorded.get(id) ?? 0
    if (calls < records) say('undo_not_called', `the undo of ${id} is on record ${records} times and was called ${calls} times`)
    if (calls > records && view.isCalm)
      say('undo_twice', `the undo of ${id} was called ${calls} times and is on record ${records} times`)
  }
  if (info.status === 'cancelled' && view.isCalm && !view.had((act) => act.kind === 'cancel' && !act.undo)) {
    for (const dropped of droppedResults(view, info.id, events))
      say('result_dropped', `${dropped} came to its end, and is neither on record nor undone`)
  }
  void program
  return violations
}

/** What came to its end while the run was cancelled is waited for and undone. */
function droppedResults(view: View, run: string, events: readonly RunEvent[]): string[] {
  // What was under way when a tape or the run came to its end was left behind then.
  const left = ['run_completed', 'run_failed', 'run_rolled_back']
  if (events.some(({ type }) => left.includes(type)) || events.filter(({ type }) => type === 'run_started').length > 1) return []
  const results = new Map<number, number>()
  for (const note of view.journal.notes) {
    if (note.of !== 'result' || note.run !== run) continue
    const node = view.nodeAt(note.at)?.node
    if (node === undefined || undoOf(node) === undefined || (node.kind === 'step' && node.timeoutMs !== undefined)) continue
    results.set(node.id, (results.get(node.id) ?? 0) + 1)
  }
  for (const { type, step } of events) {
    if (step === undefined || (type !== 'step_completed' && type !== 'effect_completed')) continue
    const id = idOfPath(step)
    if (results.has(id)) results.set(id, (results.get(id) as number) - 1)
  }
  return [...results].flatMap(([id, left]) => (left > 0 ? [`${view.nodes.get(id)?.node.kind} ${id}`] : []))
}
