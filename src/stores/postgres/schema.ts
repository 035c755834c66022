import { createHash } from 'node:crypto'
import { HoldfastError } from '../../model/errors.ts'
import { applyFunction } from './apply-sql.ts'
import { appendChunksFunction, dropChunksFunction } from './chunks.ts'
import { claimFunction } from './claim-sql.ts'
import { commitFunction } from './commit-sql.ts'
import type { Connections, PgClientLike } from './connections.ts'
import { collectThreadsFunction, deleteThreadFunction } from './delete-thread.ts'
import { toHoldfastError } from './errors.ts'
import { deliverFunctions } from './inbox.ts'
import { listHash } from './list-runs.ts'
import { stepFunction } from './lone-step.ts'
import { setQueueFunction } from './queues.ts'
import { recordFunctions } from './records.ts'
import { renewFunction } from './renew-sql.ts'
import { setBackFunction } from './set-back-sql.ts'
import { tagFunction } from './threads.ts'
import { settleFunctions } from './writes.ts'

/** Parts of the first migration. */
const threadAndRunTables = `
  CREATE TABLE holdfast.threads (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    head_seq bigint NOT NULL,
    base_seq bigint NOT NULL,
    incarnation bigint NOT NULL,
    state_version bigint NOT NULL,
    epoch_floor bigint NOT NULL,           -- highest epoch of a deleted run
    created_at bigint NOT NULL,
    deleted_at bigint,
    owner text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    UNIQUE (owner, thread_id)
  ) WITH (fillfactor = 45);
  CREATE INDEX threads_by_owner ON holdfast.threads (owner, id) WHERE deleted_at IS NULL;

  CREATE TABLE holdfast.runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread bigint NOT NULL,
    epoch bigint NOT NULL,
    wake_at bigint,
    due_at bigint,
    claims_without_progress bigint NOT NULL,
    input_seq bigint NOT NULL,
    tape_seq bigint,
    end_seq bigint,
    created_at bigint NOT NULL,
    started_at bigint,
    finished_at bigint,
    last_message bigint NOT NULL,          -- inbox.id of the latest unread message, 0 for none
    version bigint NOT NULL,
    priority bigint NOT NULL,
    ready smallint NOT NULL DEFAULT 0,
    is_suspect boolean NOT NULL GENERATED ALWAYS AS (claims_without_progress >= 2) STORED,
    is_held boolean NOT NULL GENERATED ALWAYS AS (status = 'running') STORED,
    is_next boolean NOT NULL,
    status text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    reason text COLLATE "C",
    lease_id text COLLATE "C",
    lease_holder text COLLATE "C",
    current_step text COLLATE "C",
    wait_key text COLLATE "C",
    UNIQUE (owner, run_id)
  ) WITH (fillfactor = 45);
  CREATE INDEX runs_by_status ON holdfast.runs (status, (owner || ''), id);
  CREATE INDEX runs_in_line ON holdfast.runs (thread, finished_at, id);
  CREATE INDEX runs_to_claim ON holdfast.runs (workflow, version, queue, priority, is_suspect, is_held, wake_at, id) WHERE is_next AND wake_at IS NOT NULL AND ready = 0;
  CREATE INDEX runs_ready ON holdfast.runs (version, workflow, queue, priority, ready, (owner || ''), wake_at, id) WHERE is_next AND wake_at IS NOT NULL AND ready > 0;
  CREATE INDEX runs_in_queue ON holdfast.runs (queue, status, due_at) WHERE status IN ('pending', 'running', 'waiting', 'paused');
  CREATE INDEX runs_by_wait_key ON holdfast.runs (wait_key) WHERE wait_key IS NOT NULL;
  `

const queueTables = `
  CREATE TABLE holdfast.queues (            -- those that have settings
    name text COLLATE "C" PRIMARY KEY,
    concurrency bigint,
    rate_count bigint,
    rate_per_ms bigint,
    max_queued bigint,
    is_paused boolean NOT NULL
  ) WITH (fillfactor = 50);

  CREATE TABLE holdfast.queue_starts (      -- first claims of runs, of queues with a rate limit
    queue text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (queue, at)
  );
  `

