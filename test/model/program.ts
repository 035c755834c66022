/**
 * A program as data: what a generated workflow does, and which attempts of which body fail. The interpreter executes it with the public API,
 * the oracle knows from it what may come of it, the printer writes it as TypeScript.
 */
export interface Program {
  /** Names its workflow. */
  readonly name: string
  /** What each tape does; all but the last end in `continueAs`. A plan has one. */
  readonly tapes: readonly Seq[]
  /** Present: it is written as a plan, whose stages these are. `tapes` is empty then. */
  readonly stages?: readonly (readonly Section[])[]
  readonly undoOnFailure: boolean
  /** The workflow's own limit. */
  readonly timeoutMs?: number
}

export type Node =
  | Seq
  | Step
  | Effect
  | Transaction
  | Update
  | Read
  | Scope
  | Section
  | MapNode
  | Begin
  | Parallel
  | Sleep
  | Signal
  | SignalOfSeveral
  | Ask
  | Call
  | Value
  | Foreign
  | Try
  | Throw
  | Loop

export type NodeKind = Node['kind']

interface Numbered {
  /** Unique in a case, children included. Names are made of it. */
  readonly id: number
}

export interface Seq extends Numbered {
  readonly kind: 'seq'
  readonly nodes: readonly Node[]
}

/** How long a body takes, and what it awaits. */
export type Work = 'sync' | 'microtask' | 'immediate' | { readonly ms: number }

export type UndoKind = 'function' | 'named'

export interface Step extends Numbered {
  readonly kind: 'step'
  readonly work: Work
  /** The first so many attempts fail. */
  readonly fails: number
  readonly attempts: number
  readonly undo?: UndoKind
  /** How many calls of its undo fail first. */
  readonly undoFails?: number
  readonly onFailure?: 'skip' | 'pause' | 'fallback'
  /** Failing attempts hang until this is over instead of throwing. */
  readonly timeoutMs?: number
  readonly checkpoint?: false
  /** Its result is committed with a change of the state. */
  readonly updates?: boolean
  /** What it adds to the state it also remembers, as a fact about its thread. */
  readonly remembers?: boolean
  /** Its body looks at the state. */
  readonly reads?: boolean
}

/** What sending an effect comes to. Both `lost` ones throw: in one it happened, in the other it did not. */
export type Sending = 'not_happened' | 'lost_happened' | 'lost_not'

export interface Effect extends Numbered {
  readonly kind: 'effect'
  readonly work: Work
  readonly declared: 'idempotent' | 'check' | 'neither'
  /** How the first sendings go; those after them succeed. Fewer than there are attempts. */
  readonly sendings: readonly Sending[]
  readonly attempts: number
  /** Absent: the default key. */
  readonly key?: string
  readonly undo?: UndoKind
}

export interface Transaction extends Numbered {
  readonly kind: 'transaction'
}

export interface Update extends Numbered {
  readonly kind: 'update'
}

/** The function looks at the state. `branches`: what it does next depends on what it saw. */
export interface Read extends Numbered {
  readonly kind: 'read'
  readonly branches: boolean
}

export interface Scope extends Numbered {
  readonly kind: 'scope'
  readonly body: Seq
}

/** A recorded scope; in a plan, one of its steps. */
export interface Section extends Numbered {
  readonly kind: 'section'
  readonly body: Seq
  readonly attempts: number
  readonly onFailure?: 'skip' | 'pause' | 'fallback'
  readonly undo?: UndoKind
}

export interface MapNode extends Numbered {
  readonly kind: 'map'
  /** For each item, how many of its attempts fail first. */
  readonly fails: readonly number[]
  readonly attempts: number
  readonly concurrency: number
  readonly work: Work
  readonly undo?: UndoKind
}

export interface Begin extends Numbered {
  readonly kind: 'begin'
  /** What is done between the two halves. */
  readonly inner: Seq
  readonly isFailing: boolean
}

export interface Parallel extends Numbered {
  readonly kind: 'all' | 'race' | 'any' | 'settled'
  readonly branches: readonly Seq[]
  /** For `settled`: throws if one of them was rejected. */
  readonly isStrict?: boolean
}

export interface Sleep extends Numbered {
  readonly kind: 'sleep'
  readonly ms: number
}

export interface Signal extends Numbered {
  readonly kind: 'signal'
  readonly name: string
  readonly timeoutMs?: number
  /** Nobody ever sends it: a branch that only loses. */
  readonly isNever?: boolean
}

/** Waits for one of several names. */
export interface SignalOfSeveral extends Numbered {
  readonly kind: 'signals'
  readonly names: readonly string[]
}

export interface Ask extends Numbered {
  readonly kind: 'ask'
  /** A schema that takes `{ ok: true }` and `{ ok: false }`. */
  readonly schema?: 'sync' | 'async'
  readonly timeoutMs?: number
  readonly hasDefault?: boolean
}

