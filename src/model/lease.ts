/**
 * When a lease that is kept ends after a commit with `leaseMs`. One with two thirds left stays as it is: moving it would write an index
 * at every step. A longer one than was asked for is shortened.
 */
export function extendedLease(leaseUntil: number | null, now: number, leaseMs: number): number {
  if (leaseUntil === null) return now + leaseMs
  const leftMs = leaseUntil - now
  return leftMs >= (leaseMs * 2) / 3 && leftMs <= leaseMs ? leaseUntil : now + leaseMs
}
