import { readFile } from 'node:fs/promises'
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises'
import type { AnyWorkflow, Context, StepHandle } from 'holdfast'
import type { Features } from './features.ts'
import type { Journal, Looked, Note } from './journal.ts'
import {
  type Ask,
  type Begin,
  type Call,
  type Effect,
  type Foreign,
  isWonByChance,
  type MapNode,
  type Node,
  nameOf,
  type Parallel,
  type Program,
  type Read,
  type Section,
  type Seq,
  type Signal,
  type SignalOfSeveral,
  type Step,
  type Transaction,
  type Try,
  type UndoKind,
  type Work,
} from './program.ts'
import { holdfast } from './target.ts'
import {
  type CallValue,
  digest,
  errorName,
  flatten,
  type ModelState,
  type ProgramOutput,
  type SectionValue,
  type Trace,
  wordOf,
} from './values.ts'

/** A process as the programs see it: once it is dead nothing of it leaves a trace. */
export interface Process {
  readonly nth: number
  isDead: boolean
  /** What functions await of their own, or have just awaited. */
  readonly awaits?: Set<ForeignAwait>
}

export interface ForeignAwait {
  readonly run: string
  endedAt?: number
}

type Ctx = Context<ModelState>

/** What a tape of a program begins with. */
export interface TapeInput {
  readonly tape: number
  readonly saw: string
  readonly values: readonly unknown[]
  readonly trace: Trace
}

/** How far one branch of a function has come. */
interface Branch {
  saw: string
  trace: Trace
  /** What was changed of the state before this branch began. */
  readonly before: readonly string[]
  /** In loops: which turn, for each loop around. */
  readonly turn: string
  /** The attempt of a section that it belongs to. */
  readonly attempt: Attempt | undefined
}

/** What a branch that lost a race inside changes after the function of the section has returned or thrown is not kept. */
interface Attempt {
  readonly around: Attempt | undefined
  isOver: boolean
}

const state = holdfast.state<ModelState>({ version: 1, initial: () => ({ list: [], edits: [] }) as ModelState })

/** Turns programs into workflows that one process executes, and that write what they do into the journal. */
export class Interpreter {
  readonly #journal: Journal
  readonly #process: Process
  readonly #features: Features
  readonly #workflows = new Map<string, AnyWorkflow>()
  readonly #suffix: string
  #executions = 0

  /** The suffix makes the names of workflows unique in a store that several cases share. */
  constructor(journal: Journal, process: Process, features: Features, suffix: string) {
    this.#suffix = suffix
    this.#journal = journal
    this.#process = process
    this.#features = features
  }

  workflow(program: Program): AnyWorkflow {
    const made = this.#workflows.get(program.name) ?? this.#make(program)
    this.#workflows.set(program.name, made)
    return made
  }

