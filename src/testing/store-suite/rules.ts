import { expect } from 'vitest'
import { invariant } from '../../model/errors.ts'
import type { LogRecord } from '../../model/event.ts'
import type { Guard } from '../../model/guard.ts'
import type { Operation } from '../../model/operation.ts'
import type { Change } from '../../store/change.ts'
import type { RunImage, WholeThread } from '../../store/thread-image.ts'
import {
  type AfterNow,
  type ClaimCase,
  claimCases,
  type Difference,
  type GuardCase,
  guardCases,
  headSeq,
  heldRow,
  heldRunId,
  key,
  leaseMs,
  type NewRunCase,
  newRow,
  newRunCases,
  type OperationCase,
  operationCases,
  type Row,
  type RunChangeCase,
  runChangeCases,
} from './rule-cases.ts'
import { change, event, newRun, ok, refusalOf, type Scene, type StoreTest, stepCompleted } from './scene.ts'

/** Tries the rules of `rule-cases.ts`: a broken one is named by its test. */
export function testRules(test: StoreTest): void {
  for (const one of runChangeCases) test(`run change: ${one.rule}`, (scene) => tryRunChange(scene, one))
  for (const one of guardCases) test(`guard: ${one.rule}`, (scene) => tryGuard(scene, one))
  for (const one of operationCases) test(`operation: ${one.rule}`, (scene) => tryOperation(scene, one))
  for (const one of claimCases) test(`claim: ${one.rule}`, (scene) => tryClaim(scene, one))
  for (const one of newRunCases) test(`new run: ${one.rule}`, (scene) => tryNewRun(scene, one))
}

/** The change alone, and with a part that says nothing: a store may have a short way for the first. Each way has an owner of its own. */
const ways: Record<string, Partial<Change>> = { alone: {}, 'with other parts': { readMessages: [] } }

async function tryRunChange(scene: Scene, { before, operation: status, mail, waitMs, eventCount, to, after }: RunChangeCase) {
  const events = Array.from({ length: eventCount }, (_, index) => event('step_completed', { step: `${index}`, payload: '1' }))
  for (const [way, parts] of Object.entries(ways)) {
    const operations = status === undefined ? [] : [operationOf(way, { status })]
    const subject = await place(scene, { owner: way, before, operations, hasMail: mail !== undefined })
    scene.advance(waitMs ?? 0)
    const [message] = await scene.store.readInbox({ owner: way, runId: heldRunId })
    const known = mail === 'seen' ? { mailSeen: message?.id ?? 0 } : mail === 'read' ? { readMessages: [message?.id ?? 0] } : {}
    const answer = ok(await scene.commit(subject.change({ events, run: to, ...parts, ...known })))
    expect(answer, way).toMatchObject({ firstSeq: eventCount === 0 ? headSeq : headSeq + 1, lastSeq: headSeq + eventCount })
    expect(await readRow(scene, way), way).toEqual(resolve(subject.row, after, answer.now))
  }
}

async function tryGuard(scene: Scene, { before, later, isDeleted, guard, names, onlyNotes, refusal }: GuardCase): Promise<void> {
  for (const [way, parts] of Object.entries(ways)) {
    const { row, change } = await place(scene, { owner: way, before, later })
    if (isDeleted) await scene.store.deleteThread({ owner: way, threadId: heldRunId, at: await scene.store.now() })
    const written = onlyNotes ? { operation: { kind: 'note', key, evidence: '1' } as const } : { events: [stepCompleted('b')] }
    const answer = await scene.commit({
      ...change({ ...written, ...parts }),
      ...(guard.kind === 'thread' && { runId: null }),
      ...(names === 'other run' && { runId: 'missing' }),
      ...(names === 'other thread' && { threadId: 'elsewhere' }),
      guard:
        guard.kind === 'lease'
          ? { ...guard, epoch: row.epoch + guard.epoch, leaseId: guard.leaseId || (row.leaseId ?? 'none') }
          : guard,
    })
    expect([way, refusalOf(answer)]).toEqual([way, refusal])
  }
}

async function tryOperation(scene: Scene, { before, to, run, refusal, after }: OperationCase): Promise<void> {
  const operations = before === undefined ? [] : [operationOf('', before)]
  const subject = await place(scene, { owner: '', operations })
  const parts = { ...(to !== undefined && { operation: to }), ...(run !== undefined && { run }) }
  const answer = await scene.commit(subject.change({ events: [stepCompleted('b')], ...parts }))
  expect(refusalOf(answer)).toBe(refusal ?? 'none')
  const at = answer.ok ? answer.now : 0
  const expected = after === null ? null : resolve(operations[0] ?? operationOf('', {}), after, at)
  expect(await scene.store.readOperation({ owner: '', key })).toEqual(expected)
  if (refusal === 'operation_taken' || refusal === 'already_answered')
    expect(answer).toEqual({ ok: false, refusal, ...(expected !== null && { operation: expected }) })
}

async function tryClaim(scene: Scene, { before, request, after }: ClaimCase): Promise<void> {
  await restore(scene, { owner: '', row: { ...heldRow, ...before } })
  const rowBefore = await readRow(scene, '')
  const [claim] = await scene.claim({ workflows: [{ name: workflowOf(''), version: 1 }], leaseMs, ...request })
  expect(claim === undefined).toBe(after === null)
  if (claim === undefined || after === null) return expect(await readRow(scene, '')).toEqual(rowBefore)
  const taken = { status: 'running', leaseId: claim.leaseId, leaseHolder: 'worker-1', leaseUntil: claim.now + leaseMs } as const
  expect(await readRow(scene, '')).toEqual({ ...rowBefore, ...taken, ...after })
}

