import type { LogRecord } from '../model/event.ts'
import type { Payload } from '../model/payload.ts'
import { isShortened, putBackRepeats, readShortened } from '../model/repeats.ts'
import { stretchOf } from './log-stretch.ts'
import type { LogQuery, LogStretch, Store } from './store.ts'

/** The store, but reads of a log bring payloads whole, whatever was left out of them (model/repeats.ts). */
export function withWholePayloads(store: Store): Store {
  const members = new Map<string | symbol, unknown>(Object.entries(wholeReads(store)))
  return new Proxy(store, {
    get(target, name) {
      if (members.has(name)) return members.get(name)
      // A store may have private fields: it must be what its methods are called on.
      const member: unknown = Reflect.get(target, name, target)
      if (typeof member !== 'function') return member
      members.set(name, member.bind(target))
      return members.get(name)
    },
  })
}

/** A record that was read as the store keeps it, which its checksum is made of. */
export function asKept(record: LogRecord & { readonly [kept]?: Payload }): LogRecord {
  const payload = record[kept]
  return payload === undefined ? record : { ...record, payload }
}

function asGiven(record: LogRecord & { readonly [kept]?: Payload }): LogRecord {
  const { [kept]: _kept, ...given } = record
  return given
}

/** Where a record has its payload as the store keeps it. A weak map would take as long as all the rest of making it whole. */
const kept = Symbol('kept')

function wholeReads(store: Store): Pick<Store, 'readLog' | 'readLogs' | 'restoreThread'> {
  // Whether the last end of a run that was read by itself was shortened. What is left out of it is mostly in the record before, and runs that are
  // asked for in turn are often of one kind: where it was, both are one read.
  let wasShortened = false

  return {
    async readLog(query) {
      const isOne = isSingle(query)
      const records = (isOne && wasShortened ? await readWithBefore(store, query) : null) ?? (await store.readLog(query))
      const last = records.at(-1)
      if (isOne && last?.type === 'run_completed') wasShortened = hasShortened(last)
      if (!records.some(hasShortened)) return isOne ? records.slice(-1) : records
      const [stretch] = await makeWhole(store, [query], [{ records }])
      if (stretch === undefined || 'damage' in stretch) throw stretch?.damage
      return isOne ? stretch.records.slice(-1) : stretch.records
    },
    async readLogs(queries) {
      const stretches = await store.readLogs(queries)
      const hasAny = stretches.some((one) => 'records' in one && one.records.some(hasShortened))
      return hasAny ? makeWhole(store, queries, stretches) : stretches
    },
    // A store in memory keeps records as they are given: those of a fork are not what was read.
    restoreThread: (whole) => store.restoreThread({ ...whole, log: whole.log.map(asGiven) }),
  }
}

/** One record by its position, with all that it says. */
function isSingle({ owner, threadId, afterSeq, toSeq, ...filters }: LogQuery): boolean {
  return afterSeq !== undefined && afterSeq > 0 && toSeq === afterSeq + 1 && Object.keys(filters).length === 0
}

/** A record after the one before it. Null where it has to be read by itself: the other one is damaged, or in an earlier life of the thread. */
async function readWithBefore(store: Store, query: LogQuery): Promise<readonly LogRecord[] | null> {
  const [stretch] = await store.readLogs([{ ...query, afterSeq: (query.afterSeq ?? 1) - 1 }])
  return stretch !== undefined && 'records' in stretch && stretch.records.at(-1)?.seq === query.toSeq ? stretch.records : null
}

function hasShortened({ payload }: LogRecord): boolean {
  return isShortened(payload)
}

/** Patches by the index of their query and their position. */
type Patches = ReadonlyMap<string, Payload>

const none: Patches = new Map()

/** Patches that the answers lack are read, all at once. */
async function makeWhole(
  store: Store,
  queries: readonly LogQuery[],
  stretches: readonly LogStretch[],
): Promise<readonly LogStretch[]> {
  const lacking = new Map<string, LogQuery>()
  const whole = stretches.map((stretch, index) =>
    wholeStretch(stretch, index, none, (seq) => {
      const { owner, threadId } = queries[index] as LogQuery
      lacking.set(`${index}:${seq}`, { owner, threadId, afterSeq: seq - 1, toSeq: seq })
    }),
  )
  if (lacking.size === 0) return whole
  const answers = await store.readLogs([...lacking.values()])
  const patches = new Map<string, Payload>()
  for (const [n, place] of [...lacking.keys()].entries()) {
    const answer = answers[n] as LogStretch
    const patch = 'records' in answer ? answer.records[0]?.patch : null
    if (patch != null) patches.set(place, patch)
  }
  return stretches.map((stretch, index) => wholeStretch(stretch, index, patches))
}

/** A stretch with its payloads made whole from its own patches and those given. What it lacks is told where somebody asks, and is damage otherwise. */
function wholeStretch(stretch: LogStretch, index: number, patches: Patches, onLack?: (seq: number) => void): LogStretch {
  if ('damage' in stretch) return stretch
  const { records } = stretch
  return stretchOf(() =>
    records.map((record, at) => {
      const { seq, payload } = record
      if (!isShortened(payload)) return record
      const shortened = readShortened(payload)
      const patchAt = (offset: number) => {
        const near = records[at + offset]
        return (near?.seq === seq + offset ? near.patch : null) ?? patches.get(`${index}:${seq + offset}`)
      }
      const lacks = shortened.parts.filter(({ offset }) => patchAt(offset) == null)
      if (lacks.length > 0 && onLack !== undefined) {
        for (const { offset } of lacks) onLack(seq + offset)
        return record
      }
      return { ...record, payload: putBackRepeats(shortened, patchAt), [kept]: payload }
    }),
  )
}
