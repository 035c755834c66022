import { errorsOf } from './possible-errors.ts'
import { type Node, type Parallel, type Program, partsOf, type Seq, walk } from './program.ts'
import { type CallValue, digest, type ModelState, type ProgramOutput, type SectionValue } from './values.ts'

export interface MatchOptions {
  /** Effects may have results that were made before: after a rollback, or in an earlier life of the thread. */
  readonly hasOldEffects: boolean
  /** What was undone was done again by another attempt, which may come off where a fallback had to help before. */
  readonly isRedone: (program: Program) => boolean
  /** A failed run was retried. */
  readonly isRetried: boolean
  /** Another run, of which this is a copy, or which is a copy of this one, may have met the effects with keys of their own. */
  readonly hasCopies: boolean
  /** Somebody gave a child up: its call throws. */
  readonly isGivenUp: boolean
  /** A copy: what it makes again names another run than what was kept has seen. */
  readonly isCopy: boolean
  /** It is a copy of a run that was cancelled: what a section of that made of the cancel is on its tape. */
  readonly mayHoldCancel: boolean
}

/**
 * Whether a program may have come to this output: walks through both, and knows at each call what the function had seen by then. Returns what
 * does not fit, if anything.
 */
export function matchOutput(program: Program, output: unknown, options: MatchOptions): string | undefined {
  const matcher = new Matcher(program, options)
  try {
    if (program.stages === undefined) matcher.function(program, output as ProgramOutput)
    else matcher.plan(program, output as ModelState)
    return undefined
  } catch (error) {
    if (error instanceof Misfit) return error.message
    throw error
  }
}

class Misfit extends Error {}

interface Branch {
  saw: string
  readonly turn: string
}

class Matcher {
  readonly #options: MatchOptions
  readonly #isRedone: boolean
  /** What was undone is made again, after what was kept: it may lose a race that it had won, or come off where a fallback had to help. */
  readonly #isMadeAnew: boolean

  constructor(program: Program, options: MatchOptions) {
    this.#options = options
    this.#isRedone = options.isRedone(program)
    this.#isMadeAnew =
      (this.#isRedone && (options.isCopy || canBeMadeOtherwise(program))) ||
      (options.isRetried && canBlameCaught(program)) ||
      canReadOtherwise(program)
  }

  function(program: Program, output: ProgramOutput): undefined {
    const branch: Branch = { saw: program.name, turn: '' }
    const values = output?.value as unknown[] | undefined
    expect(values?.length === program.tapes.length, `${values?.length} tapes instead of ${program.tapes.length}`)
    for (const [index, tape] of program.tapes.entries()) this.#match(tape, values?.[index], branch)
    expect(output.saw === branch.saw, 'the function has seen something else than it returned')
  }

  plan(program: Program, state: ModelState): undefined {
    for (const section of (program.stages ?? []).flat()) {
      const value = state?.[`p${section.id}`]
      if (value === undefined) {
        const isSkipped = section.onFailure === 'skip' && this.#canFail(section.body)
        expect(isSkipped, `plan step ${section.id} has left nothing`)
      } else this.#section(section, value, { saw: digest('plan', section.id), turn: '' })
    }
  }

  #match(node: Node, value: unknown, branch: Branch): undefined {
    if (node.kind === 'seq') return this.#seq(node, value, branch)
    this.#call(node, value, branch)
    branch.saw = digest(branch.saw, value)
  }

