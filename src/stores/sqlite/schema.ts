import { HoldfastError } from '../../model/errors.ts'
import type { Database } from './connection.ts'

const threadsAndRuns = `
CREATE TABLE holdfast_threads (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  owner TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  head_seq INTEGER NOT NULL,
  head_id INTEGER,                 -- holdfast_log.id of the record at head_seq
  state_version INTEGER NOT NULL,
  incarnation INTEGER NOT NULL,
  base_seq INTEGER NOT NULL,
  epoch_floor INTEGER NOT NULL,    -- highest epoch of a deleted run
  created_at INTEGER NOT NULL,
  deleted_at INTEGER,
  UNIQUE (owner, thread_id)
);
CREATE INDEX holdfast_threads_by_owner ON holdfast_threads (owner) WHERE deleted_at IS NULL;

CREATE TABLE holdfast_log (
  id INTEGER PRIMARY KEY,
  thread INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  prev INTEGER,                    -- id of the record at seq - 1
  run INTEGER,                     -- holdfast_runs.id
  type TEXT NOT NULL,
  step TEXT,
  count INTEGER,                   -- NULL for 0, as is attempt
  attempt INTEGER,
  at INTEGER NOT NULL,
  duration_ms INTEGER,
  payload,                         -- TEXT or BLOB, as it was given
  patch,
  checkpoint_bytes INTEGER,        -- at a checkpoint: bytes that its commit added
  checksum INTEGER NOT NULL
);
CREATE INDEX holdfast_log_marks ON holdfast_log (thread, seq) WHERE (seq & 31) = 0;

CREATE TABLE holdfast_runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  owner TEXT NOT NULL,
  run_id TEXT NOT NULL,
  thread INTEGER NOT NULL,
  workflow TEXT NOT NULL,
  version INTEGER NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  queue TEXT NOT NULL,
  priority INTEGER NOT NULL,
  fingerprint TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  lease_id TEXT,
  lease_until INTEGER,
  lease_holder INTEGER,            -- holdfast_holders.id
  due_at INTEGER,
  claim_at INTEGER,
  ready INTEGER NOT NULL,
  wait_key TEXT,
  claims_without_progress INTEGER NOT NULL,
  current_step TEXT,
  input_seq INTEGER NOT NULL,
  input_id INTEGER NOT NULL,       -- holdfast_log.id of the record at input_seq
  tape_seq INTEGER,
  end_seq INTEGER,
  created_at INTEGER NOT NULL,
  started_at INTEGER,
  finished_at INTEGER,
  last_message INTEGER NOT NULL,   -- holdfast_inbox.id of the latest unread message, 0 for none
  is_held INTEGER NOT NULL GENERATED ALWAYS AS (status = 'running') VIRTUAL,
  UNIQUE (owner, run_id)
);
CREATE INDEX holdfast_runs_by_owner ON holdfast_runs (owner);
CREATE INDEX holdfast_runs_by_thread ON holdfast_runs (thread);
CREATE INDEX holdfast_runs_in_line ON holdfast_runs (thread) WHERE finished_at IS NULL;
CREATE INDEX holdfast_runs_to_claim ON holdfast_runs (workflow, version, queue, priority, is_held, claim_at) WHERE claim_at IS NOT NULL AND ready = 0;
CREATE INDEX holdfast_runs_ready ON holdfast_runs (workflow, version, queue, priority, ready, owner, claim_at) WHERE claim_at IS NOT NULL AND ready > 0;
CREATE INDEX holdfast_runs_in_queue ON holdfast_runs (queue, status, due_at) WHERE finished_at IS NULL;
CREATE INDEX holdfast_runs_by_holder ON holdfast_runs (lease_holder) WHERE lease_holder IS NOT NULL;
CREATE INDEX holdfast_runs_by_wait_key ON holdfast_runs (wait_key) WHERE wait_key IS NOT NULL;

CREATE TABLE holdfast_holders (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  holder TEXT NOT NULL UNIQUE      -- JSON: the worker, and what tells whether its process lives
);
`

