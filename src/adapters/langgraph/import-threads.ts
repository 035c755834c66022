import { createHash } from 'node:crypto'
import {
  type BaseCheckpointSaver,
  type CheckpointTuple,
  type PendingWrite,
  WRITES_IDX_MAP,
} from '@langchain/langgraph-checkpoint'
import { type Holdfast, HoldfastError } from '../../index.ts'
import { HoldfastSaver } from './holdfast-saver.ts'
import { pack } from './pack.ts'

export interface ImportOptions {
  /** Called after each namespace of a thread. */
  readonly onProgress?: (progress: ImportProgress) => void
}

export interface ImportProgress {
  readonly threadId: string
  readonly ns: string
  /** So far, of all threads. */
  readonly checkpoints: number
}

export interface ImportReport {
  /** Namespaces of threads that are here now as they are there, counting those of earlier calls: the graph itself and its sub-graphs. */
  readonly namespaces: number
  readonly checkpoints: number
  /** What could not be imported, and why. Others were. */
  readonly failed: readonly { readonly threadId: string; readonly ns: string; readonly error: Error }[]
}

interface Namespace {
  readonly threadId: string
  readonly ns: string
  /** Oldest first. */
  readonly ids: string[]
}

/** What is compared of a checkpoint. */
interface Summary {
  readonly digest: string
  readonly writes: ReadonlySet<string>
}

/** A thread that went on here has more. */
function hasWrites(here: Summary, given: Summary): boolean {
  return [...given.writes].every((write) => here.writes.has(write))
}

/**
 * Copies the threads of another checkpointer, and compares each checkpoint with what was read: `importLangGraph(hf, SqliteSaver.fromConnString('old.db'))`.
 * Nothing may run on these threads meanwhile. The source is only read. Called again after a crash, it continues where it was; a
 * thread that has continued here since is left as it is.
 */
export async function importLangGraph(
  hf: Holdfast,
  from: BaseCheckpointSaver,
  { onProgress }: ImportOptions = {},
): Promise<ImportReport> {
  if (typeof from?.getTuple !== 'function' || typeof from.list !== 'function') {
    throw new HoldfastError(
      'invalid_input',
      'importLangGraph needs a checkpointer to read from, for example SqliteSaver.fromConnString(file).',
    )
  }
  const failed: { threadId: string; ns: string; error: Error }[] = []
  let [namespaces, checkpoints] = [0, 0]
  for (const namespace of await namespacesOf(from)) {
    const { threadId, ns } = namespace
    try {
      await new NamespaceImport(hf, from, namespace).run()
      namespaces += 1
      checkpoints += namespace.ids.length
    } catch (error) {
      failed.push({ threadId, ns, error: error as Error })
    }
    onProgress?.({ threadId, ns, checkpoints })
  }
  return { namespaces, checkpoints, failed }
}

class NamespaceImport {
  readonly #hf: Holdfast
  readonly #from: BaseCheckpointSaver
  readonly #to: HoldfastSaver
  readonly #namespace: Namespace

  constructor(hf: Holdfast, from: BaseCheckpointSaver, namespace: Namespace) {
    this.#hf = hf
    this.#from = from
    this.#to = new HoldfastSaver(hf)
    this.#namespace = namespace
  }

  async run(): Promise<void> {
    const { ids } = this.#namespace
    const before = await this.#here()
    const isMissing = ids.some((id) => !before.has(id))
    if (isMissing && [...before.keys()].some((id) => !ids.includes(id)))
      throw this.#error('conflict', 'another thread of this id is here already')
    const given = new Map<string, Summary>()
    for (const id of ids) {
      const tuple = await this.#from.getTuple(this.#config(id))
      if (tuple === undefined) throw this.#error('conflict', `checkpoint ${id} was deleted meanwhile`)
      const summary = this.#summary(tuple)
      given.set(id, summary)
      const here = before.get(id)
      if (here === undefined) await this.#put(tuple)
      if (here === undefined || !hasWrites(here, summary)) await this.#putWrites(tuple)
    }
    const after = await this.#here()
    for (const [id, summary] of given) {
      const here = after.get(id)
      if (here === undefined || here.digest !== summary.digest || !hasWrites(here, summary))
        throw this.#error('corrupt_record', `checkpoint ${id} is not here as it was read`)
    }
  }