  #make(program: Program): AnyWorkflow {
    const options = {
      ...{
        name: `${program.name}${this.#suffix}`,
        state,
        undoOnFailure: program.undoOnFailure,
        retry: { attempts: 2, minMs: 1 },
      },
      ...(program.timeoutMs !== undefined && { timeoutMs: program.timeoutMs }),
      ...(this.#features.namedUndo && {
        undos: {
          takeBack: (result: unknown, about: UndoInfo) => this.#undo('', result as CallValue, about),
        },
      }),
    }
    if (program.stages !== undefined) return this.#plan(program, options)
    return holdfast.workflow<TapeInput, ProgramOutput, ModelState>(options, async (ctx, input) => {
      const execution = ++this.#executions
      this.#note({ of: 'call', run: ctx.runId, execution, tape: input.tape })
      const branch: Branch = { saw: input.saw, trace: [...input.trace], before: [], turn: '', attempt: undefined }
      const tape = program.tapes[input.tape] as Seq
      const value = await new Execution(this, ctx, execution).run(tape, branch)
      const values = [...input.values, value]
      if (input.tape + 1 < program.tapes.length) {
        const next: TapeInput = { tape: input.tape + 1, saw: branch.saw, values, trace: branch.trace }
        return await ctx.continueAs(next)
      }
      this.#note({ of: 'returned', run: ctx.runId })
      return { value: values, trace: branch.trace, saw: branch.saw }
    })
  }

  #plan(program: Program, options: { name: string }): AnyWorkflow {
    let plan = holdfast.plan<ModelState, object>(options)
    for (const stage of program.stages ?? []) {
      const entries = stage.map((section) => {
        const fn = async (_: Readonly<ModelState>, ctx: Ctx) => this.#planStep(section, ctx)
        const fallback = (_: unknown, ctx: Ctx) => {
          this.#note({ of: 'fallback', run: ctx.runId, at: `${section.id}` })
          return { [`p${section.id}`]: { n: `${section.id}`, run: ctx.runId, how: 'fallback', trace: [] } }
        }
        const undo = (left: ModelState, about?: UndoInfo) => {
          const own = left?.[`p${section.id}`]
          return this.#undo('', own ?? { n: `not ${section.id}` }, about)
        }
        return [
          nameOf(section),
          fn,
          {
            retry: { attempts: section.attempts, minMs: 1, jitter: false },
            ...(section.onFailure === 'fallback' && { fallback }),
            ...((section.onFailure === 'skip' || section.onFailure === 'pause') && { onFailure: section.onFailure }),
            ...(section.undo !== undefined && { undo }),
          },
        ] as const
      })
      const [only] = entries
      plan =
        entries.length === 1 && only !== undefined
          ? plan.step(...(only as never as Parameters<typeof plan.step>))
          : plan.parallel(entries as never)
    }
    return plan
  }

  async #planStep(section: Section, ctx: Ctx): Promise<Record<string, SectionValue>> {
    const execution = ++this.#executions
    this.#note({ of: 'entered', run: ctx.runId, at: `${section.id}`, execution })
    const attempt: Attempt = { around: undefined, isOver: false }
    const branch: Branch = { saw: digest('plan', section.id), trace: [], before: [], turn: '', attempt }
    this.#note(looked(ctx, `${section.id}`, 'section', branch))
    const value = await this.leaving(attempt, new Execution(this, ctx, execution).run(section.body, branch), {
      ...{ of: 'left', run: ctx.runId, at: `${section.id}`, execution },
    })
    return { [`p${section.id}`]: { n: `${section.id}`, run: ctx.runId, saw: branch.saw, value, trace: branch.trace } }
  }

  /** Notes when the function of a section throws. */
  async leaving<T>(attempt: Attempt, made: Promise<T>, left: Omit<Extract<Note, { of: 'left' }>, 'isOwn'>): Promise<T> {
    try {
      return await made
    } catch (error) {
      this.#note({ ...left, isOwn: errorName(error) !== undefined })
      throw error
    } finally {
      attempt.isOver = true
    }
  }

  /** Runs an undo: it takes back what it is given, so only the result says what that was. */
  #undo(known: string, result: CallValue | undefined, about: UndoInfo | string | undefined, fails = 0): void {
    const run = result?.run ?? known
    const at = result?.n ?? 'nothing'
    const failed = this.#journal.count((note) => note.of === 'undo' && note.run === run && note.at === at && !note.ok)
    const key = typeof about === 'string' ? about : about?.effectKey
    this.#note({ of: 'undo', run, at, ok: failed >= fails, ...(key !== undefined && { key }) })
    if (failed < fails) throw new Error('the undo failed')
  }

  async awaiting(run: string, foreign: Promise<void>): Promise<void> {
    const one: ForeignAwait = { run }
    this.#process.awaits?.add(one)
    await foreign
    one.endedAt = performance.now()
  }

  /** Whatever a dead process would write is not written. */
  #note(note: Note): void {
    if (!this.#process.isDead) this.#journal.write(note)
  }

  // What executions need.
  get journal(): Journal {
    return this.#journal
  }
  get features(): Features {
    return this.#features
  }
  note(note: Note): void {
    this.#note(note)
  }
  undo(run: string, result: CallValue | undefined, about: UndoInfo | string | undefined, fails = 0): void {
    this.#undo(run, result, about, fails)
  }
}

interface UndoInfo {
  readonly key?: string
  readonly step?: string
  readonly effectKey?: string
}

/** One call of a program's function. */
class Execution {
  readonly #machine: Interpreter
  readonly #ctx: Ctx
  readonly #number: number

  constructor(machine: Interpreter, ctx: Ctx, number: number) {
    this.#machine = machine
    this.#ctx = ctx
    this.#number = number
  }

  async run(node: Node, branch: Branch): Promise<unknown> {
    if (node.kind === 'seq') return this.#seq(node, branch)
    const value = await this.#call(node, branch)
    branch.saw = digest(branch.saw, value)
    return value
  }

