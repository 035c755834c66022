export type { ArtifactRead } from './artifacts/artifact-reader.ts'
export type { AnswerOptions } from './client/answer-question.ts'
export type { ClientArtifacts } from './client/artifacts.ts'
export type { MigrationCheck } from './client/check-migration.ts'
export type { Debug, DiffPlace } from './client/debug.ts'
export type { Holdfast, RunFilter } from './client/holdfast.ts'
export type { InboxItem, OpenQuestion, StoppedRun, UnsureEffect } from './client/inbox.ts'
export type { ClientMemory } from './client/memory.ts'
export type { DrainOptions, Queues } from './client/queues.ts'
export type { StreamItem, StreamOptions } from './client/read-stream.ts'
export type { Records, RecordsWritten } from './client/records.ts'
export { recoveryPlan } from './client/recovery-plan.ts'
export type { Resolution } from './client/resolve-effect.ts'
export type { RunHandle } from './client/run-handle.ts'
export type { RunDetails, RunInfo, RunProgress } from './client/run-info.ts'
export type { ScheduleInfo, ScheduleOptions, Schedules } from './client/schedules.ts'
export type { SignalOptions } from './client/signal-run.ts'
export type { StartRequest } from './client/start-many.ts'
export type { StartOptions } from './client/start-run.ts'
export type { StuckRun } from './client/stuck-runs.ts'
export type { ThreadBundle } from './client/thread-bundle.ts'
export type { Checkpoint, ForkedThread, ThreadHandle, ThreadInfo } from './client/thread-handle.ts'
export type { ForkOptions } from './control/fork-thread.ts'
export type { RunEvent } from './control/read-events.ts'
export { type CopyOptions, type CopyProgress, type CopyReport, copyStore } from './copy-store.ts'
export type { AuditOptions, Decision } from './debug/audit.ts'
export type { Blame, Writer } from './debug/blame.ts'
export type { ArtifactWrite, CheckpointDiff, MemoryWrite } from './debug/diff-checkpoints.ts'
export type { RunCall, RunDiff, RunDiffRow, RunSide } from './debug/diff-runs.ts'
export type { EffectFilter, EffectPage, LedgerEntry, LedgerEvent } from './debug/effects.ts'
export type { AwaitedThing, Explanation, PossibleAction, Rerun } from './debug/explanation.ts'
export type { ChangeQuery, EventQuery, History, HistoryCheckpoint, HistoryEvent, HistoryOrigin } from './debug/history.ts'
export type { Replay, ReplayedKind, ReplayedStep } from './debug/replay.ts'
export type { TimelineOptions, TimelineRow } from './debug/timeline.ts'
export type {
  ArtifactChunks,
  ArtifactContent,
  ArtifactFilter,
  ArtifactPage,
  ArtifactReadOptions,
  ArtifactStream,
  Artifacts,
  ArtifactToSave,
  NamedArtifact,
} from './define/artifacts.ts'
export type {
  AskOptions,
  CallOptions,
  Context,
  EffectCheck,
  EffectOptions,
  MapOptions,
  OnFailure,
  OpenStep,
  SectionOptions,
  StepHandle,
  StepOptions,
  StreamWriter,
  Undo,
  UndoInfo,
  WaitForOptions,
} from './define/context.ts'
export type {
  FactMemory,
  Memory,
  Profile,
  ProfileChange,
  ProfileHistoryOptions,
  ProfileMergeOptions,
  SessionMemory,
  SessionSetOptions,
  SessionValue,
  SubjectMemory,
} from './define/memory.ts'
export {
  type AnyPlan,
  type Plan,
  type PlanFunction,
  type PlanOptions,
  type PlanPatch,
  type PlanStep,
  type PlanStepEntry,
  type PlanStepOptions,
  plan,
} from './define/plan.ts'
export { type AnyWorkflow, type Undos, type Workflow, type WorkflowOptions, workflow } from './define/workflow.ts'
export type { Embed } from './memory/embedder.ts'
export type { Artifact, ArtifactOrigin, ArtifactRetention, ArtifactType, Principal } from './model/artifact.ts'
export { type ErrorCode, HoldfastError, NotHappened } from './model/errors.ts'
export type { EventType } from './model/event.ts'
export type {
  Fact,
  FactActName,
  FactChange,
  FactPage,
  FactRetraction,
  FactSource,
  FactTrust,
  FactWithHistory,
  RecalledFact,
  RememberedFact,
} from './model/fact.ts'
export type {
  FactChangeOptions,
  FactEdit,
  FactFilter,
  FactListOptions,
  RecallOptions,
  RememberOptions,
} from './model/fact-options.ts'
export type { Logger } from './model/logger.ts'
export type { Notification, NotificationKind } from './model/notification.ts'
export { type Patch, patchBetween } from './model/patch.ts'
export type { Payload } from './model/payload.ts'
export type { Queue, QueueCounts, QueueSettings, RateLimit } from './model/queue.ts'
export type { KeyedRecord, RecordChange, RecordField } from './model/record.ts'
export type { RetryOptions } from './model/retry.ts'
export type { PauseReason, RunStatus, WaitReason } from './model/run.ts'
export { type StateDefinition, state } from './model/state.ts'
export { applyChanges, type StateChange } from './model/state-diff.ts'
export { Omitted, type StatePart } from './model/state-part.ts'
export type { StatePath } from './model/state-path.ts'
export type { Budget, Usage, UsageTotal } from './model/usage.ts'
export type { NotifyFunction, NotifyOption, NotifyTarget, Webhook } from './notify/targets.ts'
export { verifyWebhook, type WebhookHeaders } from './notify/verify-webhook.ts'
export { type OpenOptions, type OpenTarget, open, type PostgresPool, type RedisClient, type SqliteHandle } from './open.ts'
export type { GcOptions, GcReport } from './retention/collect.ts'
export type { ForgetOptions, ForgetReport } from './retention/forget-owner.ts'
export type { RetentionOptions } from './retention/policies.ts'
export type { Kept } from './retention/review-thread.ts'
export type { CallersTransaction, RecordQuery, SqlTransaction, Store } from './store/store.ts'
export type { Damage } from './verify/damage.ts'
export type { VerifyOptions, VerifyProgress, VerifyReport } from './verify/verify-store.ts'
export type { WorkerOptions } from './worker/worker.ts'
