import { type AnyWorkflow, type Holdfast, HoldfastError, open, type StateDefinition, type ThreadBundle } from '../../index.ts'
import { refuseUnknownOptions } from '../../model/known-options.ts'
import { isTerminal, type Run } from '../../model/run.ts'
import type { WholeThread } from '../../store/thread-image.ts'
import { createMemoryStore } from '../../stores/memory/memory-store.ts'
import { refuseNoCount, refuseNoListOf } from '../given-options.ts'
import { type ReplayOptions, type ReplayProblem, replayRun } from './replay-run.ts'

export interface ReplayAllOptions {
  /** The code against which runs are replayed: all versions that runs in flight need. */
  readonly workflows: readonly AnyWorkflow[]
  /** The owner of the threads, which is not in a bundle: default keys of effects are made of it. Default none. */
  readonly owner?: string
  /** As in the options of a worker. Default 250. */
  readonly mismatchMs?: number
  /** Runs that are replayed in parallel. Default 20. */
  readonly concurrency?: number
  /** How long one replay may take, in ms. Default 60,000. */
  readonly limitMs?: number
}

export interface CheckRunsOptions extends Omit<ReplayAllOptions, 'owner'> {
  /** State definitions of threads that no run in flight uses: their migrations are tried on all threads of the owner. */
  // biome-ignore lint/suspicious/noExplicitAny: of any states
  readonly states?: readonly StateDefinition<any>[]
  /** Only so many of the runs in flight, spread evenly over them. Default all. */
  readonly sample?: number
}

/** What a check before a deployment has found. */
export class RunsCheck {
  /** Runs that were replayed. */
  readonly checked: number
  /** Runs that have not begun, so that there is nothing to replay. */
  readonly notBegun: number
  readonly problems: readonly ReplayProblem[]
  /** Threads whose state can't be migrated to a definition in `states`. */
  readonly migrations: readonly { readonly threadId: string; readonly fromVersion: number; readonly error: Error }[]

  constructor(check: Pick<RunsCheck, 'checked' | 'notBegun' | 'problems' | 'migrations'>) {
    this.checked = check.checked
    this.notBegun = check.notBegun
    this.problems = check.problems
    this.migrations = check.migrations
  }

  /** Everything is as it should be. */
  get isGood(): boolean {
    return this.problems.length === 0 && this.migrations.length === 0
  }

  /** A table of the runs that would not continue, with both sides. */
  toString(): string {
    const head = `${this.checked} runs replayed, ${this.problems.length} would not continue as they are`
    const cell = (text: string) => text.replaceAll('|', '\\|').replaceAll('\n', ' ')
    const rows = this.problems.map(({ runId, workflow, version, problem, message, recorded = [], asked = [] }) =>
      [runId, `${workflow} ${version}`, problem, recorded.join(', '), asked.join(', '), message].map(cell).join(' | '),
    )
    const table =
      rows.length === 0
        ? []
        : ['', '| run | workflow | problem | in the log | the function asks for | |', '| --- | --- | --- | --- | --- | --- |']
    const threads = this.migrations.map(
      ({ threadId, fromVersion, error }) => `thread "${threadId}", version ${fromVersion}: ${error.message}`,
    )
    return [head, ...table, ...rows.map((row) => `| ${row} |`), ...(threads.length === 0 ? [] : ['', ...threads])].join('\n')
  }
}

/**
 * Before a deployment: replays the runs in flight of the client's owner against new code, each on a copy in memory, and says which would not
 * continue, where, with both sides. Calls no body, effect, check or undo, and writes nothing to the store; what functions do between their calls
 * is done.
 */
export async function checkRuns(hf: Holdfast, options: CheckRunsOptions): Promise<RunsCheck> {
  refuseUnknownOptions('checkRuns', options ?? null, { ...replayOptionNames, states: true, sample: true })
  const { states = [], sample } = options
  refuseNoListOf('states of checkRuns', states, 'state')
  refuseNoCount('sample of checkRuns', sample, 1)
  const inFlight: { readonly id: string; readonly threadId: string; readonly owner: string }[] = []
  let cursor: string | undefined
  do {
    const page = await hf.runs.list({ status: ['pending', 'running', 'waiting', 'paused'], limit: 1_000, cursor })
    inFlight.push(...page.items)
    cursor = page.cursor
  } while (cursor !== undefined)
  const chosen = sample === undefined || sample >= inFlight.length ? inFlight : spread(inFlight, sample)
  const check = await replayEach(chosen, options, async ({ id, threadId, owner }) => {
    const bundle = await hf.debug.export(threadId).catch((error: unknown) => {
      // It was deleted meanwhile.
      if (error instanceof HoldfastError && (error.code === 'run_not_found' || error.code === 'thread_deleted')) return undefined
      throw error
    })
    return { bundle, owner, isMeant: (run) => run.id === id && !isTerminal(run.status) }
  })
  const migrations: RunsCheck['migrations'][number][] = []
  for (const definition of states) migrations.push(...(await hf.checkMigration(definition)).failed)
  return new RunsCheck({ ...check, migrations })
}