export interface Call extends Numbered {
  readonly kind: 'call'
  readonly child: Program
  readonly isDetached: boolean
  readonly undo?: UndoKind
}

export interface Value extends Numbered {
  readonly kind: 'value'
  readonly of: 'now' | 'random' | 'uuid'
}

/** Awaits something that is not Holdfast's. */
export interface Foreign extends Numbered {
  readonly kind: 'foreign'
  readonly of: 'timer' | 'microtask' | 'immediate' | 'file'
  readonly ms: number
}

export interface Try extends Numbered {
  readonly kind: 'try'
  readonly body: Seq
  readonly handler: Seq
}

export interface Throw extends Numbered {
  readonly kind: 'throw'
}

/** The same calls again: told apart by their counts. */
export interface Loop extends Numbered {
  readonly kind: 'loop'
  readonly times: number
  readonly body: Seq
}

/** What a call is called. */
export function nameOf(node: Node): string {
  return `${prefixes[node.kind] ?? 'n'}${node.id}`
}

const prefixes: Partial<Record<NodeKind, string>> = {
  step: 's',
  effect: 'e',
  transaction: 't',
  scope: 'sc',
  section: 'se',
  map: 'm',
  begin: 'b',
  ask: 'q',
}

/** The number in the last part of a path: which node an event is about. */
export function idOfPath(path: string): number {
  const last = path.slice(path.lastIndexOf('/') + 1)
  return Number(/^[a-z]+(\d+)/.exec(last)?.[1] ?? Number.NaN)
}

/** The nodes directly inside of one. Those of a child are not: it is a program of its own. */
export function partsOf(node: Node): readonly Node[] {
  switch (node.kind) {
    case 'seq':
      return node.nodes
    case 'scope':
    case 'section':
    case 'loop':
      return [node.body]
    case 'begin':
      return [node.inner]
    case 'all':
    case 'race':
    case 'any':
    case 'settled':
      return node.branches
    case 'try':
      return [node.body, node.handler]
    default:
      return []
  }
}

/** The node with other nodes directly inside. */
export function withParts(node: Node, change: (part: Node) => Node): Node {
  const seq = (part: Seq) => change(part) as Seq
  switch (node.kind) {
    case 'seq':
      return { ...node, nodes: node.nodes.map(change) }
    case 'scope':
    case 'section':
    case 'loop':
      return { ...node, body: seq(node.body) }
    case 'begin':
      return { ...node, inner: seq(node.inner) }
    case 'all':
    case 'race':
    case 'any':
    case 'settled':
      return { ...node, branches: node.branches.map(seq) }
    case 'try':
      return { ...node, body: seq(node.body), handler: seq(node.handler) }
    default:
      return node
  }
}

/** Each node of a program with those around it, outermost first. */
export function* walk(program: Program): Generator<{ readonly node: Node; readonly above: readonly Node[] }> {
  for (const tape of program.tapes) yield* walkNode(tape, [])
  for (const stage of program.stages ?? []) for (const section of stage) yield* walkNode(section, [])
}

function* walkNode(node: Node, above: readonly Node[]): Generator<{ readonly node: Node; readonly above: readonly Node[] }> {
  yield { node, above }
  for (const part of partsOf(node)) yield* walkNode(part, [...above, node])
}

/** A program and those it calls, however deep. */
export function* withChildren(program: Program): Generator<Program> {
  yield program
  for (const { node } of walk(program)) if (node.kind === 'call') yield* withChildren(node.child)
}

export interface PlacedNode {
  readonly node: Node
  /** Those around it, outermost first. */
  readonly above: readonly Node[]
  readonly program: Program
}

/** All nodes of a program and of those it calls, by number. */
export function nodesOf(program: Program): Map<number, PlacedNode> {
  const nodes = new Map<number, PlacedNode>()
  for (const each of withChildren(program))
    for (const { node, above } of walk(each)) nodes.set(node.id, { node, above, program: each })
  return nodes
}

/** Whether a branch awaits something whose end is not on record. What a section awaits is: it has an end of its own. */
export function awaitsUnrecorded(node: Node): boolean {
  if (node.kind === 'foreign') return node.of !== 'microtask'
  return node.kind !== 'section' && partsOf(node).some(awaitsUnrecorded)
}

/** Who wins is decided by what is not on record: a replay may have another winner. */
export function isWonByChance({ kind, branches }: Parallel): boolean {
  return (kind === 'race' || kind === 'any') && branches.some(awaitsUnrecorded)
}

export function countNodes(program: Program): number {
  let count = 0
  for (const each of withChildren(program)) for (const { node } of walk(each)) if (node.kind !== 'seq') count++
  return count
}
