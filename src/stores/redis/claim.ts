import { randomBytes } from 'node:crypto'
import { type ClockWatch, latestLeaseEnd } from '../../model/clock-set-back.ts'
import { codeOf } from '../../model/errors.ts'
import type { Payload } from '../../model/payload.ts'
import type { Change } from '../../store/change.ts'
import type { Claim, ClaimRequest, Renewed, RenewRequest } from '../../store/store.ts'
import type { Connection } from './connection.ts'
import { pairOf } from './keys.ts'
import type { Reply } from './link.ts'
import { toRecord } from './log-entry.ts'
import { Packer } from './pack.ts'
import { type Row, readRow, runFields, toRun, toThread } from './rows.ts'
import { claimScript } from './scripts/claim.ts'
import { renewScript } from './scripts/renew.ts'
import { adjustToSetBackScript } from './scripts/set-back.ts'

export interface Claimed {
  readonly claims: Claim[]
  /** Changes that pause runs whose input is damaged: they cannot be executed, and must not be claimed again and again. */
  readonly setAside: Change[]
}

export async function claim(connection: Connection, request: ClaimRequest, clock: ClaimClock): Promise<Claimed> {
  const { offsetMs, watch } = clock
  const { workerId, leaseMs, limit } = request
  if (watch.isSetBack) await adjustToSetBack(connection, request, clock)
  const word = randomBytes(9).toString('hex')
  const expected = String(watch.expected(performance.now()) ?? 0)
  const args = [workerId, String(Math.round(leaseMs)), String(limit), `${word}.`, packRequest(request), expected]
  const [now, ...found] = (await connection.once(claimScript, offsetMs, args, { canRecall: false })) as readonly Reply[]
  watch.see({ now: Number(now), at: performance.now() })
  if (found[0] === 0) return claim(connection, request, clock)
  const claims: Claim[] = []
  const setAside: Change[] = []
  for (const one of found) {
    const claim = readClaim(one as readonly Reply[], Number(now))
    if ('isDamaged' in claim) setAside.push(setAsideChange(claim.claim))
    else claims.push(claim)
  }
  return { claims, setAside }
}

interface ClaimClock {
  readonly offsetMs: number
  readonly watch: ClockWatch
}

/** Moves runs that a clock set back would delay, in several short calls. */
async function adjustToSetBack(
  connection: Connection,
  { leaseMs }: ClaimRequest,
  { offsetMs, watch }: ClaimClock,
): Promise<void> {
  const longestMs = latestLeaseEnd({ now: 0, leaseMs })
  const args = [offsetMs, leaseMs, longestMs].map((ms) => String(Math.round(ms)))
  for (let isMore = true; isMore; ) {
    const [now, left] = (await connection.repeat(adjustToSetBackScript, ...args)) as readonly number[]
    watch.see({ now: Number(now), at: performance.now() })
    isMore = left === 1
  }
  watch.heeded()
}

export async function renew(connection: Connection, { leaseMs, leases }: RenewRequest, offsetMs: number): Promise<Renewed[]> {
  const packer = new Packer(leases.length * 64)
  packer.array(leases.length)
  for (const { owner, runId, epoch, leaseId, writtenSeq = 0 } of leases)
    packer.array(4).text(pairOf(owner, runId)).text(String(epoch)).text(leaseId).number(writtenSeq)
  const answers = (await connection.repeatWithin(
    Math.max(1_000, leaseMs * patienceShare),
    renewScript,
    String(offsetMs),
    String(Math.round(leaseMs)),
    packer.end(),
  )) as readonly number[]
  return leases.map(({ owner, runId }, i) => ({ owner, runId, isHeld: answers[i] !== 0, hasMail: answers[i] === 2 }))
}

/** How long to wait for the answer to a heartbeat, as a share of the lease and at least a second: there is time for another one before the lease ends. */
const patienceShare = 0.4

function packRequest({ workflows, queues, suspectLimit, queueLimits = [], lastOwners = [] }: ClaimRequest): Buffer {
  const packer = new Packer(256)
  packer.array(5).array(workflows.length)
  for (const { name, version, stateVersion } of workflows) {
    packer.array(3).text(name).text(String(version))
    if (stateVersion === undefined) packer.boolean(false)
    else packer.number(stateVersion)
  }
  if (queues === undefined) packer.boolean(false)
  else {
    packer.array(queues.length)
    for (const queue of queues) packer.text(queue)
  }
  if (suspectLimit === undefined) packer.boolean(false)
  else packer.number(Math.max(0, suspectLimit))
  packer.array(queueLimits.length)
  for (const { queue, limit } of queueLimits)
    packer
      .array(2)
      .text(queue)
      .number(Math.max(0, Math.floor(limit)))
  packer.array(lastOwners.length)
  for (const { priority, owner } of lastOwners) packer.array(2).number(priority).text(owner)
  return packer.end()
}

function readClaim(
  reply: readonly Reply[],
  now: number,
): Claim | { readonly isDamaged: true; readonly claim: Omit<Claim, 'input'> } {
  const [pair, rows, logLength, entry, holder, until, isLimited] = reply
  const row = [...(readRow(rows as Reply) as Row)]
  const stored = toRun(String(pair), row)
  const thread = toThread(stored.thread, row.slice(runFields.length), logLength as number)
  const claim = {
    run: stored.run,
    leaseId: stored.run.leaseId as string,
    thread,
    takenFrom: readTakenFrom(holder as Buffer, until as Buffer),
    hasMail: stored.hasMail,
    isQueueLimited: isLimited === 1,
    now,
  }
  const input = readInput(entry as Buffer, claim)
  return input === null ? { isDamaged: true, claim } : { ...claim, input }
}

function readTakenFrom(holder: Buffer, until: Buffer): Claim['takenFrom'] {
  return until.length === 0 ? null : { holder: String(holder), why: 'lease_expired', leaseUntil: Number(until) }
}

function readInput(entry: Buffer, { run, thread }: Pick<Claim, 'run' | 'thread'>): Payload | null {
  try {
    return toRecord(entry, run.inputSeq, thread).record.payload
  } catch (error) {
    if (codeOf(error) === 'corrupt_record') return null
    throw error
  }
}

function setAsideChange({ run, leaseId, now }: Omit<Claim, 'input'>): Change {
  return {
    ...{ owner: run.owner, threadId: run.threadId, runId: run.id, guard: { kind: 'lease', epoch: run.epoch, leaseId } },
    events: [{ type: 'run_paused', step: null, count: 0, attempt: 0, at: now, durationMs: null, payload: null, patch: null }],
    run: { status: 'paused', reason: 'poisoned', setsEnd: true },
    isCheckpoint: false,
  }
}
