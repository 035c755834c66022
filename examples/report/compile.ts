// The report on paper: a PDF with a bar chart of each trend; the same as HTML, should the PDF fail.

import { PDFDocument, type PDFFont, type PDFPage, rgb, StandardFonts } from 'pdf-lib'
import type { Trend } from './analyze.ts'

export interface Chart {
  readonly title: string
  readonly bars: readonly { readonly label: string; readonly value: number }[]
}

export function drawChart({ source, byRegion }: Trend): Chart {
  if (source === 'market') throw new Error('an index has no sum: there is nothing to draw')
  return { title: source, bars: byRegion.map(({ region, sum }) => ({ label: region, value: sum })) }
}

export interface Pages {
  readonly title: string
  readonly remark: string
  readonly charts: readonly Chart[]
}

export async function makePdf({ title, remark, charts }: Pages): Promise<Uint8Array> {
  const pdf = await PDFDocument.create()
  const font = await pdf.embedFont(StandardFonts.Helvetica)
  const bold = await pdf.embedFont(StandardFonts.HelveticaBold)
  const page = pdf.addPage([595, 842])
  page.drawText(title, { x: 50, y: 770, size: 22, font: bold })
  page.drawText(remark, { x: 50, y: 745, size: 10, font, color: rgb(0.4, 0.4, 0.4) })
  for (const [index, chart] of charts.entries()) drawBars(page, chart, { top: 700 - index * 160, font, bold })
  return pdf.save()
}

function drawBars(page: PDFPage, { title, bars }: Chart, at: { top: number; font: PDFFont; bold: PDFFont }): void {
  const { top, font, bold } = at
  const highest = Math.max(...bars.map(({ value }) => value), 1)
  page.drawText(title, { x: 50, y: top, size: 13, font: bold })
  for (const [index, { label, value }] of bars.entries()) {
    const y = top - 22 - index * 18
    page.drawText(label, { x: 50, y, size: 10, font })
    page.drawRectangle({ x: 110, y: y - 2, width: (value / highest) * 330, height: 12, color: rgb(0.16, 0.45, 0.5) })
    page.drawText(String(value), { x: 450, y, size: 10, font })
  }
}

export function makeHtml({ title, remark, charts }: Pages): string {
  const chart = ({ title, bars }: Chart) =>
    `<h2>${title}</h2><ul>${bars.map(({ label, value }) => `<li>${label}: ${value}</li>`).join('')}</ul>`
  return `<!doctype html><title>${title}</title><h1>${title}</h1><p>${remark}</p>${charts.map(chart).join('')}`
}
