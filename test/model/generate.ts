import { createRandom, type Random } from '../../src/testing/random.ts'
import { type Act, type Fault, type PlannedAct, whenAllHaveEnded } from './acts.ts'
import type { Case } from './case.ts'
import { type Construct, constructs, copies, happenings, nameOfAct, nameOfFault } from './constructs.ts'
import { hasSql, type StoreName } from './grounds.ts'
import { errorsOf } from './possible-errors.ts'
import {
  countNodes,
  type Node,
  type NodeKind,
  type Parallel,
  type Program,
  partsOf,
  type Section,
  type Seq,
  type Step,
  type UndoKind,
  type Work,
  walk,
  withParts,
} from './program.ts'

export interface GenerateOptions {
  readonly store: StoreName
  /** No simulated faults: another way of crashing is used. */
  readonly withoutFaults?: boolean
}

/** The case of a seed. The same seed gives the same case. */
export function generateCase(seed: number, options: GenerateOptions): Case {
  const random = createRandom(Math.imul(seed, 0x9e3779b1) ^ 0x5bd1e995)
  // Each pair of a construct and something that happens comes by in turn, whatever else there is.
  const possible = constructs.filter(({ kind }) => kind !== 'transaction' || hasSql[options.store])
  const focus = possible[seed % possible.length] as Construct
  const turn = Math.floor(seed / possible.length)
  const event = happenings[turn % happenings.length] as string
  const program = new Generator(random, options).program('p', 0, focus)
  const size = countNodes(program)
  const hasFaults = options.withoutFaults !== true && random.chance(0.45)
  const acts = withAct(generateActs(random, program, size), event, random, program, size)
  return {
    ...{ seed, store: options.store, program },
    acts: [...acts, ...generateCopies(seed, turn, size)],
    faults: withFault(hasFaults ? generateFaults(random, size) : [], options.withoutFaults ? '' : event, random),
    hasSecondWorker: random.chance(0.3),
    retries: random.pickWeighted([
      [3, 0],
      [2, 1],
      [2, 2],
    ]),
    notifies: random.chance(0.15),
  }
}

class Generator {
  readonly #random: Random
  readonly #store: StoreName
  #nextId = 1
  #left = 0

  constructor(random: Random, { store }: GenerateOptions) {
    this.#random = random
    this.#store = store
  }

  program(name: string, depth = 0, focus?: Construct): Program {
    const random = this.#random
    if (focus?.isOf !== undefined) {
      for (let tries = 0; tries < 500; tries++) {
        const made = this.program(name, depth)
        if (focus.isOf(made)) return made
      }
    }
    const program = this.#leftApart(this.#anyProgram(name, depth))
    const { kind, isIn } = focus ?? {}
    if (kind === undefined || isIn === undefined || [...walk(program)].some(({ node }) => isIn(node))) return program
    let wanted = this.#node(2, kind)
    for (let tries = 0; tries < 500 && !isIn(wanted); tries++) wanted = this.#node(2, kind)
    return this.#leftApart(this.#with(program, wanted, random))
  }

