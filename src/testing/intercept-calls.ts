import { AsyncLocalStorage } from 'node:async_hooks'
import { type AnyWorkflow, workflow as defineWorkflow, type EffectOptions, type StepHandle, type UndoInfo } from '../index.ts'

/** A function of the user's that a call on ctx is about to execute. */
export interface InterceptedCall {
  readonly runId: string
  readonly kind: 'step' | 'effect' | 'check' | 'section' | 'transaction' | 'undo' | 'fallback'
  /** With its scopes, as the log has it: `gather/fetch`, `gather/source[2]`. */
  readonly path: string
  /** Which call of that path in this execution of the function, from 1. */
  readonly count: number
  /** The key of the step, effect or undo. */
  readonly key: string
  /** What an effect declares about a hidden outcome. */
  readonly declares?: 'check' | 'idempotent'
  /** A fallback of a section: its own calls are recorded. */
  readonly isScope?: true
}

/** Called instead of the user's function. `proceed` calls that; `args` is what it is called with. */
export type Interceptor = (call: InterceptedCall, proceed: () => unknown, args: readonly unknown[]) => unknown

/**
 * Whether the interceptor does not proceed to what the user's function does to the world: an effect can then be repeated, and a transaction needs
 * no database.
 */
export type IsReplaced = (path: string, count: number) => boolean

type AnyFunction = (...args: never[]) => unknown
type Calls = Record<string, (...args: unknown[]) => unknown>
type Options = Readonly<Record<string, unknown>>

/**
 * Returns a function that gives workflows of the same names, options and calls, whose bodies, effects, checks and undos go through the
 * interceptor. What they call with `ctx.call` does, too. One workflow is wrapped once, so that a process may meet it several times.
 */
export function interceptCalls(
  interceptor: Interceptor,
  isReplaced: IsReplaced = () => false,
): (workflow: AnyWorkflow) => AnyWorkflow {
  const wrapped = new Map<AnyWorkflow, AnyWorkflow>()
  const wrap = (original: AnyWorkflow): AnyWorkflow => {
    const known = wrapped.get(original)
    if (known !== undefined) return known
    const { undos } = original.options
    const options = undos === undefined ? original.options : { ...original.options, undos: wrapUndos(undos, interceptor) }
    const made = defineWorkflow(options, (ctx, input) =>
      original.fn(new Interception(ctx as unknown as Calls, { interceptor, isReplaced, wrap }).ctx as never, input),
    )
    wrapped.set(original, made)
    // Given to a process in either form it is one workflow.
    wrapped.set(made, made)
    return made
  }
  return wrap
}

function wrapUndos(undos: NonNullable<AnyWorkflow['options']['undos']>, interceptor: Interceptor) {
  const wrapUndo =
    (undo: AnyFunction) =>
    (...args: [unknown, UndoInfo]) =>
      interceptor(
        { runId: '', kind: 'undo', path: args[1].step, count: 1, key: args[1].key },
        () => undo(...(args as unknown as never[])),
        args,
      )
  return Object.fromEntries(Object.entries(undos).map(([name, undo]) => [name, wrapUndo(undo)]))
}

/** The scope in which a call is made, followed through async code as the engine does. */
const scopes = new AsyncLocalStorage<{ readonly of: Interception; readonly path: string }>()

/** The ctx of one execution of a function. */
class Interception {
  readonly ctx: object
  readonly #inner: Calls
  readonly #interceptor: Interceptor
  readonly #isReplaced: IsReplaced
  readonly #counts = new Map<string, number>()

  constructor(
    inner: Calls,
    {
      interceptor,
      isReplaced,
      wrap,
    }: { interceptor: Interceptor; isReplaced: IsReplaced; wrap: (workflow: AnyWorkflow) => AnyWorkflow },
  ) {
    this.#inner = inner
    this.#interceptor = interceptor
    this.#isReplaced = isReplaced
    const own: Calls = {
      step: (...args) => this.#step(...(args as [string, AnyFunction, Options?])),
      map: (...args) => this.#map(...(args as [string, readonly unknown[], AnyFunction, Options?])),
      once: (...args) => this.#once(...(args as [string, EffectOptions<unknown>])),
      scope: (name, fn, ...more) => this.#scope(String(name), fn as AnyFunction, more),
      section: (...args) => this.#section(...(args as [string, AnyFunction, Options?])),
      recordedScope: (name, scope, ...more) => this.#recordedScope(String(name), scope as Options, more),
      transaction: (...args) => this.#transaction(...(args as [string, AnyFunction])),
      call: (child, ...more) => this.#call('call', [typeof child === 'object' ? wrap(child as AnyWorkflow) : child, ...more]),
    }
    this.ctx = new Proxy(inner, {
      get: (target, name) => {
        if (typeof name === 'string' && Object.hasOwn(own, name)) return own[name]
        // The engine's own has private fields: it must be what its methods and accessors are called on.
        const member: unknown = Reflect.get(target, name, target)
        return typeof member === 'function' ? member.bind(target) : member
      },
      set: (target, name, value) => Reflect.set(target, name, value, target),
    })
  }

