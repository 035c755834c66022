import type { Holdfast, Store } from 'holdfast'
import type { Random } from '../../src/testing/random.ts'
import type { Account } from '../crash/bed/provider.ts'
import { withRetries } from '../crash/bed/run-process.ts'
import { ignoreAnswered } from '../crash/workflows/act-as-others.ts'
import { patience } from '../patience.ts'
import type { Journal } from './journal.ts'
import type { Target } from './target.ts'
import { permitOf } from './workflows.ts'

/** A run that a client wanted, and what came of it; `problem` where it did not come to its end. */
export interface WantedRun {
  readonly id: string
  readonly workflow: 'agent' | 'errand' | 'stroll' | 'reader' | 'trifle'
  readonly output?: unknown
  readonly problem?: string
}

/**
 * As an application would: starts runs, signals them and waits for them. What was accepted and is gone is asked for again, under the same
 * id. Also the person who decides about unsure effects, as the provider says.
 */
export class Client {
  readonly #hf: Holdfast
  readonly #journal: Journal
  readonly #account: Account
  readonly #limitMs: number
  readonly #wanted: { readonly ask: () => Promise<WantedRun>; readonly asked: Promise<WantedRun> }[] = []
  readonly #stops = new Set<string>()
  #isOver = false
  #person: Promise<void>

  private constructor(hf: Holdfast, options: { journal: Journal; account: Account; limitMs: number }) {
    this.#hf = hf
    this.#journal = options.journal
    this.#account = options.account
    this.#limitMs = options.limitMs
    this.#person = this.#decide()
  }

  static async open(
    target: Target,
    store: Store,
    options: { journal: Journal; account: Account; limitMs: number },
  ): Promise<Client> {
    return new Client(await target.holdfast.open(store, { worker: false }), options)
  }

  /** An agent with its permit, an errand or a stroll. Resolves when it has ended or is given up. */
  want(workflow: 'agent' | 'errand' | 'stroll', id: string, random: Random): Promise<unknown> {
    const input = { paceMs: random.integer(10, 80) }
    const permit = () => this.#hf.signal(id, 'permit', permitOf(id), { id: `permit-${id}` })
    return this.#ask(() => this.#want({ id, workflow, input }, workflow === 'agent' ? permit : undefined))
  }

  /** Many runs that are over at once. */
  wantTrifles(ids: readonly string[]): void {
    for (const id of ids) void this.#ask(() => this.#want({ id, workflow: 'trifle' }))
  }

  /**
   * When all runs that were wanted have ended, or are given up. Those that had ended before the store forgot are asked for once more: they
   * may have been forgotten with their results. A reader then looks at each thread.
   */
  async outcomes(): Promise<WantedRun[]> {
    const first = await Promise.all(this.#wanted.map(({ asked }) => asked))
    const again = this.#wanted.map(async ({ ask }, index) => {
      const { problem } = first[index] as WantedRun
      const run = problem === undefined ? await ask() : (first[index] as WantedRun)
      if (run.problem !== undefined || run.workflow === 'trifle') return [run]
      return [run, await this.#want({ id: `${run.id}-reader`, workflow: 'reader', threadId: run.id })]
    })
    const runs = (await Promise.all(again)).flat()
    this.#isOver = true
    await this.#person
    return runs
  }

  /** Runs that stopped by themselves, which none of these should. */
  get stops(): readonly string[] {
    return [...this.#stops]
  }

  async close(): Promise<void> {
    this.#isOver = true
    await this.#hf.close()
    await this.#person.catch(() => {})
  }

  #ask(ask: () => Promise<WantedRun>): Promise<WantedRun> {
    const asked = ask()
    this.#wanted.push({ ask, asked })
    return asked
  }

  async #want(
    run: { id: string; workflow: WantedRun['workflow']; threadId?: string; input?: unknown },
    afterStart = async () => {},
  ): Promise<WantedRun> {
    const { id, workflow, threadId = id, input } = run
    const deadline = performance.now() + this.#limitMs
    let problem = ''
    while (performance.now() < deadline) {
      try {
        const handle = await this.#hf.start(workflow, input, { id, threadId })
        this.#journal.write({ of: 'started', run: id })
        await afterStart().catch(ignoreEnded)
        return { id, workflow, output: await handle.result({ timeoutMs: 1_000 }) }
      } catch (error) {
        const { code, message } = error as { code?: string; message: string }
        problem = `${code}: ${message}`
        if (code === 'run_failed' || code === 'run_cancelled') break
      }
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    return { id, workflow, problem }
  }

  async #decide(): Promise<void> {
    const seenAt = new Map<string, number>()
    while (!this.#isOver) {
      for (const item of await withRetries(() => this.#hf.inbox())) {
        if (item.kind === 'run') this.#stops.add(`${item.runId} paused: ${item.reason} ${item.error?.message ?? ''}`)
        if (item.kind !== 'effect') continue
        const { key } = item
        // A run that can find out by itself is faster than a person.
        if (!seenAt.has(key)) seenAt.set(key, performance.now())
        if (performance.now() - (seenAt.get(key) as number) < patience(1_500)) continue
        const happened = this.#account.happened(key)
        this.#journal.write({ of: 'decided', key, happened })
        const result = { receipt: `receipt for ${key}` }
        const resolution = { happened, by: 'provider', ...(happened && { result }) }
        await withRetries(() => this.#hf.resolve(key, resolution)).catch(ignoreAnswered)
      }
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }
}

/** The run is over, or was forgotten: the one needs no signal, the other is started again. */
function ignoreEnded(error: unknown): void {
  const { code } = error as { code?: string }
  if (code !== 'conflict' && code !== 'run_not_found') throw error
}
