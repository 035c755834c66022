import type { NewEvent } from '../../model/event.ts'
import { isTerminal, type Run } from '../../model/run.ts'
import type { Change, Committed, NewRun, OperationChange, Refusal, RunChange } from '../../store/change.ts'
import { isOfRunAlone, isStart } from '../../store/kinds-of-change.ts'
import type { Hint, NewMessage } from '../../store/store.ts'
import { packChunks } from './chunks.ts'
import type { Connection, Reply } from './connection.ts'
import { partlyWrittenError } from './errors.ts'
import { laneOf, pairOf } from './keys.ts'
import { type Fields, Packer, packFields, refuseTooLarge } from './pack.ts'
import {
  marked,
  messageChecksum,
  packEvents,
  packMessage,
  packOperationPayload,
  packPayload,
  type Row,
  readRow,
  snapshotChecksum,
  toOperation,
  toRun,
} from './rows.ts'
import { commitScript } from './scripts/commit.ts'

/** A batch of more bytes than this is cut, so that the server does not take in too much at once. */
const partBytes = 64 * 1024 * 1024

/**
 * Writes a batch in one call. The script judges and writes; here changes are packed for it and its answers are read. A plain step, the
 * path that is taken a thousand times for every other, has a form of its own; so has a plain start.
 */
export async function commit(connection: Connection, changes: readonly Change[], options: CommitOptions): Promise<Committed[]> {
  const { count, packed } = packChanges(changes)
  const [now, ...answers] = (await connection.once(commitScript, options.offsetMs, [
    options.publication,
    packed,
  ])) as readonly Reply[]
  const written = answers.map((answer, i) => readAnswer(changes[i] as Change, answer, Number(now)))
  if (count === changes.length) return written
  try {
    return [...written, ...(await commit(connection, changes.slice(count), options))]
  } catch (cause) {
    throw partlyWrittenError(cause)
  }
}

interface CommitOptions {
  readonly offsetMs: number
  /** What is published in the same call. */
  readonly publication: string
}

/** Packs as many changes as go into one call: all of them, but for batches of enormous values. */
function packChanges(changes: readonly Change[]): { count: number; packed: Buffer } {
  const packer = new Packer(changes.length === 1 ? 1_024 : changes.length * 512)
  packer.array(changes.length)
  let count = 0
  for (const change of changes) {
    if (isPlainStep(change)) packPlainStep(packer, change)
    else if (isPlainStart(change)) packPlainStart(packer, change.creates[0])
    else packChange(packer, change)
    count += 1
    if (packer.length > partBytes && count < changes.length) return packChanges(changes.slice(0, count))
  }
  refuseTooLarge('A change', packer)
  return { count, packed: packer.end() }
}

/** Adds what a written change may have changed, for those who listen. */
export function addHints(hints: Hint[], change: Change, answer: Committed | undefined): void {
  if (answer?.ok !== true) return
  hints.push(hintOf(change))
  for (const { run, isNew } of answer.created) if (isNew) hints.push(hintOfRun(run))
  if (change.delivers !== undefined) hints.push(...change.delivers.map(hintOfMail))
}

/** What others may be waiting for, said before the change is written: for a batch that is told of in the same call. */
export function expectedHintsOf(change: Change): Hint[] {
  const { creates, delivers } = change
  const own = creates !== undefined || isUrgent(change) ? [hintOf(change)] : []
  if (creates === undefined && delivers === undefined) return own
  return [...own, ...(creates ?? []).map(hintOfRun), ...(delivers ?? []).map(hintOfMail)]
}

function isUrgent({ run, operation }: Change): boolean {
  return (
    run?.status !== undefined || operation?.kind === 'complete' || operation?.kind === 'fail' || operation?.kind === 'resolve'
  )
}

function hintOf(change: Change): Hint {
  const { owner, threadId, runId } = change
  if (change.chunks !== undefined && runId !== null)
    return { owner, threadId, runId, hasChunks: true, ...(isUrgent(change) && { isClaimable: true }) }
  if (isUrgent(change))
    return runId === null ? { owner, threadId, isClaimable: true } : { owner, threadId, runId, isClaimable: true }
  return runId === null ? { owner, threadId } : { owner, threadId, runId }
}