/**
 * Replays all runs of exported threads against the code as it is, for tests: those that have ended must end in the same way, the others must come
 * to the end of their log. Cancelled ones are left out.
 */
export async function replayAll(
  bundles: Iterable<ThreadBundle | string | Uint8Array>,
  options: ReplayAllOptions,
): Promise<RunsCheck> {
  refuseUnknownOptions('replayAll', options ?? null, { ...replayOptionNames, owner: true })
  if (bundles == null || typeof bundles === 'string' || typeof bundles[Symbol.iterator] !== 'function')
    throw new HoldfastError('invalid_input', 'replayAll takes a list of bundles: what hf.debug.export() returned, or its JSON.')
  const { owner = '' } = options
  const check = await replayEach([...bundles], options, async (bundle) => ({
    bundle,
    owner,
    isMeant: ({ status }) => status !== 'cancelled',
  }))
  return new RunsCheck({ ...check, migrations: [] })
}

const replayOptionNames = { workflows: true, mismatchMs: true, concurrency: true, limitMs: true } as const

interface Meant {
  /** Undefined: the thread is gone. */
  readonly bundle: ThreadBundle | string | Uint8Array | undefined
  readonly owner: string
  readonly isMeant: (run: Run) => boolean
}

async function replayEach<Item>(items: readonly Item[], options: ReplayAllOptions, read: (item: Item) => Promise<Meant>) {
  const { workflows, concurrency = 20, mismatchMs = 250, limitMs = 60_000 } = options
  refuseNoListOf('workflows', workflows, 'workflow')
  refuseNoCount('concurrency', concurrency, 1)
  const replay: ReplayOptions = { workflows, mismatchMs, limitMs }
  const reader = await BundleReader.open()
  const problems: ReplayProblem[] = []
  let checked = 0
  let notBegun = 0
  let next = 0
  const lane = async (): Promise<void> => {
    while (next < items.length) {
      const { bundle, owner, isMeant } = await read(items[next++] as Item)
      const whole = bundle === undefined ? null : await reader.read(bundle, owner)
      for (const { run } of whole?.runs ?? []) {
        if (!isMeant(run) || wasUndone(whole as WholeThread, run)) continue
        if (run.tapeSeq === null) notBegun++
        else {
          checked++
          const problem = await replayRun(whole as WholeThread, run, replay)
          if (problem !== null) problems.push(problem)
        }
      }
    }
  }
  try {
    await Promise.all(Array.from({ length: Math.max(1, Math.min(concurrency, items.length)) }, lane))
  } finally {
    await reader.close()
  }
  return { checked, notBegun, problems }
}

/** A run that failed and undid what it had done: its end is more than its function's. */
function wasUndone({ log }: WholeThread, run: Run): boolean {
  return isTerminal(run.status) && log.some(({ runId, type }) => runId === run.id && type === 'undo_ordered')
}

function spread<Item>(items: readonly Item[], count: number): Item[] {
  return Array.from(
    { length: Math.max(0, Math.floor(count)) },
    (_, index) => items[Math.floor((index * items.length) / count)] as Item,
  )
}

/** Reads bundles as an import does, and keeps what would have been restored. */
class BundleReader {
  readonly #hf: Holdfast
  readonly #read: WholeThread[]
  #last: Promise<unknown> = Promise.resolve()

  private constructor(hf: Holdfast, read: WholeThread[]) {
    this.#hf = hf
    this.#read = read
  }

  static async open(): Promise<BundleReader> {
    const read: WholeThread[] = []
    const store = createMemoryStore()
    const restoreThread = async (whole: WholeThread) => {
      read.push(whole)
      return { ok: true } as const
    }
    return new BundleReader(await open({ ...store, restoreThread }, { worker: false, logger: false }), read)
  }

  /** One at a time: what is restored belongs to what was imported last. */
  read(bundle: ThreadBundle | string | Uint8Array, owner: string): Promise<WholeThread> {
    const reading = this.#last.then(async () => {
      await this.#hf.as(owner).debug.import(bundle)
      return this.#read.pop() as WholeThread
    })
    this.#last = reading.catch(() => {})
    return reading
  }

  close(): Promise<void> {
    return this.#hf.close()
  }
}
