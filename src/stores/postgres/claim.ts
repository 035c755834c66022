import { latestLeaseEnd } from '../../model/clock-set-back.ts'
import { codeOf, HoldfastError } from '../../model/errors.ts'
import type { Payload } from '../../model/payload.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { Claim, ClaimRequest, Renewed, RenewRequest } from '../../store/store.ts'
import { claimSql, extendSql, readClaimedSql } from './claim-sql.ts'
import type { Clock } from './clock.ts'
import { bigintArray, textArray } from './columns.ts'
import type { Connections, Statement } from './connections.ts'
import { toHoldfastError } from './errors.ts'
import type { Leases } from './leases.ts'
import { type Row, runColumnCount, threadColumnCount, toRecord, toRun, toThread } from './rows.ts'
import { setBackSql } from './set-back-sql.ts'
import type { Writes } from './writes.ts'

export interface ClaimOptions {
  readonly connections: Connections
  readonly writes: Writes
  readonly prepare: (sql: string) => Statement
  readonly clock: Clock
  readonly leases: Leases
  readonly isDurable: boolean
  readonly commit: (changes: readonly Change[]) => Promise<readonly Committed[]>
}

/** Claims runs and extends leases: claim-sql.ts. */
export function prepareClaim({ connections, writes, prepare, clock, leases, isDurable, commit }: ClaimOptions) {
  const take = prepare(claimSql)
  const readTaken = prepare(readClaimedSql)
  const extend = prepare(extendSql)
  const setBack = prepare(setBackSql)

  async function claim(request: ClaimRequest): Promise<Claim[]> {
    const workflows = executables(request)
    connections.refuseClosed()
    if (request.limit <= 0 || workflows.length === 0 || request.queues?.length === 0) return []
    const limit = Math.min(Math.ceil(request.limit), 100_000)
    if (clock.watch.isSetBack) await heedSetBack(request)
    const offset = clock.offset()
    const sentAt = performance.now()
    const written = await writes.write(take, [
      ...[offset, isDurable, request.workerId, Math.round(request.leaseMs), limit],
      textArray(workflows.map(({ name }) => name)),
      bigintArray(workflows.map(({ version }) => version)),
      bigintArray(workflows.map(({ stateVersion }) => stateVersion ?? null)),
      request.queues === undefined ? null : textArray(request.queues),
      request.suspectLimit === undefined ? limit : Math.min(limit, Math.max(0, request.suspectLimit)),
      textArray((request.queueLimits ?? []).map(({ queue }) => queue)),
      bigintArray((request.queueLimits ?? []).map((one) => Math.min(limit, Math.max(0, Math.floor(one.limit))))),
      bigintArray((request.lastOwners ?? []).map(({ priority }) => priority)),
      textArray((request.lastOwners ?? []).map(({ owner }) => owner)),
      clock.watch.expected(sentAt),
    ])
    const rows = 'rows' in written ? written.rows : await readAgain(written.recorded, offset, sentAt + request.leaseMs)
    if (rows[0]?.[1] === null) {
      // Nothing was claimed: the clock was set back.
      clock.learn(Number(rows[0][0]), offset)
      return claim(request)
    }
    const claims: Claim[] = []
    for (const row of rows) {
      const taken = toClaim(row)
      leases.add(taken.leaseId, {
        run: Number(row[1]),
        thread: Number(row[2]),
        owner: taken.run.owner,
        runId: taken.run.id,
        threadId: taken.run.threadId,
      })
      const input = readInput(row, taken)
      if (input !== null) claims.push({ ...taken, input })
      // Left claimed it comes again when its lease is over; the others are not lost with it.
      else await setAside(taken).catch(() => {})
    }
    const now = claims[0]?.now
    if (now !== undefined) clock.learn(now, offset)
    return claims
  }

  /** Moves runs that the clock holds up; what one call leaves is for the next claim. */
  async function heedSetBack({ leaseMs }: ClaimRequest): Promise<void> {
    const offset = clock.offset()
    const values = [offset, Math.round(leaseMs), latestLeaseEnd({ now: 0, leaseMs: Math.round(leaseMs) })]
    try {
      const [row] = await connections.send(setBack, values)
      clock.learn(Number(row?.[0]), offset)
      if (row?.[1] === 't') clock.watch.heeded()
    } catch (error) {
      throw toHoldfastError(error, 'write')
    }
  }

  /**
   * The answer was lost with its connection; what was claimed is known by number. Given up, it would be held by nobody: it is asked for
   * until the leases are over.
   */
  async function readAgain(recorded: string | null, offset: number, until: number): Promise<readonly Row[]> {
    if (recorded === null) return []
    const { runs, leases, holders, untils } = JSON.parse(recorded) as Recorded
    const values = [bigintArray(runs), textArray(leases), textArray(holders), bigintArray(untils), offset]
    for (let tries = 0; ; tries++) {
      try {
        return await connections.read(readTaken, values)
      } catch (error) {
        if (!(error instanceof HoldfastError && error.retryable) || performance.now() >= until) throw error
        await pause(tries)
      }
    }
  }

  /** A run whose input is damaged cannot be executed, and must not come back again and again. */
  async function setAside({ run, leaseId, now }: Omit<Claim, 'input'>): Promise<void> {
    const paused = {
      type: 'run_paused',
      step: null,
      count: 0,
      attempt: 0,
      at: now,
      durationMs: null,
      payload: null,
      patch: null,
    } as const
    await commit([
      {
        ...{ owner: run.owner, threadId: run.threadId, runId: run.id, guard: { kind: 'lease', epoch: run.epoch, leaseId } },
        ...{ events: [paused], isCheckpoint: false, run: { status: 'paused', reason: 'poisoned', setsEnd: true } },
      },
    ])
  }

  async function renew({ leaseMs, leases }: RenewRequest): Promise<Renewed[]> {
    connections.refuseClosed()
    if (leases.length === 0) return []
    const values = [
      ...[clock.offset(), Math.round(leaseMs)],
      textArray(leases.map(({ owner }) => owner)),
      textArray(leases.map(({ runId }) => runId)),
      bigintArray(leases.map(({ epoch }) => epoch)),
      textArray(leases.map(({ leaseId }) => leaseId)),
      bigintArray(leases.map(({ writtenSeq }) => writtenSeq ?? 0)),
    ]
    try {
      const held = new Map(
        (await connections.sendApart(extend, values, { withinMs: Math.max(1_000, leaseMs * patienceShare) })).map(
          ([n, hasMail]) => [Number(n), hasMail === 't'],
        ),
      )
      return leases.map(({ owner, runId }, index) => ({
        owner,
        runId,
        isHeld: held.has(index + 1),
        hasMail: held.get(index + 1) === true,
      }))
    } catch (error) {
      // Also when it may have been written: not to know is not to hold, and the next renewal will tell.
      throw toHoldfastError(error, 'read')
    }
  }

  return { claim, renew }
}

