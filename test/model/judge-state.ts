import type { View, Violation } from './oracle.ts'
import { type ObservedRun, rootId } from './run-case.ts'
import { flatten, type ModelState, nodeOfWord, type ProgramOutput, type Trace } from './values.ts'

/** The state is what the updates of the path that was taken made of it, each of them once. */
export function judgeState(view: View, run: ObservedRun): Violation[] {
  const { info, state, stateAtHead } = run
  const violations: Violation[] = []
  const say = (rule: string, what: string) => violations.push({ rule, what: `thread "${info.threadId}": ${what}` })
  if (JSON.stringify(state) !== JSON.stringify(stateAtHead)) say('state_at_head', 'stateAt its last checkpoint is not its state')
  const { list = [], edits = [] } = (state ?? {}) as Partial<ModelState>
  for (const twice of repeated(list)) say('update_twice', `update ${twice} was applied twice: ${list.join(' ')}`)
  for (const twice of repeated(edits)) say('edit_twice', `edit ${twice} was applied twice`)
  if (info.id === rootId) for (const lost of lostEdits(view, edits)) say('edit_lost', `${lost} is gone from the state`)
  if (info.status !== 'completed') return violations
  const trace = traceOf(run)
  const must = new Set(flatten(trace))
  for (const update of must)
    if (!list.includes(update)) say('update_lost', `update ${update} is not in the state: ${list.join(' ')}`)
  for (const update of list) {
    const id = Number(/\d+/.exec(update)?.[0])
    const isInTry = view.nodes.get(id)?.above.some(({ kind }) => kind === 'try')
    if (!must.has(update) && !view.canBeLeft(id) && !isInTry)
      say('update_foreign', `update ${update} is in the state, and the function did not come by it`)
  }
  // What was undone and done again comes after what was kept.
  if (violations.length === 0 && !view.isRedone(run.program)) {
    const problem = outOfOrder(trace, list, madeAgainIn(view, run))
    if (problem !== undefined) say('update_order', `${problem}: ${list.join(' ')}`)
  }
  return violations
}

function traceOf({ program, output, state }: ObservedRun): Trace {
  if (program.stages === undefined) return (output as ProgramOutput | undefined)?.trace ?? []
  return program.stages.map((stage) => ({
    beside: stage.map((section) => (state as ModelState)[`p${section.id}`]?.trace ?? []),
  }))
}

function repeated(words: readonly string[]): string[] {
  return [...new Set(words.filter((word, index) => words.indexOf(word) !== index))]
}

/** An edit that was taken stays, unless the thread was taken back to before it, or deleted. */
function lostEdits(view: View, edits: readonly string[]): string[] {
  const isRewound = view.journal.notes.some(({ of }) => of === 'rewinding')
  if (view.isRolledBack || view.isDeleted || isRewound) return []
  return view.journal.notes.flatMap((note) => {
    if (note.of !== 'act' || note.act.kind !== 'edit' || note.stage !== 'ends' || note.code !== undefined) return []
    return edits.includes(`edit${note.nth}`) ? [] : [`edit${note.nth}`]
  })
}

/**
 * Another attempt takes out what the function updated itself after a failure that is reopened, and runs it again; results that came after it are
 * kept, and stand before it then (docs/guides/retries.md, "What becomes of the state"). The log says where that was done.
 */
function madeAgainIn(view: View, { events }: ObservedRun): (word: string) => boolean {
  const isRebuilt = events.some(({ type, data }) => type === 'state_updated' && data?.['rebuilt'] !== undefined)
  return (word) => isRebuilt && view.nodeAt(nodeOfWord(word))?.node.kind === 'update'
}

/** What one branch did one after the other stands in this order. */
function outOfOrder(trace: Trace, list: readonly string[], isMadeAgain: (word: string) => boolean): string | undefined {
  let latest = -1
  let word = ''
  for (const item of trace) {
    const words = typeof item === 'string' ? [item] : item.beside.flatMap(flatten)
    if (typeof item !== 'string') {
      for (const beside of item.beside) {
        const problem = outOfOrder(beside, list, isMadeAgain)
        if (problem !== undefined) return problem
      }
    }
    const places = words.map((one) => list.indexOf(one))
    if (places.some((place) => place < latest)) return `${words.join(' ')} stands before ${word}, which came first`
    const settled = withoutChance([item]).filter((one) => !isMadeAgain(one))
    if (settled.length > 0) {
      latest = Math.max(...settled.map((one) => list.indexOf(one)))
      word = list[latest] as string
    }
  }
  return undefined
}

/** What the winner of a race by chance did may come after what followed the race: another branch had won it then. */
function withoutChance(trace: Trace): string[] {
  return trace.flatMap((item) => {
    if (typeof item === 'string') return [item]
    return item.isByChance === true ? [] : item.beside.flatMap(withoutChance)
  })
}
