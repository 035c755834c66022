import type { Run } from '../../model/run.ts'
import type { ChangeableFields, RunBefore } from '../../model/run-change.ts'
import type { RunKey } from '../../store/store.ts'
import { type Database, prepare, type Statement } from './connection.ts'
import { numberInLease } from './lease-id.ts'
import { type NamedRunRow, selectRun, toRun } from './rows.ts'
import type { FoundThread } from './thread-rows.ts'

/** A run's row as far as a write looks at it. */
export interface FoundRun extends RunBefore {
  /** holdfast_runs.id */
  readonly run: number
  /** holdfast_threads.id */
  readonly thread: number
  readonly status: Run['status']
  readonly epoch: number
  readonly leaseId: string | null
  /** Set while it is the first unfinished run of its thread. */
  readonly claimAt: number | null
  readonly unreadMessage: number
}

/** What a change writes to a run's row; `leaseHolder` stands for holdfast_holders.id. */
export interface WrittenFields extends Partial<ChangeableFields> {
  readonly claimAt?: number | null
  readonly inputId?: number
}

// Rows are read as arrays: an object that gets more than a dozen properties by name becomes slow to use.
const runColumns = `r.id, r.thread, r.status, r.epoch, r.lease_id, r.lease_until, r.due_at, r.claim_at, r.wait_key,
  r.claims_without_progress, r.current_step, r.started_at, r.finished_at, r.unread_message`

type RunValues = [
  ...[run: number, thread: number, status: Run['status'], epoch: number, leaseId: string | null, leaseUntil: number | null],
  ...[dueAt: number | null, claimAt: number | null, waitKey: string | null, claims: number, currentStep: string | null],
  ...[startedAt: number | null, finishedAt: number | null, unreadMessage: number],
]

function runOf(values: readonly [...RunValues, ...unknown[]]): FoundRun {
  return {
    run: values[0],
    thread: values[1],
    status: values[2],
    epoch: values[3],
    leaseId: values[4],
    leaseUntil: values[5],
    dueAt: values[6],
    claimAt: values[7],
    waitKey: values[8],
    claimsWithoutProgress: values[9],
    currentStep: values[10],
    startedAt: values[11],
    finishedAt: values[12],
    unreadMessage: values[13],
  }
}

/** A run with its thread. */
export interface LeasedRun {
  readonly run: FoundRun
  readonly thread: FoundThread
  readonly threadId: string
}

const selectLeased = `SELECT ${runColumns}, t.head_seq, t.head_record, t.written_seq, t.state_version, t.thread_id
  FROM holdfast_runs r CROSS JOIN holdfast_threads t ON t.id = r.thread`

type LeasedValues = [
  ...RunValues,
  ...[headSeq: number, headRecord: number | null, writtenSeq: number, stateVersion: number, threadId: string],
]

/** A deleted thread has no runs. */
function leasedOf(values: LeasedValues): LeasedRun {
  const thread = {
    thread: values[1],
    headSeq: values[14],
    headRecord: values[15],
    writtenSeq: values[16],
    stateVersion: values[17],
    deletedAt: null,
  }
  return { run: runOf(values), thread, threadId: values[18] }
}

/** Finds and writes rows of runs, inside an open write transaction. */
export class Runs {
  readonly #db: Database
  readonly #sql: ReturnType<typeof prepareStatements>
  /** By the names of the fields that they write. */
  readonly #updates = new Map<string, Statement>()

  constructor(db: Database) {
    this.#db = db
    this.#sql = prepareStatements(db)
  }

  find({ owner, runId }: RunKey): FoundRun | undefined {
    const values = this.#sql.find.get(owner, runId) as RunValues | undefined
    return values === undefined ? undefined : runOf(values)
  }

  /** The run that a lease is on. Whether the lease is the latest is not looked at. */
  findLeased({ owner, runId }: RunKey, leaseId: string): LeasedRun | undefined {
    const { findByNumber, findByName } = this.#sql
    const found = findByNumber.get(numberInLease(leaseId), owner, runId) ?? findByName.get(owner, runId)
    return found === undefined ? undefined : leasedOf(found as LeasedValues)
  }

  has(owner: string, runId: string): boolean {
    return this.#sql.has.get(owner, runId) !== undefined
  }