function hintOfRun({ owner, id, threadId }: Pick<NewRun | Run, 'owner' | 'id' | 'threadId'>): Hint {
  return { owner, threadId, runId: id, isClaimable: true }
}

/** Whether it waits, or is there at all, is not worth an answer: who hears of it looks. */
function hintOfMail({ owner, runId }: NewMessage): Hint {
  return { owner, runId, hasMail: true, isClaimable: true }
}

function isPlainStep(change: Change): boolean {
  const { guard, runId, run } = change
  if (guard.kind !== 'lease' || runId === null || !isOfRunAlone(change)) return false
  if (run === undefined) return true
  if (run.due !== undefined || run.waitKey !== undefined || run.hasNewInput === true) return false
  if (run.status === undefined) return run.reason === undefined && run.setsEnd === undefined
  return isTerminal(run.status) && run.reason === null && run.setsEnd === true
}

/** In the form that `plain` in scripts/commit.ts reads. */
function packPlainStep(packer: Packer, change: Change): void {
  const { owner, threadId, runId, guard, events, run, mailSeen = 0 } = change
  if (guard.kind !== 'lease' || runId === null) return
  packer.array(13 + 2 * events.length).number(1)
  const pair = pairOf(owner, runId)
  packer.text(pair).text(runId === threadId ? pair : pairOf(owner, threadId))
  packer.text(String(guard.epoch)).text(guard.leaseId)
  if (run?.currentStep === undefined) packer.boolean(false)
  else packer.text(marked(run.currentStep))
  packer.number(run?.hasProgress === true ? 1 : run?.uncountClaim === true ? 2 : 0)
  if (run?.leaseMs === undefined) packer.boolean(false)
  else packer.number(Math.round(run.leaseMs))
  packer.boolean(run?.startsTape === true).number(mailSeen)
  if (run?.status === undefined) packer.boolean(false)
  else packer.text(run.status)
  if (guard.writtenSeq === undefined) packer.boolean(false)
  else packer.number(guard.writtenSeq)
  packer.number(lastPatchOf(events))
  packEvents(packer, events, change)
}

/** Which of the events is the last with a patch, counted from 1; 0 for none. */
function lastPatchOf(events: readonly NewEvent[]): number {
  for (let i = events.length; i > 0; i--) if (events[i - 1]?.patch !== null) return i
  return 0
}

function isPlainStart(change: Change): change is Change & { readonly creates: readonly [NewRun] } {
  return isStart(change) && change.creates[0].queued.patch === null
}

/** In the form that `start` in scripts/commit.ts reads. */
function packPlainStart(packer: Packer, create: NewRun): void {
  const { owner, id, threadId, due } = create
  packer.array(11).number(2)
  const pair = pairOf(owner, id)
  packer.text(pair).text(id === threadId ? pair : pairOf(owner, threadId))
  packer.text(owner).text(laneOf(create)).text(create.fingerprint)
  if ('at' in due) packer.boolean(false).number(Math.round(due.at))
  else packer.number(Math.round(due.inMs)).boolean(false)
  packer.boolean(create.ifBusy === 'reject')
  packEvents(packer, [create.queued], { owner, threadId, runId: id, isCheckpoint: true })
}

