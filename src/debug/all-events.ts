import type { EventQuery, History, HistoryEvent } from './history.ts'

/** Events with all of their data may be large; those without are small. */
const [pageSize, barePageSize] = [1_000, 10_000]

/** Events of a history, oldest first, read in pages. */
export async function* allEvents(history: History, query: Omit<EventQuery, 'limit'>): AsyncGenerator<HistoryEvent, void, void> {
  const hasResults = query.dataOf === undefined || query.dataOf.includes('step_completed')
  const limit = hasResults ? pageSize : barePageSize
  let { after } = query
  for (;;) {
    const page = await history.events({ ...query, ...(after !== undefined && { after }), limit })
    yield* page
    after = page.at(-1)?.id
    if (after === undefined) return
  }
}
