/** Pieces of SQL that several functions share. Parameters and variables are named as there. */

/** The store's time in ms. */
export const nowSql = 'floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + p_offset'

/**
 * Each statement of a function has to see what was committed before a lock was granted (P1 in commit-sql.ts): under a stronger isolation
 * it sees the state in which the transaction began, and a holder whose run was taken would write on.
 */
export const readCommittedSql = `
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION 'isolation level %', current_setting('transaction_isolation') USING ERRCODE = 'HF005';
  END IF;`

/** For this transaction only: a relaxed one does not wait for the disk, any other does, whatever the session was told. */
export const durableSql = `${readCommittedSql}
  IF p_sync THEN
    IF current_setting('synchronous_commit') = 'off' THEN PERFORM set_config('synchronous_commit', 'on', true); END IF;
  ELSIF current_setting('synchronous_commit') <> 'off' THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;`

/**
 * A writer that waited for the lock of a thread may find its run claimed by another: everything is rolled back, and the same
 * statement, sent again, sees the claim from the start (HF004).
 */
export function takenSql(isTaken: string): string {
  return `IF ${isTaken} THEN RAISE EXCEPTION 'a run was claimed by another worker in this moment' USING ERRCODE = 'HF004'; END IF;`
}

/** Leaves v_answer with the writer, as fn_record does (writes.ts), which is called only where the row is missing or has a later number. */
export const recordSql = `
  UPDATE holdfast.writers w SET batch = p_batch, used_at = v_now - p_offset, answer = v_answer WHERE w.id = p_writer AND w.batch < p_batch;
  IF NOT FOUND THEN PERFORM holdfast.fn_record(p_writer, p_batch, v_answer); END IF;`

/**
 * Plans are made once per session and never by the size of the arrays: planning would cost more than the work. What is made
 * while the tables are empty must do when they are full: look-ups by index, in the order of the arrays, which is also the order
 * of locks.
 */
export const planSql = `SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off SET lock_timeout = '10s'`

/** A checksum bound to its position, as `sealChecksum` does; a snapshot's also to its state version: `sealSnapshot` in rows.ts. */
export function sealSql(
  checksum: string,
  { seq, stateVersion }: { readonly seq: string; readonly stateVersion?: string },
): string {
  const added = `${seq}${stateVersion === undefined ? '' : ` + ${stateVersion} * 2246822519`}`
  return `(((${checksum} + ${added}) & 4294967295) + (${checksum} & -4294967296))`
}

/** When a run is due after a change: kinds are 1 from now, 2 at, 3 never. Waiting with unread mail is due at once. */
export function dueSql({
  before,
  kind,
  due,
  status,
  hasMail,
}: Record<'before' | 'kind' | 'due' | 'status' | 'hasMail', string>): string {
  const asked = `CASE ${kind} WHEN 1 THEN v_now + ${due} WHEN 2 THEN ${due} WHEN 3 THEN NULL ELSE ${before} END`
  return `CASE WHEN ${status} = 'waiting' AND ${hasMail} THEN least(coalesce(${asked}, v_now), v_now) ELSE ${asked} END`
}

export const endedSql = `('completed', 'failed', 'cancelled')`

/**
 * A run or a tape is over: an effect that it left intended only a person can close; a question need not be closed. `left` says which
 * operations are meant, by the alias `x`, and `now` when it is.
 */
export function settleOpenSql({ from = '', left, now }: { from?: string; left: string; now: string }): string {
  return `UPDATE holdfast.operations x SET status = CASE WHEN x.kind = 'question' THEN 'failed' ELSE 'unsure' END,
          closed_at = CASE WHEN x.kind = 'question' THEN ${now} END
        ${from}
        WHERE ${left} AND (x.status = 'intended' OR (x.kind = 'question' AND x.status = 'unsure'))`
}
