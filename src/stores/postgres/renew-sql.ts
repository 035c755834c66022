import { nowSql, planSql, readCommittedSql } from './sql.ts'

/** Extends leases that are still held. One that is lost is left out of the answer. */
export const renewFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_renew(
  p_offset bigint, p_lease_ms bigint, p_owners text[], p_runs text[], p_epochs bigint[], p_leases text[], p_written bigint[]
) RETURNS TABLE (n bigint, has_mail boolean) LANGUAGE plpgsql VOLATILE ${planSql}
AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ${nowSql};
  v_ids bigint[];
BEGIN
  ${readCommittedSql}
  -- An extension that is lost with the machine only lets the lease run out earlier: heartbeats do not wait for the disk.
  PERFORM set_config('synchronous_commit', 'off', true);
  SELECT array_agg(r.id) INTO v_ids FROM unnest(p_owners, p_runs) AS a(owner, run)
    CROSS JOIN LATERAL (SELECT r.id FROM holdfast.runs r WHERE r.owner = a.owner AND r.run_id = a.run LIMIT 1) r;
  PERFORM FROM holdfast.runs r WHERE r.id = ANY (v_ids) ORDER BY r.thread, r.id FOR NO KEY UPDATE;
  RETURN QUERY
    WITH held AS (
      SELECT a.n, r.id, r.last_message > 0 AS has_mail
        FROM unnest(p_owners, p_runs, p_epochs, p_leases, p_written) WITH ORDINALITY AS a(owner, run, epoch, lease, written, n)
        CROSS JOIN LATERAL (SELECT * FROM holdfast.runs r WHERE r.owner = a.owner AND r.run_id = a.run LIMIT 1) r
        WHERE r.epoch = a.epoch AND r.lease_id = a.lease
          AND (SELECT t.written_seq FROM holdfast.threads t WHERE t.id = r.thread) >= coalesce(a.written, 0)
    ), extended AS (
      UPDATE holdfast.runs r SET wake_at = v_now + p_lease_ms FROM held h WHERE r.id = h.id
    ) SELECT h.n, h.has_mail FROM held h;
END $$;
`

export const renewSql = 'SELECT n, has_mail FROM holdfast.fn_renew($1, $2, $3, $4, $5, $6, $7)'