const whatBelongsToThem = `
CREATE TABLE holdfast_queues (     -- those with settings of their own
  name TEXT PRIMARY KEY,
  concurrency INTEGER,
  rate_count INTEGER,
  rate_per_ms INTEGER,
  max_queued INTEGER,
  is_paused INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE holdfast_queue_starts ( -- first claims of runs, of queues with a rate limit
  queue TEXT NOT NULL,
  at INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (queue, at)
) WITHOUT ROWID;

CREATE TABLE holdfast_snapshots (
  id INTEGER PRIMARY KEY,
  thread INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  state NOT NULL,
  state_version INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  UNIQUE (thread, seq)
);

CREATE TABLE holdfast_operations (
  id INTEGER PRIMARY KEY,
  owner TEXT NOT NULL,
  key TEXT NOT NULL,
  name TEXT NOT NULL,
  run_id TEXT NOT NULL,            -- ids, not row numbers: an operation outlives its run
  thread_id TEXT NOT NULL,
  status TEXT NOT NULL,
  result,
  evidence,
  resolved_by TEXT,
  intended_at INTEGER NOT NULL,
  closed_at INTEGER,
  checksum INTEGER NOT NULL,
  UNIQUE (owner, key)
);
CREATE INDEX holdfast_operations_by_thread ON holdfast_operations (owner, thread_id);
CREATE INDEX holdfast_operations_intended ON holdfast_operations (owner, run_id) WHERE status = 'intended';
CREATE INDEX holdfast_operations_unsure ON holdfast_operations (owner, intended_at, key) WHERE status = 'unsure';

CREATE TABLE holdfast_inbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run INTEGER NOT NULL,
  kind TEXT NOT NULL,
  name TEXT,
  payload,
  at INTEGER NOT NULL,
  checksum INTEGER NOT NULL
);
CREATE INDEX holdfast_inbox_by_run ON holdfast_inbox (run);

CREATE TABLE holdfast_chunks (
  id INTEGER PRIMARY KEY,
  run INTEGER NOT NULL,
  stream TEXT NOT NULL,
  first INTEGER NOT NULL,          -- offset of the first chunk
  size INTEGER NOT NULL,
  tape INTEGER NOT NULL,
  step TEXT,
  count INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  payload,                         -- NULL: what this writer wrote before is void
  checksum INTEGER NOT NULL,
  UNIQUE (run, stream, first)
);
CREATE INDEX holdfast_chunks_void ON holdfast_chunks (run, stream, first) WHERE payload IS NULL;

CREATE TABLE holdfast_labels (
  thread INTEGER NOT NULL,
  label TEXT NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (thread, label),
  UNIQUE (thread, seq)
) WITHOUT ROWID;
`

/**
 * The tables, as numbered migrations. A published migration is never changed; a new one is added below it.
 *
 * The log is kept in the order of commits, not by thread: a batch of five hundred runs then writes a few pages at the
 * end of one table instead of a page for each thread (docs/decisions/0008). A thread's records are a chain: its row knows
 * the last one, each record knows the one before it, and every 32nd is marked in an index, so that any stretch is found
 * by one seek and a walk back over at most 31 others.
 *
 * `claim_at` is the one instant from which a run can be claimed: `due_at` of a pending or waiting run that is first in
 * its thread, `lease_until` of a running one, NULL otherwise. `ready` says which of two indexes shows it: 0 the one in order of time, for
 * runs that are held or sleep; else the one in which owners take turns, 1 for runs that were claimed before and 2 for those that never
 * were. A claim moves there what has become due. Ids are never used again (AUTOINCREMENT), so that what
 * a process remembers of a deleted thread finds nothing.
 */
