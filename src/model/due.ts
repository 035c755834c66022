/** When a run is due: a duration from the store's now, a date, or never by itself. */
export type Due = { readonly inMs: number } | { readonly at: number } | 'never'

export function dueAtOf(due: Due, now: number): number | null {
  if (due === 'never') return null
  return 'at' in due ? due.at : now + due.inMs
}

/** Due now; a run that was due before keeps that time, and so its place in the order of claims. */
export function dueBy(dueAt: number | null, now: number): number {
  return dueAt === null ? now : Math.min(dueAt, now)
}