  /** The program with one more node somewhere in its outermost blocks. */
  #with(program: Program, node: Node, random: Random): Program {
    const into = (seq: Seq): Seq => ({ ...seq, nodes: seq.nodes.toSpliced(random.integer(0, seq.nodes.length), 0, node) })
    if (program.stages === undefined) {
      const at = random.integer(0, program.tapes.length - 1)
      return { ...program, tapes: program.tapes.with(at, into(program.tapes[at] as Seq)) }
    }
    const [first = [], ...others] = program.stages
    const [section, ...beside] = first as [Section, ...Section[]]
    return { ...program, stages: [[{ ...section, body: into(section.body) }, ...beside], ...others] }
  }

  #anyProgram(name: string, depth: number): Program {
    const random = this.#random
    const size =
      depth > 0
        ? random.integer(1, 3)
        : random.pickWeighted([
            [5, 3],
            [5, 6],
            [3, 10],
            [1, 16],
          ])
    this.#left = size
    const undoOnFailure = random.chance(0.3)
    const isPlan = random.chance(0.14)
    if (isPlan) return { name, tapes: [], stages: this.#stages(depth), undoOnFailure }
    const tapeCount = random.chance(0.08) ? random.integer(2, 3) : 1
    const tapes = Array.from({ length: tapeCount }, () => {
      this.#left = Math.ceil(size / tapeCount)
      return this.#seq(depth, 'top')
    })
    return { name, tapes, undoOnFailure }
  }

  #stages(depth: number): Section[][] {
    const random = this.#random
    return Array.from({ length: random.integer(1, 3) }, () =>
      Array.from({ length: random.chance(0.5) ? random.integer(2, 3) : 1 }, () => {
        this.#left = random.integer(1, 4)
        return this.#section(depth + 1)
      }),
    )
  }

  #id(): number {
    return this.#nextId++
  }

  #seq(depth: number, where: 'top' | 'inside', length = this.#random.integer(1, where === 'top' ? 5 : 3)): Seq {
    const id = this.#id()
    const nodes: Node[] = []
    const wanted = where === 'top' ? Math.max(length, this.#left) : length
    while (nodes.length < wanted && (this.#left > 0 || nodes.length === 0)) nodes.push(this.#node(depth))
    return { kind: 'seq', id, nodes }
  }

  #node(depth: number, wanted?: NodeKind): Node {
    this.#left--
    const random = this.#random
    const isDeep = depth >= 3
    const any = random.pickWeighted<NodeKind>([
      [14, 'step'],
      [6, 'effect'],
      [hasSql[this.#store] ? 5 : 0, 'transaction'],
      [5, 'update'],
      [2, 'read'],
      [isDeep ? 0 : 1, 'scope'],
      [isDeep ? 0 : 4, 'section'],
      [2, 'map'],
      [2, 'begin'],
      [isDeep ? 0 : 3, 'all'],
      [isDeep ? 0 : 3, 'race'],
      [isDeep ? 0 : 1, 'any'],
      [isDeep ? 0 : 3, 'settled'],
      [2, 'sleep'],
      [3, 'signal'],
      [0.5, 'signals'],
      [2, 'ask'],
      [depth > 0 ? 0 : 2, 'call'],
      [2, 'value'],
      [2, 'foreign'],
      [isDeep ? 0 : 3, 'try'],
      [1, 'throw'],
      [isDeep ? 0 : 1, 'loop'],
    ])
    const kind = wanted ?? any
    const id = this.#id()
    switch (kind) {
      case 'seq':
      case 'step':
        return this.#step(id)
      case 'effect': {
        const attempts = random.integer(2, 3)
        const sendings = Array.from({ length: random.chance(0.45) ? random.integer(1, attempts - 1) : 0 }, () =>
          random.pick(['not_happened', 'lost_happened', 'lost_not'] as const),
        )
        const declared = random.pick(['idempotent', 'check', 'neither'] as const)
        return {
          ...{ kind, id, work: this.#work(), declared, sendings, attempts },
          ...(random.chance(0.4) && { key: `k${id}` }),
          ...this.#undo(0.45),
        }
      }
      case 'transaction':
      case 'update':
      case 'throw':
        return { kind, id }
      case 'read':
        return { kind, id, branches: random.chance(0.5) }
      case 'scope':
        return { kind, id, body: this.#seq(depth + 1, 'inside') }
      case 'section':
        return this.#section(depth + 1, id)
      case 'map': {
        const attempts = random.integer(1, 2)
        const fails = Array.from({ length: random.integer(1, 4) }, () => (random.chance(0.15) ? random.integer(1, 2) : 0))
        return { kind, id, attempts, fails, concurrency: random.integer(1, 4), work: this.#work(), ...this.#undo(0.4) }
      }
      case 'begin':
        return random.chance(0.15)
          ? {
              kind,
              id,
              isFailing: true,
              inner: random.chance(0.5) ? this.#shortSeq() : { kind: 'seq', id: this.#id(), nodes: [] },
            }
          : { kind, id, isFailing: false, inner: this.#shortSeq() }
      case 'all':
      case 'any':
      case 'settled':
      case 'race':
        return this.#parallel(kind, id, depth)
      case 'sleep':
        return { kind, id, ms: random.pick([1, 5, 15, 6_000, 30_000]) }
      case 'signal':
        return { kind, id, name: random.chance(0.3) ? 'go' : `g${id}`, ...(random.chance(0.25) && { timeoutMs: 20_000 }) }
      case 'signals':
        return { kind, id, names: [`g${id}a`, `g${id}b`] }
      case 'ask':
        return {
          ...{ kind, id },
          ...(random.chance(0.6) && { schema: random.pick(['sync', 'async'] as const) }),
          ...(random.chance(0.2) && { timeoutMs: 20_000, hasDefault: random.chance(0.5) }),
        }
      case 'call': {
        const left = this.#left
        const child = this.program(`c${id}`, 1)
        this.#left = left
        return { kind, id, child, isDetached: random.chance(0.25) }
      }
      case 'value':
        return { kind, id, of: random.pick(['now', 'random', 'uuid'] as const) }
      case 'foreign':
        return { kind, id, of: random.pick(['timer', 'microtask', 'immediate', 'file'] as const), ms: random.pick([0, 2, 10]) }
      case 'try':
        return { kind, id, body: this.#seq(depth + 1, 'inside'), handler: this.#seq(depth + 1, 'inside', 1) }
      case 'loop':
        return { kind, id, times: random.integer(2, 3), body: this.#seq(depth + 1, 'inside', random.integer(1, 2)) }
    }
  }

  /** Between the two halves of a step its run is at work, and timers go by real time: nothing that takes long. */
  #shortSeq(): Seq {
    const kinds = ['step', 'effect', 'update', 'signal', 'ask', 'value', 'foreign'] as const
    const nodes = Array.from({ length: this.#random.integer(0, 2) }, (): Node => {
      const node = this.#node(3, this.#random.pick(kinds))
      // A begun step that nobody completes stays open: nothing in between may throw.
      if (node.kind === 'step') return { ...this.#step(node.id), fails: 0 }
      const { timeoutMs: _, ...patient } = node as Node & { timeoutMs?: number }
      return patient as Node
    })
    return { kind: 'seq', id: this.#id(), nodes }
  }

  #step(id = this.#id()): Step {
    const random = this.#random
    const attempts = random.pickWeighted([
      [3, 1],
      [3, 2],
      [1, 3],
    ])
    const fails = random.pickWeighted([
      [8, 0],
      [2, 1],
      [1, 2],
      [0.5, 3],
    ])
    const isTimedOut = fails > 0 && random.chance(0.15)
    return {
      ...{ kind: 'step', id, work: isTimedOut ? 'sync' : this.#work(), attempts, fails },
      ...this.#undo(0.5),
      ...(random.chance(0.25) && { onFailure: random.pick(['skip', 'pause', 'fallback'] as const) }),
      ...(isTimedOut && { timeoutMs: 20 }),
      ...(random.chance(0.12) && { checkpoint: false as const }),
      // By its number: the programs of old seeds stay as they are.
      ...(random.chance(0.3) && { updates: true, ...(id % 3 === 0 && { remembers: true }) }),
      ...(random.chance(0.1) && { reads: true }),
    }
  }

  #section(depth: number, id = this.#id()): Section {
    const random = this.#random
    if (random.chance(0.08)) return { kind: 'section', id, body: this.#raceThenFail(), attempts: random.integer(2, 3) }
    return {
      ...{ kind: 'section', id, body: this.#seq(depth, 'inside', random.integer(1, 4)), attempts: random.integer(1, 3) },
      ...(random.chance(0.25) && { onFailure: random.pick(['skip', 'pause', 'fallback'] as const) }),
      ...this.#undo(0.3),
    }
  }

  /**
   * Where a branch awaits something foreign, it may come before or after results of the others when it is replayed. So what it does to them
   * must not decide what the function does: a branch of a race throws nothing then, nor do two of `Promise.all`, and what is seen of the state
   * decides nothing. Updates and values are known by their scope and count, so that each branch needs a scope of its own
   * (docs/guides/state.md).
   */
  #apart(kind: Parallel['kind'], branches: readonly Seq[]): Seq[] {
    const awaitsForeign = (node: Node): boolean => node.kind === 'foreign' || partsOf(node).some(awaitsForeign)
    if (!branches.some(awaitsForeign)) return [...branches]
    const throwing = branches.filter((branch) => errorsOf(branch).size > 0)
    const isCaught = throwing.length > (kind === 'settled' ? branches.length : kind === 'all' ? 1 : 0)
    const seq = (node?: Node): Seq => ({ kind: 'seq', id: this.#id(), nodes: node === undefined ? [] : [node] })
    return branches.map((branch) => {
      const body = undeciding(branch) as Seq
      const apart = seq({ kind: 'scope', id: this.#id(), body })
      return isCaught && throwing.includes(branch) ? seq({ kind: 'try', id: this.#id(), body: apart, handler: seq() }) : apart
    })
  }

  /**
   * A branch that lost continues beside what follows its race, in the same function. Where that function awaits something foreign, before or
   * after, the same holds as for branches that do.
   */
  #leftApart(program: Program): Program {
    const area = (body: Seq): Seq => {
      const isMixed = [...walkArea(body)].some(({ kind }) => kind === 'foreign') && [...walkArea(body)].some(leavesBranches)
      return change(body, isMixed) as Seq
    }
    const change = (node: Node, isMixed: boolean): Node => {
      if (node.kind === 'section') return { ...node, body: area(node.body) }
      if (node.kind === 'read' && isMixed) return { ...node, branches: false }
      const changed = withParts(node, (part) => change(part, isMixed))
      return isMixed && leavesBranches(changed) ? { ...changed, branches: changed.branches.map(inScope) } : changed
    }
    const inScope = (branch: Seq): Seq =>
      isApart(branch) ? branch : { kind: 'seq', id: this.#id(), nodes: [{ kind: 'scope', id: this.#id(), body: branch }] }
    return {
      ...program,
      tapes: program.tapes.map(area),
      ...(program.stages !== undefined && {
        stages: program.stages.map((stage) => stage.map((section) => change(section, false) as Section)),
      }),
    }
  }

  #parallel(kind: Parallel['kind'], id: number, depth: number): Parallel {
    const random = this.#random
    if (kind === 'race' && random.chance(0.35)) return this.#raceAgainstNobody(id)
    const branches = Array.from({ length: random.integer(2, 3) }, () => this.#seq(depth + 1, 'inside'))
    return {
      kind,
      id,
      branches: this.#apart(kind, branches),
      ...(kind === 'settled' && random.chance(0.5) && { isStrict: true }),
    }
  }

  /** A race whose loser is recorded too, somebody who uses what won, and a failure: the next attempt has to go the same way. */
  #raceThenFail(): Seq {
    const random = this.#random
    const seq = (...nodes: Node[]): Seq => ({ kind: 'seq', id: this.#id(), nodes })
    const racer = (ms: number): Seq => seq({ ...this.#step(), fails: 0, work: { ms } })
    const quick = (): Seq => seq({ ...this.#step(), fails: 0, work: 'sync' })
    const begun = (): Seq => seq({ kind: 'begin', id: this.#id(), isFailing: false, inner: seq() })
    const branches = random.pick([
      () => [racer(25), racer(2)],
      () => [racer(2), racer(15), racer(25)],
      () => [quick(), begun()],
    ])()
    return seq(
      { kind: 'race', id: this.#id(), branches },
      { ...this.#step(), fails: 0, attempts: 1 },
      { kind: 'foreign', id: this.#id(), of: 'timer', ms: 40 },
      { kind: 'step', id: this.#id(), work: 'sync', fails: 1, attempts: 1 },
    )
  }

  /** A loop that works and awaits things of its own, against a signal that never comes. */
  #raceAgainstNobody(id: number): Parallel {
    const random = this.#random
    const nodes = Array.from({ length: random.integer(1, 4) }, (): Node => {
      if (random.chance(0.5)) return { ...this.#step(), fails: 0 }
      return {
        kind: 'foreign',
        id: this.#id(),
        of: random.pick(['timer', 'immediate', 'file'] as const),
        ms: random.pick([1, 10, 30]),
      }
    })
    const never: Node = { kind: 'signal', id: this.#id(), name: 'never', isNever: true }
    const seq = (inner: Node[]): Seq => ({ kind: 'seq', id: this.#id(), nodes: inner })
    return { kind: 'race', id, branches: [seq(nodes), seq([never])] }
  }

  #work(): Work {
    const random = this.#random
    return random.pickWeighted<Work>([
      [5, 'sync'],
      [2, 'microtask'],
      [2, 'immediate'],
      [4, { ms: random.integer(1, 8) }],
      [2, { ms: random.integer(10, 40) }],
    ])
  }

  #undo(probability: number): { undo?: UndoKind } {
    return this.#random.chance(probability) ? { undo: this.#random.chance(0.4) ? 'named' : 'function' } : {}
  }
}

/** The nodes that one function comes by itself: those in a section belong to that. */
function* walkArea(node: Node): Iterable<Node> {
  yield node
  if (node.kind !== 'section') for (const part of partsOf(node)) yield* walkArea(part)
}

/** It may end before its branches do. */
function leavesBranches(node: Node): node is Parallel {
  return node.kind === 'race' || node.kind === 'any' || node.kind === 'all'
}

/** All that the branch does is in a scope of its own. */
function isApart({ nodes }: Seq): boolean {
  const isScope = (node: Node) =>
    node.kind === 'scope' || (node.kind === 'try' && isApart(node.body) && node.handler.nodes.length === 0)
  return nodes.every(isScope) && nodes.length < 2
}

/** The same, and what it sees of the state decides nothing. */
function undeciding(node: Node): Node {
  return node.kind === 'read' ? { ...node, branches: false } : withParts(node, undeciding)
}

/** With what must happen in this case, unless it does anyway. */
function withAct(acts: PlannedAct[], event: string, random: Random, program: Program, size: number): PlannedAct[] {
  if (acts.some(({ act }) => nameOfAct(act) === event)) return acts
  const signals = signalNames(program)
  const wanted: Record<string, Act> = {
    signal: { kind: 'signal', name: signals.length > 0 ? random.pick(signals) : 'go' },
    answer: { kind: 'answer', how: 'once' },
    'answer twice': { kind: 'answer', how: 'twice' },
    'answer wrong': { kind: 'answer', how: 'wrong' },
    resolve: { kind: 'resolve' },
    pause: { kind: 'pause' },
    resume: { kind: 'resume' },
    cancel: { kind: 'cancel', undo: true },
    'cancel without undo': { kind: 'cancel', undo: false },
    retry: { kind: 'retry' },
    rollback: { kind: 'rollback', to: random.fraction() },
    edit: { kind: 'edit' },
    delete: { kind: 'delete' },
    advance: { kind: 'advance', ms: 31_000 },
  }
  const act = wanted[event]
  return act === undefined ? acts : [...acts, planned(random, act, size)]
}

function withFault(faults: Fault[], event: string, random: Random): Fault[] {
  if (faults.some((fault) => nameOfFault(fault) === event)) return faults
  const write = random.integer(1, 4)
  if (event === 'crash before' || event === 'crash after')
    return [...faults, { kind: 'crash', write, when: event === 'crash before' ? 'before' : 'after' }]
  const isFault = event === 'lost_reply' || event === 'outage' || event === 'lost_lease'
  return isFault ? [...faults, { kind: event, write }] : faults
}

function planned(random: Random, act: Act, size: number): PlannedAct {
  return { act, client: random.chance(0.7) ? 1 : 0, isWedged: random.chance(0.5), afterNotes: random.integer(1, size * 4 + 2) }
}

function generateActs(random: Random, program: Program, size: number): PlannedAct[] {
  const count = random.pickWeighted([
    [4, 0],
    [5, 1],
    [3, 2],
    [2, 3],
    [1, 5],
  ])
  const names = signalNames(program)
  return Array.from({ length: count }, (): PlannedAct => {
    const act = random.pickWeighted<Act>([
      [names.length > 0 ? 2 : 0.2, { kind: 'signal', name: names.length > 0 ? random.pick(names) : 'go' }],
      [1, { kind: 'answer', how: random.pick(['once', 'twice', 'wrong'] as const) }],
      [0.7, { kind: 'resolve' }],
      [1.5, { kind: 'pause' }],
      [1, { kind: 'resume' }],
      [4, { kind: 'cancel', undo: random.chance(0.8) }],
      [1, { kind: 'retry' }],
      [2.5, { kind: 'rollback', to: random.fraction() }],
      [1, { kind: 'edit' }],
      [0.5, { kind: 'delete' }],
      [1, { kind: 'advance', ms: random.pick([5_000, 31_000]) }],
    ])
    return planned(random, act, size)
  })
}

/** Drawn apart, so that the rest of the case is what it was before there were any. */
function generateCopies(seed: number, turn: number, size: number): PlannedAct[] {
  const random = createRandom(Math.imul(seed, 0x85ebca6b) ^ 0x2545f491)
  // Each of them meets each construct in turn.
  const wanted = turn % 2 === 0 ? copies[(turn / 2) % copies.length] : undefined
  const kinds = [...(wanted === undefined ? [] : [wanted]), ...(random.chance(0.15) ? [random.pick(copies)] : [])]
  return kinds.map((kind): PlannedAct => {
    const fork = {
      ...{ of: random.fraction(), at: random.fraction() },
      fate: random.pickWeighted<'resume' | 'cancel' | { rollback: number }>([
        [5, 'resume'],
        [2, 'cancel'],
        [1, { rollback: random.fraction() }],
      ]),
    }
    const acts: Record<typeof kind, Act> = {
      fork: { kind: 'fork', ...fork, edits: random.chance(0.25) },
      replace: { kind: 'replace', ...fork, call: random.fraction() },
      rewind: { kind: 'rewind', to: random.fraction() },
    }
    const isLate = random.chance(kind === 'rewind' ? 0.7 : 0.25)
    const act = planned(random, acts[kind], size)
    return isLate ? { ...act, isWedged: false, afterNotes: whenAllHaveEnded } : act
  })
}

function signalNames(program: Program): string[] {
  const names: string[] = []
  const look = (node: Node): void => {
    if (node.kind === 'signal' && !node.isNever) names.push(node.name)
    if (node.kind === 'signals') names.push(...node.names)
  }
  for (const { node } of walk(program)) look(node)
  return names
}

function generateFaults(random: Random, size: number): Fault[] {
  const count = random.pickWeighted([
    [4, 1],
    [1, 2],
  ])
  return Array.from({ length: count }, (): Fault => {
    const write = random.integer(1, size * 2 + 2)
    return random.pickWeighted<Fault>([
      [4, { kind: 'crash', write, when: random.pick(['before', 'after'] as const) }],
      [1, { kind: 'lost_reply', write }],
      [0.5, { kind: 'outage', write }],
      [1.5, { kind: 'lost_lease', write }],
    ])
  })
}