const logTables = `
  CREATE TABLE holdfast.log (
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    run bigint,                            -- runs.id; NULL for an edit by hand
    at double precision NOT NULL,
    duration_ms double precision,
    checksum bigint NOT NULL,
    checkpoint_bytes bigint,               -- at a checkpoint: bytes that its commit added
    count integer NOT NULL,
    attempt integer NOT NULL,
    type text COLLATE "C" NOT NULL,
    step text COLLATE "C",
    payload text COLLATE "C",
    payload_bytes bytea,
    patch text COLLATE "C",
    patch_bytes bytea,
    PRIMARY KEY (thread, seq)
  );

  CREATE TABLE holdfast.snapshots (
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    state_version bigint NOT NULL,
    checksum bigint NOT NULL,
    state text COLLATE "C",
    state_bytes bytea,
    PRIMARY KEY (thread, seq)
  );

  CREATE TABLE holdfast.labels (
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    label text COLLATE "C" NOT NULL,
    PRIMARY KEY (thread, label),
    UNIQUE (thread, seq)
  );
  `

const operationTable = `
  CREATE TABLE holdfast.operations (
    owner text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    run bigint,                            -- runs.id of the run that opened it; the operation outlives it
    run_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    result text COLLATE "C",
    result_bytes bytea,
    result_checksum bigint NOT NULL,
    evidence text COLLATE "C",
    evidence_bytes bytea,
    evidence_checksum bigint NOT NULL,
    resolved_by text COLLATE "C",
    intended_at bigint NOT NULL,
    closed_at bigint,
    PRIMARY KEY (owner, key)
  ) WITH (fillfactor = 80);
  CREATE INDEX operations_by_thread ON holdfast.operations (owner, thread_id);
  CREATE INDEX operations_intended ON holdfast.operations (run) WHERE status = 'intended';
  CREATE INDEX operations_unsure ON holdfast.operations (owner, intended_at, key) WHERE status = 'unsure';
  `

const messageTables = `
  CREATE TABLE holdfast.inbox (
    id bigint GENERATED ALWAYS AS IDENTITY,
    run bigint NOT NULL,
    at bigint NOT NULL,
    checksum bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C",
    payload text COLLATE "C",
    payload_bytes bytea,
    PRIMARY KEY (run, id)
  );

  CREATE TABLE holdfast.chunks (
    run bigint NOT NULL,
    first bigint NOT NULL,                 -- offset of the first chunk
    size bigint NOT NULL,
    checksum bigint NOT NULL,
    tape bigint NOT NULL,
    count integer NOT NULL,
    attempt integer NOT NULL,
    stream text COLLATE "C" NOT NULL,
    step text COLLATE "C",
    payload text COLLATE "C",              -- without payload: what this writer wrote before is void
    payload_bytes bytea,
    PRIMARY KEY (run, stream, first)
  );
  CREATE INDEX chunks_void ON holdfast.chunks (run, stream, first) WHERE payload IS NULL AND payload_bytes IS NULL;
  `

const writerTable = `
  -- The last write of every writer, to tell after a lost connection whether it happened: writes.ts.
  CREATE TABLE holdfast.writers (
    id bigint PRIMARY KEY,
    batch bigint NOT NULL,
    at bigint NOT NULL,
    answer text
  ) WITH (fillfactor = 20);
  `

