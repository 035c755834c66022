import type { NewEvent } from '../../model/event.ts'
import { isTerminal } from '../../model/run.ts'
import type { Change, NewRun, OperationChange, RunChange } from '../../store/change.ts'
import { isOfRunAlone, isStart } from '../../store/kinds-of-change.ts'
import type { NewMessage } from '../../store/store.ts'
import { packChunks } from './chunks.ts'
import { laneOf, pairOf } from './keys.ts'
import { packEvents } from './log-entry.ts'
import { messageChecksum, packMessage } from './message-entry.ts'
import { type Fields, Packer, packFields, refuseTooLarge } from './pack.ts'
import { packPayload } from './payload-bytes.ts'
import { packRecords } from './records.ts'
import { marked, packOperationPayload } from './rows.ts'
import { snapshotChecksum } from './snapshot-entry.ts'

/** A batch of more bytes than this is cut, so that the server does not take in too much at once. */
const partBytes = 64 * 1024 * 1024

/** Packs as many changes as one call can take: all of them, except in batches of enormous values. */
export function packChanges(changes: readonly Change[]): { count: number; packed: Buffer } {
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

function isPlainStep(change: Change): boolean {
  const { guard, runId, run } = change
  if (guard.kind !== 'lease' || runId === null || !isOfRunAlone(change)) return false
  if (run === undefined) return true
  if (run.due !== undefined || run.waitKey !== undefined || run.hasNewInput === true) return false
  if (run.status === undefined) return run.reason === undefined && run.setsEnd === undefined
  return isTerminal(run.status) && run.reason === null && run.setsEnd === true
}

/** In the form that `plain_step` in scripts/commit/plain-step.ts reads. */
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

/** In the form that `plain_start` in scripts/commit/plain-start.ts reads. */
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

/** In the form that `apply_change` in scripts/commit/apply-change.ts reads: what the change does not have is left out. */
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
  const { records } = change
  if (records !== undefined && records.length > 0) fields.push(['records', () => packRecords(packer, records, owner)])
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