/** In the form that `judge_and_write` in scripts/commit.ts reads: what the change does not have is left out. */
function packChange(packer: Packer, change: Change): void {
  const { owner, threadId, runId, guard, events, run, creates, operation, snapshot, stateVersion, readMessages } = change
  const { mailSeen, delivers, chunks } = change
  const label = change.isCheckpoint && events.length > 0 ? change.label : undefined
  const fields: Fields = [
    ['thread', () => packer.text(pairOf(owner, threadId))],
    ['owner', () => packer.text(owner)],
    ['guard', () => packer.text(guard.kind)],
    ['events', () => packEvents(packer.array(2 * events.length), events, change)],
  ]
  if (runId !== null && chunks !== undefined && chunks.length > 0)
    fields.push(['chunks', () => packChunks(packer, chunks, { owner, runId })])
  if (runId !== null) fields.push(['run', () => packer.text(pairOf(owner, runId))])
  if (guard.kind === 'lease' || guard.kind === 'run') fields.push(['epoch', () => packer.text(String(guard.epoch))])
  if (guard.kind === 'lease') fields.push(['lease', () => packer.text(guard.leaseId)])
  if (guard.kind === 'lease' && guard.writtenSeq !== undefined) {
    const { writtenSeq } = guard
    fields.push(['written', () => packer.number(writtenSeq)])
  }
  const patched = lastPatchOf(events)
  if (patched > 0) fields.push(['patched', () => packer.number(patched)])
  if (guard.kind === 'run') fields.push(['status', () => packer.text(guard.status)])
  if (guard.kind === 'run' && guard.undisturbed === true) fields.push(['undisturbed', () => packer.boolean(true)])
  if ('headSeq' in guard && guard.headSeq !== undefined) {
    const { headSeq } = guard
    fields.push(['head', () => packer.number(headSeq)])
  }
  if (run !== undefined) fields.push(['change', () => packRunChange(packer, run, owner)])
  if (creates !== undefined && creates.length > 0) fields.push(['creates', () => packCreates(packer, creates)])
  if (creates?.some(({ ifBusy }) => ifBusy === 'reject') === true) fields.push(['rejects', () => packer.boolean(true)])
  if (operation !== undefined) fields.push(['operation', () => packOperation(packer, operation, owner)])
  if (stateVersion !== undefined) fields.push(['version', () => packer.text(String(stateVersion))])
  if (label !== undefined) fields.push(['label', () => packer.text(label)])
  if (snapshot !== undefined) {
    fields.push(['snapshot', () => packPayload(packer.array(2).number(snapshotChecksum(change, snapshot)), snapshot)])
  }
  if (readMessages !== undefined && readMessages.length > 0) {
    fields.push([
      'read',
      () => {
        packer.array(readMessages.length)
        for (const id of readMessages) packer.text(String(id))
      },
    ])
  }
  if (mailSeen !== undefined) fields.push(['seen', () => packer.number(mailSeen)])
  if (delivers !== undefined) fields.push(['delivers', () => packMessages(packer, delivers)])
  packFields(packer, fields)
}

function packMessages(packer: Packer, messages: readonly NewMessage[]): void {
  packer.array(messages.length)
  for (const message of messages) {
    packer.array(3).text(pairOf(message.owner, message.runId)).number(messageChecksum(message)).bytes(packMessage(message))
  }
}

function packRunChange(packer: Packer, run: RunChange, owner: string): void {
  const { status, reason, due, waitKey, currentStep, leaseMs } = run
  const fields: Fields = []
  const flag = (name: string, isSet: boolean | undefined) => {
    if (isSet === true) fields.push([name, () => packer.boolean(true)])
  }
  if (status !== undefined) fields.push(['status', () => packer.text(status)])
  if (reason !== undefined) fields.push(['reason', () => packer.text(reason ?? '')])
  if (currentStep !== undefined) fields.push(['step', () => packer.text(marked(currentStep))])
  if (leaseMs !== undefined) fields.push(['lease_ms', () => packer.number(Math.round(leaseMs))])
  if (waitKey !== undefined) fields.push(['wait', () => packer.text(pairOf(owner, waitKey))])
  if (due === 'never') fields.push(['due', () => packer.text('')])
  else if (due !== undefined) fields.push(packDue(packer, due))
  flag('progress', run.hasProgress)
  flag('uncount', run.uncountClaim)
  flag('tape', run.startsTape)
  flag('input', run.hasNewInput)
  flag('ends', run.setsEnd)
  packFields(packer, fields)
}

function packCreates(packer: Packer, creates: readonly NewRun[]): void {
  packer.array(creates.length)
  for (const create of creates) {
    const { owner, id, threadId, fingerprint, queued } = create
    packFields(packer, [
      ['run', () => packer.text(pairOf(owner, id))],
      ['thread', () => packer.text(pairOf(owner, threadId))],
      ['owner', () => packer.text(owner)],
      ['lane', () => packer.text(laneOf(create))],
      ['fingerprint', () => packer.text(fingerprint)],
      ['rejects', () => packer.boolean(create.ifBusy === 'reject')],
      ['patched', () => packer.number(lastPatchOf([queued]))],
      ['events', () => packEvents(packer.array(2), [queued], { owner, threadId, runId: id, isCheckpoint: true })],
      packDue(packer, create.due),
    ])
  }
}