/**
 * The tables, as numbered migrations. A published migration is never changed; a new one is added below it.
 * In all SQL of this folder `holdfast.` stands for the schema that the store was opened with, `holdfast.fn_` for its functions.
 *
 * `wake_at` is the instant from which a run can be claimed: `due_at` of a pending or waiting run, the end of the lease of a
 * running one, NULL otherwise. `is_next` marks the first of a thread's unfinished runs; a claim looks at no other (S6). They
 * are separate columns because different writers move them. `ready` says which of two indexes shows a run: 0 the one in order of
 * time, for runs that are held or sleep; else the one in which owners take turns, 1 for runs that were claimed before and 2 for
 * those that never were. A claim moves there what has become due; whatever else happens to a run leaves `ready` alone.
 *
 * fillfactor leaves room for a second version of every row of a page: a plain step changes no column that an index knows, and a
 * batch often changes all rows of a page, so that its updates stay heap-only. Ids are compared bytewise (COLLATE "C"). A
 * payload is text or bytes, two columns of which one is null: text stays readable, a null costs one bit.
 *
 * Plans are made when the tables are small, where one index looks as good as another. So no index knows a condition that another is
 * meant for, in whatever place: Postgres 18 skips leading columns. Where both have a column, one of them has it as an expression
 * (owner || ''), and statements write it as the index they mean does.
 */
const migrations: readonly string[] = [
  [threadAndRunTables, queueTables, logTables, operationTable, messageTables, writerTable].join('\n'),
  // Questions are a separate kind of operation; until then they were told by their names. The index has what the end of a run settles.
  `
  ALTER TABLE holdfast.operations ADD COLUMN kind text COLLATE "C" NOT NULL DEFAULT 'effect';
  UPDATE holdfast.operations SET kind = 'question' WHERE name LIKE 'ask[%]' AND status IN ('intended', 'unsure');
  DROP INDEX holdfast.operations_intended;
  CREATE INDEX operations_intended ON holdfast.operations (run) WHERE status = 'intended' OR (kind = 'question' AND status = 'unsure');
  `,
  // Messages that are delivered once, however often they are sent.
  `
  CREATE TABLE holdfast.delivered (
    run bigint NOT NULL,                   -- runs.id
    id text COLLATE "C" NOT NULL,
    PRIMARY KEY (run, id)
  );
  `,
  // What a thread keeps of the writes under leases, for guards, and of its last patch, for caches. A function of an earlier version that
  // is at work fails on the new name of writers.at, at its end: what it wrote is rolled back.
  `
  ALTER TABLE holdfast.threads
    ADD COLUMN written_seq bigint NOT NULL DEFAULT 0,
    ADD COLUMN patch_seq bigint NOT NULL DEFAULT 0,
    ADD COLUMN patch_checksum bigint NOT NULL DEFAULT 0;
  ALTER TABLE holdfast.writers RENAME COLUMN at TO used_at;

  -- Lists of runs. Each index begins with a hash of what runs are asked for: entries are small, and no other statement can take one for its own.
  DROP INDEX holdfast.runs_by_status;
  CREATE INDEX runs_listed ON holdfast.runs (${listHash.status('')}, created_at, id);
  CREATE INDEX runs_of_workflow ON holdfast.runs (${listHash.workflow('')}, created_at, id);
  CREATE INDEX runs_of_queue ON holdfast.runs (${listHash.queue('')}, created_at, id);
  ALTER TABLE holdfast.labels ADD COLUMN run bigint, ADD COLUMN created_at bigint, ADD COLUMN owner text COLLATE "C"; -- the run of the labelled record
  UPDATE holdfast.labels b SET run = r.id, created_at = r.created_at, owner = r.owner
    FROM holdfast.log l JOIN holdfast.runs r ON r.id = l.run WHERE l.thread = b.thread AND l.seq = b.seq;
  CREATE INDEX labels_by_run ON holdfast.labels (label, owner, created_at, run) WHERE run IS NOT NULL;
  `,
  // Records, and what they are looked up by.
  `
  CREATE TABLE holdfast.records (
    version bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    expires_at bigint,
    checksum bigint NOT NULL,
    owner text COLLATE "C" NOT NULL,
    collection text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    parent text COLLATE "C",
    thread_id text COLLATE "C",            -- an id, not a number: the thread need not exist
    fields text COLLATE "C" NOT NULL,      -- JSON: pairs of name and value; empty for none
    payload text COLLATE "C",
    payload_bytes bytea,
    PRIMARY KEY (owner, collection, key)
  ) WITH (fillfactor = 80);
  CREATE INDEX records_by_parent ON holdfast.records ((owner || ''), (collection || ''), parent, (key || '')) WHERE parent IS NOT NULL;
  CREATE INDEX records_of_thread ON holdfast.records (thread_id, (owner || '')) WHERE thread_id IS NOT NULL;
  CREATE INDEX records_expiring ON holdfast.records (expires_at) WHERE expires_at IS NOT NULL;

  CREATE TABLE holdfast.record_fields (
    owner text COLLATE "C" NOT NULL,
    collection text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    PRIMARY KEY (owner, collection, name, value, key)
  );
  `,
]

