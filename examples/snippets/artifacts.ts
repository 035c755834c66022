import assert from 'node:assert/strict'
import { createReadStream, createWriteStream, writeFileSync } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import { open, workflow } from 'holdfast'

const render = async (topic: string) => new TextEncoder().encode(`%PDF-1.7 ${topic}`)
writeFileSync('rows.csv', 'a,b\n1,2\n')

// #region save
const report = workflow('report', async (ctx, topic: string) => {
  const pdf = await ctx.step('render', async ({ artifacts }) => {
    const content = await render(topic)
    return artifacts.save({ name: 'report.pdf', type: 'generated_file', content, contentType: 'application/pdf' })
  })
  const rows = await ctx.artifacts.save({
    name: 'rows.csv',
    type: 'data_export',
    content: () => createReadStream('rows.csv'), // a function: another attempt reads it from its beginning
    contentType: 'text/csv',
    retention: { ttlMs: 7 * 24 * 3_600_000 },
  })
  return { pdf: pdf.id, rows: rows.id }
})
// #endregion

const hf = await open('sqlite:artifacts.db', { workflows: [report] })
const { pdf, rows } = await hf.run(report, 'refunds', { id: 'report-1' })

// #region read
const stream = await hf.artifacts.download(pdf) // verified; corrupt_record where it is damaged
console.log(stream.artifact.name, stream.artifact.version, stream.artifact.sha256)
await pipeline(stream, createWriteStream('report.pdf')) // read to its end: it is kept for one more day

const latest = await hf.artifacts.get({ name: 'report.pdf', threadId: 'report-1' })
const { items } = await hf.artifacts.list({ threadId: 'report-1', type: 'data_export' })
const text = await (await hf.artifacts.open(rows, { principal: { role: 'auditor', id: 'ann' } })).text()
console.log(await hf.artifacts.reads(rows)) // who has read the export, and when
// #endregion
assert.equal(latest?.id, pdf)
assert.equal(items.length, 1)
assert.equal(text, 'a,b\n1,2\n')

// #region outside
const photo = await hf.artifacts.save({
  name: 'photo.png',
  type: 'message_content',
  content: new Uint8Array([137, 80, 78, 71]),
  threadId: 'chat-7', // read by the runs of this thread, and deleted with it
  by: 'alice',
})
await hf.artifacts.delete(photo.id)
// #endregion
await hf.close()