  #seq({ nodes, id }: Seq, value: unknown, branch: Branch): undefined {
    const values = value as unknown[]
    expect(Array.isArray(values) && values.length === nodes.length, `block ${id} has ${values?.length} of ${nodes.length} values`)
    for (const [index, node] of nodes.entries()) this.#match(node, values[index], branch)
  }

  #call(node: Exclude<Node, Seq>, given: unknown, branch: Branch): undefined {
    const n = `${node.id}${branch.turn}`
    if (node.kind === 'map') return this.#map(node, n, given as CallValue[], branch)
    const value = { ...(given as CallValue), ...(given as CallValue | undefined)?.waited }
    const what = `${node.kind} ${n}`
    expect(value?.n === n, `${what} has the value of ${value?.n}`)
    const sawTheSame = () =>
      expect(this.#isMadeAnew || value.saw === branch.saw, `${what} was done by a function that had seen something else`)
    switch (node.kind) {
      case 'step': {
        // A step that had failed has seen nothing.
        if (value.how === 'replaced' && value.saw === undefined) return
        if (value.how !== 'skipped') sawTheSame()
        if (value.how === 'replaced') return
        const isLost = node.fails >= node.attempts
        if (node.timeoutMs !== undefined) return
        const how = isLost && (node.onFailure === 'skip' || node.onFailure === 'fallback') ? node.onFailure : undefined
        const isAnother = this.#isRedone && value.how === undefined
        expect(isAnother || value.how === (how === 'skip' ? 'skipped' : how), `${what} ended as ${value.how ?? 'completed'}`)
        return
      }
      case 'effect':
        if (!this.#options.hasOldEffects && !(this.#options.hasCopies && node.key !== undefined)) sawTheSame()
        return
      case 'transaction':
        return sawTheSame()
      case 'read':
        if (node.branches) sawTheSame()
        return
      case 'begin': {
        const [own, inner] = value.value as [CallValue, unknown]
        expect(this.#isMadeAnew || own?.saw === branch.saw, `${what} was completed by a function that had seen something else`)
        return this.#match(node.inner, inner, branch)
      }
      case 'scope':
        return this.#match(node.body, value.value, branch)
      case 'section':
        return this.#section(node, value as SectionValue, branch)
      case 'all':
      case 'race':
      case 'any':
      case 'settled':
        return this.#parallel(node, what, value as never, branch)
      case 'signal':
        return expect(value.how === undefined || node.timeoutMs !== undefined, `${what} timed out`)
      case 'ask':
        return this.#ask(node, what, value)
      case 'call': {
        if (node.isDetached || (value.value as CallValue | undefined)?.how === 'replaced') return
        const problem = matchOutput(node.child, value.value, this.#options)
        return expect(problem === undefined, `${what}: ${problem}`)
      }
      case 'try': {
        const { error } = value as { error?: string }
        if (error === undefined) return this.#match(node.body, value.value, branch)
        expect(
          this.#options.mayHoldCancel || errorsOf(node.body).has(error),
          `${what} caught ${error}, which nothing in it throws`,
        )
        branch.saw = digest(branch.saw, error)
        return this.#match(node.handler, value.value, branch)
      }
      case 'throw':
        return expect(false, `${what} returned`)
      case 'loop': {
        const values = value.value as unknown[]
        expect(values?.length === node.times, `${what} has ${values?.length} turns`)
        for (const [time, one] of values.entries()) {
          const inner: Branch = { saw: branch.saw, turn: `${branch.turn}.${time}` }
          this.#match(node.body, one, inner)
          branch.saw = inner.saw
        }
      }
    }
  }

  #map(node: Node & { kind: 'map' }, n: string, values: readonly CallValue[], branch: Branch): undefined {
    expect(Array.isArray(values) && values.length === node.fails.length, `map ${n} has ${values?.length} values`)
    for (const [index, value] of values.entries()) {
      expect(value?.n === `${n}[${index}]`, `map ${n}[${index}] has the value of ${value?.n}`)
      expect(
        this.#isMadeAnew || value.saw === branch.saw,
        `map ${n}[${index}] was done by a function that had seen something else`,
      )
    }
  }

  #section(node: Node & { kind: 'section' }, value: SectionValue, branch: Branch): undefined {
    const what = `section ${node.id}`
    const canFail = this.#canFail(node.body)
    if (value.how === 'replaced') return
    if (value.how === 'skipped') return expect(canFail && node.onFailure === 'skip', `${what} was skipped`)
    if (value.how === 'fallback') return expect(canFail && node.onFailure === 'fallback', `${what} fell back`)
    const began = value.began ?? branch.saw
    // It may be kept beside something that it had seen, and that is made again: what it saw then is what it has returned.
    expect(this.#isMadeAnew || began === branch.saw, `${what} began in a function that had seen something else`)
    const inner: Branch = { saw: began, turn: branch.turn }
    this.#match(node.body, value.value, inner)
    expect(value.saw === inner.saw, `${what} has seen something else than it returned`)
  }

  #parallel(node: Parallel, what: string, seen: { byChance?: Winner } & Winner, branch: Branch): undefined {
    const given = seen.byChance ?? seen
    const match = (seq: Seq, value: unknown, ends: unknown): undefined => {
      const fork: Branch = { saw: branch.saw, turn: branch.turn }
      this.#match(seq, value, fork)
      expect(fork.saw === ends, `a branch of ${what} has seen something else than it returned`)
    }
    if (node.kind === 'race' || node.kind === 'any') return match(node.branches[given.won] as Seq, given.value, given.ends)
    for (const [index, seq] of node.branches.entries()) {
      if (node.kind === 'all') match(seq, (given.value as unknown[])[index], (given.ends as unknown[])[index])
      else {
        const { error, value, ends } = (given.value as { error?: string; value?: unknown; ends?: string }[])[index] ?? {}
        if (error === undefined) match(seq, value, ends)
        else
          expect(
            this.#options.mayHoldCancel || errorsOf(seq).has(error),
            `${what} was rejected with ${error}, which nothing in it throws`,
          )
      }
    }
  }

  /** Beside the program's own errors, only that of a child that was given up goes through all of it. */
  #canFail(node: Node): boolean {
    return errorsOf(node).size > 0 || this.#options.mayHoldCancel || (this.#options.isGivenUp && callsChild(node))
  }

  #ask(node: Node & { kind: 'ask' }, what: string, value: CallValue): undefined {
    if (value.how === 'timeout') return expect(node.timeoutMs !== undefined && !node.hasDefault, `${what} timed out`)
    if (node.schema === undefined) return
    expect(typeof (value.value as { ok?: unknown } | undefined)?.ok === 'boolean', `${what} was given what its schema refuses`)
  }
}

