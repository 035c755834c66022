import {
  type ChangeQuery,
  type EventQuery,
  type EventType,
  type History,
  type HistoryCheckpoint,
  type HistoryEvent,
  type HistoryOrigin,
  HoldfastError,
  patchBetween,
} from '../../index.ts'
import { type Chains, type Position, positionOf, type Ref } from './channel-values.ts'
import type { CheckpointReader, Found } from './checkpoint-reader.ts'
import type { Head } from './heads.ts'
import { show } from './pack.ts'

/** A checkpoint on a line, with the events that it stands for. */
interface Entry {
  readonly found: Found
  readonly position: number
  readonly type: EventType
  /** Names of the nodes that ran; null where a run began, or somebody edited the state. */
  readonly step: string | null
  readonly count: number
}

type Line = readonly Entry[]

/** Checkpoints of one line; those of the n-th one have positions from n times this. */
const lineLength = 1_000_000

/**
 * A thread and namespace of LangGraph as the debugger reads it, as it was when it was opened. Ids are those of the checkpoints; the history is the
 * way from the first one to the one it was opened at. Checkpoints of other branches are known, too: each has a line of its own, which it shares up to the fork.
 * The state is the channels as plain data, without those of LangGraph itself.
 */
export class ThreadHistory implements History {
  readonly runId = null
  readonly #head: Head
  readonly #reader: CheckpointReader
  readonly #byId: ReadonlyMap<string, Found>
  readonly #lines: Line[] = []
  readonly #positions = new Map<string, number>()
  readonly #chains: Chains = new Map()
  /** The last link of each chain: with it the whole chain is read. */
  readonly #ends = new Map<string, Position>()
  #bytes: Promise<ReadonlyMap<Ref, number>> | undefined
  readonly #states = new Map<string, Promise<unknown>>()
  readonly #shown = new WeakMap<object, unknown>()