/** All tables of the store. */
export const tableNames: readonly string[] = [
  'version',
  ...migrations.flatMap((sql) => [...sql.matchAll(/CREATE TABLE holdfast\.(\w+)/g)].map(([, name]) => name as string)),
]

/** Version of the tables that this library writes. */
const schemaVersion = migrations.length

/**
 * Functions are not migrated: each version of the library has its own. Those of versions with the same tables exist side by
 * side, for upgrades without downtime; a migration of the tables drops all others, so that a process of an earlier version which
 * is still open can no longer write.
 */
const functionsSql = [
  settleFunctions,
  appendChunksFunction,
  dropChunksFunction,
  ...recordFunctions,
  applyFunction,
  commitFunction,
  stepFunction,
  claimFunction,
  renewFunction,
  setBackFunction,
  ...deliverFunctions,
  setQueueFunction,
  deleteThreadFunction,
  collectThreadsFunction,
  tagFunction,
]
const functionsVersion = createHash('sha256').update(functionsSql.join('\n')).digest('hex').slice(0, 8)

/** SQL of this folder as the server gets it. `schema` is quoted already. */
export function inSchema(sql: string, schema: string): string {
  // In one pass: the name of the schema may itself have "holdfast." in it.
  return sql.replaceAll(/\bholdfast\.(fn_)?/g, (_, isFunction) => `${schema}.${isFunction ? `fn_${functionsVersion}_` : ''}`)
}

/** Brings tables and functions up to date. In one transaction under a lock, so that of many processes one does it. */
export async function migrateSchema(
  connections: Connections,
  schema: { readonly name: string; readonly quoted: string },
): Promise<void> {
  try {
    if (await connections.withClient((client) => isUpToDate(client, schema))) return
    for (let tries = 1; ; tries++) {
      const problem = await connections.withClient((client) => migrateWith(client, schema).catch((error: unknown) => error), {
        answerMs: migrationMs + 5_000,
      })
      if (problem === undefined) return
      if (!isDeadlock(problem) || tries === mostDeadlocks) throw problem
    }
  } catch (error) {
    throw toHoldfastError(error, 'open')
  }
}

/** A process of an earlier version may be writing while its tables are changed: each then waits for what the other has locked. */
const mostDeadlocks = 10

function isDeadlock(error: unknown): boolean {
  return (error as { code?: string }).code === '40P01'
}

/** How long the set-up may take, and wait for that of another process. */
const migrationMs = 120_000

/** Looks without a lock, so that an ordinary start writes nothing and needs no right to. */
async function isUpToDate(
  client: PgClientLike,
  { name, quoted }: { readonly name: string; readonly quoted: string },
): Promise<boolean> {
  const version = await readVersion(client, quoted)
  refuseLaterSchema(version, name)
  if (version !== schemaVersion) return false
  const { rows } = await client.query({
    text: `SELECT count(DISTINCT p.proname) AS found FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
           WHERE n.nspname = $1 AND starts_with(p.proname, $2)`,
    values: [name, `fn_${functionsVersion}_`],
  })
  return Number((rows[0] as { found: string }).found) === functionCount
}

