import type { Order } from '../replay/tape.ts'

const rank: Readonly<Record<Order['kind'], number>> = { fail: 1, rollback: 2, cancel: 3 }

/** Of two orders the one that ranks higher is carried out; of two rollbacks the one that goes further, of two cancels the one that undoes nothing. */
export function outranks(order: Order, other: Order): boolean {
  if (order.kind === 'rollback' && other.kind === 'rollback') return order.to < other.to
  if (order.kind === 'cancel' && other.kind === 'cancel') return order.undo === false && other.undo !== false
  return rank[order.kind] > rank[other.kind]
}
