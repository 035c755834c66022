import type { Core } from '../control/core.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { refuseUnknownOptions } from '../model/known-options.ts'
import { isTerminal } from '../model/run.ts'
import type { WholeThread } from '../store/moving.ts'
import { readWholeThread } from '../store/read-whole-thread.ts'
import { fromBundle, type ThreadBundle, toBundle } from './thread-bundle.ts'
import { ThreadHandle } from './thread-handle.ts'

/** Looks into threads and carries them about. */
export class Debug {
  readonly #core: Core
  readonly #owner: string

  constructor(core: Core, owner: string) {
    this.#core = core
    this.#owner = owner
  }

  /**
   * One thread as plain JSON, by its id or the id of one of its runs: history, state, runs, operations and unread messages, as they are at
   * this moment. Executes nothing and changes nothing.
   */
  async export(id: string): Promise<ThreadBundle> {
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
    return toBundle(whole)
  }

  /**
   * Takes in a thread that was exported elsewhere: what `export` returned, or its JSON. Its unfinished runs go on here, so it must not go on
   * where it came from; with `paused` they wait for `resume()`. `conflict` where thread, run ids or operation keys are taken.
   */
  async import(bundle: ThreadBundle | string | Uint8Array, options: { readonly paused?: boolean } = {}): Promise<ThreadHandle> {
    refuseUnknownOptions('hf.debug.import', options, { paused: true })
    const whole = fromBundle(parse(bundle), this.#owner)
    const { threadId } = whole.thread
    const answer = await this.#core.store.restoreThread(options.paused === true ? pausedThread(whole) : whole)
    if (!answer.ok) {
      throw new HoldfastError(
        'conflict',
        `Thread "${threadId}" was not imported: it is or was here already, or one of its run ids or operation keys is taken. ` +
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