function callsChild(node: Node): boolean {
  return (node.kind === 'call' && !node.isDetached) || partsOf(node).some(callsChild)
}

function canBeMadeOtherwise(program: Program): boolean {
  const isRace = ({ kind }: Node) => kind === 'race' || kind === 'any'
  const fallsBack = (node: Node) => 'onFailure' in node && (node.onFailure === 'fallback' || node.onFailure === 'skip')
  return [...walk(program)].some(({ node, above }) => fallsBack(node) || ('undo' in node && above.some(isRace)))
}

/**
 * Another attempt of a section sees what its kept results have changed in the state. A branch that names its call by the state makes another
 * call then, and may lose a race that it had won.
 */
function canReadOtherwise(program: Program): boolean {
  const isRace = ({ kind }: Node) => kind === 'race' || kind === 'any'
  const isTriedAgain = (node: Node) => node.kind === 'section' && node.attempts > 1
  const isRead = (node: Node) => node.kind === 'read' && node.branches
  return [...walk(program)].some(({ node, above }) => isRead(node) && above.some(isRace) && above.some(isTriedAgain))
}

/**
 * An error of the function's own is blamed on every failure after which nothing was begun at once, because of it: also on one that
 * `Promise.allSettled` had kept while it waited for other branches. It is made again, and what came after it is kept.
 */
function canBlameCaught(program: Program): boolean {
  const nodes = [...walk(program)].map(({ node }) => node)
  const isSettled = (node: Node): node is Parallel => node.kind === 'settled'
  const keeps = (node: Node) => isSettled(node) && node.isStrict !== true && node.branches.some((one) => errorsOf(one).size > 0)
  return nodes.some(keeps) && nodes.some((node) => node.kind === 'throw' || (isSettled(node) && node.isStrict === true))
}

interface Winner {
  readonly value: unknown
  readonly ends: unknown
  readonly won: number
}

function expect(isSo: boolean, otherwise: string): undefined {
  if (!isSo) throw new Misfit(otherwise)
  return undefined
}
