import { recordChecksum, sealChecksum } from '../../model/checksum.ts'
import type { Codec } from '../../model/codec.ts'
import { deepFreeze } from '../../model/container.ts'
import type { LogRecord } from '../../model/event.ts'
import { applyPatches, type Patch } from '../../model/patch.ts'
import type { Payload } from '../../model/payload.ts'
import { migrateState, type StateDefinition } from '../../model/state.ts'
import type { Store, Thread, ThreadKey } from '../../store/store.ts'
import { asKept } from '../../store/whole-payloads.ts'
import { isSamePatch, type PatchName } from '../writing/lease-history.ts'

/** A thread's state at one position of its log. */
export interface StateAt {
  readonly seq: number
  /** Undefined until something was written. */
  readonly value: unknown
  /** Version of the state definition; 0 if none was used yet. */
  readonly version: number
  /** What it costs to load: the bytes of the snapshot and the patches, plus `rowCost` for each row. */
  readonly loadCost: number
  /** The load cost at which the state is measured next. */
  readonly measureAt: number
}

/** What reading a row costs besides its bytes, in bytes. */
const rowCost = 32
/** Below this a snapshot gains nothing. */
const minSnapshotCost = 64 * 1024

export const emptyState: StateAt = { seq: 0, value: undefined, version: 0, loadCost: 0, measureAt: minSnapshotCost }

/** Rebuilds the state at `atSeq` from the nearest snapshot and the patches after it: two range reads. */
export async function loadState(store: Store, codec: Codec, thread: Thread, atSeq: number): Promise<StateAt> {
  if (atSeq <= thread.baseSeq) return { ...emptyState, seq: atSeq }
  const snapshot = await store.readSnapshot({ owner: thread.owner, threadId: thread.threadId, atSeq })
  const base: StateAt =
    snapshot === null
      ? { ...emptyState, seq: thread.baseSeq }
      : {
          seq: snapshot.seq,
          value: deepFreeze(codec.decode(snapshot.state)),
          version: snapshot.stateVersion,
          loadCost: snapshot.state.length,
          measureAt: nextMeasureAt(snapshot.state.length, snapshot.state.length),
        }
  return catchUp(store, codec, thread, base, atSeq)
}

/** The value of the state at `atSeq`, migrated to the version of a definition. */
export async function loadStateFor(
  definition: StateDefinition<unknown> | undefined,
  ...[store, codec, thread, atSeq]: Parameters<typeof loadState>
): Promise<unknown> {
  return valueFor(definition, await loadState(store, codec, thread, atSeq))
}

/** The value of a state, migrated to the version of a definition. */
export function valueFor(definition: StateDefinition<unknown> | undefined, { value, version }: StateAt): unknown {
  if (definition === undefined || version >= definition.version) return value ?? {}
  return migrateState(definition, value, version).value
}

/** Brings a state from `from.seq` to `atSeq`. */
async function catchUp(store: Store, codec: Codec, key: ThreadKey, from: StateAt, atSeq: number): Promise<StateAt> {
  if (from.seq >= atSeq) return from
  const records = await store.readLog({
    owner: key.owner,
    threadId: key.threadId,
    afterSeq: from.seq,
    toSeq: atSeq,
    patchesOnly: true,
  })
  let { version, loadCost } = from
  const patches: Patch[] = []
  for (const record of records) {
    if (record.patch === null) continue
    patches.push(codec.decode(record.patch) as Patch)
    loadCost += patchCost(record.patch)
    version = versionAfter(codec, record) ?? version
  }
  const value = patches.length === 0 ? from.value : applyPatches(from.value, patches)
  return { seq: atSeq, value, version, loadCost, measureAt: from.measureAt }
}

/**
 * The state at the head of a thread, from an earlier one that this process has cached. Null if the store has lost what led to that: lost
 * positions are assigned again, so the record of its last patch has to be the same.
 */
export async function continueFrom(
  store: Store,
  codec: Codec,
  thread: Thread,
  { state, ...name }: NamedState,
): Promise<StateAt | null> {
  const { owner, threadId, headSeq } = thread
  if (isSamePatch(thread, name)) return { ...state, seq: headSeq }
  if (thread.patchSeq <= name.patchSeq || name.patchSeq === 0) return null
  const [last] = await store.readLog({ owner, threadId, afterSeq: name.patchSeq - 1, toSeq: name.patchSeq })
  if (last === undefined || sealChecksum(recordChecksum(thread, asKept(last)), last.seq) !== name.patchChecksum) return null
  return catchUp(store, codec, thread, { ...state, seq: name.patchSeq }, headSeq)
}

export function patchCost(patch: Payload): number {
  return patch.length + rowCost
}

/** The version of the state definition that a record leads to; undefined if the version stays. */
function versionAfter(codec: Codec, { type, count, payload }: LogRecord): number | undefined {
  if (type === 'thread_rewound' || type === 'thread_forked') return count
  return type !== 'state_migrated' || payload === null ? undefined : (codec.decode(payload) as { to: number }).to
}

/**
 * The load cost at which to measure the state again, to see whether a snapshot is worth it: not before loading costs twice what the state
 * was. Measuring costs O(state), so it waits at least until the cost has grown by a quarter.
 */
export function nextMeasureAt(loadCost: number, stateBytes: number): number {
  return Math.max(minSnapshotCost, 2 * stateBytes, 1.25 * loadCost)
}

/** A snapshot is worth it when the patches outweigh it. */
export function isSnapshotDue(loadCost: number, stateBytes: number): boolean {
  return loadCost > 2 * stateBytes
}

/** The state at the head of a thread, and the record of its last patch. */
export interface NamedState extends PatchName {
  readonly state: StateAt
}