  #call(method: string, args: readonly unknown[]): unknown {
    return this.#inner[method]?.(...args)
  }

  #step(name: string, fn: AnyFunction, options?: Options): unknown {
    const at = this.#place('step', name)
    const body = (step: StepHandle) => this.#intercept({ ...at, kind: 'step', key: step.key }, fn, [step])
    return this.#call('step', [name, ifFunction(fn, body), ...this.#withOptions(at, options)])
  }

  #map(name: string, items: readonly unknown[], fn: AnyFunction, options?: Options): unknown {
    const path = this.#path(name)
    const body = (item: unknown, index: number, step: StepHandle) => {
      const at = { path: `${path}[${index}]`, count: countIn(step.key) }
      return this.#intercept({ ...at, kind: 'step', key: step.key }, fn, [item, index, step])
    }
    return this.#call('map', [name, items, ifFunction(fn, body), ...this.#withOptions({ path, count: 1 }, options)])
  }

  #once(name: string, options: EffectOptions<unknown>): unknown {
    const at = this.#place('effect', name)
    const { run, check, idempotent } = options ?? {}
    const isReplaced = this.#isReplaced(at.path, at.count)
    const declares: InterceptedCall['declares'] = idempotent === true ? 'idempotent' : check === undefined ? undefined : 'check'
    const effect = { ...at, ...(declares !== undefined && { declares }) }
    const [rest] = this.#withOptions(at, options as unknown as Options)
    return this.#call('once', [
      name,
      {
        ...rest,
        ...(typeof run === 'function' && {
          run: (key: string, ...more: unknown[]) => this.#intercept({ ...effect, kind: 'effect', key }, run, [key, ...more]),
        }),
        ...(isReplaced && { idempotent: true }),
        ...(typeof check === 'function' && {
          check: (key: string) => this.#intercept({ ...effect, kind: 'check', key }, check, [key]),
        }),
      },
    ])
  }

  #scope(name: string, fn: AnyFunction, more: readonly unknown[]): unknown {
    const path = this.#path(name)
    const body = () => scopes.run({ of: this, path }, () => fn(this.ctx as never))
    return this.#call('scope', [name, ifFunction(fn, body), ...more])
  }

  #section(name: string, fn: AnyFunction, options?: Options): unknown {
    const at = this.#place('step', name)
    const body = () => this.#inScope(at, fn, [this.ctx])
    return this.#call('section', [name, ifFunction(fn, body), ...this.#withOptions(at, options, { isSection: true })])
  }

  /** A plan's step: it closes over the ctx that the plan was called with, which is this one. */
  #recordedScope(name: string, scope: Options, more: readonly unknown[]): unknown {
    const at = this.#place('step', name)
    const [rest] = this.#withOptions(at, scope, { isSection: true })
    return this.#call('recordedScope', [
      name,
      { ...rest, body: () => this.#inScope(at, scope['body'] as AnyFunction, []) },
      ...more,
    ])
  }

  #transaction(name: string, fn: AnyFunction): unknown {
    const at = this.#place('step', name)
    const body = (tx: unknown) => this.#intercept({ ...at, kind: 'transaction', key: at.path }, fn, [tx])
    return this.#call(this.#isReplaced(at.path, at.count) ? 'step' : 'transaction', [name, ifFunction(fn, body)])
  }

  #inScope(at: Place, fn: AnyFunction, args: readonly unknown[]): unknown {
    return scopes.run({ of: this, path: at.path }, () => this.#intercept({ ...at, kind: 'section', key: at.path }, fn, args))
  }

  /** The options of a call with its fallback and its undo wrapped. Empty where none were given. */
  #withOptions(at: Place, options: Options | undefined, { isSection = false } = {}): Options[] {
    if (options === undefined || options === null) return []
    const { fallback, undo } = options as { fallback?: AnyFunction; undo?: unknown }
    const inFallback = (...args: unknown[]) => {
      const given = isSection && args.length > 1 ? [args[0], this.ctx] : args
      const run = () =>
        this.#intercept(
          { ...at, kind: 'fallback', key: at.path, ...(isSection && { isScope: true }) },
          fallback as AnyFunction,
          given,
        )
      return isSection ? scopes.run({ of: this, path: at.path }, run) : run()
    }
    const inUndo = (result: unknown, info: UndoInfo) =>
      this.#intercept({ ...at, kind: 'undo', key: info.key }, undo as AnyFunction, [result, info])
    return [
      {
        ...options,
        ...(typeof fallback === 'function' && { fallback: inFallback }),
        ...(typeof undo === 'function' && { undo: inUndo }),
      },
    ]
  }

  #intercept(call: Omit<InterceptedCall, 'runId'>, fn: AnyFunction, args: readonly unknown[]): unknown {
    const runId = String(Reflect.get(this.#inner, 'runId', this.#inner))
    return this.#interceptor({ ...call, runId }, () => fn(...(args as never[])), args)
  }

  #path(name: string): string {
    const scope = scopes.getStore()
    return scope?.of === this ? `${scope.path}/${name}` : name
  }

  #place(kind: 'step' | 'effect', name: string): Place {
    const path = this.#path(name)
    const counter = `${kind}:${path}`
    const count = (this.#counts.get(counter) ?? 0) + 1
    this.#counts.set(counter, count)
    return { path, count }
  }
}

interface Place {
  readonly path: string
  readonly count: number
}

/** What is no function is left for the engine to refuse. */
function ifFunction(fn: unknown, wrapped: AnyFunction): unknown {
  return typeof fn === 'function' ? wrapped : fn
}

/** The items of a map are counted by the engine: its key ends in the count. */
function countIn(key: string): number {
  const count = Number(key.slice(key.lastIndexOf('#') + 1))
  return Number.isInteger(count) ? count : 1
}
