import { latestLeaseEnd } from '../../model/clock-set-back.ts'
import { codeOf, HoldfastError } from '../../model/errors.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { Claim, ClaimRequest } from '../../store/store.ts'
import { claimSql, claimValues, readClaimedSql } from './claim-sql.ts'
import { bigintArray, textArray } from './columns.ts'
import type { Statement } from './connections.ts'
import { toHoldfastError } from './errors.ts'
import { type Row, runColumnCount, threadColumnCount, toRecord, toRun, toThread } from './rows.ts'
import { setBackSql } from './set-back-sql.ts'
import type { StoreParts } from './store-parts.ts'

type Commit = (changes: readonly Change[]) => Promise<readonly Committed[]>

/** Claims runs: claim-sql.ts. */
export class Claimer {
  readonly #parts: StoreParts
  readonly #commit: Commit
  readonly #take: Statement
  readonly #readTaken: Statement
  readonly #setBack: Statement

  constructor(parts: StoreParts, commit: Commit) {
    this.#parts = parts
    this.#commit = commit
    this.#take = parts.prepare(claimSql)
    this.#readTaken = parts.prepare(readClaimedSql)
    this.#setBack = parts.prepare(setBackSql)
  }

  async claim(request: ClaimRequest): Promise<Claim[]> {
    const { connections, writes, clock, isFull } = this.#parts
    const workflows = executables(request)
    connections.refuseClosed()
    if (request.limit <= 0 || workflows.length === 0 || request.queues?.length === 0) return []
    if (clock.watch.isSetBack) await this.#heedSetBack(request)
    const offset = clock.offset()
    const sentAt = performance.now()
    const expected = clock.watch.expected(sentAt)
    const written = await writes.write(this.#take, valuesOf({ ...request, workflows }, { offset, isDurable: isFull, expected }))
    const rows = 'rows' in written ? written.rows : await this.#readAgain(written.recorded, offset, sentAt + request.leaseMs)
    if (rows[0]?.[1] === null) {
      // Nothing was claimed: the clock was set back.
      clock.learn(Number(rows[0][0]), offset)
      return this.claim(request)
    }
    const claims = await this.#readClaims(rows)
    const now = claims[0]?.now
    if (now !== undefined) clock.learn(now, offset)
    return claims
  }

  async #readClaims(rows: readonly Row[]): Promise<Claim[]> {
    const claims: Claim[] = []
    for (const row of rows) {
      const taken = toClaim(row)
      const { owner, id: runId, threadId } = taken.run
      this.#parts.leases.add(taken.leaseId, { run: Number(row[1]), thread: Number(row[2]), owner, runId, threadId })
      const input = readInput(row, taken)
      if (input !== null) claims.push({ ...taken, input })
      // Left claimed it comes again when its lease is over; the others are not lost with it.
      else await this.#setAside(taken).catch(() => {})
    }
    return claims
  }

  /** Moves runs that the clock holds up; what one call leaves is for the next claim. */
  async #heedSetBack({ leaseMs }: ClaimRequest): Promise<void> {
    const { connections, clock } = this.#parts
    const offset = clock.offset()
    const values = [offset, Math.round(leaseMs), latestLeaseEnd({ now: 0, leaseMs: Math.round(leaseMs) })]
    try {
      const [row] = await connections.send(this.#setBack, values)
      clock.learn(Number(row?.[0]), offset)
      if (row?.[1] === 't') clock.watch.heeded()
    } catch (error) {
      throw toHoldfastError(error, 'write')
    }
  }

  /**
   * The answer was lost with its connection; what was claimed is known by number. Given up, it would be held without being executed: it is
   * asked for until the leases are over.
   */
  async #readAgain(recorded: string | null, offset: number, until: number): Promise<readonly Row[]> {
    if (recorded === null) return []
    const { runs, leases, holders, untils } = JSON.parse(recorded) as Recorded
    const values = [bigintArray(runs), textArray(leases), textArray(holders), bigintArray(untils), offset]
    for (let tries = 0; ; tries++) {
      try {
        return await this.#parts.connections.read(this.#readTaken, values)
      } catch (error) {
        if (!(error instanceof HoldfastError && error.retryable) || performance.now() >= until) throw error
        await pause(tries)
      }
    }
  }

  /** A run whose input is damaged cannot be executed, and must not come back again and again. */
  async #setAside({ run, leaseId, now }: Omit<Claim, 'input'>): Promise<void> {
    const event = { step: null, count: 0, attempt: 0, at: now, durationMs: null, payload: null, patch: null }
    const paused: NewEvent = { type: 'run_paused', ...event }
    await this.#commit([
      {
        ...{ owner: run.owner, threadId: run.threadId, runId: run.id, guard: { kind: 'lease', epoch: run.epoch, leaseId } },
        ...{ events: [paused], isCheckpoint: false, run: { status: 'paused', reason: 'poisoned', setsEnd: true } },
      },
    ])
  }
}

function valuesOf(
  request: ClaimRequest,
  { offset, isDurable, expected }: { offset: number; isDurable: boolean; expected: unknown },
): unknown[] {
  const { workflows, queues, suspectLimit, queueLimits = [], lastOwners = [] } = request
  const limit = Math.min(Math.ceil(request.limit), 100_000)
  return claimValues({
    ...{
      p_offset: offset,
      p_sync: isDurable,
      p_worker: request.workerId,
      p_lease_ms: Math.round(request.leaseMs),
      p_limit: limit,
    },
    p_workflows: textArray(workflows.map(({ name }) => name)),
    p_versions: bigintArray(workflows.map(({ version }) => version)),
    p_state_versions: bigintArray(workflows.map(({ stateVersion }) => stateVersion ?? null)),
    p_queues: queues === undefined ? null : textArray(queues),
    p_suspects: suspectLimit === undefined ? limit : Math.min(limit, Math.max(0, suspectLimit)),
    p_limit_queues: textArray(queueLimits.map(({ queue }) => queue)),
    p_limits: bigintArray(queueLimits.map((one) => Math.min(limit, Math.max(0, Math.floor(one.limit))))),
    p_last_priorities: bigintArray(lastOwners.map(({ priority }) => priority)),
    p_last_owners: textArray(lastOwners.map(({ owner }) => owner)),
    p_expected: expected,
  })
}

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
