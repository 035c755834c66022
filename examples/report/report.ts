// The plan of the demo: from five sources to a report that a person approves and that is sent once. Each step declares what happens
// when it fails; `recoveryPlan(report)` prints that.

import { appendFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Context, plan, state } from 'holdfast'
import { z } from 'zod'
import { findTrends, sampleOf, type Trend } from './analyze.ts'
import { type Chart, drawChart, makeHtml, makePdf, type Pages } from './compile.ts'
import { fetchSource, type Row, sources } from './gather.ts'
import { type Mail, Mailer } from './mailer.ts'

export interface Report {
  title: string
  /** Where its mail goes. */
  folder: string
  /** A file that bodies write to, so that the demo can count their executions. */
  journal: string
  rows: Row[]
  trends: Trend[]
  remark: string
  charts: Chart[]
  /** The artifact: the report as a file. */
  file: string
  isApproved: boolean
  mail: Mail | null
}

const reportState = state<Report>({
  version: 1,
  initial: () => ({
    ...{ title: '', folder: '', journal: '', rows: [], trends: [], remark: '', charts: [] },
    ...{ file: '', isApproved: false, mail: null },
  }),
})

export const report = plan('report', { state: reportState })
  .step('gather', gather, {
    weight: 30,
    canFail: 'A source is slow or down',
    impact: 'Nothing to report on: the run fails, and keeps the sources that answered',
  })
  .step('analyze', analyze, {
    retry: { attempts: 1 },
    fallback: analyzeSample,
    weight: 30,
    canFail: 'The full set needs more memory than a worker has',
    impact: 'The trends are those of a sample',
  })
  .step('charts', charts, { onFailure: 'skip', weight: 10, impact: 'A chart is missing' })
  .step('compile', compilePdf, { fallback: compileHtml, weight: 10, impact: 'The report is a web page instead of a PDF' })
  .step('approve', approve, { weight: 10, impact: 'It waits for a person' })
  .step('send', send, { onFailure: 'pause', weight: 10, impact: 'It is not sent until somebody resumes the run' })

async function gather({ journal }: Report, ctx: Context<Report>) {
  const fetched = await ctx.map(
    'source',
    sources,
    (source, _, step) => {
      note(journal, `gather ${source}`)
      return fetchSource(source, step)
    },
    { concurrency: 2, timeoutMs: 2_000, retry: { attempts: 3, minMs: 100, maxMs: 200 } },
  )
  return { rows: fetched.flat() }
}

async function analyze({ rows, journal }: Report, ctx: Context<Report>) {
  const trends = await ctx.step('trends', () => {
    note(journal, 'analyze trends')
    return findTrends(rows)
  })
  return { trends, remark: `From all ${rows.length} figures.` }
}

async function analyzeSample({ rows, journal }: Report, ctx: Context<Report>) {
  const sample = sampleOf(rows)
  const trends = await ctx.step('trends', () => {
    note(journal, 'analyze sample')
    return findTrends(sample)
  })
  return { trends, remark: `From a sample of ${sample.length} of ${rows.length} figures.` }
}

async function charts({ trends }: Report, ctx: Context<Report>) {
  const drawn = await Promise.all(
    trends.map((trend) => ctx.step(trend.source, () => drawChart(trend), { retry: { attempts: 1 }, onFailure: 'skip' })),
  )
  return { charts: drawn.filter((chart) => chart !== undefined) }
}

async function compilePdf(pages: Report, ctx: Context<Report>) {
  const { id } = await ctx.step('pdf', async ({ artifacts }) => {
    const content = await makePdf(pagesOf(pages))
    return artifacts.save({ name: 'report.pdf', type: 'generated_file', content, contentType: 'application/pdf' })
  })
  return { file: id }
}

async function compileHtml(pages: Report, ctx: Context<Report>) {
  const content = makeHtml(pagesOf(pages))
  const { id } = await ctx.artifacts.save({ name: 'report.html', type: 'generated_file', content, contentType: 'text/html' })
  return { file: id }
}

async function approve({ title, file }: Report, ctx: Context<Report>) {
  const isApproved = await ctx.ask('send_it', {
    question: { text: `Send "${title}" to the board?`, file },
    to: 'you',
    schema: z.boolean(),
    timeoutMs: 86_400_000,
    default: false,
  })
  return { isApproved }
}

async function send({ isApproved, folder, file }: Report, ctx: Context<Report>) {
  if (!isApproved) return
  const mailer = new Mailer(join(folder, 'outbox'))
  const mail = await ctx.once('mail', {
    key: `report:${ctx.runId}`,
    run: (key) => mailer.send({ key, to: 'board@example.com', attachment: file }),
    check: async (key) => {
      const sent = await mailer.find(key)
      return sent === undefined ? { happened: false } : { happened: true, result: sent }
    },
  })
  return { mail }
}

function pagesOf({ title, remark, charts }: Pick<Report, 'title' | 'remark' | 'charts'>): Pages {
  return { title, remark, charts }
}

function note(journal: string, what: string): void {
  appendFileSync(journal, `${process.pid} ${what}\n`)
}