  read(owner: string, runId: string): Run {
    return toRun(this.#sql.read.get(owner, runId) as NamedRunRow)
  }

  /** A later run that was claimed and wrote nothing yet counts too: it would run in parallel to the earlier one. */
  readonly hasLaterStart = ({ thread, run }: FoundRun): boolean => this.#sql.laterStart.get(thread, run) !== undefined

  readonly isHeld = ({ thread }: FoundThread): boolean => this.#sql.holder.get(thread) !== undefined

  /** Whether a thread has an unfinished run, apart from one. */
  hasUnfinished(thread: number, exceptRunId: string | null): boolean {
    return this.#sql.unfinished.get(thread, exceptRunId) !== undefined
  }

  /** Returns its number. */
  insertNew(run: Run, { thread, inputId, claimAt, ready }: NewNumbers): number {
    const { owner, id, workflow, version, status, queue, priority, fingerprint, epoch, dueAt, claimsWithoutProgress } = run
    const { lastInsertRowid } = this.#sql.insertNew.run(
      owner,
      id,
      thread,
      workflow,
      version,
      status,
      queue,
      priority,
      fingerprint,
      epoch,
      dueAt,
      claimAt,
      ready,
      claimsWithoutProgress,
      run.inputSeq,
      inputId,
      run.createdAt,
    )
    return Number(lastInsertRowid)
  }

  /** A run as it was elsewhere, where no worker holds it. Returns its number. */
  restore(run: Run, { thread, inputId, waitKey }: { thread: number; inputId: number; waitKey: string | null }): number {
    const { reason, currentStep, tapeSeq, endSeq, startedAt, finishedAt } = run
    const number = this.insertNew(run, { thread, inputId, claimAt: null, ready: 0 })
    this.save(number, { reason, waitKey, currentStep, tapeSeq, endSeq, startedAt, finishedAt })
    return number
  }

  /** Writes only the columns that have a new value: those that stay the same would have their indexes written. */
  save(run: number, fields: WrittenFields): void {
    const names = Object.keys(fields) as (keyof WrittenFields)[]
    if (names.length === 0) return
    const key = names.join()
    let update = this.#updates.get(key)
    if (update === undefined) {
      const columns = names.map((name) => `${columnOf[name]} = ?`)
      update = prepare(this.#db, `UPDATE holdfast_runs SET ${columns.join(', ')} WHERE id = ?`)
      this.#updates.set(key, update)
    }
    update.run(...Object.values(fields), run)
  }
}

interface NewNumbers {
  readonly thread: number
  /** Id of the record at `inputSeq`. */
  readonly inputId: number
  readonly claimAt: number | null
  readonly ready: number
}

const columnOf: Readonly<Record<keyof WrittenFields, string>> = {
  status: 'status',
  reason: 'reason',
  leaseId: 'lease_id',
  leaseUntil: 'lease_until',
  leaseHolder: 'lease_holder',
  dueAt: 'due_at',
  claimAt: 'claim_at',
  waitKey: 'wait_key',
  claimsWithoutProgress: 'claims_without_progress',
  currentStep: 'current_step',
  inputSeq: 'input_seq',
  inputId: 'input_id',
  tapeSeq: 'tape_seq',
  endSeq: 'end_seq',
  startedAt: 'started_at',
  finishedAt: 'finished_at',
}

/** Without those that are null in a new run: to bind a value takes as long as to write it. */
const newColumns = [
  ...['owner', 'run_id', 'thread', 'workflow', 'version', 'status', 'queue', 'priority', 'fingerprint', 'epoch'],
  ...['due_at', 'claim_at', 'ready', 'claims_without_progress', 'input_seq', 'input_id', 'created_at'],
]

function prepareStatements(db: Database) {
  return {
    find: prepare(db, `SELECT ${runColumns} FROM holdfast_runs r WHERE r.owner = ? AND r.run_id = ?`).raw(),
    findByNumber: prepare(db, `${selectLeased} WHERE r.id = ? AND r.owner = ? AND r.run_id = ?`).raw(),
    findByName: prepare(db, `${selectLeased} WHERE r.owner = ? AND r.run_id = ?`).raw(),
    has: prepare(db, 'SELECT 1 FROM holdfast_runs WHERE owner = ? AND run_id = ?').pluck(),
    read: prepare(db, `${selectRun} WHERE r.owner = ? AND r.run_id = ?`),
    laterStart: prepare(
      db,
      `SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_by_thread
       WHERE thread = ? AND id > ? AND (started_at IS NOT NULL OR status = 'running') LIMIT 1`,
    ),
    holder: prepare(
      db,
      `SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_in_line
       WHERE thread = ? AND finished_at IS NULL AND status = 'running' LIMIT 1`,
    ),
    unfinished: prepare(
      db,
      `SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_in_line
       WHERE thread = ? AND finished_at IS NULL AND run_id IS NOT ? LIMIT 1`,
    ),
    insertNew: prepare(
      db,
      `INSERT INTO holdfast_runs (${newColumns.join(', ')}, unread_message) VALUES (${newColumns.map(() => '?').join(', ')}, 0)`,
    ),
  }
}
