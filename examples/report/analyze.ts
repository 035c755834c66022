// Trends: which figures of which regions go together. On the full set it needs more memory than the demo's workers have.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Row, Source } from './gather.ts'

export interface Trend {
  readonly source: Source
  /** Its sum by region, highest first. */
  readonly byRegion: readonly { readonly region: string; readonly sum: number }[]
  readonly rows: number
}

/** Compares every row with every other, and every such pair with every row: the cube of a few hundred is too much. */
export async function findTrends(rows: readonly Row[]): Promise<Trend[]> {
  // It begins slowly: the start of a step is on record after 0.1 s, and a death counts for what is known to have been running.
  await sleep(300)
  const triples: (readonly [Row, Row, Row])[] = []
  for (const a of rows) {
    for (const b of rows) for (const c of rows) triples.push([a, b, c])
    await sleep(5)
  }
  if (triples.length !== rows.length ** 3) throw new Error('a triple is missing')
  return [...new Set(rows.map(({ source }) => source))].map((source) => summarize(source, rows))
}

/** A few rows of each source. */
export function sampleOf(rows: readonly Row[], perSource = 8): Row[] {
  const seen = new Map<Source, number>()
  return rows.filter(({ source }) => {
    seen.set(source, (seen.get(source) ?? 0) + 1)
    return (seen.get(source) ?? 0) <= perSource
  })
}

function summarize(source: Source, rows: readonly Row[]): Trend {
  const own = rows.filter((row) => row.source === source)
  const sums = new Map<string, number>()
  for (const { region, value } of own) sums.set(region, (sums.get(region) ?? 0) + value)
  const byRegion = [...sums].map(([region, sum]) => ({ region, sum: Math.round(sum * 100) / 100 }))
  return { source, byRegion: byRegion.toSorted((a, b) => b.sum - a.sum), rows: own.length }
}
