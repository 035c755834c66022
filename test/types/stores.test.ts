import { open } from 'holdfast'
import type {
  CallersTransaction,
  Change,
  CheckpointQuery,
  CheckpointRow,
  ChunkQuery,
  ChunkRecord,
  Claim,
  ClaimRequest,
  CollectRequest,
  CollectVerdict,
  Committed,
  Delivery,
  Hint,
  KeptStream,
  KeyedRecord,
  LogQuery,
  LogRecord,
  LogStretch,
  Message,
  Operation,
  Queue,
  QueueChange,
  RecordQuery,
  RecordRanking,
  RecordScan,
  Renewed,
  RenewRequest,
  Run,
  RunKey,
  RunQuery,
  ScanQuery,
  Snapshot,
  SqlTransaction,
  Store,
  StreamLength,
  StreamQuery,
  Thread,
  ThreadImage,
  ThreadKey,
  ThreadQuery,
  TransactRequest,
  UnsureQuery,
  WholeThread,
} from 'holdfast/store'
import { HoldfastError, recordChecksum, sealChecksum } from 'holdfast/store'
import { createMemoryStore, wrapStore } from 'holdfast/testing'
import { expect, expectTypeOf, test } from 'vitest'

/** Every act, in the words of `holdfast/store` alone. */
class StoreOfOnesOwn implements Store {
  readonly kind = 'mine'
  readonly durability = 'none'
  readonly keepsIntents = false
  readonly canPipeline = false

  migrate = async (): Promise<void> => notYet()
  now = async (): Promise<number> => notYet()
  commit = async (_: readonly Change[]): Promise<readonly Committed[]> => notYet()
  claim = async (_: ClaimRequest): Promise<readonly Claim[]> => notYet()
  setQueue = async (_: QueueChange): Promise<void> => notYet()
  listQueues = async (_: { readonly name?: string }): Promise<readonly Queue[]> => notYet()
  renew = async (_: RenewRequest): Promise<readonly Renewed[]> => notYet()
  deliver = async (_: Delivery): Promise<{ readonly ok: true } | { readonly ok: false; readonly refusal: 'conflict' }> => notYet()
  readInbox = async (_: RunKey): Promise<readonly Message[]> => notYet()
  readRun = async (_: RunKey): Promise<Run | null> => notYet()
  listRuns = async (_: RunQuery): Promise<Page<Run>> => notYet()
  readThread = async (_: ThreadKey): Promise<Thread | null> => notYet()
  listThreads = async (_: ThreadQuery): Promise<Page<Thread>> => notYet()
  readLog = async (_: LogQuery): Promise<readonly LogRecord[]> => notYet()
  readLogs = async (_: readonly LogQuery[]): Promise<readonly LogStretch[]> => notYet()
  readSnapshot = async (_: ThreadKey & { readonly atSeq: number }): Promise<Snapshot | null> => notYet()
  listCheckpoints = async (_: CheckpointQuery): Promise<readonly CheckpointRow[]> => notYet()
  tag = async (_: ThreadKey & { readonly seq: number; readonly label: string }): Promise<{ readonly ok: boolean }> => notYet()
  readChunks = async (_: ChunkQuery): Promise<readonly ChunkRecord[]> => notYet()
  listStreams = async (_: StreamQuery): Promise<readonly KeptStream[]> => notYet()
  dropChunks = async (_: ThreadKey & { readonly streams: readonly StreamLength[] }): Promise<number> => notYet()
  readOperation = async (_: { readonly owner: string; readonly key: string }): Promise<Operation | null> => notYet()
  listUnsure = async (_: UnsureQuery): Promise<Page<Operation>> => notYet()
  readRecords = async (_: RecordQuery): Promise<readonly KeyedRecord[]> => notYet()
  searchRecords = async (): Promise<RecordRanking> => notYet()
  scanRecords = async (_: RecordScan): Promise<Page<KeyedRecord>> => notYet()
  sweepRecords = async (_: { readonly limit: number }): Promise<number> => notYet()
  deleteThread = async (_: ThreadKey & { readonly at: number }): Promise<boolean> => notYet()
  collectThreads = async (_: CollectRequest): Promise<readonly CollectVerdict[]> => notYet()
  scanThreads = async (_: ScanQuery): Promise<Page<Thread>> => notYet()
  readThreadImage = async (_: ThreadKey): Promise<ThreadImage | null> => notYet()
  restoreThread = async (_: WholeThread): Promise<{ readonly ok: true }> => notYet()
  close = async (): Promise<void> => notYet()
  subscribe = (_: (hint: Hint) => void) => () => {}
  transact = async (_: TransactRequest, __: (tx: SqlTransaction) => Promise<Change>): Promise<Committed> => notYet()
  commitWithin = async (_: CallersTransaction, __: readonly Change[]): Promise<readonly Committed[]> => notYet()
}

interface Page<Item> {
  readonly items: readonly Item[]
  readonly cursor?: string
}

function notYet(): never {
  throw new HoldfastError('store_unavailable', 'Not written yet.')
}

test('holdfast/store has what a store is written with, and open takes it', async () => {
  expectTypeOf(open).toBeCallableWith(new StoreOfOnesOwn())
  await expect(open(new StoreOfOnesOwn())).rejects.toMatchObject({ code: 'store_unavailable', message: 'Not written yet.' })
})

test('what is thrown there is a HoldfastError of holdfast, and the checksum of a patch can be told', async () => {
  expect((await import('holdfast')).HoldfastError).toBe(HoldfastError)
  const place = { owner: '', threadId: 't' }
  const event = { runId: null, type: 'state_updated', step: null, count: 0, attempt: 0, at: 1, durationMs: null } as const
  const store = createMemoryStore()
  const change: Change = {
    ...{ ...place, runId: null, guard: { kind: 'thread', headSeq: 0 }, isCheckpoint: true },
    events: [{ ...event, payload: null, patch: '[]' }],
  }
  expect(await store.commit([change])).toMatchObject([{ ok: true, lastSeq: 1 }])
  const [record] = (await store.readLog(place)) as [LogRecord]
  expect(await store.readThread(place)).toMatchObject({
    patchSeq: 1,
    patchChecksum: sealChecksum(recordChecksum(place, record), 1),
    writtenSeq: 0,
  })
})

test('the reference and a store with faults are the same contract', () => {
  expectTypeOf(createMemoryStore).returns.toEqualTypeOf<Store>()
  expectTypeOf(wrapStore).returns.toEqualTypeOf<Store>()
})
