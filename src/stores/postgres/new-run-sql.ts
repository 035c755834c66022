/** Rows of new threads and runs: one place for what they begin with. */

/** A thread that is new to the store; its number was drawn before. */
export function insertThreadSql(from: string): string {
  return `INSERT INTO holdfast.threads (id, owner, thread_id, head_seq, base_seq, incarnation, state_version, epoch_floor, created_at)
        OVERRIDING SYSTEM VALUE ${from}
        ON CONFLICT (owner, thread_id) DO NOTHING`
}

/** Columns of the above. `headSeq` counts the events that are written with it. */
export function newThreadSql({
  id,
  owner,
  thread,
  headSeq,
}: Record<'id' | 'owner' | 'thread', string> & { headSeq: number }): string {
  return `${id}, ${owner}, ${thread}, ${headSeq}, 0, 1, 0, 0, v_now`
}

export function insertRunSql(from: string): string {
  return `INSERT INTO holdfast.runs (id, thread, owner, run_id, workflow, version, queue, priority, fingerprint, status, epoch, due_at, wake_at,
          ready, is_next, last_message, claims_without_progress, input_seq, created_at)
        OVERRIDING SYSTEM VALUE ${from}
        ON CONFLICT (owner, run_id) DO NOTHING`
}

/** Columns of the above, for a run that `as` has the fields of. */
export function newRunSql({ as, id, thread, epoch, isNext, inputSeq }: NewRunSql): string {
  const dueAt = `CASE ${as}.due_kind WHEN 1 THEN v_now + ${as}.due ELSE ${as}.due END`
  const fields = ['owner', 'run', 'workflow', 'version', 'queue', 'priority', 'fingerprint'].map((name) => `${as}.${name}`)
  return `${id}, ${thread}, ${fields.join(', ')}, 'pending', ${epoch}, ${dueAt}, ${dueAt},
          CASE WHEN ${dueAt} <= v_now THEN 2 ELSE 0 END, ${isNext}, 0, 0, ${inputSeq}, v_now`
}

export interface NewRunSql {
  readonly as: string
  readonly id: string
  readonly thread: string
  readonly epoch: string
  readonly isNext: string
  readonly inputSeq: string
}
