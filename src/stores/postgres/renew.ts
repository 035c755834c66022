import type { Renewed, RenewRequest } from '../../store/store.ts'
import { bigintArray, textArray } from './columns.ts'
import { toHoldfastError } from './errors.ts'
import { renewSql } from './renew-sql.ts'
import type { StoreParts } from './store-parts.ts'

/** Of a lease, how long the answer to a heartbeat is waited for, a second at least: there is time for another before the lease is over. */
const patienceShare = 0.4

/** Extends leases, on the connection for heartbeats. */
export function prepareRenew({ connections, prepare, clock }: StoreParts) {
  const statement = prepare(renewSql)

  return async function renew({ leaseMs, leases }: RenewRequest): Promise<Renewed[]> {
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
      const rows = await connections.sendApart(statement, values, { withinMs: Math.max(1_000, leaseMs * patienceShare) })
      const held = new Map(rows.map(([n, hasMail]) => [Number(n), hasMail === 't']))
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
}