  private constructor(head: Head, reader: CheckpointReader, all: readonly Found[]) {
    this.#head = head
    this.#reader = reader
    this.#byId = new Map(all.map((found) => [found.bare.id, found]))
    for (const ref of all.flatMap(({ refs }) => Object.values(refs))) {
      if (typeof ref !== 'string') continue
      const { chain, index } = positionOf(ref)
      if (index >= (this.#ends.get(chain)?.index ?? 0)) this.#ends.set(chain, { chain, index })
    }
  }

  static async open(head: Head, reader: CheckpointReader, checkpointId: string | undefined): Promise<ThreadHistory> {
    const history = new ThreadHistory(head, reader, await reader.all(head.prefix))
    history.#lineOf(checkpointId ?? (head.id as string))
    return history
  }

  get name(): string {
    const { threadId, ns } = this.#head
    return `LangGraph thread ${JSON.stringify(threadId)}${ns === '' ? '' : `, namespace ${JSON.stringify(ns)}`}`
  }

  async checkpoints({ after, limit }: { after?: string; limit: number }): Promise<readonly HistoryCheckpoint[]> {
    const entries = this.#after(this.#line(0), after).slice(0, limit)
    this.#bytes ??= this.#reader.bytesOfValues(this.#head.prefix)
    const bytesOf = await this.#bytes
    return entries.map((entry) => {
      const { bare, parentId, refs, bytes } = entry.found
      const known = new Set(Object.values(this.#byId.get(parentId ?? '')?.refs ?? {}))
      const written = Object.values(refs).map((ref) => (known.has(ref) ? 0 : (bytesOf.get(ref) ?? 0)))
      return {
        ...{ id: bare.id, parent: parentId ?? null, at: Date.parse(bare.ts), runId: this.#runOf(entry), step: entry.step },
        ...{ label: null, bytes: written.reduce((sum, one) => sum + one, bytes) },
      }
    })
  }

  async find(checkpoint: string): Promise<string> {
    this.#lineOf(checkpoint)
    return checkpoint
  }

  async stateAt(id: string | null): Promise<unknown> {
    return id === null || id === beforeTheFirst ? undefined : this.#state(this.#found(id))
  }

  async stateBefore(id: string): Promise<unknown> {
    const entry = this.#entry(id)
    return this.#stateBefore(entry, this.#lineOf(id))
  }

  idAt(position: number): string {
    const line = this.#line(Math.floor(position / lineLength))
    return line[(position % lineLength) - 1]?.found.bare.id ?? beforeTheFirst
  }

  positionOf(id: string): number {
    if (id === beforeTheFirst) return 0
    this.#lineOf(id)
    return this.#positions.get(id) as number
  }

  async event(id: string): Promise<HistoryEvent> {
    return this.#toEvent(this.#entry(id), this.#lineOf(id))
  }

  whole(): History {
    return this
  }

  async origin(): Promise<HistoryOrigin | null> {
    return null
  }

  async voidedBy(): Promise<readonly number[]> {
    return []
  }

  async events({ after, to, types, limit }: EventQuery): Promise<readonly HistoryEvent[]> {
    const line = to === undefined ? this.#line(0) : this.#upTo(to)
    const entries = this.#after(line, after).filter(({ type }) => types === undefined || types.includes(type))
    return this.#toEvents(entries.slice(0, Math.min(limit, pageSize)), line)
  }

  async changes({ after, to, limit, newestFirst }: ChangeQuery): Promise<readonly HistoryEvent[]> {
    const line = this.#upTo(to)
    const entries = this.#after(line, after)
    const size = Math.min(limit, pageSize)
    if (newestFirst !== true) return this.#toEvents(entries.slice(0, size), line)
    return (await this.#toEvents(entries.slice(-size), line)).reverse()
  }

  async #toEvents(entries: readonly Entry[], line: Line): Promise<HistoryEvent[]> {
    const events: HistoryEvent[] = []
    for (const entry of entries) events.push(await this.#toEvent(entry, line))
    return events
  }

  async #toEvent(entry: Entry, line: Line): Promise<HistoryEvent> {
    const { found, position, type, step, count } = entry
    const [before, after] = [await this.#stateBefore(entry, line), await this.#state(found)]
    const { source } = found.metadata
    return {
      ...{ id: found.bare.id, position, at: Date.parse(found.bare.ts), type, runId: this.#runOf(entry), step, count },
      ...{ attempt: step === null ? 0 : 1, durationMs: null, isCheckpoint: true, data: { source }, backTo: null },
      patch: patchBetween(before ?? {}, after),
    }
  }

  #stateBefore({ position }: Entry, line: Line): Promise<unknown> {
    const before = line[(position % lineLength) - 2]
    return before === undefined ? Promise.resolve(undefined) : this.#state(before.found)
  }

  #state(found: Found): Promise<unknown> {
    const { id } = found.bare
    const known = this.#states.get(id)
    if (known !== undefined) return known
    const state = this.#readState(found)
    this.#states.set(id, state)
    if (this.#states.size > mostStates)
      for (const oldest of [...this.#states.keys()].slice(0, mostStates / 2)) this.#states.delete(oldest)
    return state
  }

  async #readState(found: Found): Promise<unknown> {
    const channels = Object.keys(found.refs)
      .filter((channel) => !isLangGraphs(channel))
      .sort()
    const values = channels.map(async (channel) => [channel, show(await this.#value(found.refs[channel] as Ref), this.#shown)])
    return Object.fromEntries(await Promise.all(values))
  }

  async #value(ref: Ref): Promise<unknown> {
    const { prefix } = this.#head
    const end = typeof ref === 'string' ? this.#ends.get(positionOf(ref).chain) : undefined
    if (end !== undefined && !this.#chains.has(end.chain))
      await this.#reader.value(prefix, `${end.chain}.${end.index}`, this.#chains)
    return this.#reader.value(prefix, ref, this.#chains)
  }

  #runOf({ found: { metadata }, type }: Entry): string | null {
    if (type === 'state_updated') return null
    const { run_id: runId } = metadata as { readonly run_id?: unknown }
    return typeof runId === 'string' ? runId : this.#head.threadId
  }

  #line(index: number): Line {
    const line = this.#lines[index]
    if (line === undefined) throw unknown(this.name, `at position ${index * lineLength}`)
    return line
  }

  /** The line that a checkpoint is on. One that is on none yet begins another. */
  #lineOf(id: string): Line {
    this.#found(id)
    const position = this.#positions.get(id)
    if (position !== undefined) return this.#line(Math.floor(position / lineLength))
    const line = lineTo(id, this.#byId, this.#lines.length * lineLength)
    this.#lines.push(line)
    for (const { found, position: at } of line) if (!this.#positions.has(found.bare.id)) this.#positions.set(found.bare.id, at)
    return line
  }

  #upTo(id: string): Line {
    return id === beforeTheFirst ? [] : this.#lineOf(id).slice(0, this.positionOf(id) % lineLength)
  }

  #entry(id: string): Entry {
    return this.#lineOf(id)[(this.positionOf(id) % lineLength) - 1] as Entry
  }

  /** What comes after a checkpoint; of another branch: after the fork. */
  #after(line: Line, after: string | undefined): Line {
    if (after === undefined) return line
    const before = new Set(this.#upTo(after).map(({ found }) => found.bare.id))
    return line.filter(({ found }) => !before.has(found.bare.id))
  }

  #found(id: string): Found {
    const found = this.#byId.get(id)
    if (found === undefined) throw unknown(this.name, id)
    return found
  }
}

const pageSize = 500
/** The id of position 0. */
const beforeTheFirst = ''
const mostStates = 4_000

/** Channels that LangGraph keeps for itself. */
function isLangGraphs(channel: string): boolean {
  return /^(__|branch:|join:)/.test(channel)
}

function lineTo(id: string, byId: ReadonlyMap<string, Found>, base: number): Line {
  const way: Found[] = []
  const seen = new Set<string>()
  for (let next: string | undefined = id; next !== undefined && !seen.has(next); ) {
    const found = byId.get(next)
    if (found === undefined) break
    seen.add(next)
    way.unshift(found)
    next = found.parentId
  }
  const counts = new Map<string, number>()
  return way.map((found, index) => {
    const { type, step } = whatHappened(found, way[index - 1])
    const count = step === null ? 0 : (counts.get(step) ?? 0) + 1
    if (step !== null) counts.set(step, count)
    return { found, position: base + index + 1, type, step, count }
  })
}

function whatHappened({ metadata: { source }, bare }: Found, before: Found | undefined): Pick<Entry, 'type' | 'step'> {
  if (source === 'input') return { type: 'run_started', step: null }
  if (source !== 'loop') return { type: 'state_updated', step: null }
  const seen = before?.bare.versions_seen ?? {}
  const ran = Object.entries(bare.versions_seen ?? {}).filter(
    ([node, versions]) => !node.startsWith('__') && JSON.stringify(versions) !== JSON.stringify(seen[node]),
  )
  const step = ran
    .map(([node]) => node)
    .sort()
    .join(', ')
  return step === '' ? { type: 'run_resumed', step: null } : { type: 'step_completed', step }
}

function unknown(name: string, id: string): HoldfastError {
  return new HoldfastError('invalid_id', `There is no checkpoint ${JSON.stringify(id)} in ${name}.`, {
    details: { checkpoint: id },
  })
}
