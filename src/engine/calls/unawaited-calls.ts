import type { Logger } from '../../model/logger.ts'
import type { Run } from '../../model/run.ts'
import type { Claim } from '../../store/store.ts'

/**
 * Knows which promises of a function's calls nothing waits for. `await`, `then` and `Promise.all` and its like all read the constructor of a
 * promise: one whose constructor was never read is one that nothing listens to.
 */
export class UnawaitedCalls {
  /** What nothing has listened to so far, with its name; without the latest promise of all. */
  #unheard: Map<Promise<unknown>, string> | undefined
  #childNames: Set<string> | undefined

  /** A call of this name starts a child, whether or not it is awaited. */
  callsChild(name: string): void {
    this.#childNames ??= new Set()
    this.#childNames.add(name)
  }

  /** The promise as the function gets it. Its failure brings no process down: it is in the log. */
  watch<T>(promise: Promise<T>, name: string): Promise<T> {
    promise.then(undefined, ignore)
    Object.setPrototypeOf(promise, listening)
    if (latest.promise !== undefined) keepLatest()
    latest.promise = promise
    latest.name = name
    latest.of = this
    return promise
  }

  /** Another promise is the latest now, and nothing has listened to this one. */
  keep(promise: Promise<unknown>, name: string): void {
    this.#unheard ??= new Map()
    this.#unheard.set(promise, name)
    new Marked(promise, this.#unheard)
  }

  get hasAny(): boolean {
    if (latest.of === this) keepLatest()
    return this.#unheard !== undefined && this.#unheard.size > 0
  }

  /** The function has returned: tells the logger of calls that it forgot to await, unless they have succeeded. */
  async report({ claim: { run }, log }: { readonly claim: Claim; readonly log: Logger }): Promise<void> {
    for (const [promise, name] of [...(this.#unheard ?? [])]) {
      const fate = await fateOf(promise)
      const where = `run "${run.id}" of workflow "${run.workflow}"`
      if (fate === 'pending')
        log.warn(
          `The function of ${where} returned while "${name}" was still under way, and nothing awaits it: its result is not recorded.${this.#childNames?.has(name) ? ' A child that it has started keeps running.' : ''} Await it before the function returns.`,
          aboutCall(run, name),
        )
      else if (fate !== 'fulfilled')
        log.warn(
          `"${name}" of ${where} failed, and nothing awaits it: ${messageOf(fate.error)}. The run has not failed by it; await it, or catch its error.`,
          { ...aboutCall(run, name), error: fate.error },
        )
    }
  }
}

/**
 * The latest promise, while nothing has listened to it. Most are awaited at once: they are in no Map, and know nothing of where they are to be
 * taken from.
 */
const latest: { promise: Promise<unknown> | undefined; name: string; of: UnawaitedCalls | undefined } = {
  promise: undefined,
  name: '',
  of: undefined,
}

function keepLatest(): void {
  const { promise, name, of } = latest
  forgetLatest()
  if (promise !== undefined) of?.keep(promise, name)
}

function forgetLatest(): void {
  latest.promise = undefined
  latest.of = undefined
}

/** What promises of calls inherit from. On a prototype, since an own `constructor` makes V8 slow for every promise there is. */
const listening: object = Object.create(Promise.prototype, {
  constructor: {
    get(this: Promise<unknown>) {
      if (this === latest.promise) forgetLatest()
      else Marked.hear(this)
      return Promise
    },
  },
})

/** A constructor that returns what it gets: its heirs put their private fields on that. */
const Given = function (this: unknown, given: object) {
  return given
} as unknown as new (
  given: object,
) => object

/** A promise that knows where it is to be taken from once something listens. In a private field: a WeakMap costs several times that. */
class Marked extends Given {
  #unheard: Map<Promise<unknown>, string>

  constructor(promise: Promise<unknown>, unheard: Map<Promise<unknown>, string>) {
    super(promise)
    this.#unheard = unheard
  }

  static hear(promise: Promise<unknown>): void {
    if (#unheard in promise) promise.#unheard.delete(promise)
  }
}

function ignore(): void {}

async function fateOf(promise: Promise<unknown>): Promise<'pending' | 'fulfilled' | { readonly error: unknown }> {
  const settled = promise.then(
    () => 'fulfilled' as const,
    (error: unknown) => ({ error }),
  )
  // One that is settled comes first: it needs one turn of the microtask queue, the other two.
  return Promise.race([settled, Promise.resolve().then(() => 'pending' as const)])
}

function aboutCall({ id: runId, threadId, workflow }: Run, step: string): Readonly<Record<string, unknown>> {
  return { runId, threadId, workflow, step, reason: 'not_awaited' }
}

function messageOf(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).replace(/\.$/, '')
}