/** Of a lease, how long the answer to a heartbeat is waited for, a second at least: there is time for another before the lease is over. */
const patienceShare = 0.4

interface Recorded {
  readonly runs: number[]
  readonly leases: string[]
  readonly holders: (string | null)[]
  readonly untils: number[]
}

const threadAt = 1 + runColumnCount
const recordAt = threadAt + threadColumnCount
const restAt = recordAt + 13

function toClaim(row: Row): Omit<Claim, 'input'> {
  const run = toRun(row, 1)
  const holder = row[restAt + 1] ?? null
  return {
    run,
    leaseId: run.leaseId as string,
    thread: toThread(row, threadAt),
    takenFrom: holder === null ? null : { holder, why: 'lease_expired', leaseUntil: Number(row[restAt + 2]) },
    hasMail: row[restAt] === 't',
    isQueueLimited: row[restAt + 3] === 't',
    now: Number(row[0]),
  }
}

/** Null when the input is missing or damaged. */
function readInput(row: Row, { run, thread }: Omit<Claim, 'input'>): Payload | null {
  if (row[recordAt] === null) return null
  try {
    return toRecord(row, thread, run.id, recordAt).payload
  } catch (error) {
    if (codeOf(error) === 'corrupt_record') return null
    throw error
  }
}

function pause(tries: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.min(500, 10 * 2 ** tries) * (0.5 + Math.random() / 2)))
}

/** Each workflow and version once, with the highest state version that is understood there. */
function executables({ workflows }: ClaimRequest): ClaimRequest['workflows'] {
  const known = new Map<string, ClaimRequest['workflows'][number]>()
  for (const workflow of workflows) {
    if (!Number.isSafeInteger(workflow.version)) continue
    const key = `${workflow.version} ${workflow.name}`
    const other = known.get(key)
    if (other === undefined || isAtLeast(workflow.stateVersion, other.stateVersion)) known.set(key, workflow)
  }
  return [...known.values()]
}

/** Absent means any. */
function isAtLeast(a: number | undefined, b: number | undefined): boolean {
  return a === undefined || (b !== undefined && a >= b)
}
