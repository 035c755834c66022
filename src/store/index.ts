// What a store of one's own is written with: the contract, and the rules that every store follows.

export { recordChecksum, sealChecksum } from '../model/checksum.ts'
export { ClaimOrder, type ClaimOrderOptions, type Contender, type QueueRoom } from '../model/claim-order.ts'
export { ClockWatch, claimableAfterSetBack } from '../model/clock-set-back.ts'
export { type ErrorCode, HoldfastError } from '../model/errors.ts'
export type { EventType, LogRecord, NewEvent } from '../model/event.ts'
export { isOpen, isOpenQuestion, type Operation, type OperationKind, type OperationStatus } from '../model/operation.ts'
export type { Payload } from '../model/payload.ts'
export {
  changeSettings,
  countLimit,
  defaultSettings,
  isLimited,
  noCounts,
  type Queue,
  type QueueChange,
  type QueueCounts,
  type QueueSettings,
  type RateLimit,
} from '../model/queue.ts'
export {
  hasExpired,
  isOtherVersion,
  type KeyedRecord,
  placeOfRecord,
  type RecordChange,
  type RecordField,
  type RecordKey,
  recordAfter,
} from '../model/record.ts'
export { isTerminal, type PauseReason, type Run, type RunStatus, suspicionLimit, type WaitReason } from '../model/run.ts'
export { type ChunkRecord, type ChunkWriter, droppedChunks, isDropped, type NewChunks } from '../model/stream.ts'
export type {
  Change,
  Committed,
  Due,
  Guard,
  NewRun,
  OperationChange,
  Refusal,
  RunChange,
} from './change.ts'
export type {
  CallersTransaction,
  CheckpointQuery,
  CheckpointRow,
  ChunkQuery,
  Claim,
  ClaimRequest,
  CollectRequest,
  CollectVerdict,
  Delivery,
  Hint,
  KeptStream,
  LogQuery,
  LogStretch,
  Message,
  NewMessage,
  RecordHit,
  RecordPage,
  RecordQuery,
  RecordRanking,
  RecordScan,
  RecordSearch,
  Renewed,
  RenewRequest,
  RunKey,
  RunQuery,
  ScanQuery,
  Snapshot,
  SqlTransaction,
  Store,
  StreamLength,
  StreamQuery,
  Thread,
  ThreadKey,
  ThreadQuery,
  TransactRequest,
  UnsureQuery,
} from './store.ts'
export type { RunChunks, RunImage, ThreadImage, WholeThread } from './thread-image.ts'
