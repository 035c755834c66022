import { readRun } from '../control/control-run.ts'
import type { Core } from '../control/core.ts'
import { type AuditOptions, type Decision, readAudit } from '../debug/audit.ts'
import { type Blame, blamePath } from '../debug/blame.ts'
import { type CheckpointDiff, diffCheckpoints } from '../debug/diff-checkpoints.ts'
import { diffRuns, type RunDiff } from '../debug/diff-runs.ts'
import { type EffectFilter, type EffectPage, listEffects } from '../debug/effects.ts'
import { explainRun } from '../debug/explain-run.ts'
import type { Explanation } from '../debug/explanation.ts'
import type { History } from '../debug/history.ts'
import { openAt, openHistory, openRun } from '../debug/log-history.ts'
import { Replay, replayHistory } from '../debug/replay.ts'
import { checkCount, readTimeline, type TimelineOptions, type TimelineRow } from '../debug/timeline.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'
import { isTerminal } from '../model/run.ts'
import type { StatePath } from '../model/state-path.ts'
import { readWholeThread } from '../store/read-whole-thread.ts'
import type { WholeThread } from '../store/thread-image.ts'
import { exportContents, importContents, withoutArtifacts } from './bundle-artifacts.ts'
import { fromBundle, type ThreadBundle, toBundle } from './thread-bundle.ts'
import { ThreadHandle } from './thread-handle.ts'

/**
 * Reads the history of threads, and exports and imports them. Nothing here executes anything. Where an id is asked for, it is that of a thread or of a
 * run; an id that is both is the thread's. Unknown ids, and those of other owners, are `run_not_found`, or `invalid_id` in a checkpoint.
 */
export class Debug {
  readonly #core: Core
  readonly #owner: string

  constructor(core: Core, owner: string) {
    this.#core = core
    this.#owner = owner
  }

