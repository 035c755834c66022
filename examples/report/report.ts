// The workflow of the demo: three steps from a table of refunds to a short report. Everything is local.

import { appendFileSync } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { workflow } from 'holdfast'

export interface ReportInput {
  readonly topic: string
  /** Where the report goes. */
  readonly file: string
  /** A file that every step body writes to when it runs, so that the demo can count how often that was. */
  readonly journal: string
}

export const report = workflow('report', async (ctx, input: ReportInput) => {
  const refunds = await ctx.step('load_data', () => loadData(input))
  const summary = await ctx.step('summarize', () => summarize(refunds, input))
  return await ctx.step('write_report', () => writeReport(summary, input))
})

/** Regions that `summarize` works through, one after the other: enough time to be killed in the middle. */
export const regions = ['north', 'east', 'south', 'west', 'centre', 'islands'] as const

interface Refund {
  readonly date: Date
  readonly region: string
  readonly reason: string
  readonly cents: number
}

interface RegionSummary {
  readonly region: string
  readonly count: number
  readonly cents: number
  readonly mainReason: string
}

async function loadData({ topic, journal }: ReportInput): Promise<Refund[]> {
  note(journal, 'load_data')
  await sleep(300)
  const text = await readFile(join(import.meta.dirname, 'data', `${topic}.csv`), 'utf8')
  const [, ...lines] = text.trim().split('\n')
  return lines.map((line) => {
    const [date = '', region = '', reason = '', amount = ''] = line.split(',')
    return { date: new Date(date), region, reason, cents: Math.round(Number(amount) * 100) }
  })
}

async function summarize(refunds: readonly Refund[], { journal }: ReportInput): Promise<RegionSummary[]> {
  note(journal, 'summarize')
  const summary: RegionSummary[] = []
  for (const region of regions) {
    await sleep(250)
    const own = refunds.filter((refund) => refund.region === region)
    const cents = own.reduce((sum, refund) => sum + refund.cents, 0)
    summary.push({ region, count: own.length, cents, mainReason: mostFrequent(own.map((refund) => refund.reason)) })
    note(journal, `summarize:${region}`)
  }
  return summary
}

/** Writing the same text again does no harm, so this is a step and not an effect. */
async function writeReport(
  summary: readonly RegionSummary[],
  { file, journal }: ReportInput,
): Promise<{ file: string; text: string }> {
  note(journal, 'write_report')
  await sleep(150)
  const text = toMarkdown(summary)
  await mkdir(dirname(file), { recursive: true })
  await writeFile(file, text)
  return { file, text }
}

function toMarkdown(summary: readonly RegionSummary[]): string {
  const count = summary.reduce((sum, region) => sum + region.count, 0)
  const cents = summary.reduce((sum, region) => sum + region.cents, 0)
  const [worst] = summary.toSorted((a, b) => b.cents - a.cents)
  const rows = summary.map(
    ({ region, count, cents, mainReason }) =>
      `| ${region.padEnd(7)} | ${String(count).padStart(7)} | ${euros(cents).padStart(9)} | ${mainReason.padEnd(12)} |`,
  )
  return [
    '# Refunds, 2 to 14 November 2026',
    '',
    `${count} refunds, ${euros(cents)} in all.`,
    `Most of it in one region: ${worst?.region}, ${euros(worst?.cents ?? 0)}, mainly "${worst?.mainReason}".`,
    '',
    '| region  | refunds |       sum | main reason  |',
    '| ------- | ------: | --------: | ------------ |',
    ...rows,
    '',
  ].join('\n')
}

function mostFrequent(words: readonly string[]): string {
  const counts = new Map<string, number>()
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
  return [...counts].toSorted(([, a], [, b]) => b - a)[0]?.[0] ?? 'none'
}

function euros(cents: number): string {
  return `€${(cents / 100).toFixed(2)}`
}

function note(journal: string, what: string): void {
  appendFileSync(journal, `${process.pid} ${what}\n`)
}