function packDue(packer: Packer, due: { readonly inMs: number } | { readonly at: number }): [string, () => void] {
  return 'at' in due ? ['due', () => packer.number(Math.round(due.at))] : ['due_ms', () => packer.number(Math.round(due.inMs))]
}

function packOperation(packer: Packer, operation: OperationChange, owner: string): void {
  const { kind, key } = operation
  const fields: Fields = [
    ['kind', () => packer.text(kind)],
    ['key', () => packer.text(pairOf(owner, key))],
  ]
  switch (operation.kind) {
    case 'intend':
    case 'ask':
      fields.push(['name', () => packer.text(operation.name)])
      break
    case 'complete':
      fields.push(['payload', () => packOperationPayload(packer, operation.result, { owner, key, part: 'result' })])
      break
    case 'resolve':
      fields.push(['happened', () => packer.boolean(operation.hasHappened)])
      fields.push(['payload', () => packOperationPayload(packer, operation.result, { owner, key, part: 'result' })])
      fields.push(['by', () => packer.text(marked(operation.by))])
      break
    case 'note':
      fields.push(['payload', () => packOperationPayload(packer, operation.evidence, { owner, key, part: 'evidence' })])
  }
  packFields(packer, fields)
}

function readAnswer(change: Change, answer: Reply, now: number): Committed {
  if (typeof answer === 'number') {
    if (isStart(change)) return readStarted(change.creates[0], answer, now)
    return readPlainAnswer(change, answer, now)
  }
  const [first, last, hasMail, created] = answer as readonly Reply[]
  if (first instanceof Buffer) return readRefusal(change, String(first) as Refusal, last)
  return {
    ok: true,
    firstSeq: Number(first),
    lastSeq: Number(last),
    now,
    created: (change.creates ?? []).map((create, i) => readCreated(create, (created as readonly Reply[])[i] as Reply, now)),
    hasMail: hasMail === 1,
  }
}

function readPlainAnswer({ events }: Change, answer: number, now: number): Committed {
  if (answer === 0) return { ok: false, refusal: 'lease_lost' }
  const firstSeq = Math.floor(answer / 2)
  return { ok: true, firstSeq, lastSeq: firstSeq + Math.max(0, events.length - 1), now, created: [], hasMail: answer % 2 === 1 }
}

function readRefusal({ owner, operation }: Change, refusal: Refusal, row: Reply | undefined): Committed {
  const found = row === undefined || operation === undefined ? null : toOperation({ owner, key: operation.key }, row)
  return found === null ? { ok: false, refusal } : { ok: false, refusal, operation: found }
}

function readCreated(create: NewRun, answer: Reply, now: number): { run: Run; isNew: boolean } {
  const { owner, id } = create
  const [isNew, row, epoch, dueAt] = answer as readonly Reply[]
  if (isNew !== 1) {
    return { run: toRun(pairOf(owner, id), readRow(row as Reply) as Row).run, isNew: false }
  }
  return {
    run: newRun(create, { inputSeq: Number(row), epoch: Number(epoch), dueAt: Number(dueAt), createdAt: now }),
    isNew: true,
  }
}

/** A run that began its thread. */
function readStarted(create: NewRun, dueAt: number, now: number): Committed {
  const run = newRun(create, { inputSeq: 1, epoch: 0, dueAt, createdAt: now })
  return { ok: true, firstSeq: 1, lastSeq: 1, now, created: [{ run, isNew: true }], hasMail: false }
}

function newRun(create: NewRun, given: Pick<Run, 'inputSeq' | 'epoch' | 'dueAt' | 'createdAt'>): Run {
  const { owner, id, threadId, workflow, version, queue, priority, fingerprint } = create
  return {
    ...{ owner, id, threadId, workflow, version, status: 'pending', reason: null, queue, priority, fingerprint },
    ...{ epoch: given.epoch, leaseId: null, leaseUntil: null, leaseHolder: null, dueAt: given.dueAt },
    ...{ claimsWithoutProgress: 0, currentStep: null, inputSeq: given.inputSeq, tapeSeq: null, endSeq: null },
    ...{ createdAt: given.createdAt, startedAt: null, finishedAt: null },
  }
}
