import type { DumpedRecord, StoreDump } from '../bed/store-dump.ts'

/** Calls with a recorded result, and attempts with a recorded end. */
export function settledIn(dump: StoreDump): { results: Set<string>; attempts: Set<string> } {
  const results = new Set<string>()
  const attempts = new Set<string>()
  for (const { type, runId, tape, step, attempt, data } of dump.threads.flatMap(({ log }) => log)) {
    const call = { run: runId ?? '', tape, path: step ?? '' }
    if (['step_completed', 'effect_completed', 'effect_skipped', 'timer_fired'].includes(type)) results.add(callOf(call))
    if (['step_failed', 'effect_failed'].includes(type) && data['counts'] !== false) attempts.add(bodyOf({ ...call, attempt }))
  }
  return { results, attempts }
}

export function recordsOf(dump: StoreDump, runId: string): DumpedRecord[] {
  return dump.threads.flatMap(({ log }) => log).filter((record) => record.runId === runId)
}

export function callOf({ run, tape, path }: { run: string; tape: number; path: string }): string {
  return `${run}~${tape}/${path}`
}

export function bodyOf(body: { run: string; tape: number; path: string; attempt: number }): string {
  return `${callOf(body)} attempt ${body.attempt}`
}

export function countBy<Item>(items: readonly Item[], keyOf: (item: Item) => string): Map<string, number> {
  const counts = new Map<string, number>()
  for (const item of items) counts.set(keyOf(item), (counts.get(keyOf(item)) ?? 0) + 1)
  return counts
}