const migrations: readonly string[] = [
  threadsAndRuns + whatBelongsToThem,
  // Questions are operations of a kind of their own. Until then they were told by their names; those are left as they are, since the
  // checksum of the row covers them. The index has what the end of a run settles.
  `
  ALTER TABLE holdfast_operations ADD COLUMN kind TEXT NOT NULL DEFAULT 'effect';
  UPDATE holdfast_operations SET kind = 'question' WHERE name LIKE 'ask[%]' AND status IN ('intended', 'unsure');
  DROP INDEX holdfast_operations_intended;
  CREATE INDEX holdfast_operations_intended ON holdfast_operations (owner, run_id)
    WHERE status = 'intended' OR (kind = 'question' AND status = 'unsure');
  `,
  // Messages that are delivered once, however often they are sent.
  `
  CREATE TABLE holdfast_delivered (
    run INTEGER NOT NULL,            -- holdfast_runs.id
    id TEXT NOT NULL,
    PRIMARY KEY (run, id)
  ) WITHOUT ROWID;
  `,
  // What a guard knows of its history, and which record brought the state. 0 fits every row: a claim says it, and holders of an earlier
  // version write no more.
  `
  ALTER TABLE holdfast_threads ADD COLUMN written_seq INTEGER NOT NULL DEFAULT 0;    -- last position written under a lease
  ALTER TABLE holdfast_threads ADD COLUMN patch_seq INTEGER NOT NULL DEFAULT 0;      -- of the last record with a patch
  ALTER TABLE holdfast_threads ADD COLUMN patch_checksum INTEGER NOT NULL DEFAULT 0;
  -- Lists of runs: by what runs are asked for, then by when they were created. A list passes from one workflow, queue and status to the next.
  DROP INDEX holdfast_runs_by_owner;
  CREATE INDEX holdfast_runs_listed ON holdfast_runs (owner, workflow, queue, status, created_at);
  ALTER TABLE holdfast_labels ADD COLUMN run INTEGER;         -- holdfast_runs.id of the labelled record, its owner and when it was created
  ALTER TABLE holdfast_labels ADD COLUMN owner TEXT;
  ALTER TABLE holdfast_labels ADD COLUMN created_at INTEGER;
  UPDATE holdfast_labels SET run = f.run, owner = f.owner, created_at = f.created_at FROM (
    SELECT b.thread, b.seq, r.id AS run, r.owner, r.created_at
      FROM holdfast_log l CROSS JOIN holdfast_labels b ON b.thread = l.thread AND b.seq = l.seq CROSS JOIN holdfast_runs r ON r.id = l.run
      WHERE EXISTS (SELECT 1 FROM holdfast_labels)) f
    WHERE holdfast_labels.thread = f.thread AND holdfast_labels.seq = f.seq;
  CREATE INDEX holdfast_labels_by_run ON holdfast_labels (owner, label, created_at, run) WHERE run IS NOT NULL;

  -- A process of an earlier version that still has the file open checks no version. Of what it writes, everything needs one of these:
  -- its next write fails as a whole, and so does the renewal of its leases.
  ALTER TABLE holdfast_runs RENAME COLUMN last_message TO unread_message;
  ALTER TABLE holdfast_threads RENAME COLUMN head_id TO head_record;
  ALTER TABLE holdfast_queues RENAME COLUMN name TO queue;
  DROP INDEX holdfast_log_marks;
  CREATE INDEX holdfast_log_marked ON holdfast_log (thread, seq) WHERE (seq & 31) = 0;
  `,
  // Lists of runs, without the status: each entry is written once, where a status in it had it written anew whenever a run was claimed,
  // waited or ended. Runs that failed or were cancelled are few, and asked for most; those that are open are found in their queues.
  `
  DROP INDEX holdfast_runs_listed;
  CREATE INDEX holdfast_runs_listed ON holdfast_runs (owner, workflow, queue, created_at);
  CREATE INDEX holdfast_runs_failed ON holdfast_runs (owner, status, workflow, queue, created_at) WHERE status IN ('failed', 'cancelled');
  `,
  // Records, and what they are looked up by.
  `
  CREATE TABLE holdfast_records (
    id INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    collection TEXT NOT NULL,
    key TEXT NOT NULL,
    parent TEXT,
    thread_id TEXT,                  -- an id, not a row number: the thread need not exist
    fields TEXT NOT NULL,            -- JSON: pairs of name and value; empty for none
    version INTEGER NOT NULL,
    payload NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    checksum INTEGER NOT NULL,
    UNIQUE (owner, collection, key)
  );
  CREATE INDEX holdfast_records_by_parent ON holdfast_records (owner, collection, parent, key) WHERE parent IS NOT NULL;
  CREATE INDEX holdfast_records_of_thread ON holdfast_records (thread_id, owner) WHERE thread_id IS NOT NULL;
  CREATE INDEX holdfast_records_expiring ON holdfast_records (expires_at) WHERE expires_at IS NOT NULL;

  CREATE TABLE holdfast_record_fields (
    owner TEXT NOT NULL,
    collection TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (owner, collection, name, value, key)
  ) WITHOUT ROWID;
  `,
]

/** What the end of a run settles, as the index of it says. */
export const isLeftOpen = `(status = 'intended' OR (kind = 'question' AND status = 'unsure'))`

/** Version of the tables that this library writes. */
export const schemaVersion = migrations.length

/** Brings the tables up to date. Inside one write transaction, so that of many processes one does it. */
export function migrateSchema(db: Database, file: string): void {
  const found = readSchemaVersion(db)
  refuseLaterSchema(found, file)
  if (found === schemaVersion) return
  if (found === 0) db.exec('CREATE TABLE holdfast_schema (version INTEGER NOT NULL); INSERT INTO holdfast_schema VALUES (0)')
  leavingOthersAlone(db, () => {
    for (const migration of migrations.slice(found)) db.exec(migration)
  })
  db.prepare('UPDATE holdfast_schema SET version = ?').run(schemaVersion)
}

/**
 * Columns are renamed though the user has a view or trigger in the same file that SQLite can't read: one of a table that was dropped, or one with
 * "text" in double quotes, which works otherwise. With this setting such a one stays as it is.
 */
function leavingOthersAlone(db: Database, act: () => void): void {
  const setting = Number(db.pragma('writable_schema'))
  const allow = () => {
    db.pragma('writable_schema = ON')
    return Number(db.pragma('writable_schema')) === 1
  }
  const isDefended = !allow()
  if (isDefended) db.defend(false)
  try {
    allow()
    act()
  } finally {
    db.pragma(`writable_schema = ${setting}`)
    if (isDefended) db.defend(true)
  }
}

/** 0 where there are no tables of ours. */
export function readSchemaVersion(db: Database): number {
  const hasTable = db.prepare(`SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'holdfast_schema'`).get() !== undefined
  if (!hasTable) return 0
  return (db.prepare('SELECT version FROM holdfast_schema').pluck().get() as number | undefined) ?? 0
}

export function refuseLaterSchema(found: number, file: string): void {
  if (found <= schemaVersion) return
  throw new HoldfastError(
    'schema_too_new',
    `The tables in ${file} have version ${found}; this library knows versions up to ${schemaVersion}. Upgrade holdfast; nothing was changed.`,
    { details: { file, found, known: schemaVersion } },
  )
}