async function tryNewRun(scene: Scene, { create, thread, after }: NewRunCase): Promise<void> {
  const threadId = heldRunId
  if (thread !== 'new') await restore(scene, { owner: '', row: { ...heldRow, status: 'paused' } })
  if (thread === 'deleted') await scene.store.deleteThread({ owner: '', threadId, at: await scene.store.now() })
  const given = newRun({ id: 'n', threadId, ...create })
  const answer = ok(await scene.commit(change({ threadId, creates: [given] })))
  const { waitKey: _, ...row } = resolve({} as Row, { ...newRow, ...after }, answer.now)
  const run = { ...row, owner: '', id: 'n', threadId, workflow: given.workflow, version: given.version }
  expect(answer.created).toEqual([{ run, isNew: true }])
  expect(await scene.run('n')).toEqual(run)
}

interface Given {
  readonly owner: string
  readonly later?: Partial<Row> | undefined
  readonly operations?: readonly Operation[]
  readonly hasMail?: boolean
}

/** Makes the row. What is held cannot be restored, so it is restored as pending and claimed. */
async function place(scene: Scene, { before, ...given }: Given & { readonly before?: Partial<Row> | undefined }) {
  const { owner } = given
  const row: Row = { ...heldRow, ...before }
  const { epoch, status, claimsWithoutProgress } = row
  const isHeld = status === 'running'
  const unclaimed = { status: 'pending', epoch: epoch - 1, claimsWithoutProgress: claimsWithoutProgress - 1 } as const
  await restore(scene, { ...given, row: isHeld ? { ...row, ...unclaimed } : row })
  const claim = isHeld ? await scene.claimOne({ leaseMs, workflows: [{ name: workflowOf(owner), version: 1 }] }) : null
  const guard: Guard = claim === null ? { kind: 'run', epoch, status } : { kind: 'lease', epoch, leaseId: claim.leaseId }
  return {
    row: await readRow(scene, owner),
    change: (fields: Partial<Change>) => change({ owner, threadId: heldRunId, runId: heldRunId, guard, ...fields }),
  }
}

async function restore(scene: Scene, { owner, row, later, operations = [], hasMail }: Given & { readonly row: Row }) {
  const threadId = heldRunId
  const message = { id: 1, owner, runId: heldRunId, kind: 'signal', name: null, payload: null, at: 1_000 }
  const runs = [{ ...imageOf(owner, heldRunId, row), inbox: hasMail ? [message] : [] }]
  if (later !== undefined) runs.push({ ...imageOf(owner, 'later', { ...heldRow, dueAt: null, ...later }), inbox: [] })
  const log = (['run_queued', 'run_started', 'step_completed'] as const).map(
    (type, index): LogRecord => ({
      ...event(type, { payload: '1' }),
      ...{ seq: index + 1, runId: heldRunId, isCheckpoint: true },
    }),
  )
  const whole: WholeThread = {
    thread: {
      ...{ owner, threadId, headSeq, writtenSeq: headSeq, patchSeq: 0, patchChecksum: 0, stateVersion: 0 },
      ...{ incarnation: 1, baseSeq: 0, createdAt: 1_000, deletedAt: null },
    },
    ...{ epochFloor: 0, runs, operations, records: [], log, snapshots: [], chunks: [] },
    checkpoints: log.map(({ seq }) => ({ seq, label: null, bytes: 1 })),
  }
  expect(await scene.store.restoreThread(whole)).toEqual({ ok: true })
}

function imageOf(owner: string, id: string, { waitKey, ...run }: Row): RunImage {
  return {
    run: { ...run, owner, id, threadId: heldRunId, workflow: workflowOf(owner), version: 1 },
    ...{ waitKey, inbox: [], deliveredIds: [], streams: [] },
  }
}

/** So that a claim finds the run of one owner only. */
function workflowOf(owner: string): string {
  return `report ${owner}`
}

async function readRow(scene: Scene, owner: string): Promise<Row> {
  const image = await scene.store.readThreadImage({ owner, threadId: heldRunId })
  const found = image?.runs.find(({ run }) => run.id === heldRunId)
  invariant(found !== undefined, 'the run of the case is missing')
  const { owner: _, id, threadId, workflow, version, ...row } = found.run
  return { ...row, waitKey: found.waitKey }
}

function operationOf(owner: string, fields: Partial<Operation>): Operation {
  return {
    ...{ owner, key, kind: 'effect', name: 'send', runId: heldRunId, threadId: heldRunId, status: 'intended' },
    ...{ result: null, evidence: null, resolvedBy: null, intendedAt: 1_000, closedAt: null },
    ...fields,
  }
}

/** The noun after the change, with times by the store's clock. */
function resolve<Noun extends object>(before: Noun, difference: Difference<Noun>, now: number): Noun {
  const isMoment = (value: unknown): value is AfterNow => typeof value === 'object' && value !== null && 'afterNowMs' in value
  const fields = Object.entries(difference).map(([field, value]) => [field, isMoment(value) ? now + value.afterNowMs : value])
  return { ...before, ...Object.fromEntries(fields) }
}
