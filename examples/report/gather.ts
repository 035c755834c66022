// Five sources, all local files. One of them does not answer at first.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { StepHandle } from 'holdfast'

export const sources = ['refunds', 'sales', 'visits', 'tickets', 'market'] as const
export type Source = (typeof sources)[number]

/** One figure of one day and region. */
export interface Row {
  readonly source: Source
  readonly day: string
  readonly region: string
  readonly value: number
}

export async function fetchSource(source: Source, { attempt, signal }: Pick<StepHandle, 'attempt' | 'signal'>): Promise<Row[]> {
  // The market's first answer never comes: the step's time limit ends the attempt, and the next one gets it.
  await sleep(source === 'market' && attempt === 1 ? 60_000 : 300, undefined, { signal })
  const folder = join(import.meta.dirname, 'data')
  return source === 'refunds'
    ? readCsv(await readFile(join(folder, 'refunds.csv'), 'utf8'))
    : readJson(source, await readFile(join(folder, `${source}.json`), 'utf8'))
}

function readCsv(text: string): Row[] {
  const [, ...lines] = text.trim().split('\n')
  return lines.map((line) => {
    const [day = '', region = '', , amount = ''] = line.split(',')
    return { source: 'refunds', day, region, value: Number(amount) }
  })
}

function readJson(source: Source, text: string): Row[] {
  const rows = JSON.parse(text) as Readonly<Record<string, string | number>>[]
  return rows.map(({ day, region, ...figures }) => ({
    source,
    day: String(day),
    region: String(region),
    value: Number(Object.values(figures)[0]),
  }))
}