const functionCount = functionsSql.join('\n').split('CREATE OR REPLACE FUNCTION').length - 1

async function migrateWith(
  client: PgClientLike,
  { name, quoted }: { readonly name: string; readonly quoted: string },
): Promise<void> {
  await client.query('BEGIN ISOLATION LEVEL READ COMMITTED')
  try {
    await client.query(
      `SET LOCAL lock_timeout = '60s'; SET LOCAL statement_timeout = ${migrationMs}; SET LOCAL client_min_messages = warning`,
    )
    // A lock of the transaction, not of the session: it also holds behind a pooler.
    await client.query({ text: 'SELECT pg_advisory_xact_lock(hashtextextended($1, 7246023))', values: [name] })
    const { rows } = await client.query({ text: 'SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1', values: [name] })
    if (rows.length === 0) await client.query(`CREATE SCHEMA ${quoted}`)
    const found = await readVersion(client, quoted)
    refuseLaterSchema(found, name)
    const statements = [...tableStatements(found), ...functionsSql]
    await client.query(inSchema(statements.join('\n'), quoted))
    if (found !== schemaVersion) await dropEarlierFunctions(client, name)
    await client.query('COMMIT')
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {})
    throw error
  }
}

async function dropEarlierFunctions(client: PgClientLike, schema: string): Promise<void> {
  const { rows } = await client.query({
    text: `SELECT format('%I.%I(%s)', n.nspname, p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid)) AS signature
           FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
           WHERE n.nspname = $1 AND p.proname ~ '^fn_[0-9a-f]{8}_' AND NOT starts_with(p.proname, $2)`,
    values: [schema, `fn_${functionsVersion}_`],
  })
  const signatures = (rows as readonly { readonly signature: string }[]).map(({ signature }) => signature)
  if (signatures.length > 0) await client.query(`DROP FUNCTION ${signatures.join(', ')}`)
}

function tableStatements(found: number): string[] {
  if (found === schemaVersion) return []
  const create =
    found === 0 ? ['CREATE TABLE holdfast.version (version integer NOT NULL); INSERT INTO holdfast.version VALUES (0);'] : []
  return [...create, ...migrations.slice(found), `UPDATE holdfast.version SET version = ${schemaVersion};`]
}

/** 0 where there are no tables of ours. */
async function readVersion(client: PgClientLike, quoted: string): Promise<number> {
  const { rows } = await client.query({ text: 'SELECT to_regclass($1) IS NOT NULL AS found', values: [`${quoted}.version`] })
  if ((rows[0] as { found: boolean }).found !== true) return 0
  const { rows: versions } = await client.query(`SELECT version FROM ${quoted}.version`)
  return Number((versions[0] as { version: number } | undefined)?.version ?? 0)
}

function refuseLaterSchema(found: number, schema: string): void {
  if (found <= schemaVersion) return
  throw new HoldfastError(
    'schema_too_new',
    `The tables in schema "${schema}" have version ${found}; this library knows versions up to ${schemaVersion}. Upgrade holdfast; nothing was changed.`,
    { details: { schema, found, known: schemaVersion } },
  )
}

/** The schema's name, quoted; refused with `invalid_url` where it could be mistaken for SQL or for Postgres's own. */
export function checkSchemaName(name: string): { readonly name: string; readonly quoted: string } {
  const isPlain = /^[\p{L}_][\p{L}\p{N}_. -]*$/u.test(name) && Buffer.byteLength(name) <= 63
  if (isPlain && !name.startsWith('pg_') && name !== 'information_schema') return { name, quoted: `"${name}"` }
  throw new HoldfastError(
    'invalid_url',
    `${JSON.stringify(name)} cannot be the schema of a store: up to 63 bytes of letters, digits, "_", "-", "." and spaces, not beginning with pg_.`,
  )
}