  /** Read by a saver that knows nothing of what was written. */
  async #here(): Promise<ReadonlyMap<string, Summary>> {
    const here = new Map<string, Summary>()
    for await (const tuple of new HoldfastSaver(this.#hf).list(this.#config()))
      here.set(tuple.checkpoint.id, this.#summary(tuple))
    return here
  }

  async #put({ checkpoint, metadata, parentConfig }: CheckpointTuple): Promise<void> {
    const parentId = parentConfig?.configurable?.['checkpoint_id'] as string | undefined
    const { channel_versions: versions, channel_values: values } = checkpoint
    // Also values that have no version: each is what the checkpoint says, whatever its parent has.
    const all = Object.fromEntries(Object.keys(values).map((channel) => [channel, versions[channel] ?? 0]))
    await this.#to.put(this.#config(parentId), checkpoint, metadata ?? { source: 'loop', step: 0, parents: {} }, all)
  }

  async #putWrites({ checkpoint, pendingWrites = [] }: CheckpointTuple): Promise<void> {
    for (const [taskId, writes] of byTask(pendingWrites)) {
      // Those that have places of their own don't count among the others.
      for (const part of [writes.filter(([channel]) => !isSpecial(channel)), writes.filter(([channel]) => isSpecial(channel))]) {
        if (part.length > 0) await this.#to.putWrites(this.#config(checkpoint.id), part, taskId)
      }
    }
  }

  #config(id?: string): { configurable: Record<string, string> } {
    const { threadId, ns } = this.#namespace
    return { configurable: { thread_id: threadId, checkpoint_ns: ns, ...(id !== undefined && { checkpoint_id: id }) } }
  }

  /** Whatever the order in which a saver hands things out. */
  #summary({ checkpoint, metadata, parentConfig, pendingWrites = [] }: CheckpointTuple): Summary {
    const { channel_values, ...bare } = checkpoint
    const parent = parentConfig?.configurable?.['checkpoint_id'] ?? null
    const values = sorted(Object.entries(channel_values ?? {}).filter(([, value]) => value !== undefined))
    return {
      digest: this.#hash([sorted(Object.entries(bare)), metadata ?? null, parent, values]),
      writes: new Set(pendingWrites.map((write) => this.#hash(write))),
    }
  }

  #hash(value: unknown): string {
    return createHash('sha256')
      .update(this.#hf.records('langgraph').encode(pack(value)))
      .digest('base64')
  }

  #error(code: 'conflict' | 'corrupt_record', what: string): HoldfastError {
    const { threadId, ns } = this.#namespace
    const where = `${JSON.stringify(threadId)}${ns === '' ? '' : `, namespace ${JSON.stringify(ns)}`}`
    return new HoldfastError(code, `LangGraph thread ${where} was not imported: ${what}.`, { details: { threadId, ns } })
  }
}

function isSpecial(channel: string): boolean {
  return Object.hasOwn(WRITES_IDX_MAP, channel)
}

function byTask(writes: NonNullable<CheckpointTuple['pendingWrites']>): [string, PendingWrite[]][] {
  const tasks = new Map<string, PendingWrite[]>()
  for (const [taskId, channel, value] of writes) tasks.set(taskId, [...(tasks.get(taskId) ?? []), [channel, value]])
  return [...tasks]
}

function sorted<T extends readonly [string, ...unknown[]]>(entries: readonly T[]): T[] {
  return entries.toSorted(([a], [b]) => (a < b ? -1 : 1))
}

type Row = readonly [threadId: string, ns: string, id: string]

/** All namespaces of all threads. The official savers would read all values for it: their tables are asked for the ids alone. */
async function namespacesOf(from: BaseCheckpointSaver): Promise<readonly Namespace[]> {
  const namespaces = new Map<string, Namespace>()
  for await (const [threadId, ns, id] of rowsOf(from)) {
    const name = JSON.stringify([threadId, ns])
    const namespace = namespaces.get(name) ?? { threadId, ns, ids: [] }
    namespaces.set(name, namespace)
    namespace.ids.push(id)
  }
  for (const { ids } of namespaces.values()) ids.sort()
  return [...namespaces.values()]
}

const columns = 'SELECT thread_id, checkpoint_ns, checkpoint_id FROM'

async function* rowsOf(from: BaseCheckpointSaver): AsyncGenerator<Row> {
  const { db, pool, options } = from as unknown as {
    readonly db?: { prepare(sql: string): { all(): Record<string, string>[] } }
    readonly pool?: { query(sql: string): Promise<{ rows: Record<string, string>[] }> }
    readonly options?: { readonly schema?: unknown }
  }
  let rows: Record<string, string>[] | undefined
  if (typeof db?.prepare === 'function') rows = db.prepare(`${columns} checkpoints`).all()
  else if (typeof pool?.query === 'function' && typeof options?.schema === 'string') {
    const schema = `"${options.schema.replaceAll('"', '""')}"`
    rows = (await pool.query(`${columns} ${schema}.checkpoints`)).rows
  }
  for (const row of rows ?? []) yield [row['thread_id'], row['checkpoint_ns'], row['checkpoint_id']] as unknown as Row
  if (rows !== undefined) return
  for await (const { config } of from.list({ configurable: {} })) {
    const { thread_id, checkpoint_ns = '', checkpoint_id } = config.configurable ?? {}
    yield [thread_id, checkpoint_ns, checkpoint_id] as Row
  }
}