  /**
   * Its checkpoints, oldest first: when, what, how long, how large, how expensive. At most 1,000 unless told otherwise; `after` gives the
   * next page, and `buckets` folds a long history into so many rows.
   */
  async timeline(id: string | History, options: TimelineOptions = {}): Promise<TimelineRow[]> {
    refuseUnknownOptions('hf.debug.timeline', options, { after: true, limit: true, buckets: true, summaries: true })
    return readTimeline(await openHistory(this.#core, this.#owner, id), options)
  }

  /**
   * What happened, step by step, up to a checkpoint: name, kind, attempt, input, output, error, and the state after it. Read from the
   * log; no code of a workflow runs. `for await` reads in pages, `await` brings all of it as an array.
   */
  replay(id: string | History, options: { readonly to?: string } = {}): Replay {
    refuseUnknownOptions('hf.debug.replay', options, { to: true })
    const open = () => openHistory(this.#core, this.#owner, id)
    return new Replay(async function* () {
      yield* replayHistory(await open(), options)
    })
  }

  /**
   * What differs between two checkpoints, from the first to the second; they may be of different threads. `in` names the thread, run or
   * history that they are of: labels are understood only with it.
   */
  async diff(checkpointA: string, checkpointB: string, options: DiffPlace = {}): Promise<CheckpointDiff> {
    refuseUnknownOptions('hf.debug.diff', options, { in: true })
    const [a, b] = await Promise.all([checkpointA, checkpointB].map((one) => openAt(this.#core, this.#owner, one, options.in)))
    return diffCheckpoints(a as OpenedAt, b as OpenedAt)
  }

  /**
   * Two runs side by side, by their ids: what each call got, returned and took, aligned by name and count, and where they first
   * differ. Reads both as a whole.
   */
  async diffRuns(a: string, b: string): Promise<RunDiff> {
    const open = async (id: string) => {
      const run = await readRun(this.#core, { owner: this.#owner, runId: checkId('run id', id) })
      return { run, history: await openRun(this.#core, run) }
    }
    const [first, second] = await Promise.all([open(a), open(b)])
    return diffRuns(first, second)
  }

  /**
   * Which event, step, attempt or person wrote a value of the state last, and before: at a checkpoint, by its path (`messages[3].text`, or
   * its keys). Rollbacks, rebuilt states and migrations are seen through, to who wrote it originally. At most `limit` writers, 10 by
   * default.
   */
  async blame(checkpoint: string, path: StatePath, options: DiffPlace & { readonly limit?: number } = {}): Promise<Blame> {
    refuseUnknownOptions('hf.debug.blame', options, { in: true, limit: true })
    const limit = checkCount('limit', options.limit, 1_000) ?? 10
    return blamePath(await openAt(this.#core, this.#owner, checkpoint, options.in), path, limit)
  }

  /**
   * The ledger of effects: key, intent, result, who met it again, what is unsure and what is known of it. In pages, by the time of the
   * intent; over all threads, thread by thread in the order of their creation.
   */
  async effects(filter: EffectFilter = {}): Promise<EffectPage> {
    refuseUnknownOptions('hf.debug.effects', filter, effectFilterNames)
    return listEffects(this.#core, this.#owner, filter)
  }

  /**
   * Who decided what, oldest first: answers, resolutions of effects, edits by hand, and what runs were told. At most 1,000 unless told
   * otherwise; `after` gives the next page.
   */
  async audit(id: string | History, options: AuditOptions = {}): Promise<Decision[]> {
    refuseUnknownOptions('hf.debug.audit', options, { after: true, limit: true })
    const limit = checkCount('limit', options.limit, 10_000) ?? 1_000
    return readAudit(await openHistory(this.#core, this.#owner, id), { ...options, limit })
  }

  /**
   * Why a run waits, who holds it, why it was executed again, what happens next and when, and what a person can do. `String(…)` of it, or
   * its `text`, is for people.
   */
  async explain(runId: string): Promise<Explanation> {
    return explainRun(this.#core, this.#owner, runId)
  }

  /**
   * One thread as plain JSON, by its id or the id of one of its runs: history, state, runs, operations and unread messages at this
   * moment, and the content of its artifacts, 256 MiB at most: `{ artifacts: false }` leaves them out. Executes and changes nothing.
   */
  async export(id: string, options: { readonly artifacts?: boolean } = {}): Promise<ThreadBundle> {
    refuseUnknownOptions('hf.debug.export', options, { artifacts: true })
    const { store } = this.#core
    const owner = this.#owner
    const whole =
      (await readWholeThread(store, { owner, threadId: checkId('thread id', id) })) ??
      (await this.#threadOfRun(id).then((threadId) => (threadId === null ? null : readWholeThread(store, { owner, threadId }))))
    if (whole === null || whole.thread.deletedAt !== null) {
      throw new HoldfastError(
        whole === null ? 'run_not_found' : 'thread_deleted',
        `There is no thread and no run "${id}"${whole === null ? '' : ' any more: it was deleted'}. Nothing was exported.`,
        { details: { id } },
      )
    }
    if (options.artifacts === false) return toBundle(withoutArtifacts(whole))
    return toBundle(whole, await exportContents(this.#core, owner, whole))
  }

  /**
   * Imports a thread that was exported elsewhere: what `export` returned, or its JSON. Its unfinished runs continue here, so they must not
   * continue where it came from; with `paused` they wait for `resume()`. `conflict` if the thread, a run id, an operation key or a session value exists.
   */
  async import(bundle: ThreadBundle | string | Uint8Array, options: { readonly paused?: boolean } = {}): Promise<ThreadHandle> {
    refuseUnknownOptions('hf.debug.import', options, { paused: true })
    const given = parse(bundle)
    const whole = fromBundle(given, this.#owner)
    await importContents(this.#core, whole, (given as ThreadBundle).content.artifacts)
    const { threadId } = whole.thread
    const answer = await this.#core.store.restoreThread(options.paused === true ? pausedThread(whole) : whole)
    if (!answer.ok) {
      throw new HoldfastError(
        'conflict',
        `Thread "${threadId}" was not imported: it exists or was deleted here, or one of its run ids, operation keys or session values exists. ` +
          'Import it for another owner, hf.as(owner), or into an empty store.',
        { details: { threadId } },
      )
    }
    this.#core.wakeWorker()
    return new ThreadHandle(this.#core, this.#owner, threadId)
  }

  async #threadOfRun(runId: string): Promise<string | null> {
    return (await this.#core.store.readRun({ owner: this.#owner, runId }))?.threadId ?? null
  }
}

const effectFilterNames: OptionNames<EffectFilter> = {
  key: true,
  threadId: true,
  runId: true,
  name: true,
  status: true,
  limit: true,
  cursor: true,
}

/** Where a checkpoint is looked for: a thread, a run, or a history that is not in the store. */
export interface DiffPlace {
  readonly in?: string | History
}

type OpenedAt = Awaited<ReturnType<typeof openAt>>

function parse(bundle: unknown): unknown {
  if (typeof bundle !== 'string' && !(bundle instanceof Uint8Array)) return bundle
  try {
    return JSON.parse(typeof bundle === 'string' ? bundle : Buffer.from(bundle).toString('utf8'))
  } catch (cause) {
    throw new HoldfastError(
      'invalid_input',
      'The bundle is not JSON: it was cut off, or is another file. Nothing was imported.',
      {
        cause,
      },
    )
  }
}

function pausedThread(whole: WholeThread): WholeThread {
  const runs = whole.runs.map((image) =>
    isTerminal(image.run.status) || image.run.status === 'paused'
      ? image
      : { ...image, run: { ...image.run, status: 'paused', reason: 'asked', dueAt: null } as const, waitKey: null },
  )
  return { ...whole, runs }
}