  async #seq({ nodes }: Seq, branch: Branch): Promise<unknown[]> {
    const values: unknown[] = []
    for (const node of nodes) values.push(await this.run(node, branch))
    return values
  }

  async #call(node: Exclude<Node, Seq>, branch: Branch): Promise<unknown> {
    const ctx = this.#ctx
    const n = `${node.id}${branch.turn}`
    switch (node.kind) {
      case 'step':
        return this.#given(n, await this.#step(node, n, branch))
      case 'effect':
        return this.#given(n, await this.#effect(node, n, branch))
      case 'transaction':
        return this.#given(n, await this.#transaction(node, n, branch))
      case 'map':
        return this.#given(n, await this.#map(node, n, branch))
      case 'begin':
        return this.#begin(node, n, branch)
      case 'update':
        ctx.update((draft) => void draft.list.push(wordOf(n)))
        branch.trace.push(wordOf(n))
        return { n }
      case 'read':
        return this.#read(node, n, branch)
      case 'scope':
        return { n, value: await ctx.scope(nameOf(node), () => this.run(node.body, branch)) }
      case 'section':
        return this.#section(node, n, branch)
      case 'all':
      case 'race':
      case 'any':
      case 'settled':
        return this.#parallel(node, n, branch)
      case 'sleep':
        await ctx.sleep(node.ms)
        return this.#given(n, { n })
      case 'signal':
        return limited(node, this.#given(n, await this.#signal(node, n)))
      case 'signals':
        return this.#given(n, await this.#signalOfSeveral(node, n))
      case 'ask':
        return limited(node, this.#given(n, await this.#ask(node, n)))
      case 'call':
        return this.#given(n, await this.#child(node, n))
      case 'value':
        return { n, value: node.of === 'now' ? ctx.now() : node.of === 'random' ? ctx.random() : ctx.uuid() }
      case 'foreign':
        await this.#machine.awaiting(ctx.runId, foreign(node))
        return { n }
      case 'try':
        return this.#try(node, n, branch)
      case 'throw':
        throw new Error(`x${node.id}`)
      case 'loop': {
        const values: unknown[] = []
        for (let time = 0; time < node.times; time++) {
          const inner: Branch = { ...branch, turn: `${branch.turn}.${time}` }
          values.push(await this.run(node.body, inner))
          branch.saw = inner.saw
        }
        return { n, value: values }
      }
    }
  }

  /** The function has it: from now on it is the same whenever the function is called again. */
  #given<T>(at: string, value: T): T {
    this.#machine.note({
      of: 'given',
      run: this.#ctx.runId,
      at,
      execution: this.#number,
      value: digest('', JSON.stringify(value)),
    })
    return value
  }

  async #step(node: Step, n: string, branch: Branch): Promise<CallValue> {
    const { saw } = branch
    const run = this.#ctx.runId
    const undo = this.#undoOf(node.undo, branch, node.undoFails)
    const value = await this.#ctx.step<CallValue, 'skip' | 'pause'>(
      nameOf(node),
      async (step) => this.#stepBody(node, n, branch, saw, step),
      {
        retry: { attempts: node.attempts, minMs: 1, maxMs: 5, jitter: false },
        ...(undo !== undefined && { undo }),
        ...(node.timeoutMs !== undefined && { timeoutMs: node.timeoutMs }),
        ...(node.onFailure === 'fallback' && {
          fallback: () => {
            this.#machine.note({ of: 'fallback', run, at: n })
            return { n, run, saw, how: 'fallback' as const }
          },
        }),
        ...((node.onFailure === 'skip' || node.onFailure === 'pause') && { onFailure: node.onFailure }),
        ...(node.checkpoint === false && { checkpoint: false }),
      },
    )
    if (value === undefined) return { n, how: 'skipped' }
    if (node.updates && value.how === undefined) branch.trace.push(wordOf(n))
    return value
  }

  async #stepBody(node: Step, n: string, branch: Branch, saw: string, step: StepHandle<ModelState>): Promise<CallValue> {
    const { attempt, key } = step
    const run = this.#ctx.runId
    this.#machine.note({ of: 'body', run, at: n, attempt, key })
    const seen = node.reads ? digest('', this.#ctx.state.list) : undefined
    if (node.reads) this.#machine.note(looked(this.#ctx, n, 'body', branch))
    if (attempt <= node.fails && node.timeoutMs !== undefined) await delay(node.timeoutMs + 20)
    else await work(node.work)
    if (attempt <= node.fails) throw new Error(`x${node.id}`)
    if (node.updates) step.update((draft) => void draft.list.push(wordOf(n)))
    if (node.remembers && this.#machine.features.facts) await step.memory.of(this.#ctx.threadId).remember(wordOf(n))
    this.#machine.note({ of: 'result', run, at: n, attempt })
    return { n, run, saw, ...(node.updates && { said: wordOf(n) }), ...(seen !== undefined && { state: seen }) }
  }

  async #effect(node: Effect, n: string, branch: Branch): Promise<CallValue> {
    const { saw } = branch
    const run = this.#ctx.runId
    const { journal } = this.#machine
    const undo = this.#undoOf(node.undo, branch)
    return this.#ctx.once<CallValue>(nameOf(node), {
      ...(node.key !== undefined && { key: `${node.key}${branch.turn}` }),
      ...(node.declared === 'idempotent' && { idempotent: true }),
      ...(node.declared === 'check' && {
        check: async (key: string) => {
          const found = journal.happening(key)
          this.#machine.note({ of: 'checked', run, at: n, key, happened: found !== undefined })
          return found === undefined ? { happened: false } : { happened: true, result: found.result as CallValue }
        },
      }),
      retry: { attempts: node.attempts, minMs: 1, maxMs: 5, jitter: false },
      ...(undo !== undefined && { undo }),
      run: async (key, { attempt }) => {
        this.#machine.note({ of: 'body', run, at: n, attempt, key })
        const before = journal.count((note) => note.of === 'sent' && note.run === run && note.at === n)
        const sending = node.sendings[before] ?? 'happens'
        this.#machine.note({ of: 'sent', run, at: n, key })
        try {
          if (sending === 'not_happened') throw new holdfast.NotHappened(new Error(`x${node.id}`))
          await work(node.work)
          if (sending === 'lost_not') throw new Error(`x${node.id}`)
          const result: CallValue = { n, run, saw }
          const earlier = node.declared === 'idempotent' ? journal.happening(key) : undefined
          if (earlier === undefined) this.#machine.note({ of: 'happened', run, at: n, key, result })
          if (sending === 'lost_happened') throw new Error(`x${node.id}`)
          this.#machine.note({ of: 'result', run, at: n, attempt })
          return (earlier?.result as CallValue | undefined) ?? result
        } finally {
          this.#machine.note({ of: 'settled', key })
        }
      },
    })
  }

  async #transaction(node: Transaction, n: string, branch: Branch): Promise<CallValue> {
    const { saw } = branch
    const run = this.#ctx.runId
    return this.#ctx.transaction<CallValue>(nameOf(node), async (tx) => {
      this.#machine.note({ of: 'body', run, at: n, attempt: 0, key: '' })
      await tx.query(`INSERT INTO model_rows VALUES ('${this.#ctx.owner}', '${run}', '${n}')`)
      return { n, saw }
    })
  }

  async #map(node: MapNode, n: string, branch: Branch): Promise<CallValue[]> {
    const { saw } = branch
    const run = this.#ctx.runId
    const undo = this.#undoOf(node.undo, branch)
    return this.#ctx.map(
      nameOf(node),
      node.fails,
      async (fails, index, { attempt, key }): Promise<CallValue> => {
        const at = `${n}[${index}]`
        this.#machine.note({ of: 'body', run, at, attempt, key })
        await work(node.work)
        if (attempt <= fails) throw new Error(`x${node.id}`)
        this.#machine.note({ of: 'result', run, at, attempt })
        return { n: at, run, saw }
      },
      {
        concurrency: node.concurrency,
        retry: { attempts: node.attempts, minMs: 1, jitter: false },
        ...(undo !== undefined && { undo }),
      },
    )
  }

  async #begin(node: Begin, n: string, branch: Branch): Promise<unknown> {
    const { saw } = branch
    const open = await this.#ctx.begin<CallValue>(nameOf(node))
    const inner = await this.run(node.inner, branch)
    if (node.isFailing) {
      const error = new Error(`x${node.id}`)
      await open.fail(error)
      throw error
    }
    const value = await open.complete(open.recorded ?? { n, saw }).catch((error: { code?: string }) => {
      // Before, what was recorded could not be completed again.
      if (open.recorded === undefined || error.code !== 'conflict') throw error
      return open.recorded
    })
    return { n, value: [this.#given(n, value), inner] }
  }

  #read({ branches }: Read, n: string, branch: Branch): unknown {
    this.#machine.note(looked(this.#ctx, n, 'function', branch))
    if (!branches) return { n, looked: digest('', this.#ctx.state.list) }
    // Called something else, depending on what was seen. Another attempt may see more than the one before: one turn of a loop must not be
    // called what another turn was.
    const isEven = this.#ctx.state.list.length % 2 === 0
    return this.#ctx.step(`r${n}${isEven ? 'even' : 'odd'}`, () => ({ n, looked: isEven, saw: branch.saw }))
  }

  async #section(node: Section, n: string, branch: Branch): Promise<SectionValue> {
    const ctx = this.#ctx
    const run = ctx.runId
    const { saw, turn } = branch
    const undo = this.#undoOf(node.undo, branch)
    const body = async (): Promise<SectionValue> => {
      this.#machine.note({ of: 'entered', run, at: n, execution: this.#number })
      const attempt: Attempt = { around: branch.attempt, isOver: false }
      const inner: Branch = { saw, trace: [], before: changesSoFar(branch), turn, attempt }
      this.#machine.note(looked(ctx, n, 'section', inner))
      const left = { of: 'left', run, at: n, execution: this.#number } as const
      const value = await this.#machine.leaving(attempt, this.run(node.body, inner), left)
      return { n, run, began: saw, saw: inner.saw, value, trace: inner.trace }
    }
    const options = {
      retry: { attempts: node.attempts, minMs: 1, jitter: false },
      ...(undo !== undefined && { undo: undo as never }),
      ...(node.onFailure === 'fallback' && {
        fallback: async (): Promise<SectionValue> => {
          this.#machine.note({ of: 'fallback', run, at: n })
          return { n, run, how: 'fallback', trace: [] }
        },
      }),
      ...((node.onFailure === 'skip' || node.onFailure === 'pause') && { onFailure: node.onFailure }),
    }
    // Where there is no `section`, a scope with options is one.
    type Recorded = (name: string, fn: () => Promise<SectionValue>, options: object) => Promise<SectionValue | undefined>
    const { section, scope } = ctx as unknown as { section?: Recorded; scope: Recorded }
    const value = await (this.#machine.features.section ? section : scope)?.call(ctx, nameOf(node), body, options)
    if (value === undefined) return { n, how: 'skipped', trace: [] }
    this.#given(n, value)
    branch.trace.push(...value.trace)
    return value
  }

  async #parallel(node: Parallel, n: string, branch: Branch): Promise<unknown> {
    const before = changesSoFar(branch)
    const forks = node.branches.map((): Branch => ({ ...branch, trace: [], before }))
    const running = node.branches.map((seq, index) => this.run(seq, forks[index] as Branch))
    const isByChance = isWonByChance(node)
    const keep = (indexes: readonly number[]) => {
      const beside = indexes.map((index) => (forks[index] as Branch).trace).filter((trace) => trace.length > 0)
      if (beside.length > 0) branch.trace.push({ beside, ...(isByChance && { isByChance }) })
    }
    const ended = (index: number) => (forks[index] as Branch).saw
    switch (node.kind) {
      case 'all': {
        const values = await Promise.all(running)
        keep(forks.map((_, index) => index))
        return { n, value: values, ends: values.map((_, index) => ended(index)) }
      }
      case 'race':
      case 'any': {
        const tagged = running.map(async (one, index) => ({ index, value: await one }))
        const winner = await (node.kind === 'race' ? Promise.race(tagged) : Promise.any(tagged))
        keep([winner.index])
        const won = { won: winner.index, value: winner.value, ends: ended(winner.index) }
        return isByChance ? { n, byChance: won } : { n, ...won }
      }
      case 'settled': {
        const outcomes = await Promise.allSettled(running)
        const values = outcomes.map((outcome, index) => {
          if (outcome.status === 'fulfilled') return { value: outcome.value, ends: ended(index) }
          return { error: programError(outcome.reason) }
        })
        keep(forks.map((_, index) => index))
        const refused = outcomes.find((outcome) => outcome.status === 'rejected')
        if (node.isStrict && refused !== undefined) throw new Error(`x${node.id}`, { cause: undefined })
        return { n, value: values }
      }
    }
  }

  async #signal(node: Signal, n: string): Promise<CallValue> {
    try {
      const options = node.timeoutMs === undefined ? {} : { timeoutMs: node.timeoutMs }
      return { n, value: await this.#ctx.waitFor(node.name, options) }
    } catch (error) {
      if ((error as { code?: string }).code !== 'timeout') throw error
      return { n, how: 'timeout' }
    }
  }

  async #signalOfSeveral(node: SignalOfSeveral, n: string): Promise<CallValue> {
    if (!this.#machine.features.waitForSeveral) return { n, value: await this.#ctx.waitFor(node.names[0] as string) }
    return { n, value: await this.#ctx.waitFor(node.names as never) }
  }

  async #ask(node: Ask, n: string): Promise<CallValue> {
    const isAnswer = (value: unknown) => typeof (value as { ok?: unknown } | null)?.ok === 'boolean'
    const judge = (value: unknown) =>
      isAnswer(value) ? { value: value as { ok: boolean } } : { issues: [{ message: 'not ok' }] }
    const validate = node.schema === 'async' ? (value: unknown) => turn(judge(value)) : judge
    try {
      const value = await this.#ctx.ask<{ ok: boolean }>(nameOf(node), {
        question: { n },
        ...(node.schema !== undefined && { schema: { '~standard': { version: 1, vendor: 'model', validate } } as never }),
        ...(node.timeoutMs !== undefined && { timeoutMs: node.timeoutMs }),
        ...(node.hasDefault && { default: { ok: false } }),
      })
      return { n, value }
    } catch (error) {
      if ((error as { code?: string }).code !== 'timeout') throw error
      return { n, how: 'timeout' }
    }
  }

  async #child(node: Call, n: string): Promise<CallValue> {
    const workflow = this.#machine.workflow(node.child)
    const input = firstInput(node.child)
    if (node.isDetached) {
      const { id } = await this.#ctx.call(workflow, input, { detached: true })
      return { n, value: id }
    }
    return { n, value: await this.#ctx.call(workflow, input) }
  }

  async #try(node: Try, n: string, branch: Branch): Promise<unknown> {
    const { saw } = branch
    try {
      return { n, value: await this.run(node.body, branch) }
    } catch (error) {
      const name = programError(error)
      branch.saw = digest(saw, name)
      return { n, error: name, value: await this.run(node.handler, branch) }
    }
  }

  /** How a call says what takes it back: by name where a function is not possible, and where it is asked for. */
  // biome-ignore lint/suspicious/noExplicitAny: a function or a name, depending on the Holdfast under test
  #undoOf(kind: UndoKind | undefined, branch: Branch, fails = 0): any {
    if (kind === undefined) return undefined
    const run = this.#ctx.runId
    if (this.#machine.features.namedUndo && (kind === 'named' || branch.attempt !== undefined)) return 'takeBack'
    return (result: CallValue | undefined, about?: UndoInfo | string) => this.#machine.undo(run, result, about, fails)
  }
}

