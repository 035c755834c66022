import { createHash } from 'node:crypto'
import { HoldfastError } from '../model/errors.ts'
import type { Payload } from '../model/payload.ts'
import type { KeyedRecord } from '../model/record.ts'
import type { Run } from '../model/run.ts'
import type { WholeThread } from '../store/thread-image.ts'
import { readContent } from './read-bundle.ts'

/** One thread as plain JSON, which `import` accepts on any store. */
export interface ThreadBundle {
  readonly format: 'holdfast-thread'
  readonly version: 1
  /** Of the content, as JSON. */
  readonly sha256: string
  readonly content: BundleContent
}

/** Everything in the thread except its owner, which is that of the client that imports it. Bytes are in base64. */
export type BundleContent = { readonly [Field in Exclude<keyof WholeThread, 'records'>]: unknown } & {
  /** Absent if it has none, and in bundles of version 0.1. */
  readonly records?: unknown
  /** The bytes of its artifacts. Absent if it has none. */
  readonly artifacts?: unknown
}

/** A thread outside of any store: no worker holds its runs, and one that was running can be claimed again immediately. */
export function atRest(whole: WholeThread): WholeThread {
  return { ...whole, runs: whole.runs.map((image) => ({ ...image, run: runAtRest(image.run) })) }
}

function runAtRest(run: Run): Run {
  if (run.status !== 'running') return run
  const { createdAt: dueAt } = run
  return { ...run, status: 'pending', reason: null, dueAt, leaseId: null, leaseUntil: null, leaseHolder: null }
}

/** `contents`: the bytes of its artifacts. */
export function toBundle(whole: WholeThread, contents: readonly object[] = []): ThreadBundle {
  const content = { ...toContent(whole), ...(contents.length > 0 && { artifacts: contents }) }
  return { format: 'holdfast-thread', version: 1, sha256: sha256Of(content), content }
}

/** The content of a bundle, as a thread of this owner. Refused unless it is complete, undamaged and consistent. */
export function fromBundle(bundle: unknown, owner: string): WholeThread {
  const { format, version, sha256, content } = (
    typeof bundle === 'object' && bundle !== null ? bundle : {}
  ) as Partial<ThreadBundle>
  if (format !== 'holdfast-thread' || typeof content !== 'object' || content === null) {
    throw new HoldfastError(
      'invalid_input',
      'This is not a bundle of a thread. Pass what hf.debug.export() returned, or its JSON.',
    )
  }
  if (version !== 1) {
    throw new HoldfastError(
      'schema_too_new',
      `The bundle has version ${String(version)}; this library knows version 1. Upgrade holdfast; nothing was imported.`,
    )
  }
  if (sha256Of(content) !== sha256) {
    throw new HoldfastError(
      'corrupt_record',
      'The bundle is damaged: its checksum does not match. Export it again; nothing was imported.',
    )
  }
  return readContent(content, owner)
}

/** The same for two threads with equal content, in any store and of any owner. */
export function digestOf(whole: WholeThread): string {
  return sha256Of(toContent(whole))
}

/** Fields are listed by name, because the checksum depends on their order. */
function toContent(whole: WholeThread): BundleContent {
  const { threadId, headSeq, stateVersion, incarnation, baseSeq, createdAt, deletedAt } = whole.thread
  return {
    thread: { threadId, headSeq, stateVersion, incarnation, baseSeq, createdAt, deletedAt },
    epochFloor: whole.epochFloor,
    runs: atRest(whole).runs.map(({ run, waitKey, inbox, deliveredIds }) => ({
      ...{ id: run.id, workflow: run.workflow, version: run.version, status: run.status, reason: run.reason },
      ...{ queue: run.queue, priority: run.priority, fingerprint: run.fingerprint, epoch: run.epoch, dueAt: run.dueAt },
      ...{ claimsWithoutProgress: run.claimsWithoutProgress, currentStep: run.currentStep, inputSeq: run.inputSeq },
      ...{ tapeSeq: run.tapeSeq, endSeq: run.endSeq, createdAt: run.createdAt, startedAt: run.startedAt },
      ...{ finishedAt: run.finishedAt, waitKey },
      inbox: inbox.map(({ kind, name, payload, at }) => ({ kind, name, payload: packed(payload), at })),
      ...(deliveredIds.length > 0 && { deliveredIds }),
    })),
    operations: whole.operations.map(
      ({ key, kind, name, runId, status, result, evidence, resolvedBy, intendedAt, closedAt }) => ({
        ...{
          key,
          ...(kind === 'question' && { kind }),
          name,
          runId,
          status,
          result: packed(result),
          evidence: packed(evidence),
          resolvedBy,
          intendedAt,
          closedAt,
        },
      }),
    ),
    log: whole.log.map((record) => {
      const { seq, runId, type, step, count, attempt, at, durationMs, isCheckpoint } = record
      const [payload, patch] = [packed(record.payload), packed(record.patch)]
      return { seq, runId, type, step, count, attempt, at, durationMs, payload, patch, isCheckpoint }
    }),
    checkpoints: whole.checkpoints.map(({ seq, label, bytes }) => ({ seq, label, bytes })),
    snapshots: whole.snapshots.map(({ seq, state, stateVersion: version }) => ({
      seq,
      state: packed(state),
      stateVersion: version,
    })),
    ...(whole.records.length > 0 && { records: whole.records.map(toRecordContent) }),
    chunks: whole.chunks.map(({ runId, stream, offset, size, tape, step, count, attempt, payload }) => ({
      ...{ runId, stream, offset, size, tape, step, count, attempt, payload: packed(payload) },
    })),
  }
}

/** Without the thread: it is the bundle's. */
function toRecordContent({
  collection,
  key,
  parent,
  fields,
  version,
  payload,
  createdAt,
  updatedAt,
  expiresAt,
}: KeyedRecord): object {
  return { collection, key, parent, fields, version, payload: packed(payload), createdAt, updatedAt, expiresAt }
}

function packed(payload: Payload | null): string | { readonly base64: string } | null {
  if (payload === null || typeof payload === 'string') return payload
  return { base64: Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString('base64') }
}

/** In pieces, because a long log would not fit into one string. */
function sha256Of(content: object): string {
  const hash = createHash('sha256')
  for (const [name, value] of Object.entries(content)) {
    hash.update(JSON.stringify(name))
    for (const item of Array.isArray(value) ? value : [value]) hash.update(`${JSON.stringify(item)}\n`)
  }
  return hash.digest('hex')
}
