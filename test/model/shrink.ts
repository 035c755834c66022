import type { Act } from './acts.ts'
import type { Case } from './case.ts'
import { type Node, type Program, type Seq, walk } from './program.ts'

/**
 * Smaller cases that may show the same. Tries the big cuts first, and takes whatever still breaks the rule; ends when nothing smaller does, or
 * when there were enough tries. Races are tried several times before a cut counts as harmless.
 */
export async function shrink(
  found: Case,
  breaks: (given: Case) => Promise<boolean>,
  { tries = 150, times = 2 }: { tries?: number; times?: number } = {},
): Promise<Case> {
  let best = found
  let left = tries
  for (let isSmaller = true; isSmaller && left > 0; ) {
    isSmaller = false
    for (const candidate of smaller(best)) {
      if (!isSound(candidate.program)) continue
      if (left-- <= 0) break
      let isBroken = false
      for (let time = 0; time < times && !isBroken; time++) isBroken = await breaks(candidate)
      if (!isBroken) continue
      best = candidate
      isSmaller = true
      break
    }
  }
  return best
}

/** A signal that never comes stands only where it may lose. */
function isSound(program: Program): boolean {
  for (const { node, above } of walk(program)) {
    if (node.kind === 'call' && !isSound(node.child)) return false
    if (node.kind !== 'signal' || !node.isNever) continue
    if (!above.some((one) => one.kind === 'race' && one.branches.length > 1)) return false
  }
  return true
}

function* smaller(given: Case): Generator<Case> {
  for (const acts of without(given.acts)) yield { ...given, acts }
  for (const faults of without(given.faults)) yield { ...given, faults }
  if (given.retries > 0) yield { ...given, retries: given.retries - 1 }
  if (given.hasSecondWorker) yield { ...given, hasSecondWorker: false }
  if (given.notifies) yield { ...given, notifies: false }
  for (const program of smallerPrograms(given.program)) yield { ...given, program }
  for (const [index, planned] of given.acts.entries())
    for (const act of plainerActs(planned.act)) yield { ...given, acts: given.acts.with(index, { ...planned, act }) }
  for (const [index, act] of given.acts.entries())
    if (act.isWedged) yield { ...given, acts: given.acts.with(index, { ...act, isWedged: false }) }
}

function* plainerActs(act: Act): Generator<Act> {
  if (act.kind !== 'fork' && act.kind !== 'replace') return
  if (act.of >= 0.5) yield { ...act, of: 0 }
  if (act.fate !== 'resume') yield { ...act, fate: 'resume' }
  if (act.kind === 'fork' && act.edits) yield { ...act, edits: false }
}

function* smallerPrograms(program: Program): Generator<Program> {
  if (program.tapes.length > 1) for (const tapes of without(program.tapes)) yield { ...program, tapes }
  if (program.undoOnFailure) yield { ...program, undoOnFailure: false }
  const { stages } = program
  if (stages !== undefined) {
    if (stages.length > 1) for (const fewer of without(stages)) yield { ...program, stages: fewer }
    for (const [at, stage] of stages.entries()) {
      if (stage.length > 1) for (const fewer of without(stage)) yield { ...program, stages: stages.with(at, fewer) }
      for (const [index, section] of stage.entries())
        for (const less of smallerNodes(section))
          if (less.kind === 'section') yield { ...program, stages: stages.with(at, stage.with(index, less)) }
    }
  }
  for (const [at, tape] of program.tapes.entries())
    for (const less of smallerSeqs(tape)) yield { ...program, tapes: program.tapes.with(at, less) }
}

function* smallerSeqs(seq: Seq): Generator<Seq> {
  for (const nodes of without(seq.nodes)) yield { ...seq, nodes }
  for (const [index, node] of seq.nodes.entries()) {
    for (const less of smallerNodes(node)) yield { ...seq, nodes: seq.nodes.with(index, less) }
    // What is inside, without what is around it.
    for (const inner of insides(node))
      yield { ...seq, nodes: [...seq.nodes.slice(0, index), ...inner.nodes, ...seq.nodes.slice(index + 1)] }
  }
}

function insides(node: Node): readonly Seq[] {
  if (node.kind === 'scope' || node.kind === 'section' || node.kind === 'loop' || node.kind === 'try') return [node.body]
  if (node.kind === 'begin') return [node.inner]
  return 'branches' in node && typeof node.branches === 'object' ? node.branches : []
}

function* smallerNodes(node: Node): Generator<Node> {
  switch (node.kind) {
    case 'scope':
    case 'section':
    case 'loop':
      for (const body of smallerSeqs(node.body)) yield { ...node, body } as Node
      break
    case 'begin':
      for (const inner of smallerSeqs(node.inner)) yield { ...node, inner }
      break
    case 'try':
      for (const body of smallerSeqs(node.body)) yield { ...node, body }
      for (const handler of smallerSeqs(node.handler)) yield { ...node, handler }
      break
    case 'all':
    case 'race':
    case 'any':
    case 'settled':
      if (node.branches.length > 1) for (const branches of without(node.branches)) yield { ...node, branches }
      for (const [index, branch] of node.branches.entries())
        for (const less of smallerSeqs(branch)) yield { ...node, branches: node.branches.with(index, less) }
      break
    case 'call':
      for (const child of smallerPrograms(node.child)) yield { ...node, child }
      break
    case 'map':
      if (node.fails.length > 1) for (const fails of without(node.fails)) yield { ...node, fails }
      break
    case 'effect':
      for (const sendings of without(node.sendings)) yield { ...node, sendings }
      break
    default:
  }
  yield* plainer(node)
}

/** The same node with an option less. */
function* plainer(node: Node): Generator<Node> {
  for (const option of [
    'undo',
    'undoFails',
    'onFailure',
    'checkpoint',
    'remembers',
    'updates',
    'reads',
    'timeoutMs',
    'hasDefault',
    'schema',
    'isStrict',
    'key',
  ])
    if (option in node) yield Object.fromEntries(Object.entries(node).filter(([name]) => name !== option)) as unknown as Node
  if ('fails' in node && typeof node.fails === 'number' && node.fails > 0) yield { ...node, fails: node.fails - 1 } as Node
  if ('attempts' in node && node.attempts > 1 && node.kind !== 'effect') yield { ...node, attempts: node.attempts - 1 } as Node
  if ('work' in node && node.work !== 'sync') yield { ...node, work: 'sync' } as Node
}

function* without<Item>(items: readonly Item[]): Generator<Item[]> {
  for (let index = 0; index < items.length; index++) yield items.toSpliced(index, 1)
}