/** A wait that may be over before anything comes may also go otherwise in another attempt of what is around it. */
function limited({ timeoutMs }: Signal | Ask, { n, ...waited }: CallValue): CallValue {
  return timeoutMs === undefined ? { n, ...waited } : { n, waited }
}

function changesSoFar({ before, trace }: Branch): readonly string[] {
  return [...before, ...flatten(trace)]
}

function looked(ctx: Ctx, at: string, by: Looked['by'], branch: Branch): Looked {
  const own = isOver(branch.attempt) ? [] : changesSoFar(branch)
  return { of: 'looked', run: ctx.runId, at, by, list: [...ctx.state.list], own }
}

function isOver(attempt: Attempt | undefined): boolean {
  return attempt !== undefined && (attempt.isOver || isOver(attempt.around))
}

/** An error of the program's own, by name. One of the engine's that ends the execution goes through. */
function programError(error: unknown): string {
  const name = errorName(error)
  if (name === undefined) throw error
  return name
}

export function firstInput(program: Program): TapeInput | object {
  return program.stages === undefined ? ({ tape: 0, saw: program.name, values: [], trace: [] } satisfies TapeInput) : {}
}

async function work(of: Work): Promise<void> {
  if (of === 'microtask') await Promise.resolve()
  else if (of === 'immediate') await turn()
  else if (of !== 'sync') await delay(of.ms)
}

async function foreign({ of, ms }: Foreign): Promise<void> {
  if (of === 'timer') await delay(ms)
  else if (of === 'immediate') await turn()
  else if (of === 'file') await readFile(import.meta.filename)
  else await Promise.resolve()
}
