import { randomBytes } from 'node:crypto'

/**
 * What the leases of one claim begin with; the number of the run comes behind it. Asking for random bytes takes as long as taking a run,
 * so it is done once for all.
 */
export function newLeasePrefix(): string {
  return `${randomBytes(12).toString('base64url')}.`
}

/** The number of the run that a lease is on. Only a hint: whoever wrote it may be anybody. */
export function numberInLease(leaseId: string): number {
  return Number(leaseId.slice(leaseId.indexOf('.') + 1))
}
